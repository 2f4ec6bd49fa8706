"""Destinations: where values go that a pass reads from the device."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

import libcst as cst


class End(Enum):
    """How a value that was read is finally used."""

    KEPT = auto()
    """Added to a sum, a list or a meter."""
    RARE = auto()
    """Used once in several passes."""
    LAST = auto()
    """Used after the loop, where only the last value counts, or never."""
    BACK = auto()
    """Combined with tensors on the device."""


Part = int | str
"""A position in a tuple, a key of a dictionary as it is spelled, or -1 for the whole."""


class Destination(NamedTuple):
    """Where a value goes in one region; `returned` are the parts of results that hold it."""

    ends: frozenset[End]
    returned: frozenset[Part]
    target: cst.BaseExpression | None
    statements: tuple[cst.CSTNode, ...]

    def joined(self, other: Destination) -> Destination:
        """Return where a value goes that goes to both."""
        return Destination(
            self.ends | other.ends,
            self.returned | other.returned,
            self.target or other.target,
            (*self.statements, *other.statements),
        )


WHOLE: Final = -1
NOTHING: Final = Destination(frozenset(), frozenset(), None, ())
RARE: Final = NOTHING._replace(ends=frozenset({End.RARE}))
LAST: Final = NOTHING._replace(ends=frozenset({End.LAST}))
BACK: Final = NOTHING._replace(ends=frozenset({End.BACK}))
KEPT: Final = NOTHING._replace(ends=frozenset({End.KEPT}))
