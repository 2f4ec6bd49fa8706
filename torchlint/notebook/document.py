"""Locating the source of each code cell in the JSON text of a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final

from torchlint.edit import Span
from torchlint.source import Position, Source, SourceError

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PYTHON: Final = re.compile(r"i?python", re.IGNORECASE)


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
        if key == "cells":
            self.has_cells = True
            return self._array(at, "`cells`", self._cell)
        if key == "worksheets":
            return self._array(
                at, "`worksheets`", lambda at: self._object(at, "a worksheet", self._sheet)
            )
        value, end = self._value(at)
        if key == "metadata":
            self.metadata = value
        return end

    def _sheet(self, key: str, at: int) -> int:
        """Read a member of a worksheet, which holds the cells in notebooks of format 3."""
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
        return SourceError(message, _position(self.text, at))


def _position(text: str, offset: int) -> Position:
    return Source("", text).position(min(offset, len(text)))
