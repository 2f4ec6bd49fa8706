"""The common last step of all ranks in a run with a time limit."""

from __future__ import annotations

from typing import Final

from torch import distributed

from torchlint.harness.child.privates import group_store

_KEY: Final = "torchlint-last-step"


class CommonEnd:
    """Ends all ranks of a process group after the same step, which the first rank chooses.

    A rank that went on alone would wait for gradients of the others until it fails.
    """

    def __init__(self) -> None:
        self._last: int | None = None

    def reached(self, taken: int, late: bool) -> bool:
        """Return whether this was the last step.

        A process outside of any group ends as soon as it is late. In a group, the first
        rank announces the next step as the last one before taking it; no other rank can
        have taken that step without its gradients.
        """
        if not distributed.is_available() or not distributed.is_initialized():
            return late
        store = group_store()
        if store is None:
            return False
        if distributed.get_rank() == 0 and late and self._last is None:
            self._last = taken + 1
            store.set(_KEY, str(self._last))
        elif self._last is None and store.check([_KEY]):
            self._last = int(store.get(_KEY))
        return self._last is not None and taken >= self._last
