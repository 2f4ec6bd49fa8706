"""The comments inside a piece of code."""

from __future__ import annotations

import io
import tokenize

__all__ = ["comments_of"]


def comments_of(code: str) -> list[str]:
    """Give the comments of code that is whole, in order; none of code that cannot be read."""
    if "#" not in code:
        return []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [token.string for token in tokens if token.type == tokenize.COMMENT]
