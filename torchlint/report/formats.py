"""The output formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torchlint.report.report import Tally

if TYPE_CHECKING:
    from torchlint.report.entry import Entry
    from torchlint.report.paint import Paint
    from torchlint.report.report import Report

_OF_A_FILE: Final[Mapping[str, str]] = {
    "full": "torchlint.report.block:full",
    "concise": "torchlint.report.lines:concise",
    "grouped": "torchlint.report.lines:grouped",
    "json": "torchlint.report.ruffjson:as_json",
    "json-lines": "torchlint.report.ruffjson:as_json_lines",
    "github": "torchlint.report.lines:github",
    "azure": "torchlint.report.lines:azure",
    "pylint": "torchlint.report.lines:pylint",
}
"""The formats in which what is said of a file does not depend on any other."""
_OF_ALL: Final[Mapping[str, str]] = {
    "sarif": "torchlint.report.sarif:sarif",
    "gitlab": "torchlint.report.reviews:gitlab",
    "junit": "torchlint.report.junit:junit",
    "markdown": "torchlint.report.markdown:markdown",
    "rdjson": "torchlint.report.reviews:rdjson",
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
BRIEF: Final = TEXT | {"github", "azure", "pylint", "junit"}
"""The formats that say nothing of a rule but its code and name."""
FOLDING: Final = frozenset({"full", "concise"})
"""The formats in which findings of low impact are only counted beside others."""
STATISTICS: Final = frozenset(_STATISTICS)
"""The formats that statistics come in."""
HELD: Final = 8_000_000
"""How many characters are held until they are poured."""


class _Frame(NamedTuple):
    """What stands around what is said of files; `empty` stands alone where nothing is said."""

    before: str = ""
    between: str = ""
    after: str = ""
    empty: str = ""


_FRAMES: Final = {
    "full": _Frame(between="\n"),
    "grouped": _Frame(between="\n"),
    "json": _Frame("[\n", ",\n", "\n]\n", "[]\n"),
}


def render(report: Report, paint: Paint, name: str, *, statistics: bool = False) -> str:
    """Return a report in the format `name`."""
    if statistics or name not in _OF_A_FILE:
        whole: Callable[[Report, Paint], str] = _found(name, statistics)
        return whole(report, paint)
    writer = ReportWriter(name, paint)
    groups = (each for _, each in report.by_path()) if name == "grouped" else report.in_order()
    for entries in groups:
        writer.add(entries)
    return writer.text(report._replace(entries=(), told=writer.tally))


class ReportWriter:
    """A report that is made file by file: no finding is held when its text is made.

    `pour` takes the text when there is much of it; without, all is held until the end.
    """

    def __init__(self, name: str, paint: Paint, pour: Callable[[str], None] | None = None) -> None:
        self._name = name
        self._paint = paint
        self._frame = _FRAMES.get(name, _Frame())
        self._pour = pour
        self._parts: list[str] = []
        self._length = 0
        self._began = False
        self.has_poured = False
        """Whether some of the text is told already."""
        self._held_back: list[str] = []
        """What is said of files with findings of low impact alone, until there is another."""
        self.tally = Tally()
        """How much was told so far."""

    @classmethod
    def in_format(
        cls, name: str, paint: Paint, pour: Callable[[str], None] | None, *, statistics: bool
    ) -> ReportWriter | None:
        """Begin a report, None in a format that needs all findings together."""
        return cls(name, paint, pour) if name in _OF_A_FILE and not statistics else None

    def add(self, entries: Sequence[Entry]) -> None:
        """Tell the findings of a file."""
        if not entries:
            return
        self.tally = self.tally.with_more(entries)
        shown = [entry for entry in entries if not entry.is_folded]
        of_file: Callable[[Sequence[Entry], Paint], str] = _found(self._name)
        if self.tally.folded == self.tally.found:
            self._held_back.append(of_file(entries, self._paint))
            return
        self._held_back.clear()
        if not shown:
            return
        text = of_file(shown, self._paint)
        self._parts.append(text)
        self._length += len(text)
        if self._pour is not None and self._length > HELD:
            self._pour(self._taken())
            self.has_poured = True

    def text(self, report: Report) -> str:
        """Return all that was told and not poured, with what a report says at its end."""
        if self._held_back:
            self._parts += self._held_back
            self.tally = self.tally._replace(folded=0)
            report = report._replace(told=self.tally)
        if self._name in TEXT:
            from torchlint.report.summary import summary

            self._parts += summary(report, self._paint)
        text = self._taken()
        return text + self._frame.after if self._began else self._frame.empty

    def _taken(self) -> str:
        """Return what is held, which is held no longer."""
        if not self._parts:
            return ""
        text = self._frame.between.join(self._parts)
        lead = self._frame.between if self._began else self._frame.before
        self._parts, self._length, self._began = [], 0, True
        return f"{lead}{text}"


def _found(name: str, statistics: bool = False) -> Any:
    """Import what gives a report, or what is said of a file, in the format `name`."""
    module, function = (_STATISTICS if statistics else {**_OF_A_FILE, **_OF_ALL})[name].split(":")
    return getattr(import_module(module), function)
