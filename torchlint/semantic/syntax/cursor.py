"""Cursor: a position in the text that only moves forward, over the tokens between nodes."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.source import Source

_COMMENT: Final = re.compile(r"#[^\r\n]*")
_OPENING: Final = re.compile(r"[A-Za-z]{0,2}(\"\"\"|\'\'\'|\"|\')")
_WIDE: Final = re.compile(r"[^\x00-\x7f][^\r\n]*")
_CONTINUED: Final = re.compile(r"\\(?:\r\n|\r|\n)")
_TRIVIA: Final = re.compile(r"(?:[ \t\f\r\n]|\\\r?\n|\\\r|#[^\r\n]*)*")
_LAYOUT: Final = re.compile(r"(?:[ \t\f\r\n;]|\\\r?\n|\\\r|#[^\r\n]*)*")


class UnusualError(Exception):
    """Code that is left to LibCST's own parser."""


def _wide_rows(source: Source) -> Iterator[int]:
    """Yield the numbers of the lines that contain a multi-byte character."""
    if not source.text.isascii():
        for found in _WIDE.finditer(source.text):
            yield bisect_right(source.line_starts, found.start())


class Cursor:
    """A position that finds `ast` nodes by character and scans the text between them."""

    def __init__(self, source: Source) -> None:
        self.text = source.text
        self.starts = source.line_starts
        self.at = 0
        """The offset behind the last expression read."""
        self.spans: dict[cst.CSTNode, tuple[int, int]] = {}
        self.fragments: dict[cst.CSTNode, tuple[cst.BaseExpression, int]] = {}
        """Nodes that LibCST parsed, with their offset: their parts have no position yet."""
        self.wide = frozenset(_wide_rows(source))
        """The rows that contain a multi-byte character."""

    def start(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> int:
        """Return the offset where a node begins, without parentheses around it."""
        row = node.lineno
        if row not in self.wide:
            return self.starts[row - 1] + node.col_offset
        return self._offset(row, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> int:
        """Return the offset where a node ends, without parentheses around it."""
        row, width = node.end_lineno, node.end_col_offset
        assert row is not None
        assert width is not None
        return self.starts[row - 1] + width if row not in self.wide else self._offset(row, width)

    def _offset(self, row: int, width: int) -> int:
        """Return the character offset of a byte offset in a line."""
        start = self.starts[row - 1]
        return start + len(self.text[start : start + width].encode()[:width].decode())

    def opened(self, start: int) -> int:
        """Return the number of parentheses that open between the cursor and an offset."""
        between = self.text[self.at : start]
        if "(" not in between:
            return 0
        if "#" in between:
            between = _COMMENT.sub("", between)
        return between.count("(")

    def first_opened(self, start: int) -> int:
        """Return the offset of the first parenthesis that `opened` counts."""
        between = self.text[self.at : start]
        if "#" in between:
            between = _COMMENT.sub(lambda found: " " * len(found.group()), between)
        return self.at + between.index("(")

    def closed(self, end: int, count: int) -> int:
        """Return the offset behind a number of closing parentheses that follow `end`."""
        for _ in range(count):
            end = self.skipped(end)
            if self.text[end : end + 1] != ")":
                raise UnusualError("a parenthesis of more than one expression")
            end += 1
        return end

    def closing(self, end: int, most: int) -> int:
        """Return how many closing parentheses follow an offset, up to a limit."""
        count = 0
        while count < most:
            end = self.skipped(end)
            if self.text[end : end + 1] != ")":
                break
            end += 1
            count += 1
        return count

    def skipped(self, offset: int) -> int:
        """Return the offset behind white space, line breaks and comments."""
        found = _TRIVIA.match(self.text, offset)
        assert found is not None
        return found.end()

    def before(self, offset: int, token: str) -> None:
        """Move the cursor behind the next `token`, which must come before an offset."""
        at = self.at
        if not self.text.startswith(token, at):
            at = self.skipped(at)
        if not self.text.startswith(token, at) or at >= offset:
            raise UnusualError(f"no `{token}` where one should be")
        self.at = at + len(token)

    def keyword(self, word: str) -> int:
        """Move the cursor behind a keyword that begins a line of a statement; return its offset."""
        found = _LAYOUT.match(self.text, self.at)
        assert found is not None
        if not self.text.startswith(word, found.end()):
            raise UnusualError(f"no `{word}` where one should be")
        self.at = found.end() + len(word)
        return found.end()

    def in_line(self, node: ast.stmt) -> bool:
        """Return whether the body of a compound statement is on the line of its colon."""
        row, offset = node.lineno, self.start(node)
        while True:
            before = self.text[self.starts[row - 1] : offset].rstrip(" \t\f")
            if before or row == 1:
                return before.endswith(":")
            row -= 1
            above = self.text[self.starts[row - 1] : self.starts[row]].rstrip("\r\n")
            if not above.endswith("\\"):
                return False
            offset = self.starts[row - 1] + len(above) - 1

    def joined(self, end: int, start: int) -> bool:
        """Return whether another statement follows a simple statement on the same line."""
        between = self.text[end:start]
        if ";" not in between:
            return False
        _, semicolon, after = _COMMENT.sub("", between).partition(";")
        return bool(semicolon) and not _CONTINUED.sub("", after).strip(" \t\f")

    def opening(self, offset: int) -> tuple[int, str]:
        """Return where the text of a string literal begins, and the quotes that end it."""
        found = _OPENING.match(self.text, offset)
        if found is None:
            raise UnusualError("no string where one should be")
        return found.end(), found[1]

    def literal_end(self, offset: int) -> int:
        """Return the offset behind the string literal that begins at an offset."""
        offset, quote = self.opening(offset)
        while True:
            end = self.text.find(quote, offset)
            escape = self.text.find("\\", offset, end)
            if escape < 0:
                return end + len(quote)
            offset = escape + 2
