"""Places: the spans of nodes, found on demand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from torchlint.edit import Span
from torchlint.semantic.syntax.reading import Syntax, read
from torchlint.semantic.view import Excerpt, LinkedModule, Place
from torchlint.source import Source

_MOST_READ: Final = 512
"""How many excerpts are kept: files of one folder are often checked with the same ones."""


class Places:
    """The spans of nodes, those of linked modules in the whole text.

    Most are known from reading. Nodes that LibCST parsed, in a file or in an expression with a
    known span, are placed on demand: their spans are those of the code that LibCST generates.
    """

    def __init__(
        self,
        source: Source,
        syntax: Syntax,
        texts: Sequence[LinkedText],
        ancestors: Callable[[cst.CSTNode], Iterable[cst.CSTNode]],
    ) -> None:
        self.source = source
        self.module = syntax.module
        self.ancestors = ancestors
        self._known = syntax.spans
        self._fragments = dict(syntax.fragments)
        self._spans: dict[cst.CSTNode, Span] = {}
        self._excerpts: list[tuple[Mapping[cst.CSTNode, tuple[int, int]], int]] = []
        """The spans in each excerpt of the linked modules, and its offset."""
        for text in texts:
            begin = text.starts[0]
            self._spans[text.module] = Span(begin, begin + len(text.text))
            for piece, offset in zip(text.read, text.starts, strict=True):
                self._excerpts.append((piece.spans, offset))
                for node, (fragment, start) in piece.fragments.items():
                    self._fragments[node] = fragment, start + offset

    def span(self, node: cst.CSTNode) -> Span:
        """Return the span of a node; that of an expression includes its own parentheses."""
        known = self._known.get(node)
        if known is not None:
            return Span(*known)
        found = self._spans.get(node)
        if found is None:
            self._measure(node)
            found = self._spans[node]
        return found

    def _measure(self, node: cst.CSTNode) -> None:
        """Compute the span of a node and of all nodes around it that lack one."""
        if not self._known:
            self._spans[self.module] = Span(0, len(self.source.text))
            self._keep(self.module, self.source.text, 0)
            return
        for spans, offset in self._excerpts:
            if node in spans:
                start, end = spans[node]
                self._spans[node] = Span(start + offset, end + offset)
                return
        around = (node, *self.ancestors(node))
        at = next((each for each in around if each in self._fragments), None)
        if at is None:
            raise KeyError(f"a {type(node).__name__} has no place of its own")
        fragment, start = self._fragments[at]
        module = self.module.with_changes(
            header=(), footer=(), body=(cst.SimpleStatementLine((cst.Expr(fragment),)),)
        )
        self._keep(module, module.code, start)

    def _keep(self, module: cst.Module, code: str, start: int) -> None:
        """Keep the spans of the nodes of a module whose code begins at `start`."""
        found = MetadataWrapper(module, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider)
        characters = _characters(code)
        last = len(characters) - 1  # LibCST counts a missing last newline
        for node, place in found.items():
            first, end = _with_parentheses(node, place, found)
            inside = Span(characters[min(first, last)], characters[min(end, last)])
            self._spans.setdefault(node, Span(inside.start + start, inside.end + start))


def _with_parentheses(
    node: cst.CSTNode, place: CodeSpan, places: Mapping[cst.CSTNode, CodeSpan]
) -> tuple[int, int]:
    """Return where a node begins and ends, with the parentheses of an expression."""
    first, end = place.start, place.start + place.length
    if isinstance(node, cst.BaseExpression) and node.lpar:
        first = places[node.lpar[0]].start
        last = places[node.rpar[-1]]
        end = last.start + last.length
    return first, end


def _characters(code: str) -> range | list[int]:
    """Return the character at which each byte of a text stands, and its end."""
    if code.isascii():
        return range(len(code) + 1)
    found = [at for at, character in enumerate(code) for _ in range(len(character.encode("utf-8")))]
    return [*found, len(code)]


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
