"""Share: how a value in one process relates to all processes, through sums and products."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

import libcst as cst


class Share(Enum):
    """How a value in one process relates to all processes, each with its share of the samples."""

    NOTHING = auto()
    """Zero or empty: the start of a sum."""
    SAME = auto()
    """The same in every process."""
    ROWS = auto()
    """A tensor with a row for each sample of the batch."""
    COLUMNS = auto()
    """A tensor with a column for each sample of the batch."""
    SIZE = auto()
    """The number of samples in the batch."""
    PER_SAMPLE = auto()
    """A number divided by the number of samples in the batch."""
    SUM = auto()
    """A sum over samples: the global value is the sum over processes."""
    MEAN = auto()
    """A mean over samples: the global value is the mean over processes."""
    OWN = auto()
    """Computed from the samples of one process in any other way."""


EQUAL: Final = (Share.NOTHING, Share.SAME)
TENSORS: Final = (Share.ROWS, Share.COLUMNS)
COUNTS: Final = (Share.SIZE, Share.SUM)
LINEAR: Final = (Share.SIZE, Share.SUM, Share.MEAN)

_BINARY: Final = (
    cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.BitAnd, cst.BitOr, cst.Power, cst.Modulo,
    cst.FloorDivide,
)  # fmt: skip


def joined(shares: Iterable[Share]) -> Share:
    """Return the share of a value that can be any of several."""
    found = {share for share in shares if share is not Share.NOTHING}
    if len(found) < 2:
        return found.pop() if found else Share.NOTHING
    if found <= {Share.SIZE, Share.SUM}:
        return Share.SUM
    return Share.MEAN if found == {Share.SAME, Share.MEAN} else Share.OWN


def computed(operator: cst.CSTNode, left: Share, right: Share) -> Share:
    """Return the share of `left operator right`."""
    sides = {left, right}
    if sides <= set(EQUAL):
        zero = left is Share.NOTHING and isinstance(operator, (cst.Multiply, cst.Divide))
        return Share.NOTHING if zero or sides == {Share.NOTHING} else Share.SAME
    if sides & set(TENSORS) and isinstance(operator, _BINARY):
        if sides <= {*TENSORS, *EQUAL}:
            return Share.COLUMNS if Share.COLUMNS in sides else Share.ROWS
        return Share.OWN
    if isinstance(operator, (cst.Add, cst.Subtract)):
        return joined((left, right))
    if isinstance(operator, cst.Multiply):
        if sides == {Share.MEAN, Share.SIZE}:
            return Share.SUM
        if Share.PER_SAMPLE in sides and sides & set(COUNTS):
            return Share.MEAN
        return _scaled(left, right) if left in LINEAR else _scaled(right, left)
    if isinstance(operator, cst.Divide) and left in LINEAR:
        return Share.MEAN if left in COUNTS and right is Share.SIZE else _scaled(left, right)
    if isinstance(operator, cst.Divide) and left in EQUAL and right is Share.SIZE:
        return Share.PER_SAMPLE
    return Share.OWN


def _scaled(linear: Share, factor: Share) -> Share:
    """Return the share of a sum or a mean after multiplying or dividing it."""
    if factor not in EQUAL or linear not in LINEAR:
        return Share.OWN
    return Share.SUM if linear is Share.SIZE else linear
