"""Outlines as plain data, to be kept in a file between runs.

The data is JSON, so that a file in a foreign repository cannot run code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from torchlint.program.folder import Stamp
from torchlint.program.outline import Definition, Import, Kind, Outline, Star

_FORM: Final = 4
"""The version of the data; another one is not read."""
_MOST_DOTS: Final = 99
"""The dots before the name of a module."""


class Kept:
    """The outlines of an earlier run, decoded one by one."""

    def __init__(self, data: bytes = b"") -> None:
        self._entries: dict[str, Any] = {}
        try:
            form, entries = json.loads(data) if data else (_FORM, {})
        except (ValueError, TypeError, RecursionError):
            return
        if form == _FORM and isinstance(entries, dict):
            self._entries = entries

    def has(self, path: str, stamp: Stamp) -> bool:
        """Return whether the outline of a file in this state is kept."""
        entry = self._entries.get(path)
        return isinstance(entry, list) and entry[:2] == list(stamp)

    def outline(self, path: str) -> Outline | None:
        """Return the outline of a file; raise `ValueError` if the data is damaged."""
        try:
            raw = self._entries[path][2]
            return None if raw is None else _outline(raw)
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"the outline of {path} is damaged") from error


def dump(outlines: Iterable[tuple[str, Outline | None]], stamps: Mapping[str, Stamp]) -> bytes:
    """Return outlines, with the states of their files, as bytes."""
    entries = {path: [*stamps[path], outline] for path, outline in outlines}
    return json.dumps([_FORM, entries], separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return a kind or a set of words as JSON has it."""
    return value.value if isinstance(value, Kind) else sorted(value)


def _outline(raw: list[Any]) -> Outline:
    definitions, imports, stars, exports, *marks = raw
    return Outline(
        tuple(map(_definition, definitions)),
        tuple(map(_import, imports)),
        tuple(Star(int(level), str(module)) for level, module in stars),
        None if exports is None else frozenset(map(str, exports)),
        *map(bool, marks),
    )


def _definition(raw: list[Any]) -> Definition:
    kind, binds, first, last, size, uses, chains, imports, trains, handles, docs, *marks = raw
    decorated, lookups = marks
    return Definition(
        Kind(kind),
        tuple(map(str, binds)),
        max(int(first), 1),
        max(int(last), 1),
        max(int(size), 0),
        frozenset(map(str, uses)),
        tuple(map(str, chains)),
        tuple(map(_import, imports)),
        bool(trains),
        bool(handles),
        tuple((int(first), int(last)) for first, last in docs),
        bool(decorated),
        frozenset(map(str, lookups)),
    )


def _import(raw: list[Any]) -> Import:
    level, module, name, local = raw
    if not 0 <= level <= _MOST_DOTS:
        raise ValueError(f"{level} is not a number of dots")
    return Import(int(level), str(module), None if name is None else str(name), str(local))
