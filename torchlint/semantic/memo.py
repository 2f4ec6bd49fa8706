"""Answers to questions that can lead back to themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

__all__ = ["Memo", "Sorted", "Trail"]

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

    def is_settled(self, subject: S) -> bool:
        """Whether the answer for a subject is found, and good for any question."""
        return id(subject) in self._known

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


class Sorted(Generic[S, T]):
    """Subjects sorted by their answers, so that one answer is not looked for among them all."""

    def __init__(self, memo: Memo[S, T], subjects: Iterable[S]) -> None:
        self.memo = memo
        self._unsettled = dict(enumerate(subjects))
        self._settled: dict[int, list[tuple[int, S]]] = {}

    def with_answer(self, answer: T) -> list[S]:
        """Give the subjects of which this very object is the answer, in their order."""
        passing: list[tuple[int, S]] = []
        for rank, subject in list(self._unsettled.items()):
            found = self.memo.answer(subject)
            if not self.memo.is_settled(subject):
                if found is answer:
                    passing.append((rank, subject))
            elif self._unsettled.pop(rank, None) is not None:
                self._settled.setdefault(id(found), []).append((rank, subject))
        known = dict((*passing, *self._settled.get(id(answer), ())))
        return [known[rank] for rank in sorted(known)]
