"""Locating the source of each code cell in the JSON text of a notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final

from torchlint.edit import Span
from torchlint.source import Source, SourceError

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PYTHON: Final = re.compile(r"i?python", re.IGNORECASE)
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_RAW_LINE: Final = re.compile(
    r"""
    (?: [^\\] | \\ [^nru] | \\u (?! 000[aAdD] ) )*
    (?: (?: \\r | \\u000[dD] ) (?: \\n | \\u000[aA] ) | \\[nr] | \\u000[aAdD] | \Z )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class CodeCell:
    """The source of one code cell in the JSON text: a string, or a list of strings."""

    number: int
    text: str
    value: Span
    """The whole string or list."""
    strings: tuple[Span, ...]
    """Each string, including its quotes."""
    is_list: bool


@dataclass(frozen=True)
class Document:
    """The JSON text of a notebook and its code cells; no cells if its language is not Python."""

    text: str = ""
    cells: tuple[CodeCell, ...] = ()


def scan(text: str) -> Document:
    """Find the code cells in the JSON text of a notebook; raises `SourceError`."""
    try:
        return _Scanner(text).document()
    except RecursionError:
        raise SourceError("this notebook is nested too deeply") from None


@dataclass
class _Members:
    """The members of a cell that have been read so far."""

    kind: str | None = None
    language: str = "python"
    texts: list[str] = field(default_factory=list)
    strings: list[Span] = field(default_factory=list)
    value: Span | None = None
    is_list: bool = False


class _Scanner:
    """One pass over the text; values without code are skipped by the decoder of `json`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.decoder = JSONDecoder()
        self.metadata: Any = {}
        self.cells: list[CodeCell] = []
        self.count = 0
        self.has_cells = False

    def document(self) -> Document:
        start = self._space(0)
        if self.text[start : start + 1] != "{":
            raise self._error("a notebook is a JSON object, and this file is not", start)
        end = self._space(self._object(start, "the notebook", self._top))
        if end < len(self.text):
            raise self._error("unexpected text after the notebook", end)
        if not self.has_cells:
            raise self._error("this notebook has no list of cells", start)
        return Document(self.text, tuple(self.cells) if self._is_python() else ())

    # -- members --------------------------------------------------------------

    def _top(self, key: str, at: int) -> int:
        if key == "worksheets":
            return self._array(
                at, "`worksheets`", lambda at: self._object(at, "a worksheet", self._sheet)
            )
        if key == "metadata":
            self.metadata, end = self._value(at)
            return end
        return self._sheet(key, at)

    def _sheet(self, key: str, at: int) -> int:
        """Read a member of what holds the cells: the notebook, or a worksheet in format 3."""
        if key == "cells":
            self.has_cells = True
            return self._array(at, "`cells`", self._cell)
        return self._value(at)[1]

    def _cell(self, at: int) -> int:
        self.count += 1
        name = f"cell {self.count}"
        found = _Members()

        def member(key: str, at: int) -> int:
            if key in ("source", "input"):
                return self._source(at, name, found)
            value, end = self._value(at)
            if key == "cell_type":
                found.kind = value if isinstance(value, str) else None
            elif key == "language" and isinstance(value, str):
                found.language = value
            return end

        end = self._object(at, name, member)
        if found.kind is None:
            raise self._error(f"{name} has no `cell_type`", at)
        if found.kind == "code":
            if found.value is None:
                raise self._error(f"{name} has no `source`", at)
            if _PYTHON.match(found.language):
                self._keep(found, found.value)
        return end

    def _keep(self, found: _Members, value: Span) -> None:
        self.cells.append(
            CodeCell(self.count, "".join(found.texts), value, tuple(found.strings), found.is_list)
        )

    def _source(self, start: int, name: str, found: _Members) -> int:
        """Read the source of a cell."""
        if found.value is not None:
            raise self._error(f"{name} has both a `source` and an `input`", start)

        def string(at: int) -> int:
            if self.text[at : at + 1] != '"':
                raise self._error(
                    f"the source of {name} is neither a string nor a list of strings", at
                )
            text, end = self._string(at)
            found.texts.append(text)
            found.strings.append(Span(at, end))
            return end

        found.is_list = self.text[start : start + 1] == "["
        end = self._array(start, "the source", string) if found.is_list else string(start)
        found.value = Span(start, end)
        return end

    def _is_python(self) -> bool:
        """Return whether the kernel's language is Python, which is also the default."""
        if not isinstance(self.metadata, dict):
            return True
        about = (("language_info", "name"), ("kernelspec", "language"))
        for where, key in about:
            value = self.metadata.get(where)
            language = value.get(key) if isinstance(value, dict) else None
            if isinstance(language, str) and language:
                return _PYTHON.match(language) is not None
        return True

    # -- JSON -----------------------------------------------------------------

    def _object(self, at: int, name: str, member: Callable[[str, int], int]) -> int:
        """Read an object, each member by `member`, which returns the end of its value."""
        if at >= len(self.text):
            raise self._error("the file ends too early, as after an interrupted save", at)
        if self.text[at : at + 1] != "{":
            raise self._error(f"{name} is not a JSON object", at)
        keys: set[str] = set()

        def pair(at: int) -> int:
            if self.text[at : at + 1] != '"':
                raise self._error("expected a name in quotes", at)
            key, end = self._string(at)
            if key in keys:
                raise self._error(f"{name} has `{key}` twice", at)
            keys.add(key)
            colon = self._space(end)
            if self.text[colon : colon + 1] != ":":
                raise self._error("expected a colon", colon)
            return member(key, self._space(colon + 1))

        return self._items(at, "}", pair)

    def _array(self, at: int, name: str, item: Callable[[int], int]) -> int:
        if self.text[at : at + 1] != "[":
            raise self._error(f"{name} is not a list", at)
        return self._items(at, "]", item)

    def _items(self, at: int, closing: str, item: Callable[[int], int]) -> int:
        """Read the items up to a closing bracket, and return where that ends."""
        at = self._space(at + 1)
        if self.text[at : at + 1] == closing:
            return at + 1
        while True:
            at = self._space(item(at))
            mark = self.text[at : at + 1]
            if mark == closing:
                return at + 1
            if mark != ",":
                raise self._error(f"expected a comma or `{closing}`", at)
            at = self._space(at + 1)

    def _value(self, at: int) -> tuple[Any, int]:
        try:
            return self.decoder.raw_decode(self.text, at)
        except JSONDecodeError as error:
            raise self._error(f"invalid JSON: {error.msg}", error.pos) from None

    def _string(self, at: int) -> tuple[str, int]:
        text, end = self._value(at)
        assert isinstance(text, str)
        return text, end

    def _space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        assert found is not None
        return found.end()

    def _error(self, message: str, at: int) -> SourceError:
        return SourceError(message, Source("", self.text).position(min(at, len(self.text))))


