"""Cursor: a position in the text that only moves forward, and the strings that it reads."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

import libcst as cst
from libcst.native import parse_expression

from torchlint.semantic.syntax.makers import EQUAL, SPACE, maker
from torchlint.source import Source

_COMMENT: Final = re.compile(r"#[^\r\n]*")
_OPENING: Final = re.compile(r"[A-Za-z]{0,2}(\"\"\"|\'\'\'|\"|\')")
_WIDE: Final = re.compile(r"[^\x00-\x7f][^\r\n]*")
_CONTINUED: Final = re.compile(r"\\(?:\r\n|\r|\n)")
_TRIVIA: Final = re.compile(r"(?:[ \t\f\r\n]|\\\r?\n|\\\r|#[^\r\n]*)*")
_LAYOUT: Final = re.compile(r"(?:[ \t\f\r\n;]|\\\r?\n|\\\r|#[^\r\n]*)*")
_simple = maker(cst.SimpleString, "value", "lpar", "rpar")
_formatted = maker(cst.FormattedString, "parts", "start", "end", "lpar", "rpar")
_text = maker(cst.FormattedStringText, "value")
_field = maker(cst.FormattedStringExpression, "expression", "conversion", "format_spec", "equal")
_side_by_side = maker(cst.ConcatenatedString, "left", "right", "lpar", "rpar", "whitespace_between")
_MARK: Final = re.compile(r"[{}\\'\"]")
_TWICE: Final = ("{{", "}}")
_FIELD_END: Final = "}"
_Fields = Iterator[ast.FormattedValue]


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


class Strings(Cursor, ABC):
    """Reads strings; rare notations are left to LibCST's own parser."""

    @abstractmethod
    def expression(self, node: ast.expr) -> Any:
        """Return the LibCST node of an expression, parentheses included."""

    def placed(self, found: Any, start: int, end: int) -> Any:
        """Record the position of a part of an expression."""
        self.spans[found] = start, end
        return found

    def string(self, node: ast.expr, start: int, lpar: Any, rpar: Any) -> Any:
        """Return the node of a string, or of several adjacent ones."""
        end = self.end(node)
        values: Sequence[ast.expr] = ()
        if isinstance(node, ast.JoinedStr):
            values = node.values
        elif self.literal_end(start) == end:
            return _simple(self.text[start:end], lpar, rpar)
        try:
            return self._literals(start, end, _fields(values), lpar, rpar)
        except UnusualError:
            return self._fragment(start, end, lpar, rpar)

    def _fragment(self, start: int, end: int, lpar: Any, rpar: Any) -> Any:
        """Parse a string by LibCST; its parts are placed on demand."""
        written = self.text[start:end]
        found = parse_expression(f"({written})" if "\n" in written else written)
        if found.lpar:
            found = found.with_changes(lpar=(), rpar=())
        made = found.with_changes(lpar=lpar, rpar=rpar) if lpar else found
        self.fragments[made] = found, start
        return made

    def _literals(self, start: int, end: int, fields: _Fields, lpar: Any, rpar: Any) -> Any:
        """Return the node of adjacent literals, each nested to the left of the following ones."""
        read = [self._literal(start, fields)]
        while self.at < end:
            read.append(self._literal(self.skipped(self.at), fields))
        if self.at != end or next(fields, None) is not None:
            raise UnusualError("a string that CPython reads in another way")
        found = read.pop()
        for left in reversed(read):
            found = _side_by_side(left, found, (), (), SPACE)
            self.placed(found, self.spans[left][0], end)
        if not lpar:
            return found
        if isinstance(found, cst.ConcatenatedString):
            return _side_by_side(found.left, found.right, lpar, rpar, SPACE)
        return _formatted(found.parts, found.start, found.end, lpar, rpar)

    def _literal(self, start: int, fields: _Fields) -> Any:
        """Read the literal at an offset, and move the cursor behind it."""
        text, inner, quote = self.text, *self.opening(start)
        if "f" not in text[start:inner].lower():
            self.at = self.literal_end(start)
            return self.placed(_simple(text[start : self.at], (), ()), start, self.at)
        parts = self._parts(inner, quote, fields)
        self.at += len(quote)
        return self.placed(_formatted(parts, text[start:inner], quote, (), ()), start, self.at)

    def _parts(self, begin: int, stop: str, fields: _Fields) -> list[Any]:
        """Read the parts before `stop`, a quote or the end of a field, and move there."""
        text, at = self.text, begin
        parts: list[Any] = []
        while not text.startswith(stop, at := self._mark(at)):
            if text.startswith(_TWICE, at) and stop != _FIELD_END:
                at += 2
            elif text[at] == "{":
                self._add_text(parts, begin, at)
                parts.append(self._field(at, fields))
                at = begin = self.at
            elif text[at] in "'\"":
                at += 1
            elif text[at] == "\\" and text[at + 1] not in "N{}":
                at += 2
            else:
                raise UnusualError("a brace or an escape that has a meaning of its own")
        self._add_text(parts, begin, at)
        self.at = at
        return parts

    def _mark(self, at: int) -> int:
        """Return where the next special character of a literal is."""
        mark = _MARK.search(self.text, at)
        if mark is None:
            raise UnusualError("a string without an end")
        return mark.start()

    def _add_text(self, parts: list[Any], begin: int, end: int) -> None:
        if begin < end:
            parts.append(self.placed(_text(self.text[begin:end]), begin, end))

    def _field(self, brace: int, fields: _Fields) -> Any:
        """Read the replacement field that a brace opens, and move the cursor behind it."""
        text, value = self.text, next(fields, None)
        if value is None:
            raise UnusualError("a brace where CPython sees no field")
        start = self.start(value.value)
        if start <= brace or text[brace + 1 : start].strip("("):
            raise UnusualError("space in a field, or an expression whose place CPython mistakes")
        self.at = brace + 1
        expression = self.expression(value.value)
        at, equal, conversion, form = self.at, None, None, None
        if text[at] == "=":
            equal = EQUAL
            at += 1
        if text[at] == "!":
            conversion = text[at + 1]
            at += 2
        if text[at] == ":":
            spec = value.format_spec
            form = self._parts(at + 1, _FIELD_END, _fields(getattr(spec, "values", ())))
            at = self.at
        if text[at] != _FIELD_END:
            raise UnusualError("space in a field")
        self.at = at + 1
        return self.placed(_field(expression, conversion, form, equal), brace, self.at)


def _fields(values: Sequence[ast.expr]) -> _Fields:
    """Yield the expressions in an f-string."""
    return (each for each in values if isinstance(each, ast.FormattedValue))
