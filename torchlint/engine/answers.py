"""Remembering which fixes were accepted or refused while passes move the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchlint.edit import Edit
from torchlint.finding import Finding
from torchlint.source import Source

Accept = Callable[[Source, Finding], bool]
"""A callback that returns whether the fix of a finding in a source may be made."""


class Answers:
    """The answers for the findings of a source, kept while passes change it."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept
        self._placed: dict[tuple[str, str, int], bool] = {}
        self._refused_inside: list[tuple[str, str, str]] = []
        """Code, message and line of each refused finding within a range that an edit rewrote."""

    def allows(self, source: Source, finding: Finding) -> bool:
        """Return whether the fix of a finding may be made; ask if there is no answer yet."""
        key = (finding.code, finding.message, finding.span.start)
        if key not in self._placed:
            told = (finding.code, finding.message, _line(source, finding.span.start))
            if told in self._refused_inside:
                self._refused_inside.remove(told)
                self._placed[key] = False
            else:
                self._placed[key] = self._accept(source, finding)
        return self._placed[key]

    def move(self, source: Source, edits: Iterable[Edit]) -> None:
        """Move the spans of refused findings past the edits that are about to be made."""
        edits = tuple(dict.fromkeys(edits))
        placed = {}
        for (code, message, start), allowed in self._placed.items():
            if allowed:
                continue
            if any(edit.span.start < start < edit.span.end for edit in edits):
                self._refused_inside.append((code, message, _line(source, start)))
            else:
                placed[code, message, start + _shift(start, edits)] = False
        self._placed = placed


def _line(source: Source, offset: int) -> str:
    return source.line(source.position(offset).row).strip()


def _shift(start: int, edits: Iterable[Edit]) -> int:
    before = (edit for edit in edits if edit.span.end <= start)
    return sum(len(edit.text) - (edit.span.end - edit.span.start) for edit in before)
