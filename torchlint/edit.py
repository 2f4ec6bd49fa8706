"""Text edits: what a fix consists of, and how several edits are applied to one text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

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


class Edit(NamedTuple):
    """One replacement: `text` takes the place of `span` (an empty span inserts)."""

    span: Span
    text: str


def _stack(first: Edit, second: Edit) -> bool:
    """Return whether both of two insertions at one offset can be made, one after the other."""
    ending = first.text.endswith(_LINE_ENDS) and second.text.endswith(_LINE_ENDS)
    arguments = first.text.startswith(",") and second.text.startswith(",")
    stacking = ending or arguments or _adds_line(first) is not _adds_line(second)
    return first.span.start == first.span.end and stacking


def _adds_line(edit: Edit) -> bool:
    """Return whether an edit starts a new line, after other text added to the end of the last."""
    return edit.text.startswith(_LINE_ENDS)


def clash(first: Edit, second: Edit) -> bool:
    """Return whether two distinct edits of one text overlap, so that only one can be made."""
    if first == second:
        return False
    if first.span == second.span:
        return not _stack(first, second)
    return first.span.start < second.span.end and second.span.start < first.span.end


def touch(first: Edit, second: Edit) -> bool:
    """Return whether edits of two fixes must wait for separate passes: they clash or adjoin."""
    if first == second:
        return False
    if first.span == second.span:
        return not _stack(first, second)
    return first.span.start <= second.span.end and second.span.start <= first.span.end


def _imports(edit: Edit) -> bool:
    """Return whether an edit adds an import line, which goes before other text at its offset."""
    return edit.text.startswith(("import ", "from ")) and edit.text.endswith(_LINE_ENDS)


def in_order(edits: Iterable[Edit]) -> list[Edit]:
    """Return the distinct edits, sorted by the position of their new text."""
    return sorted(
        dict.fromkeys(edits), key=lambda edit: (edit.span, not _imports(edit), _adds_line(edit))
    )


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply the distinct edits to `text`; raise `ValueError` if two clash."""
    parts: list[str] = []
    at = 0
    last: Edit | None = None
    for edit in in_order(edits):
        if last is not None and clash(last, edit):
            raise ValueError(f"edits clash: {last} and {edit}")
        parts += [text[at : edit.span.start], edit.text]
        at = edit.span.end
        last = edit
    parts.append(text[at:])
    return "".join(parts)


def joined(text: str, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Combine several edits into one, so that no other fix in the pass can come between them."""
    several = tuple(edits)
    if not several:
        return ()
    first = min(edit.span.start for edit in several)
    last = max(edit.span.end for edit in several)
    return (Edit(Span(first, last), apply_edits(text[:last], several)[first:]),)
