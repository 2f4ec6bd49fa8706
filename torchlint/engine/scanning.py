"""A tokenizer for the newest grammar of Python, for texts that this Python cannot parse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

DEEPEST: Final = 20
"""How many strings with expressions may stand inside one another."""

_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\f]+|\\\r?\n|#[^\r\n]*)"
    r"|(?P<newline>\r\n?|\n)"
    r"|(?P<string>(?P<prefix>[bBrRuUfFtT]{0,2})(?P<quote>\"{3}|'{3}|\"|'))"
    r"|(?P<word>\w+)"
    r"|(?P<sign>.)"
)
_OPENING: Final = "([{"
_CLOSING: Final = ")]}"


class ScanError(Exception):
    """A string or a bracket that is never closed."""


class Token(NamedTuple):
    """One token: its span, its bracket depth, and its kind."""

    text: str
    start: int
    end: int
    depth: int
    kind: str
    """`newline`, `string`, `word` or `sign`."""
    prefix: str = ""
    """The letters before the quote of a string, small."""
    fields: tuple[str, ...] = ()
    """The expressions in a string that has some."""


def scan(text: str) -> list[Token]:
    """Return the tokens of a text, without comments and blanks; raises `ScanError`."""
    return list(_Scanner(text, 0).tokens(0, inside=False))


class _Scanner:
    """The tokenizer of one text."""

    def __init__(self, text: str, level: int) -> None:
        self.text = text
        self.level = level
        self.end = 0
        """Where the last reading ended."""

    def tokens(self, at: int, *, inside: bool) -> Iterator[Token]:
        """Yield tokens up to the end of the text, or of an expression inside an f-string."""
        depth = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise ScanError
            kind, start, at = match.lastgroup or "", at, match.end()
            fields: tuple[str, ...] = ()
            if match["quote"]:
                kind = "string"
                fields = tuple(self._string(at, match["prefix"].lower(), match["quote"]))
                at = self.end
            found = self.text[start:at]
            if kind == "blank":
                continue
            if kind == "sign" and found in _CLOSING:
                depth -= 1
            if inside and (depth < 0 or (depth == 0 and self._ends_field(found, at))):
                self.end = start
                return
            if depth < 0:
                raise ScanError
            yield Token(found, start, at, depth, kind, (match["prefix"] or "").lower(), fields)
            if kind == "sign" and found in _OPENING:
                depth += 1
        if inside or depth:
            raise ScanError

    def _ends_field(self, found: str, at: int) -> bool:
        """Return whether a token ends an expression in an f-string."""
        return found == ":" or (found == "!" and not self.text.startswith("=", at))

    def _string(self, at: int, prefix: str, quote: str) -> Iterator[str]:
        """Read a string after its opening quote, and yield the expressions in it."""
        has_fields = "f" in prefix or "t" in prefix
        while not self.text.startswith(quote, at):
            if at >= len(self.text):
                raise ScanError
            character = self.text[at]
            if character in "\r\n" and len(quote) == 1:
                raise ScanError
            if character == "\\":
                at = self._escaped(at, prefix, has_fields)
            elif has_fields and character == "{" and not self.text.startswith("{{", at):
                yield from self._field(at + 1, quote, self.level)
                at = self.end
            elif has_fields and character in "{}":
                if not self.text.startswith(2 * character, at):
                    raise ScanError
                at += 2
            else:
                at += 1
        self.end = at + len(quote)

    def _escaped(self, at: int, prefix: str, has_fields: bool) -> int:
        """Return the offset after an escape sequence."""
        following = self.text[at + 1 : at + 3]
        if has_fields and following == "N{" and "r" not in prefix:
            end = self.text.find("}", at)
            if end < 0:
                raise ScanError
            return end + 1
        if has_fields and following[:1] in ("{", "}"):
            return at + 1
        return at + (3 if following == "\r\n" else 2)

    def _field(self, at: int, quote: str, level: int) -> Iterator[str]:
        """Read an expression in an f-string with its format, and yield the expressions in it."""
        if level >= DEEPEST:
            raise ScanError
        inner = _Scanner(self.text, level + 1)
        tokens = list(inner.tokens(at, inside=True))
        shown = tokens[:-1] if tokens and tokens[-1].text == "=" else tokens
        if not shown:
            raise ScanError
        yield self.text[shown[0].start : shown[-1].end]
        at = inner.end
        if self.text.startswith("!", at):
            if self.text[at + 1 : at + 2] not in ("r", "s", "a"):
                raise ScanError
            at += 2
        if self.text.startswith(":", at):
            at += 1
            while not self.text.startswith("}", at):
                if at >= len(self.text) or self.text.startswith(quote, at):
                    raise ScanError
                if self.text[at] == "{":
                    yield from self._field(at + 1, quote, level + 1)
                    at = self.end
                else:
                    at += 1
        if not self.text.startswith("}", at):
            raise ScanError
        self.end = at + 1
