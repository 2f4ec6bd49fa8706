"""Rule packs: which are installed, and which rules each holds.

`importlib.metadata` takes as long to import as a whole run over a small project, so a look at
the installed metadata decides first whether there is any pack besides the built-in one.
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

from torchlint.registry.heads import RegistryError, RuleHead, holds_rule, not_imported

__all__ = ["BUILT_IN", "GROUP", "installed_packs", "pack_metadata", "rules_of"]

GROUP: Final = "torchlint.rules"
"""The entry-point group: each entry point names a package of rule modules."""

BUILT_IN: Final = ("torchlint", "torchlint_rules")
"""The entry point of the pack that comes with torchlint."""

_RULE_FILE: Final = re.compile(r"([a-z]+[0-9]+)_([a-z0-9_]+)\.py")
_CODE: Final = re.compile(r"[a-z]{2,5}[0-9]{3}")
_METADATA: Final = (".dist-info", ".egg-info")


def installed_packs() -> dict[str, str]:
    """Give the package of every pack by the name of its entry point, the built-in one first."""
    packs = dict([BUILT_IN])
    if any(_speaks_of_rules(folder) for folder in sys.path):
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
    """Yield what tells which packs there are: the folders of the path, and the metadata in them."""
    for folder in sys.path:
        place = folder or os.curdir
        yield place
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            yield from (_points(entry) for entry in entries if entry.name.endswith(_METADATA))


def _speaks_of_rules(folder: str) -> bool:
    """Whether metadata on this part of the path may hold a pack that is not the built-in one."""
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

    A file whose name has no good code is listed if it holds a rule, so that it is not passed over.
    """
    try:
        spec = find_spec(package)
    except (Exception, SystemExit) as error:
        raise not_imported(pack, package, error) from error
    if spec is None or not spec.submodule_search_locations:
        raise RegistryError(f"rule pack `{pack}`: there is no package {package}")
    for location in spec.submodule_search_locations:
        for name in sorted(os.listdir(location)):  # noqa: PTH208
            file = os.path.join(location, name)  # noqa: PTH118
            match = _RULE_FILE.fullmatch(name)
            if match is not None and (_CODE.fullmatch(match[1]) or _is_rule(file)):
                yield RuleHead(
                    code=match[1].upper(),
                    name=match[2].replace("_", "-"),
                    pack=pack,
                    module=f"{package}.{name.removesuffix('.py')}",
                    file=file,
                )


def _is_rule(file: str) -> bool:
    return holds_rule(Path(file).read_text(encoding="utf-8", errors="replace"))
