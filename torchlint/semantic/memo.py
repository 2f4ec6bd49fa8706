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
        self.depth = 0
        """How many they are."""
        self.marks: dict[int, object] = {}
        """What tells some of them from all others that ever were open, by their depth."""
        self.lowest = _NEVER
        """The outermost open question that the answer in the making rests on."""

    def lean(self, depth: int) -> None:
        """Note that the answer in the making rests on the open question at a depth."""
        self.lowest = min(self.lowest, depth)


class Memo(Generic[S, T]):
    """Remembers answers, so that none depends on the order of the questions.

    A question that leads back to itself gets `open_answer` there. What was found on the way to an
    open question is good for the rest of that question only, and is forgotten with it. Subjects
    are told apart as by a dictionary: nodes and bindings by identity.
    """

    def __init__(self, open_answer: T, trail: Trail, find: Callable[[S], T]) -> None:
        self.open_answer = open_answer
        self.trail = trail
        self.find = find
        self._known: dict[S, Any] = {}
        self._passing: dict[S, tuple[T, int, object]] = {}
        self._open: dict[S, int] = {}

    def answer(self, subject: S) -> T:
        """Give the answer for a subject, found at most once."""
        found: T = self._known.get(subject, _UNKNOWN)
        if found is not _UNKNOWN:
            return found
        trail = self.trail
        if subject in self._open:
            trail.lean(self._open[subject])
            return self.open_answer
        if subject in self._passing:
            found, lowest, mark = self._passing[subject]
            if trail.marks.get(lowest) is mark:
                trail.lean(lowest)
                return found
            del self._passing[subject]
        depth = self._open[subject] = trail.depth
        trail.depth = depth + 1
        outer, trail.lowest = trail.lowest, _NEVER
        try:
            found = self.find(subject)
        finally:
            trail.depth = depth
            if trail.marks:
                trail.marks.pop(depth, None)
            del self._open[subject]
            lowest, trail.lowest = trail.lowest, outer
        if lowest >= depth:
            self._known[subject] = found
        else:
            mark = trail.marks.setdefault(lowest, object())
            self._passing[subject] = found, lowest, mark
            trail.lean(lowest)
        return found

    def is_settled(self, subject: S) -> bool:
        """Whether the answer for a subject is found, and good for any question."""
        return subject in self._known


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
