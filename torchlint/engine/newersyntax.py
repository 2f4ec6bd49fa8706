"""Detecting syntax of a newer Python than the one that runs.

Newer constructs are rewritten in older syntax, and CPython's own parser judges the result, so a
text with any other mistake stays invalid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from torchlint.edit import Edit, Span, apply_edits
from torchlint.engine.scanning import ScanError, Token, scan

Version = tuple[int, int]
_GROUPS: Final[Version] = (3, 11)
_GENERICS: Final[Version] = (3, 12)
_DEFAULTS: Final[Version] = (3, 13)
_TEMPLATES: Final[Version] = (3, 14)
_VERSIONS: Final = (_GROUPS, _GENERICS, _DEFAULTS, _TEMPLATES)


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
