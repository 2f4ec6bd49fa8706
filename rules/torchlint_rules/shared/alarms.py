"""Alarms: checks of a tensor's values that only print when they fail."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Script, word_of

_PRINTING: Final = frozenset("print warn warning error info debug".split())
BOUNDING: Final = (cst.LessThan, cst.GreaterThan, cst.LessThanEqual, cst.GreaterThanEqual)
"""What compares a value with a bound."""


def reports_alarm(script: Script, node: cst.If) -> bool:
    """Return whether an `if` compares a tensor on the device with a bound, only to print."""
    test = node.test
    if node.orelse is not None or not isinstance(test, cst.Comparison):
        return False
    if not all(map(_prints, node.body.body)):
        return False
    return (
        isinstance(test.comparisons[0].operator, BOUNDING)
        and next(script.readings.syncs.tested(test), None) is not None
    )


def _prints(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and all(
        isinstance(each, cst.Expr)
        and isinstance(each.value, cst.Call)
        and word_of(each.value) in _PRINTING
        for each in line.body
    )
