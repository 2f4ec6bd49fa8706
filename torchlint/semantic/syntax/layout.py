"""Layout that says whether something is there: one object each, shared by all nodes."""

from __future__ import annotations

from typing import Final

import libcst as cst

__all__ = ["ASYNC", "CLOSE", "COMMA", "NONE", "OPEN"]

ASYNC: Final = cst.Asynchronous()
CLOSE: Final = cst.RightParen()
COMMA: Final = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
NONE: Final = cst.MaybeSentinel.DEFAULT
OPEN: Final = cst.LeftParen()
