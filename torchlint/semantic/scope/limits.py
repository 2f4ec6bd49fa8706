"""Limits: how far calls are followed, where following all of them would cost too much."""

from __future__ import annotations

from typing import Final

CALLED: Final = 3
"""How many functions deep code is followed into what it calls."""
CALLERS: Final = 4
"""How many functions up code is followed to what calls it."""
REACHED: Final = 8
"""How many functions deep a program is followed from where it starts."""
ASSIGNED: Final = 8
"""How many values back a value is followed to what it was made of."""
