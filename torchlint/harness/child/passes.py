"""Passes over loaders: how many batches and steps one has."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from torchlint.harness.child.privates import LoaderIterator


class Passes:
    """Watches the loaders of a script, and which of them feeds its steps."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._draws = Counter[int]()
        self._fed = Counter[int]()
        self._last: int | None = None
        begin, ask = LoaderIterator.__init__, LoaderIterator.__next__

        def __init__(iterator: Any, loader: Any) -> None:  # noqa: N807 - takes the method's place
            begin(iterator, loader)
            iterator.__dict__["_torchlint_loader"] = id(loader)
            with suppress(TypeError, NotImplementedError):
                self._lengths[id(loader)] = len(loader)

        def __next__(iterator: Any) -> Any:  # noqa: N807 - takes the method's place
            batch = ask(iterator)
            self._last = iterator.__dict__.get("_torchlint_loader")
            if self._last is not None:
                self._draws[self._last] += 1
            return batch

        LoaderIterator.__init__ = __init__
        LoaderIterator.__next__ = __next__

    def stepped(self) -> None:
        """Count a step for the loader that gave the last batch."""
        if self._last is not None:
            self._fed[self._last] += 1

    @property
    def longest(self) -> int | None:
        """Batches in the longest pass over a loader, None where that is unknown."""
        return max(self._lengths.values(), default=None)

    @property
    def steps(self) -> float | None:
        """Steps in one pass over the loader that feeds them, None where that is unknown."""
        if not self._fed:
            return None
        loader, steps = self._fed.most_common(1)[0]
        length = self._lengths.get(loader)
        return None if length is None else length * steps / self._draws[loader]
