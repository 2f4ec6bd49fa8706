"""Rule packs: which ones are installed, and which rules each contains.

`importlib.metadata` takes as long to import as a whole run over a small project, so the metadata
files are searched for our entry point first, and it is imported only if there is one.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from torchlint.page.files import MODULE, page_beside
from torchlint.registry.heads import RegistryError, RuleHead, not_imported

GROUP: Final = "torchlint.rules"
"""The entry-point group: each entry point names a package of rule modules."""

BUILT_IN: Final = ("torchlint", "torchlint_rules")
"""The entry point of the pack that comes with torchlint."""

_RULE: Final = re.compile(r"([a-z]+[0-9]+)_([a-z0-9_]+)(\.py|\.md|)")
"""The name of a module, of a page, or of the folder of a rule that has parts of its own."""
_CODE: Final = re.compile(r"[a-z]{2,5}[0-9]{3}")
_METADATA: Final = (".dist-info", ".egg-info")


def installed_packs() -> dict[str, str]:
    """Return the package of every pack by its entry point's name, the built-in pack first."""
    packs = dict([BUILT_IN])
    if any(_may_list_packs(folder) for folder in sys.path):
        from importlib.metadata import entry_points

        for point in sorted(entry_points(group=GROUP)):
            packs.setdefault(point.name, point.value)
            if packs[point.name] != point.value:
                raise RegistryError(
                    f"two rule packs are called `{point.name}`: "
                    f"{packs[point.name]} and {point.value}"
                )
    return packs


def pack_metadata() -> Iterator[str]:
    """Yield the paths that decide which packs are installed: `sys.path` and the metadata."""
    for folder in sys.path:
        place = folder or os.curdir
        yield place
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            yield from (_points(entry) for entry in entries if entry.name.endswith(_METADATA))


def _may_list_packs(folder: str) -> bool:
    """Return whether the metadata in a folder of `sys.path` may list another pack."""
    try:
        with os.scandir(folder or os.curdir) as entries:
            return any(map(_has_pack, entries))
    except NotADirectoryError:
        return True
    except OSError:
        return False


def _has_pack(entry: os.DirEntry[str]) -> bool:
    if not entry.name.endswith(_METADATA) or entry.name.startswith("torchlint-"):
        return False
    try:
        with open(_points(entry), "rb") as points:  # noqa: PTH123
            return f"[{GROUP}]".encode() in points.read()
    except OSError:
        return False


def _points(entry: os.DirEntry[str]) -> str:
    return os.path.join(entry.path, "entry_points.txt")  # noqa: PTH118


def rules_of(pack: str, package: str) -> Iterator[RuleHead]:
    """List the rules of a pack by its file names; raises `RegistryError`.

    A file without a valid code in its name is listed, too, if it contains a rule, so that the
    mistake is reported.
    """
    try:
        spec = find_spec(package)
    except (Exception, SystemExit) as error:
        raise not_imported(pack, package, error) from error
    if spec is None or not spec.submodule_search_locations:
        raise RegistryError(f"rule pack `{pack}`: there is no package {package}")
    for location in spec.submodule_search_locations:
        yield from _rules_in(location, pack, package)


def _rules_in(location: str, pack: str, package: str) -> Iterator[RuleHead]:
    try:
        names = set(os.listdir(location))  # noqa: PTH208
    except NotADirectoryError:
        raise RegistryError(
            f"rule pack `{pack}`: {package} lies in an archive: install it in a folder"
        ) from None
    for match in filter(None, map(_RULE.fullmatch, sorted(names))):
        stem = match[0].removesuffix(match[3])
        if match[3] == ".md" and f"{stem}.py" in names:
            continue
        module = f"{stem}.py" if match[3] else os.path.join(stem, MODULE)  # noqa: PTH118
        file = os.path.join(location, module)  # noqa: PTH118
        page = page_beside(file)
        if match[3]:
            has_page = f"{stem}.md" in names
        elif os.path.isfile(file):  # noqa: PTH113
            has_page = os.path.isfile(page)  # noqa: PTH113
        else:
            continue
        if has_page or _CODE.fullmatch(match[1]) or _is_rule(file):
            dotted = module.removesuffix(".py").replace(os.sep, ".")
            yield RuleHead(
                code=match[1].upper(),
                name=match[2].replace("_", "-"),
                pack=pack,
                module=f"{package}.{dotted}",
                file=file,
                page=page if has_page else "",
            )


def _is_rule(file: str) -> bool:
    """Return whether a module without a page defines a rule class."""
    import ast

    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (SyntaxError, ValueError):
        return False
    bases = (base for each in body if isinstance(each, ast.ClassDef) for base in each.bases)
    return any(ast.unparse(base).rpartition(".")[2] == "Rule" for base in bases)
