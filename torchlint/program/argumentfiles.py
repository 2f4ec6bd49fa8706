"""Argument files: the YAML and JSON of a project that code names, as dictionaries of Python."""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from torchlint.program.imports import folder_of
from torchlint.semantic.view import ALONE, COMPOSED, MADE, STARTED, Excerpt, LinkedModule, View

if TYPE_CHECKING:
    from yaml import Node

ENDINGS: Final = (".json", ".yaml", ".yml")
COMMANDS: Final = ".sh"
"""The ending of files with the commands that start the scripts of a project."""
MOST_BYTES: Final = 64_000
"""The size of a larger file is that of data, not of arguments."""
MOST_FILES: Final = 1_000
"""A project with more of them keeps its data in such files: none is read."""

_NAMED: Final = re.compile(r"""["']([\w./-]+\.(?:json|ya?ml))["']""")
_READING: Final = re.compile(
    r"\b(?:json|yaml)\.(?:\w+_)?loads?\b|\bparse_(?:json|yaml)_file\b|\bdeepspeed\b"
    r"|\bOmegaConf\.load\b|\bdefault_config_files\b"
)
_PARSERS: Final = ("TrlParser", "LightningCLI")
"""The parsers that read a file which a command names."""
NAMING: Final = (*ENDINGS, *_PARSERS)
"""What a text holds that reads argument files."""
_CONFIG: Final = re.compile(r"""--config[\s=]+["']?([\w./-]+\.ya?ml)\b""")
_OVERRIDES: Final = re.compile(r"--(\w+)")
_MAIN: Final = re.compile(r"@(?:hydra\.)?main\(([^)]*)\)")
_OPTION: Final = re.compile(r"""config_(path|name)\s*=\s*["']([\w./-]*)["']""")
_GROUP: Final = re.compile(r"^\s*-\s*(\w+):\s*([\w./-]+)\s*(?:#.*)?$", re.MULTILINE)
_PLACED: Final = re.compile(r"\A\s*#\s*@package\b")
"""The start of a file whose entries belong somewhere else."""
_TARGET: Final = re.compile(r"""^_target_:\s*["']?([\w.]+)""", re.MULTILINE)
_CLASS: Final = re.compile(r"^class (\w+)", re.MULTILINE)
_LOADS: Final = "DataLoader"
"""The word of the modules whose classes are looked for in the files of Hydra."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b')
_CONSTANTS: Final = {"true": "True", "false": "False", "null": "None"}
_MOST_NAMED: Final = 16
_MOST_NODES: Final = 2_000
_UNKNOWN: Final = "unknown"
"""The name that stands for a value of which Python has no literal."""


def targets(known: Iterable[str], read: Callable[[str], str]) -> dict[str, list[str]]:
    """Return the files that Hydra makes an object from, by the class or function they name."""
    found = dict[str, list[str]]()
    for path in known:
        named = None if path.endswith((".json", COMMANDS)) else _TARGET.search(read(path))
        if named is not None:
            found.setdefault(named[1], []).append(path)
    return found


def with_argument_files(
    view: View,
    text: str,
    known: Iterable[str],
    read: Callable[[str], str],
    making: Callable[[], Mapping[str, Sequence[str]]],
) -> View:
    """Return a view with the argument files that the file, or what is linked to it, names.

    `known` are the argument files of the project, `read` returns the text of one, and `making`
    the `targets` of all.
    """
    if view is ALONE or not known:
        return view
    paths = frozenset(known)
    texts = [(view.path, text)]
    texts += [(each.path, part.text) for each in view.modules for part in each.excerpts]
    found = dict[str, set[str]]()
    for path, code in texts:
        if any(ending in code for ending in ENDINGS) and _READING.search(code):
            for name in _NAMED.findall(code):
                found.setdefault(name, set()).update(_places(name, path, paths))
        if "hydra" in code:
            for name, place in _composed(code, path, paths, read):
                found.setdefault(f"{COMPOSED}{name}", set()).add(place)
    if any(parser in text for parser in _PARSERS):
        found[STARTED] = set(_started(view.path, paths, read))
    if _LOADS in text:
        for name, place in _made(text, view.path, making()):
            found.setdefault(f"{MADE}{name}", set()).add(place)
    named = {name: places.pop() for name, places in found.items() if len(places) == 1}
    modules = dict[str, LinkedModule]()
    for path in sorted(set(named.values()))[:_MOST_NAMED]:
        shown = as_python(path, read(path))
        if shown:
            modules[path] = LinkedModule(path, (Excerpt(1, shown),))
    files = {name: path for name, path in sorted(named.items()) if path in modules}
    return view._replace(modules=(*view.modules, *modules.values()), files=files)


def _places(name: str, path: str, known: frozenset[str]) -> Iterator[str]:
    """Yield the files that a name can mean, in the folder of a module or in one above it."""
    folder = folder_of(path)
    while True:
        place = posixpath.normpath(posixpath.join(folder, name))
        if place in known:
            yield place
        if not folder:
            return
        folder = folder_of(folder.rstrip("/"))


def _started(path: str, known: frozenset[str], read: Callable[[str], str]) -> Iterator[str]:
    """Yield the files of options with which shell scripts start a script.

    A command that sets one of the options beside its file starts it with other options.
    """
    start = re.compile(
        rf"^[^#\n]*(?:^|[\s/]){re.escape(posixpath.basename(path))}\s(.*)", re.MULTILINE
    )
    for script in sorted(each for each in known if each.endswith(COMMANDS)):
        for options in start.findall(read(script).replace("\\\n", " ")):
            named = _CONFIG.search(options)
            for place in _places(named[1], script, known) if named is not None else ():
                beside = {*_OVERRIDES.findall(options)} - {"config"}
                if not any(re.search(rf"^{key}\s*:", read(place), re.MULTILINE) for key in beside):
                    yield place


def _composed(
    code: str, path: str, known: frozenset[str], read: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Yield the files that `hydra.main` puts together, each with its name without the ending."""
    for main in _MAIN.finditer(code):
        given = dict(_OPTION.findall(main[1]))
        folder = given.get("path") or "."
        if "name" not in given or ("config_path" in main[1] and "path" not in given):
            continue
        first = f"{folder}/{given['name'].removesuffix('.yaml')}"
        whole = posixpath.normpath(posixpath.join(folder_of(path), f"{first}.yaml"))
        if whole not in known:
            continue
        yield first, whole
        for group, option in _GROUP.findall(read(whole)):
            name = f"{folder}/{group}/{option.removesuffix('.yaml')}"
            place = posixpath.normpath(posixpath.join(folder_of(path), f"{name}.yaml"))
            if place in known and not _PLACED.match(read(place)):
                yield name, place


