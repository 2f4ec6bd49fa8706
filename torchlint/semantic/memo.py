"""Answers to questions that can lead back to themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

__all__ = ["Memo", "Trail"]

S = TypeVar("S")
T = TypeVar("T")

_NEVER: Final = 1 << 30
_UNKNOWN: Final = object()


class Trail:
    """The questions that are open right now, of all memos of one file."""

    def __init__(self) -> None:
        self.open: list[object] = []
        self.lowest = _NEVER
        """The outermost open question that the answer in the making rests on."""

    def lean(self, depth: int) -> None:
        """Note that the answer in the making rests on the open question at a depth."""
        self.lowest = min(self.lowest, depth)


class Memo(Generic[S, T]):
    """Remembers answers, so that none depends on the order of the questions.

    A question that leads back to itself gets `open_answer` there. What was found on the way to an
    open question is good for the rest of that question only, and is forgotten with it.
    """

    def __init__(self, open_answer: T, trail: Trail, find: Callable[[S], T]) -> None:
        self.open_answer = open_answer
        self.trail = trail
        self.find = find
        self._known: dict[int, Any] = {}
        self._passing: dict[int, tuple[T, int, object]] = {}
        self._open: dict[int, int] = {}

    def answer(self, subject: S) -> T:
        """Give the answer for a subject (which must stay alive), found at most once."""
        key = id(subject)
        known: T = self._known.get(key, _UNKNOWN)
        if known is not _UNKNOWN:
            return known
        trail = self.trail
        if key in self._open:
            trail.lean(self._open[key])
            return self.open_answer
        if key in self._passing:
            found, lowest, question = self._passing[key]
            if lowest < len(trail.open) and trail.open[lowest] is question:
                trail.lean(lowest)
                return found
            del self._passing[key]
        return self._find(key, subject)

    def _find(self, key: int, subject: S) -> T:
        trail = self.trail
        depth = self._open[key] = len(trail.open)
        trail.open.append(object())
        outer, trail.lowest = trail.lowest, _NEVER
        try:
            found = self.find(subject)
        finally:
            trail.open.pop()
            del self._open[key]
            lowest, trail.lowest = trail.lowest, outer
        if lowest >= depth:
            self._known[key] = found
        else:
            self._passing[key] = (found, lowest, trail.open[lowest])
            trail.lean(lowest)
        return found
