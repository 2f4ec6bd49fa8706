"""Layout: shared layout nodes that only say that a token is present."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.syntax.makers import plain

ASYNC: Final = plain(cst.Asynchronous)
CLOSE: Final = plain(cst.RightParen)
SPACE: Final = plain(cst.SimpleWhitespace, value=" ")
_NO_SPACE: Final = plain(cst.SimpleWhitespace, value="")
COMMA: Final = plain(cst.Comma, whitespace_after=SPACE)
EQUAL: Final = plain(cst.AssignEqual, whitespace_before=_NO_SPACE, whitespace_after=_NO_SPACE)
NONE: Final = cst.MaybeSentinel.DEFAULT
OPEN: Final = plain(cst.LeftParen)
