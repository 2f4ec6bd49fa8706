"""Linked: a file and the definitions of other modules as one text with one set of spans."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.syntax.reading import Syntax, read
from torchlint.semantic.view import LinkedModule, Place
from torchlint.source import Source

_MOST_TEXTS: Final = 32
"""How many linked modules are kept: files of one folder are often checked with the same ones."""


class LinkedText(NamedTuple):
    """A linked module within the whole text: its nodes, and the offset of each excerpt."""

    linked: LinkedModule
    module: cst.Module
    starts: tuple[int, ...]
    text: str

    def place(self, offset: int) -> Place:
        """Return the place of an offset of the whole text in the module's own file."""
        at = max(bisect_right(self.starts, offset) - 1, 0)
        start = self.starts[at]
        before = self.text[start - self.starts[0] : offset - self.starts[0]]
        lines = before.count("\n") + before.count("\r") - before.count("\r\n")
        return Place(self.linked.path, self.linked.excerpts[at].row + lines)


class Whole(NamedTuple):
    """The text of a file followed by that of its linked modules, with the spans of all nodes."""

    source: Source
    syntax: Syntax
    texts: tuple[LinkedText, ...] = ()


def joined(source: Source, syntax: Syntax, modules: tuple[LinkedModule, ...]) -> Whole:
    """Append linked modules to a file; those that only LibCST's parser can read are left out."""
    if not syntax.spans:
        return Whole(source, syntax)
    pieces = [_closed(source.text)]
    spans, fragments = dict(syntax.spans), dict(syntax.fragments)
    texts: list[LinkedText] = []
    at = len(pieces[0])
    for linked in modules:
        excerpts = [_closed(excerpt.text) for excerpt in linked.excerpts]
        text = "".join(excerpts)
        inner = _read(linked.path, text)
        if inner is None:
            continue
        starts = tuple(accumulate((len(each) for each in excerpts[:-1]), initial=at))
        for node, (start, end) in inner.spans.items():
            spans[node] = start + at, end + at
        for node, (fragment, start) in inner.fragments.items():
            fragments[node] = fragment, start + at
        spans[inner.module] = at, at + len(text)
        texts.append(LinkedText(linked, inner.module, starts, text))
        pieces.append(text)
        at += len(text)
    if not texts:
        return Whole(source, syntax)
    whole = replace(source, text="".join(pieces))
    return Whole(whole, Syntax(syntax.module, spans, fragments), tuple(texts))


def _closed(text: str) -> str:
    """Return a text whose last line has an end."""
    return text if text.endswith(("\n", "\r")) else f"{text}\n"


@lru_cache(maxsize=_MOST_TEXTS)
def _read(path: str, text: str) -> Syntax | None:
    """Read a linked module, None if its nodes have no known spans."""
    try:
        found = read(Source(path, text))
    except cst.ParserSyntaxError:
        return None
    return found if found.spans else None
