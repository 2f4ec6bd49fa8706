"""The lowest version of torch that the files of a project allow."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from torchlint.config.values import parse, read_text

PROJECT_FILES: Final = (
    *("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"),
    *("environment.yml", "environment.yaml"),
)
"""The files of a project that name the packages it needs, the one that counts most first."""

_LISTS: Final = ("requirements?*.txt", "*env*.yml", "*env*.yaml")
"""What other lists of the packages of a project are called."""

_INSTALLED: Final = (".txt", ".yml", ".yaml")
"""The endings of lists that are installed: without a cap, they bring the newest torch."""

_OLDEST: Final = (1, 11)
"""The first torch for a Python that is still maintained: older bounds count only with a cap."""

_LAST: Final = ("pyproject.toml", ".git")
"""What ends the search upwards: a project begins in a folder that has one of them."""

_TORCH: Final = re.compile(r"\s*torch\b(?![-_.])", re.IGNORECASE)
_IN_CONDA: Final = re.compile(
    r"""^\s*-\s*["']?(?:[\w-]+::)?(?:py)?torch\s*(?P<version>[\s=<>~!][^"'#\n]*)""", re.MULTILINE
)


def required_torch(folder: Path) -> tuple[tuple[int, int], Path] | None:
    """Return the lowest torch that the project around a folder allows, and the file that says so.

    Raises `ConfigError` for a `pyproject.toml` that cannot be read.
    """
    for parent in (folder, *folder.parents):
        named = [parent / name for name in PROJECT_FILES]
        for file in (*named, *other_lists(parent)):
            if file.is_file() and (version := _lowest(file)) is not None:
                return version, file
        if any((parent / name).exists() for name in _LAST):
            break
    return None


def other_lists(folder: Path) -> list[Path]:
    """Return the lists of packages in a folder that have a name of their own."""
    return [file for pattern in _LISTS for file in sorted(folder.glob(pattern))]


def _lowest(file: Path) -> tuple[int, int] | None:
    """Return the lowest torch that one file allows: by what it requires, else by its extras."""
    text = read_text(file) if file.name == "pyproject.toml" else _text(file)
    if "torch" not in text.lower():
        return None
    if file.name == "pyproject.toml":
        project = parse(text, file)
        kinds = [list(_required(project)), list(_optional(project))]
    else:
        found = _READERS[file.suffix](text)
        kinds = [list(filter(_is_capped, found) if file.suffix in _INSTALLED else found)]
    for specifiers in kinds:
        lowest = [version for version in map(_lower_bound, specifiers) if version is not None]
        if lowest:
            return min(lowest)
    return None


def _text(file: Path) -> str:
    """Return the text of a file as pip reads it, empty if it cannot be read."""
    try:
        data = file.read_bytes()
    except OSError:
        return ""
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode("utf-16" if wide else "utf-8-sig", "replace")


def _in_requirements(text: str) -> Iterator[str]:
    """Yield the constraints on torch in a `requirements.txt`."""
    yield from _torch_among([re.split(r"\s#|\s--|\\", line)[0] for line in text.splitlines()])


def _in_setup_cfg(text: str) -> Iterator[str]:
    """Yield the constraints on torch in the options of a `setup.cfg`."""
    yield from _torch_among(text.splitlines())


def _in_setup_py(text: str) -> Iterator[str]:
    """Yield the constraints on torch among the strings of a `setup.py`."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from _torch_among([node.value for node in nodes if isinstance(node, ast.Constant)])


def _in_conda(text: str) -> Iterator[str]:
    """Yield conda's and pip's constraints on torch in an `environment.yml` as PEP 440 ones."""
    for found in _IN_CONDA.finditer(text):
        version = re.sub(r"^\s*={0,2}\s*(?=\d)", "==", found["version"])
        yield re.sub(r"(?<=[\d*])(?:=|\s+[^\s,<>=~!]).*", "", version)


_READERS: Final[Mapping[str, Callable[[str], Iterator[str]]]] = {
    ".cfg": _in_setup_cfg,
    ".txt": _in_requirements,
    ".py": _in_setup_py,
    ".yml": _in_conda,
    ".yaml": _in_conda,
}


def _required(pyproject: Mapping[str, Any]) -> Iterator[str]:
    """Yield the constraints on torch among the required dependencies."""
    project = _table(pyproject, "project")
    yield from _torch_among(project.get("dependencies"))
    yield from _in_poetry(_table(pyproject, "tool", "poetry", "dependencies"))


def _optional(pyproject: Mapping[str, Any]) -> Iterator[str]:
    """Yield the constraints on torch among extras and dependency groups."""
    extras = _table(pyproject, "project", "optional-dependencies")
    groups = _table(pyproject, "dependency-groups")
    for requirements in (*extras.values(), *groups.values()):
        yield from _torch_among(requirements)
    for group in _table(pyproject, "tool", "poetry", "group").values():
        if isinstance(group, dict):
            yield from _in_poetry(_table(group, "dependencies"))


def _table(mapping: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    value: Any = mapping
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _torch_among(requirements: Any) -> Iterator[str]:
    """Yield the specifiers of torch in a list of PEP 508 requirements."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in requirements if isinstance(requirements, list) else ():
        if isinstance(text, str) and _TORCH.match(text):
            try:
                requirement = Requirement(text.strip())
            except InvalidRequirement:
                continue
            yield _in_wheel(requirement.url) if requirement.url else str(requirement.specifier)


def _in_wheel(url: str) -> str:
    """Return the version of the wheel at an address as a specifier, empty if it names none."""
    from packaging.utils import parse_wheel_filename

    try:
        _, version, *_ = parse_wheel_filename(PurePosixPath(unquote(urlsplit(url).path)).name)
    except ValueError:  # an address or a name that is none
        return ""
    return f"=={version.public}"


def _in_poetry(dependencies: Mapping[str, Any]) -> Iterator[str]:
    """Yield Poetry's constraints on torch as PEP 440 specifiers."""
    value = dependencies.get("torch")
    for each in value if isinstance(value, list) else [value]:
        text = each.get("version") if isinstance(each, dict) else each
        if isinstance(text, str):
            bare = re.sub(r"(^|,)\s*(?=\d)", r"\1==", text)
            yield re.sub(r"(^|,)\s*(\^|~(?!=))\s*", r"\1>=", bare)


def _is_capped(specifiers: str) -> bool:
    """Return whether a set of specifiers keeps the newest torch out."""
    return any(operator in specifiers for operator in ("==", "~=", "<"))


def _lower_bound(specifiers: str) -> tuple[int, int] | None:
    """Return the lowest version that specifiers allow, None if they have no bound that counts."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version

    try:
        each = list(SpecifierSet(specifiers))
    except InvalidSpecifier:
        return None
    bounds = [
        Version(one.version.removesuffix(".*"))
        for one in each
        if one.operator in (">=", ">", "~=", "==")
    ]
    if not bounds:
        return None
    highest = max(bounds)
    lowest = highest.major, highest.minor
    return lowest if _is_capped(specifiers) or lowest >= _OLDEST else None
