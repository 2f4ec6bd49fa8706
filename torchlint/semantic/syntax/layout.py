"""Layout that says whether something is there: one object each, shared by all nodes."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.syntax.makers import plain

__all__ = ["ASYNC", "CLOSE", "COMMA", "NONE", "OPEN"]

ASYNC: Final = plain(cst.Asynchronous)
CLOSE: Final = plain(cst.RightParen)
COMMA: Final = plain(cst.Comma, whitespace_after=plain(cst.SimpleWhitespace, value=" "))
NONE: Final = cst.MaybeSentinel.DEFAULT
OPEN: Final = plain(cst.LeftParen)