def _made(text: str, path: str, making: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield the classes of a module that Hydra makes objects of, each with a file that says so."""
    parts = path.removesuffix(".py").split("/")
    for name in _CLASS.findall(text) if making else ():
        for first in range(len(parts)):
            for place in making.get(".".join((*parts[first:], name)), ()):
                yield name, place


def as_python(path: str, text: str) -> str:
    """Return an argument file as a dictionary of Python with each key on its own row.

    The text is empty if the file is damaged, or holds anything but one mapping.
    """
    try:
        shown = _of_json(text) if path.endswith(".json") else _of_yaml(text)
        ast.parse(shown)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    return shown


def _of_json(text: str) -> str:
    if not isinstance(json.loads(text), dict):
        return ""
    body = text.lstrip()
    rows = text[: len(text) - len(body)].count("\n")
    return "\n" * rows + _TOKEN.sub(_in_python, body)


def _in_python(token: re.Match[str]) -> str:
    word = token[0]
    return _CONSTANTS[word] if word in _CONSTANTS else repr(json.loads(word))


def _of_yaml(text: str) -> str:
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return ""
    return _Writer().text(node) if isinstance(node, yaml.MappingNode) else ""


class _Writer:
    """Writes the nodes of a YAML document as a literal of Python, row by row."""

    def __init__(self) -> None:
        self._pieces = list[str]()
        self._row = 0
        self._written = 0

    def text(self, node: Node) -> str:
        """Return a document as Python, empty if its aliases make it too large."""
        self._write(node)
        return "".join(self._pieces) if self._written <= _MOST_NODES else ""

    def _write(self, node: Node) -> None:
        self._written += 1
        if self._written > _MOST_NODES:
            return
        if isinstance(node.value, str):
            self._pieces.append(_scalar(node))
        elif node.tag.endswith(":map"):
            self._pieces.append("{")
            for key, value in node.value:
                self._go_to(key.start_mark.line)
                if key.tag.endswith(":str"):
                    self._pieces.append(f"{key.value!r}: ")
                    self._write(value)
                else:
                    self._pieces.append(f"**{_UNKNOWN}")
                self._pieces.append(", ")
            self._pieces.append("}")
        else:
            self._pieces.append("[")
            for each in node.value:
                self._go_to(each.start_mark.line)
                self._write(each)
                self._pieces.append(", ")
            self._pieces.append("]")

    def _go_to(self, row: int) -> None:
        """End lines until the row is reached; an alias stands in a row that is past."""
        if row > self._row:
            self._pieces.append("\n" * (row - self._row))
            self._row = row


def _scalar(node: Node) -> str:
    """Return a number, a text, a boolean or None as Python writes it."""
    import yaml

    try:
        value = yaml.constructor.SafeConstructor().construct_document(node)
    except (yaml.YAMLError, LookupError, ValueError, ArithmeticError, AttributeError):
        return _UNKNOWN
    plain = (
        value is None
        or type(value) in (bool, int, str)
        or (type(value) is float and abs(value) < float("inf"))
    )
    return repr(value) if plain else _UNKNOWN
