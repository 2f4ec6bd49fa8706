"""Passes over loaders: how many batches and steps one has."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from statistics import fmean, median
from typing import Any

from torchlint.harness.child.privates import LoaderIterator


class Passes:
    """Watches the loaders of a script, and which of them feeds its steps."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}
        self._draws = Counter[int]()
        self._fed = defaultdict[int, list[int]](list)
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
        """Count the batches of a step, for the loader that gave the last one."""
        if self._last is not None:
            self._fed[self._last].append(self._draws.pop(self._last, 0))

    @property
    def longest(self) -> int | None:
        """Batches in the longest pass over a loader, None where that is unknown."""
        return max(self._lengths.values(), default=None)

    @property
    def steps(self) -> float | None:
        """Steps in one pass over the loader that feeds them, None where that is unknown.

        An evaluation may draw from the same loader before a step, which most steps do not show.
        """
        if not self._fed:
            return None
        loader, batches = max(self._fed.items(), key=lambda fed: len(fed[1]))
        length = self._lengths.get(loader)
        return None if length is None else length / (median(batches) or fmean(batches))
