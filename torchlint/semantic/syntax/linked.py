"""Linked: a file and the definitions of other modules as one text."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.syntax.reading import Syntax, read
from torchlint.semantic.view import Excerpt, LinkedModule, Place
from torchlint.source import Source

_MOST_READ: Final = 512
"""How many excerpts are kept: files of one folder are often checked with the same ones."""


class LinkedText(NamedTuple):
    """A linked module within the whole text: its nodes, and each excerpt with its offset."""

    linked: LinkedModule
    module: cst.Module
    read: tuple[Syntax, ...]
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
    """The text of a file followed by that of its linked modules."""

    source: Source
    texts: tuple[LinkedText, ...] = ()


def joined(source: Source, syntax: Syntax, modules: tuple[LinkedModule, ...]) -> Whole:
    """Append linked modules to a file; those that only LibCST's parser can read are left out."""
    if not syntax.spans:
        return Whole(source)
    pieces = [_closed(source.text)]
    texts: list[LinkedText] = []
    at = len(pieces[0])
    for linked in modules:
        closed = [Excerpt(each.row, _closed(each.text)) for each in linked.excerpts]
        read = tuple(found for each in closed if (found := _read(linked.path, each)) is not None)
        if not read or len(read) < len(closed):
            continue
        module = cst.Module([line for each in read for line in each.module.body])
        starts = tuple(accumulate((len(each.text) for each in closed[:-1]), initial=at))
        text = "".join(each.text for each in closed)
        texts.append(LinkedText(linked, module, read, starts, text))
        pieces.append(text)
        at += len(text)
    return Whole(replace(source, text="".join(pieces)) if texts else source, tuple(texts))


def _closed(text: str) -> str:
    """Return a text whose last line has an end."""
    return text if text.endswith(("\n", "\r")) else f"{text}\n"


@lru_cache(maxsize=_MOST_READ)
def _read(path: str, excerpt: Excerpt) -> Syntax | None:
    """Read an excerpt of a linked module, None if its nodes have no known spans."""
    try:
        found = read(Source(path, excerpt.text))
    except cst.ParserSyntaxError:
        return None
    return found if found.spans else None
