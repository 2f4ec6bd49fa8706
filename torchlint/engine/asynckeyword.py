"""The fix for `x.cuda(async=True)`, a syntax error since Python 3.7."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from torchlint.edit import Edit, Span, apply_edits
from torchlint.engine.quickparse import parses
from torchlint.engine.scanning import ScanError, Token, scan
from torchlint.finding import Fix

_METHODS: Final = frozenset({"cuda", "to", "copy_", "type"})
"""The methods of tensors whose argument `non_blocking` used to be called `async`."""


def renamed(text: str) -> Fix | None:
    """Return the fix that renames `async`, None if the text still would not parse."""
    try:
        edits = tuple(_edits(scan(text)))
    except ScanError:
        return None
    if not edits or not parses(apply_edits(text, edits)):
        return None
    return Fix.exact("Rename `async` to `non_blocking`", edits)


def _edits(tokens: Sequence[Token]) -> Iterator[Edit]:
    opened: list[int] = []
    """The offsets of the open brackets."""
    for at, token in enumerate(tokens):
        del opened[token.depth :]
        if token.text in ("(", "[", "{"):
            opened.append(at)
        elif token.text == "async" and opened and _is_keyword(tokens, at):
            called = tokens[max(opened[-1] - 2, 0) : opened[-1]]
            if len(called) == 2 and called[0].text == "." and called[1].text in _METHODS:
                yield Edit(Span(token.start, token.end), "non_blocking")


def _is_keyword(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a word is used as the name of an argument."""
    before = tokens[at - 1].text
    after = [token.text for token in tokens[at + 1 : at + 3]]
    return before in ("(", ",", "\n", "\r\n") and after[:1] == ["="] and after != ["=", "="]