@dataclass
class _Line:
    """One line of a cell: its text, its JSON spelling, and the JSON strings it is in."""

    text: str
    raw: str
    first: int
    last: int


def split_lines(text: str) -> list[str]:
    """Split a text into lines as CPython does, keeping line ends."""
    return _LINE.findall(text)


def rewritten(document: Document, cell: CodeCell, text: str) -> str:
    """Return the JSON of a cell's source with a new text; unchanged lines keep their spelling."""
    lines = _lines(document.text, cell)
    plain = document.text.isascii()
    new = split_lines(text)
    if not cell.is_list:
        parts = [old.raw if old else _spelt(line, plain) for line, old in _paired(lines, new)]
        return f'"{"".join(parts)}"'
    return _list(document.text, cell, lines, new, plain)


def _paired(lines: list[_Line], new: list[str]) -> Iterator[tuple[str, _Line | None]]:
    """Yield each new line with the old line it equals, or None."""
    matcher = SequenceMatcher(None, [line.text for line in lines], new, autojunk=False)
    for tag, low, _, start, stop in matcher.get_opcodes():
        for index in range(start, stop):
            yield new[index], lines[low + index - start] if tag == "equal" else None


def _spelt(line: str, plain: bool) -> str:
    """Return a line as JSON, in ASCII if the whole file is `plain`."""
    spelt = json.dumps(line, ensure_ascii=plain)[1:-1]
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half.group()):04x}", spelt)


def _lines(text: str, cell: CodeCell) -> list[_Line]:
    """Return the lines of a cell; a line may be spread over several strings."""
    lines: list[_Line] = []
    for index, span in enumerate(cell.strings):
        raw = text[span.start + 1 : span.end - 1]
        pieces = [piece for piece in _RAW_LINE.findall(raw) if piece] or [""]
        for piece in pieces:
            line: str = json.loads(f'"{piece}"')
            if lines and (not line or not lines[-1].text.endswith(("\n", "\r"))):
                lines[-1].text += line
                lines[-1].raw += piece
                lines[-1].last = index
            else:
                lines.append(_Line(line, piece, index, index))
    return lines


def _list(text: str, cell: CodeCell, lines: list[_Line], new: list[str], plain: bool) -> str:
    """Return a JSON list with a string for each line; strings of unchanged lines are kept."""
    pairs = list(_paired(lines, new))
    strings: list[tuple[str, int | None, int | None]] = []
    at = 0
    while at < len(pairs):
        line, old = pairs[at]
        block = _block(lines, old) if old is not None else []
        if block and [pair[1] for pair in pairs[at : at + len(block)]] == block:
            first, last = block[0].first, block[-1].last
            kept = text[cell.strings[first].start : cell.strings[last].end]
            strings.append((kept, first, last))
            at += len(block)
        else:
            strings.append((f'"{old.raw if old else _spelt(line, plain)}"', None, None))
            at += 1
    return _between_brackets(text, cell, strings)


def _block(lines: list[_Line], old: _Line) -> list[_Line]:
    """Return the lines from `old` on that fill whole strings; empty if `old` starts inside one."""
    at = next(index for index, line in enumerate(lines) if line is old)
    if at and lines[at - 1].last == old.first:
        return []
    end = at + 1
    while end < len(lines) and lines[end].first == lines[end - 1].last:
        end += 1
    return lines[at:end]


def _between_brackets(
    text: str, cell: CodeCell, strings: list[tuple[str, int | None, int | None]]
) -> str:
    if not strings:
        return "[]"
    head = text[cell.value.start : cell.strings[0].start]
    tail = text[cell.strings[-1].end : cell.value.end]
    gaps = [
        text[before.end : after.start]
        for before, after in zip(cell.strings, cell.strings[1:], strict=False)
    ]
    usual = gaps[0] if gaps else _usual_gap(text, cell, head)
    parts = [head]
    for index, (string, first, _) in enumerate(strings):
        if index:
            before = strings[index - 1][2]
            follows = before is not None and first == before + 1
            parts.append(gaps[before] if before is not None and follows else usual)
        parts.append(string)
    return "".join([*parts, tail])


def _usual_gap(text: str, cell: CodeCell, head: str) -> str:
    """Return the separator for two strings in a list of one, from the layout around it."""
    white = head[1:]
    spaced = text[cell.value.start - 1] == " "
    return "," + (white or (" " if spaced else ""))
