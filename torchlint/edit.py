"""Text edits: what a fix is made of, and how several become one text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from torchlint.record import Record

__all__ = ["Edit", "Span", "apply_edits", "clash", "joined", "touch"]

_LINE_ENDS: Final = ("\n", "\r")


@dataclass(frozen=True, order=True, slots=True)
class Span:
    """A half-open range of character offsets."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"no range: {self.start} to {self.end}")

    def __contains__(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


class Edit(Record):
    """One replacement: `text` takes the place of `span` (an empty span inserts)."""

    span: Span
    text: str


def _stack(first: Edit, second: Edit) -> bool:
    """Whether two insertions at one place may stand one after the other."""
    ending = first.text.endswith(_LINE_ENDS) and second.text.endswith(_LINE_ENDS)
    arguments = first.text.startswith(",") and second.text.startswith(",")
    stacking = ending or arguments or _adds_line(first) is not _adds_line(second)
    return first.span.start == first.span.end and stacking


def _adds_line(edit: Edit) -> bool:
    """Whether an edit begins a new line, behind all else that is put at the end of the last."""
    return edit.text.startswith(_LINE_ENDS)


def clash(first: Edit, second: Edit) -> bool:
    """Whether two edits of one text cannot both be made: they overlap and are not the same."""
    if first == second:
        return False
    if first.span == second.span:
        return not _stack(first, second)
    return first.span.start < second.span.end and second.span.start < first.span.end


def touch(first: Edit, second: Edit) -> bool:
    """Whether edits of two fixes must not be made in one pass: they clash or share a border."""
    if first == second:
        return False
    if first.span == second.span:
        return not _stack(first, second)
    return first.span.start <= second.span.end and second.span.start <= first.span.end


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Make every edit once, in the order of their places; raises `ValueError` when two clash."""
    parts: list[str] = []
    at = 0
    last: Edit | None = None
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: (edit.span, _adds_line(edit))):
        if last is not None and clash(last, edit):
            raise ValueError(f"edits clash: {last} and {edit}")
        parts += [text[at : edit.span.start], edit.text]
        at = edit.span.end
        last = edit
    parts.append(text[at:])
    return "".join(parts)


def joined(text: str, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Make one edit of several, so that in one pass no other fix gets in between."""
    several = tuple(edits)
    if not several:
        return ()
    first = min(edit.span.start for edit in several)
    last = max(edit.span.end for edit in several)
    return (Edit(Span(first, last), apply_edits(text[:last], several)[first:]),)
