"""Memos: cached answers to questions that may depend on themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import Any, Final, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")

_NEVER: Final = 1 << 30


class Trail:
    """The stack of questions being answered, shared by all memos of one file."""

    def __init__(self) -> None:
        self.depth = 0
        """The number of open questions."""
        self.marks: dict[int, object] = {}
        """Markers that identify open questions, by their depth."""
        self.lowest = _NEVER
        """The depth of the outermost open question that the current answer depends on."""

    def depend_on(self, depth: int) -> None:
        """Record that the current answer depends on the open question at a depth."""
        self.lowest = min(self.lowest, depth)


class Memo(dict[S, T]):
    """A cache of answers that does not depend on the order of the questions.

    It is the dictionary of the settled answers, in which nodes and bindings compare by identity.
    A question that leads back to itself is answered `open_answer` there. An answer that depends on
    an open question is provisional: it is valid until that question is answered, then dropped.
    """

    answer = dict.__getitem__
    """Return the answer for a subject, computed at most once."""

    def __init__(self, open_answer: T, trail: Trail, find: Callable[[S], T]) -> None:
        super().__init__()
        self.open_answer = open_answer
        self.trail = trail
        self.find = find
        self._provisional: dict[S, tuple[T, int, object]] = {}
        self._open: dict[S, int] = {}

    def __missing__(self, subject: S) -> T:
        """Find the answer for a subject, and keep it if it is settled."""
        trail = self.trail
        depth = trail.depth
        opened = self._open.setdefault(subject, depth)
        if opened != depth:
            trail.depend_on(opened)
            return self.open_answer
        if self._provisional and subject in self._provisional:
            found, lowest, mark = self._provisional[subject]
            if trail.marks.get(lowest) is mark:
                del self._open[subject]
                trail.depend_on(lowest)
                return found
            del self._provisional[subject]
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
            self[subject] = found
        else:
            mark = trail.marks.setdefault(lowest, object())
            self._provisional[subject] = found, lowest, mark
            trail.depend_on(lowest)
        return found


class _Question(Generic[S, T]):
    """A method of one subject that keeps its answers in a memo of the object that is asked."""

    def __init__(self, open_answer: Any, find: Callable[[Any, S], T]) -> None:
        self.open_answer = open_answer
        self.find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, asked: Any, owner: type) -> Callable[[S], T]:
        """Return the answers of an object, which then stand in the object itself."""
        memo = Memo(self.open_answer, asked.names.trail, MethodType(self.find, asked))
        answer: Callable[[S], T] = memo.answer
        vars(asked)[self.name] = answer
        return answer


def memoized(open_answer: object) -> Callable[[Callable[[Any, S], T]], _Question[S, T]]:
    """Return a decorator for a method whose answers are computed at most once: see `Memo`.

    The object has the names of the file as `names`.
    """
    return partial(_Question, open_answer)


class AnswerIndex(Generic[S, T]):
    """Subjects indexed by their answer, so that looking one up does not scan them all."""

    def __init__(self, memo: Memo[S, T], subjects: Iterable[S]) -> None:
        self.memo = memo
        self._unsettled = dict(enumerate(subjects))
        self._settled: dict[int, list[tuple[int, S]]] = {}

    def with_answer(self, answer: T) -> list[S]:
        """Return the subjects whose answer is this very object, in their order."""
        provisional: list[tuple[int, S]] = []
        for rank, subject in list(self._unsettled.items()):
            found = self.memo.answer(subject)
            if subject not in self.memo:
                if found is answer:
                    provisional.append((rank, subject))
            elif self._unsettled.pop(rank, None) is not None:
                self._settled.setdefault(id(found), []).append((rank, subject))
        known = dict((*provisional, *self._settled.get(id(answer), ())))
        return [known[rank] for rank in sorted(known)]
