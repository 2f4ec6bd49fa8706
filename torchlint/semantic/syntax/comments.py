"""Comments: the comments inside a piece of code."""

from __future__ import annotations

import io
import tokenize


def comments_of(code: str) -> list[str]:
    """Return the comments of complete code, in order; none if it cannot be tokenized."""
    if "#" not in code:
        return []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [token.string for token in tokens if token.type == tokenize.COMMENT]
