"""One line: expressions joined into one line, without the parentheses around them."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from itertools import accumulate
from keyword import iskeyword
from typing import Final, NamedTuple

_LAYOUT: Final = frozenset({
    tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
})  # fmt: skip


_OPENING: Final = ("(", "[", "{")
_CLOSING: Final = (")", "]", "}")
_SPARE: Final = {(",", ")"): (True,), (",", "]"): (False,), (",", "}"): (True, False)}
"""Commas before a closing bracket that are redundant behind some opening brackets.

True allows an opening bracket behind a value (a call), False one that is not (a list).
"""


class _Token(NamedTuple):
    """A piece of code and its span."""

    text: str
    start: int
    end: int
    is_name: bool


def within_parentheses(code: str, pairs: int) -> tuple[int, int]:
    """Return the span of an expression inside so many pairs of parentheses around it.

    The innermost pair of an empty tuple is the tuple. Raises `ValueError` for code that cannot be
    read.
    """
    tokens = _tokens(code)
    around = pairs - (len(tokens) == 2 * pairs)
    return tokens[around].start, tokens[-1 - around].end


def breaks_lines(code: str) -> bool:
    """Return whether an expression breaks lines outside its own brackets.

    Raises `ValueError` for code that cannot be read.
    """
    depth, end = 0, 0
    for token in _tokens(code):
        gap = code[end : token.start]
        if not depth and ("\n" in gap or "\r" in gap):
            return True
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        end = token.end
    return False


def one_line(code: str) -> str:
    """Return the code of an expression without comments as one line.

    Raises `ValueError` for code that cannot be read.
    """
    return "".join(_pieces(code, _tokens(code)))


def _tokens(code: str) -> list[_Token]:
    """Return the tokens of an expression, read inside added parentheses.

    A formatted string is one token, as it was before Python 3.12.
    """
    lines = list(io.StringIO(f"({code}\n)", newline=""))
    starts = list(accumulate(map(len, lines), initial=-1))
    fed = iter([*(line.rstrip("\r\n") + "\n" for line in lines), ""])
    try:
        read = [each for each in tokenize.generate_tokens(fed.__next__) if each.type not in _LAYOUT]
    except (tokenize.TokenError, SyntaxError) as error:
        raise ValueError(str(error)) from error
    found: list[_Token] = []
    opened, start = 0, 0
    for each in read[1:-1]:
        if not opened:
            start = starts[each.start[0] - 1] + each.start[1]
        end = starts[each.end[0] - 1] + each.end[1]
        kind = tokenize.tok_name[each.type]
        opened += kind.endswith("STRING_START") - kind.endswith("STRING_END")
        if not opened:
            is_name = kind == "NAME" and not iskeyword(each.string)
            found.append(_Token(code[start:end], start, end, is_name))
    return found


def _pieces(code: str, tokens: list[_Token]) -> Iterator[str]:
    """Yield the tokens and the gaps between them on one line, without redundant commas."""
    behind_value: list[bool] = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if before is not None:
            yield _gap(code[before.end : token.start], before.text, token.text)
        if token.text in _OPENING:
            behind_value.append(before is not None and (before.is_name or before.text in _CLOSING))
        spare = _SPARE.get((token.text, after.text if after is not None else ""))
        if spare is None or behind_value[-1] not in spare:
            yield token.text
        if token.text in _CLOSING:
            behind_value.pop()


def _gap(code: str, before: str, after: str) -> str:
    """Return the separator on one line of two tokens, given the code between them."""
    if "\n" not in code and "\r" not in code:
        return code
    return "" if before in (*_OPENING, ".") or after in (*_CLOSING, ".") else " "


def comments_of(code: str) -> list[str]:
    """Return the comments of complete code, in order; none if it cannot be tokenized."""
    if "#" not in code:
        return []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [token.string for token in tokens if token.type == tokenize.COMMENT]
