"""Strings: single literals, adjacent literals and f-strings."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import libcst as cst
from libcst.native import parse_expression

from torchlint.semantic.syntax.cursor import Cursor, UnusualError
from torchlint.semantic.syntax.makers import EQUAL, SPACE, maker

_simple = maker(cst.SimpleString, "value", "lpar", "rpar")
_formatted = maker(cst.FormattedString, "parts", "start", "end", "lpar", "rpar")
_text = maker(cst.FormattedStringText, "value")
_field = maker(cst.FormattedStringExpression, "expression", "conversion", "format_spec", "equal")
_side_by_side = maker(cst.ConcatenatedString, "left", "right", "lpar", "rpar", "whitespace_between")
_MARK: Final = re.compile(r"[{}\\'\"]")
_TWICE: Final = ("{{", "}}")
_FIELD_END: Final = "}"
_Fields = Iterator[ast.FormattedValue]


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
