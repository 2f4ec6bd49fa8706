"""Places: the spans of nodes, found statement by statement on demand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from types import TracebackType
from typing import Any, Final

import libcst as cst
from libcst._nodes.internal import CodegenState

from torchlint.edit import Span
from torchlint.semantic.syntax import Syntax
from torchlint.source import Source

__all__ = ["Places"]

_WHITE: Final = re.compile(r"[ \t\f]*")
_PARTS: Final = ("body", "handlers", "orelse", "finalbody", "cases")


class Places:
    """The spans of nodes.

    Most are known from reading. Nodes that LibCST parsed are placed on demand: CPython's parser
    gives the line where each statement begins; inside a statement, or inside an expression with a
    known span, the spans are those of the code that LibCST generates for it.
    """

    def __init__(
        self, source: Source, syntax: Syntax, parents: Mapping[cst.CSTNode, cst.CSTNode]
    ) -> None:
        self.source = source
        self.module = syntax.module
        self.parents = parents
        self._known = syntax.spans
        self._fragments = syntax.fragments
        self._spans: dict[cst.CSTNode, Span] = {}
        self._rows: dict[cst.CSTNode, int] | None = None

    def span(self, node: cst.CSTNode) -> Span:
        """Return the span of a node; that of an expression includes its own parentheses."""
        known = self._known.get(node)
        if known is not None:
            return Span(*known)
        found = self._spans.get(node)
        if found is None:
            if node is self.module:
                return Span(0, len(self.source.text))
            self._measure(node)
            found = self._spans[node]
        return found

    def _measure(self, node: cst.CSTNode) -> None:
        """Compute the span of a node and of all nodes around it that lack one."""
        if not self._known:
            self._measure_statement(node)
            return
        at: cst.CSTNode | None = node
        while at is not None and at not in self._fragments:
            at = self.parents.get(at)
        if at is None:
            raise KeyError(f"a {type(node).__name__} has no place of its own")
        fragment, start = self._fragments[at]
        self._keep(_Places(self.module), fragment, start)

    def _measure_statement(self, node: cst.CSTNode) -> None:
        statement = self._statement(node)
        row = self._row(statement) if statement is not None else None
        if statement is None or row is None:
            self._keep(_Places(self.module), self.module, 0)
            return
        start = self.source.line_starts[row - 1]
        white = _WHITE.match(self.source.text, start)
        assert white is not None
        state = _Places(self.module)
        state.indent_tokens = [white.group()] if white.group() else []
        self._keep(state, statement, white.end())

    def _keep(self, state: _Places, node: cst.CSTNode, start: int) -> None:
        node._codegen(state)
        offsets = [0, *accumulate(map(len, state.tokens))]
        last = len(offsets) - 1
        shift = 0 if node is self.module else start - offsets[state.places[node][0]]
        for key, (first, end) in state.places.items():
            self._spans[key] = Span(
                offsets[min(first, last)] + shift, offsets[min(end, last)] + shift
            )

    def _statement(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the smallest statement around a node that shares its line with no other."""
        at: cst.CSTNode | None = node
        while at is not None:
            holder = self.parents.get(at)
            if isinstance(holder, (cst.IndentedBlock, cst.Module)):
                return at
            at = holder
        return None

    def _row(self, statement: cst.CSTNode) -> int | None:
        if self._rows is None:
            try:
                self._rows = dict(_pairs(self.module.body, ast.parse(self.source.text).body))
            except (SyntaxError, _UnpairedError):
                self._rows = {}
        return self._rows.get(statement)


class _UnpairedError(Exception):
    """The two parsers disagree on the statements of the file."""


def _pairs(
    nodes: Sequence[cst.CSTNode], others: Sequence[Any]
) -> Iterator[tuple[cst.CSTNode, int]]:
    """Pair the statements of both parsers, and yield the row of each LibCST statement."""
    at = 0
    for node in nodes:
        if at >= len(others):
            raise _UnpairedError
        other = others[at]
        yield node, other.lineno
        if isinstance(node, cst.SimpleStatementLine):
            at += len(node.body)
        else:
            at += 1
            yield from _inner_pairs(node, other)
    if at != len(others):
        raise _UnpairedError


def _inner_pairs(node: cst.CSTNode, other: Any) -> Iterator[tuple[cst.CSTNode, int]]:
    for part in _PARTS:
        inner = getattr(node, part, None)
        theirs = getattr(other, part, None)
        if inner is None or isinstance(inner, cst.SimpleStatementSuite):
            continue
        if isinstance(inner, cst.IndentedBlock):
            yield from _pairs(inner.body, theirs or ())
        elif isinstance(inner, cst.If):
            yield from _inner_pairs(inner, (theirs or [None])[0])
        elif isinstance(inner, (cst.Else, cst.Finally)):
            if isinstance(inner.body, cst.IndentedBlock):
                yield from _pairs(inner.body.body, theirs or ())
        elif isinstance(inner, (tuple, list)):
            for mine, their in zip(inner, theirs or (), strict=True):
                yield from _inner_pairs(mine, their)


class _Recorded:
    """Records the tokens between the start and the end of a statement."""

    __slots__ = ("end_node", "node", "start", "start_node", "state")

    def __init__(
        self,
        state: _Places,
        node: cst.CSTNode,
        start_node: cst.CSTNode | None,
        end_node: cst.CSTNode | None,
    ) -> None:
        self.state = state
        self.node = node
        self.start_node = start_node
        self.end_node = end_node

    def __enter__(self) -> None:
        self.start = len(self.state.tokens)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        state = self.state
        start = self.start
        end = len(state.tokens)
        if self.start_node is not None:
            start = state.places[self.start_node][0]
        if self.end_node is not None:
            end = state.places[self.end_node][1]
        if not isinstance(self.node, cst.BaseExpression):
            state.places[self.node] = (start, end)


class _Places(CodegenState):
    """Generates code while recording between which tokens each node is."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.places: dict[cst.CSTNode, tuple[int, int]] = {}
        self.starts: list[int] = []

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.starts.append(len(self.tokens))

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self.starts.pop()
        if node not in self.places:
            self.places[node] = (start, len(self.tokens))

    def record_syntactic_position(  # type: ignore[override]
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> _Recorded:
        return _Recorded(self, node, start_node, end_node)
