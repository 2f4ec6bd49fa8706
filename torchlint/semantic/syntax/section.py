"""Section: some statements of a tree, as a tree of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.syntax.tree import NodeT, Tree


class Section(Tree):
    """A view of a tree that finds the nodes of some statements alone.

    Nodes, ranks and places are those of the whole tree, so that edits and names fit both.
    """

    def __init__(self, whole: Tree, body: Sequence[cst.CSTNode]) -> None:
        vars(self).update(vars(whole))
        self.whole = whole
        self.body = body
        self._by_type: dict[type[cst.CSTNode], list[Any]] = {}

    def all(self, kind: type[NodeT]) -> list[NodeT]:
        """Return every node of exactly this type in the section, in source order."""
        found = self._by_type.get(kind)
        if found is None:
            lines = (self.whole.within(line, kind) for line in self.body)
            found = self._by_type[kind] = [node for line in lines for node in line]
        return found

    def within(self, outer: cst.CSTNode, kind: type[NodeT]) -> Iterator[NodeT]:
        """Yield the nodes of exactly this type inside `outer`, in source order."""
        if isinstance(outer, cst.Module):
            return iter(self.whole.among(self.all(kind), outer))
        return self.whole.within(outer, kind)

    def span(self, node: cst.CSTNode) -> Span:
        """Return the span of a node; that of an expression includes its own parentheses."""
        return self.whole.span(node)

    @cached_property
    def own_text(self) -> str:
        """The source text of the section, comments included."""
        lines = self.whole.body
        ends = [self.whole.span(line).end for line in lines]
        starts = dict(zip(lines, [0, *ends], strict=False))
        spans = ((line, self.whole.span(line)) for line in self.body)
        text = self.source.text
        return "\n".join(text[starts.get(line, at.start) : at.end] for line, at in spans)
