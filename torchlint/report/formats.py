"""The output formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from torchlint.report.report import Tally

if TYPE_CHECKING:
    from torchlint.report.entry import Entry
    from torchlint.report.paint import Paint
    from torchlint.report.report import Report

__all__ = ["BRIEF", "STATISTICS", "TEXT", "Telling", "get_ready", "render"]

_OF_A_FILE: Final[Mapping[str, str]] = {
    "full": "torchlint.report.full:full",
    "concise": "torchlint.report.lists:concise",
    "grouped": "torchlint.report.lists:grouped",
    "json-lines": "torchlint.report.ruffjson:as_json_lines",
    "github": "torchlint.report.github:github",
}
"""The formats in which what is said of a file does not depend on any other."""
_OF_ALL: Final[Mapping[str, str]] = {
    "json": "torchlint.report.ruffjson:as_json",
    "sarif": "torchlint.report.sarif:sarif",
    "gitlab": "torchlint.report.gitlab:gitlab",
    "junit": "torchlint.report.junit:junit",
}
_STATISTICS: Final[Mapping[str, str]] = {
    "full": "torchlint.report.statistics:statistics",
    "concise": "torchlint.report.statistics:statistics",
    "grouped": "torchlint.report.statistics:statistics",
    "json": "torchlint.report.statistics:statistics_json",
    "json-lines": "torchlint.report.statistics:statistics_json_lines",
}

TEXT: Final = frozenset({"full", "concise", "grouped"})
"""The formats for people: only these have colours and a last line."""
BRIEF: Final = TEXT | {"github", "junit"}
"""The formats that say nothing of a rule but its code and name."""
STATISTICS: Final = frozenset(_STATISTICS)
"""The formats that statistics come in."""
_APART: Final = frozenset({"full", "grouped"})
"""The formats with a blank line between files."""


def render(report: Report, paint: Paint, name: str, *, statistics: bool = False) -> str:
    """Give a report in the format `name`."""
    if statistics or name not in _OF_A_FILE:
        whole: Callable[[Report, Paint], str] = _found(name, statistics)
        return whole(report, paint)
    telling = Telling(name, paint)
    groups = (each for _, each in report.by_path()) if name == "grouped" else report.in_order()
    for entries in groups:
        telling.add(entries)
    return telling.text(report._replace(entries=(), told=telling.tally))


def get_ready(name: str, *, statistics: bool = False) -> None:
    """Import what a report in the format `name` takes."""
    _found(name, statistics)


class Telling:
    """A report that is made file by file: no finding is held when its text is made."""

    def __init__(self, name: str, paint: Paint) -> None:
        self._name = name
        self._paint = paint
        self._parts: list[str] = []
        self.tally = Tally()
        """How much was told so far."""

    @classmethod
    def in_format(cls, name: str, paint: Paint, *, statistics: bool) -> Telling | None:
        """Begin a report, None in a format that needs all findings together."""
        return cls(name, paint) if name in _OF_A_FILE and not statistics else None

    def add(self, entries: Sequence[Entry]) -> None:
        """Tell the findings of a file."""
        if entries:
            of_file: Callable[[Sequence[Entry], Paint], str] = _found(self._name)
            self._parts.append(of_file(entries, self._paint))
            self.tally = self.tally.with_more(entries)

    def text(self, report: Report) -> str:
        """Give all that was told, with what a report says at its end."""
        last: list[str] = []
        if self._name in TEXT:
            from torchlint.report.summary import summary

            last = list(summary(report, self._paint))
        return ("\n" if self._name in _APART else "").join([*self._parts, *last])


def _found(name: str, statistics: bool = False) -> Any:
    """Import what gives a report, or what is said of a file, in the format `name`."""
    module, function = (_STATISTICS if statistics else {**_OF_A_FILE, **_OF_ALL})[name].split(":")
    return getattr(import_module(module), function)
