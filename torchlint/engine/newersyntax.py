"""Syntax that another Python reads: the tokens of a text, and what an older one rejects."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from torchlint.edit import Edit, Span, apply_edits
from torchlint.finding import Fix

Version = tuple[int, int]
_GROUPS: Final[Version] = (3, 11)
_GENERICS: Final[Version] = (3, 12)
_DEFAULTS: Final[Version] = (3, 13)
_TEMPLATES: Final[Version] = (3, 14)
_VERSIONS: Final = (_GROUPS, _GENERICS, _DEFAULTS, _TEMPLATES)
_METHODS: Final = frozenset({"cuda", "to", "copy_", "type"})
"""The methods of tensors whose argument `non_blocking` used to be called `async`."""
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


class _Newer(NamedTuple):
    """A construct that a version of Python introduced, and its rewrite in older syntax."""

    version: Version
    edits: tuple[Edit, ...]
    parts: tuple[str, ...] = ()
    """Code that the edits remove, which must parse by itself."""


def needed_version(
    text: str, accepts: Callable[[str], bool], running: Version = sys.version_info[:2]
) -> Version | None:
    """Return the first version of Python that accepts a text, None if no newer one does.

    `accepts` returns whether the running Python parses a text.
    """
    try:
        newer = [each for each in _constructs(text) if each.version > running]
    except ScanError:
        return None
    for version in _VERSIONS:
        known = [each for each in newer if each.version <= version]
        if any(each.version == version for each in known) and _fits(text, known, accepts, running):
            return version
    return None


def _fits(
    text: str, known: Sequence[_Newer], accepts: Callable[[str], bool], running: Version
) -> bool:
    """Return whether a text parses after the rewrites, and all removed code parses, too."""
    older = apply_edits(text, [edit for each in known for edit in each.edits])
    return accepts(older) and all(
        accepts(part) or needed_version(part, accepts, running) is not None
        for each in known
        for part in each.parts
    )


def _constructs(text: str) -> Iterator[_Newer]:
    tokens = scan(text)
    for at, token in enumerate(tokens):
        if token.kind == "string":
            yield from _string(token)
        if token.kind != "word":
            continue
        if token.text in ("def", "class"):
            yield from _parameters(text, tokens, at + 2)
        elif token.text == "type" and _begins_statement(tokens, at):
            yield from _alias(text, tokens, at)
        elif token.text == "except" and _begins_statement(tokens, at):
            yield from _handler(tokens, at)


def _string(token: Token) -> Iterator[_Newer]:
    """Yield an f-string; since 3.12 its expressions may contain any quotes."""
    fields = tuple(f"(\n{field}\n)" for field in token.fields)
    plain = (Edit(Span(token.start, token.end), '""'),)
    if "t" in token.prefix:
        yield _Newer(_TEMPLATES, plain, fields)
    elif token.fields:
        yield _Newer(_GENERICS, plain, fields)


def _begins_statement(tokens: Sequence[Token], at: int) -> bool:
    if tokens[at].depth:
        return False
    return at == 0 or tokens[at - 1].kind == "newline" or tokens[at - 1].text in (";", ":")


def _parameters(text: str, tokens: Sequence[Token], at: int) -> Iterator[_Newer]:
    """Yield the type parameters that begin with the bracket at an index."""
    if at >= len(tokens) or tokens[at].text != "[":
        return
    depth = tokens[at].depth
    end = _next(tokens, at + 1, depth, "]")
    if end is None or end == at + 1:
        return
    inner = tokens[at + 1 : end]
    stars = [
        Edit(Span(token.start, token.end), "")
        for before, token in zip(tokens[at:], inner, strict=False)
        if token.text == "*" and before.text in ("[", ",", "*") and before.depth <= depth + 1
    ]
    span = Span(tokens[at].start, tokens[end].end)
    shift = span.start + 1
    listed = apply_edits(
        text[shift : span.end - 1],
        [Edit(Span(e.span.start - shift, e.span.end - shift), "") for e in stars],
    )
    has_defaults = any(each.text == "=" and each.depth == depth + 1 for each in inner)
    version = _DEFAULTS if has_defaults else _GENERICS
    yield _Newer(version, (Edit(span, ""),), (f"def f({listed}): pass\n",))


def _alias(text: str, tokens: Sequence[Token], at: int) -> Iterator[_Newer]:
    """Yield `type X = ...` and `type X[T] = ...`."""
    if at + 2 >= len(tokens) or tokens[at + 1].kind != "word":
        return
    generic = tuple(_parameters(text, tokens, at + 2))
    end = _next(tokens, at + 3, 0, "]") if generic else at + 1
    if end is None or end + 1 >= len(tokens) or tokens[end + 1].text != "=":
        return
    yield _Newer(_GENERICS, (Edit(Span(tokens[at].start, tokens[at + 1].start), ""),))
    yield from generic


def _handler(tokens: Sequence[Token], at: int) -> Iterator[_Newer]:
    """Yield `except*`, and several exceptions without parentheses.

    `except ValueError, error:` is how Python 2 gave the exception a name.
    """
    first = at + 1
    if first < len(tokens) and tokens[first].text == "*":
        star = Span(tokens[first].start, tokens[first].end)
        yield _Newer(_GROUPS, (Edit(star, " "),))
        first += 1
    end = _next(tokens, first, 0, ":")
    if end is None or end <= first:
        return
    listed = tokens[first:end]
    outer = [token.text for token in listed if token.depth == 0]
    if "," not in outer or "as" in outer or not listed[-1].text[:1].isupper():
        return
    opening, closing = Span(listed[0].start, listed[0].start), Span(listed[-1].end, listed[-1].end)
    yield _Newer(_TEMPLATES, (Edit(opening, "("), Edit(closing, ")")))


def _next(tokens: Sequence[Token], at: int, depth: int, sign: str) -> int | None:
    """Return the index of the next such sign at a bracket depth."""
    for place in range(at, len(tokens)):
        if tokens[place].depth == depth and tokens[place].text == sign:
            return place
    return None


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


def parses(text: str) -> bool:
    """Return True if CPython can parse a text; False means that a full parse must decide.

    Building a symbol table takes half the time of building a syntax tree of Python objects, and
    rejects a few more texts.
    """
    from symtable import symtable

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable(text, "", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
