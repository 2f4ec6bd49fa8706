"""Whether other programs keep the processors busy."""

from __future__ import annotations

import time
from typing import Final

_BUSY: Final = 0.5
"""Processors that others must use, and of which fewer must be free, to disturb a run."""
_LOOK: Final = 0.3
"""Seconds for which the processors are watched before the first run."""


def is_crowded(others: float, free: float) -> bool:
    """Return whether others use so much of the processors, and leave so little, that it matters."""
    return others > _BUSY and free < _BUSY


def crowded_now() -> bool:
    """Return whether others disturb a run that starts now; False where that is unknown."""
    try:
        from torchlint.harness.child.cost import Load
    except ModuleNotFoundError:
        return False
    load = Load()
    time.sleep(_LOOK)
    seen = load.since()
    return seen is not None and is_crowded(*seen)
