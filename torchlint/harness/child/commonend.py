"""The step with which all ranks of a run end that looks only for so long."""

from __future__ import annotations

from typing import Final

from torch import distributed

__all__ = ["CommonEnd"]

_KEY: Final = "torchlint-last-step"


class CommonEnd:
    """Ends the ranks of a process group with the same step: the first rank says which it is.

    One that went on alone would wait for gradients of the others until it fails.
    """

    def __init__(self) -> None:
        self._last: int | None = None

    def reached(self, taken: int, late: bool) -> bool:
        """Whether this was the last step; a process that is in no group ends as soon as it is late.

        The first rank names the step after this one before it takes it, and no other can have
        taken that without its gradients.
        """
        if not distributed.is_available() or not distributed.is_initialized():
            return late
        store = distributed.distributed_c10d._get_default_store()
        if distributed.get_rank() == 0 and late and self._last is None:
            self._last = taken + 1
            store.set(_KEY, str(self._last))
        elif self._last is None and store.check([_KEY]):
            self._last = int(store.get(_KEY))
        return self._last is not None and taken >= self._last
