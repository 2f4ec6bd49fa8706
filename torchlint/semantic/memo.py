"""Answers to questions that can lead back to themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Memo"]

T = TypeVar("T")

_NEVER: Final = 1 << 30


class Memo(Generic[T]):
    """Remembers answers, so that none depends on the order of the questions.

    A question that leads back to itself gets `open_answer` there. What was found on the way to an
    open question is good for the rest of that question only, and is forgotten with it.
    """

    def __init__(self, open_answer: T) -> None:
        self.open_answer = open_answer
        self._known: dict[int, T] = {}
        self._passing: dict[int, tuple[T, int]] = {}
        self._open: dict[int, int] = {}
        self._lowest = _NEVER

    def answer(self, subject: object, find: Callable[[], T]) -> T:
        """Give the answer for a subject (which must stay alive), found at most once."""
        key = id(subject)
        if key in self._known:
            return self._known[key]
        if key in self._passing:
            found, lowest = self._passing[key]
            self._lowest = min(self._lowest, lowest)
            return found
        if key in self._open:
            self._lowest = min(self._lowest, self._open[key])
            return self.open_answer
        depth = self._open[key] = len(self._open)
        outer, self._lowest = self._lowest, _NEVER
        try:
            found = find()
        finally:
            del self._open[key]
            lowest, self._lowest = self._lowest, outer
        if lowest >= depth:
            self._known[key] = found
            self._passing = {k: v for k, v in self._passing.items() if v[1] < depth}
        else:
            self._passing[key] = (found, lowest)
            self._lowest = min(outer, lowest)
        return found
