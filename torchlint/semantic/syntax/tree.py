"""Tree: the syntax tree with parents, order and spans, built in one walk over a file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar, cast

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.syntax.methods import last_line
from torchlint.semantic.syntax.oneline import (
    breaks_lines,
    comments_of,
    one_line,
    within_parentheses,
)
from torchlint.semantic.syntax.places import LinkedText, Places
from torchlint.semantic.syntax.reading import Syntax
from torchlint.semantic.view import ALONE, Place, View
from torchlint.source import Source

NodeT = TypeVar("NodeT", bound=cst.CSTNode)


class Fact(Protocol):
    """What is known of one node: a call, a loader, a loop."""

    @property
    def node(self) -> cst.CSTNode:
        """The node."""


FactT = TypeVar("FactT", bound=Fact)

_SKIPPED: Final = frozenset(
    (
        "lpar rpar leading_lines trailing_whitespace comma semicolon equal dot header footer "
        "indent lines_after_decorators colon lbrace rbrace lbracket rbracket first_colon "
        "second_colon asynchronous star posonly_ind type_parameters attr keyword operator newline "
        "relative leading_whitespace encoding default_indent default_newline has_trailing_newline"
    ).split()
)
_SOURCE_ORDER: Final = {
    cst.FunctionDef: ("decorators", "params", "returns", "body"),
    cst.ClassDef: ("decorators", "bases", "keywords", "body"),
    cst.Import: (),
    cst.ImportFrom: (),
    cst.Global: (),
    cst.Nonlocal: (),
    cst.Parameters: ("posonly_params", "params", "star_arg", "kwonly_params", "star_kwarg"),
    cst.Param: ("annotation", "default"),
    cst.AsName: ("name",),
    cst.NamedExpr: ("value", "target"),
}
_ATOMS: Final = (
    cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.Integer, cst.Float, cst.SimpleString,
    cst.FormattedString, cst.List, cst.Dict, cst.Set, cst.ListComp, cst.SetComp, cst.DictComp,
)  # fmt: skip
_LONG: Final = 60
_FIELDS: dict[type, tuple[str, ...]] = {}
_READERS: dict[type, tuple[Callable[[Any], Any], ...]] = {}
_NO_NODES: set[type] = {type(None), str, bool}


def _is_node(value: object) -> bool:
    """Return whether a field holds a node, remembering the types of sentinels."""
    if isinstance(value, cst.CSTNode):
        return True
    _NO_NODES.add(type(value))
    return False


def _fields_of(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """Return the fields of a node type that can hold code, in source order."""
    names = _SOURCE_ORDER.get(kind)
    if names is None:
        names = tuple(
            field.name
            for field in fields(cast(Any, kind))
            if field.name not in _SKIPPED and not field.name.startswith("whitespace")
        )
        if issubclass(kind, (cst.Name, cst.SimpleString, cst.Integer, cst.Float, cst.Comment)):
            names = ()
    _FIELDS[kind] = names
    return names


def _backwards(kind: type[cst.CSTNode]) -> tuple[Callable[[Any], Any], ...]:
    """Return a function that reads the fields of a node that can hold code, last first."""
    names = _FIELDS.get(kind) or _fields_of(kind)
    found = _READERS[kind] = tuple(map(attrgetter, reversed(names)))
    return found


class Tree:
    """A file and the modules linked to it: the parent, the rank and the span of each node.

    Ranks are numbers in source order. Nodes are hashed slowly, so walks outwards go by rank, and
    the tree, which holds all nodes, knows ranks by `id`.

    The nodes of linked modules follow those of the file, in rank and in `source`.
    """

    def __init__(
        self, source: Source, syntax: Syntax, texts: tuple[LinkedText, ...] = (), view: View = ALONE
    ) -> None:
        self.source = source
        self.syntax = syntax
        self.texts = texts
        self.view = view
        self.module = syntax.module
        self.modules = (syntax.module, *(text.module for text in texts))
        self.body: Sequence[cst.CSTNode] = [line for module in self.modules for line in module.body]
        """The top-level statements in view."""
        self.nodes: list[cst.CSTNode] = []
        """The nodes, by rank."""
        self.ranks: dict[int, int] = {}
        """The rank of each node, by its `id`; 0 is that of the module of the file."""
        self.outer: list[int] = []
        """The rank of the parent of each node, by rank; that of a module is negative."""
        self._ends: list[int] = []
        """The rank behind the last node inside each node, by the rank of the node."""
        self._by_type: dict[type[cst.CSTNode], list[Any]] = {}
        """The nodes of each type that was asked for."""
        self._ranks_of_type: dict[type[cst.CSTNode], list[int]] = {}
        """The ranks of the nodes of each type."""
        self._walk()
        self._starts = [self.ranks[id(module)] for module in self.modules]
        """The rank of each module."""

    def _walk(self) -> None:
        nodes, ranks, outer, ends = self.nodes, self.ranks, self.outer, self._ends
        by_type, known, no_nodes = self._ranks_of_type, _READERS, _NO_NODES
        begun = [-1]
        stack: list[Any] = [*reversed(self.modules)]
        rank = 0
        while stack:
            node = stack.pop()
            if node is None:
                ends[begun.pop()] = rank
                continue
            nodes.append(node)
            ranks[id(node)] = rank
            outer.append(begun[-1])
            ends.append(rank + 1)
            kind = type(node)
            try:
                by_type[kind].append(rank)
            except KeyError:
                by_type[kind] = [rank]
            readers = known[kind] if kind in known else _backwards(kind)
            rank += 1
            if not readers:
                continue
            begun.append(rank - 1)
            stack.append(None)
            for read in readers:
                child = read(node)
                kind = type(child)
                if kind is list or kind is tuple:
                    stack += child[::-1]
                elif kind in known or (kind not in no_nodes and _is_node(child)):
                    stack.append(child)

    @property
    def own_text(self) -> str:
        """The source text in view, comments included."""
        return self.source.text

    def mentions(self, *words: str) -> bool:
        """Return whether the text in view has one of some words in it."""
        return any(word in self.own_text for word in words)

    def children(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the direct children of `node`, in source order."""
        for name in _FIELDS.get(type(node)) or _fields_of(type(node)):
            child = getattr(node, name)
            if isinstance(child, (tuple, list)):
                yield from child
            elif type(child) not in _NO_NODES and _is_node(child):
                yield child

    def parent(self, node: cst.CSTNode | None) -> cst.CSTNode | None:
        """Return the node that holds `node`; None for the module, for layout and for None."""
        rank = self.ranks.get(id(node), 0) if node is not None else 0
        return self.nodes[self.outer[rank]] if self.outer[rank] >= 0 else None

    def taker(self, node: cst.CSTNode | None) -> cst.Call | None:
        """Return the call that gets `node` as an argument, None if none does."""
        holder = self.parent(node)
        call = self.parent(holder) if type(holder) is cst.Arg else None
        return call if type(call) is cst.Call else None

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the nodes around `node`, the nearest first, the module last."""
        nodes, outer = self.nodes, self.outer
        at = outer[self.ranks.get(id(node), 0)]
        while at >= 0:
            yield nodes[at]
            at = outer[at]

    def outward(self, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
        """Yield each node around `node`, the nearest first, behind its part that holds `node`."""
        return pairwise(chain((node,), self.ancestors(node)))

    def nearest(self, node: cst.CSTNode, kinds: Container[type]) -> cst.CSTNode | None:
        """Return the innermost node around `node` that is of exactly one of some types."""
        nodes, outer = self.nodes, self.outer
        at = outer[self.ranks.get(id(node), 0)]
        while at >= 0 and type(nodes[at]) not in kinds:
            at = outer[at]
        return nodes[at] if at >= 0 else None

    def module_of(self, node: cst.CSTNode) -> cst.Module:
        """Return the module that contains a node: that of the file, or a linked one."""
        if not self.texts:
            return self.module
        rank = self.ranks.get(id(node), 0)
        return self.modules[bisect_right(self._starts, rank) - 1]

    def path_of(self, node: cst.CSTNode) -> str:
        """Return the path of the module that contains a node, as the view has it."""
        module = self.module_of(node)
        linked = (text.linked.path for text in self.texts if text.module is module)
        return next(linked, self.view.path)

    def is_own(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in the file itself, not in a linked module."""
        return not self.texts or self.ranks.get(id(node), 0) < self._starts[1]

    def place(self, node: cst.CSTNode) -> Place:
        """Return the path and the row of a node in its own file."""
        return self.place_at(self.span(node).start)

    def place_at(self, offset: int) -> Place:
        """Return the path and the row of an offset in the text, in the file that holds it."""
        for text in reversed(self.texts):
            if text.starts[0] <= offset:
                return text.place(offset)
        return Place(self.view.path or self.source.path, self.source.position(offset).row)

    def order(self, node: cst.CSTNode) -> int:
        """Return the rank of a node in source order."""
        return self.ranks[id(node)]

    def end(self, node: cst.CSTNode) -> int:
        """Return the rank that follows the last node inside `node`."""
        return self._ends[self.ranks[id(node)]]

    def inside(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Return whether `node` is `outer` or stands inside it."""
        order = self.ranks
        return node is outer or (begin := order[id(outer)]) < order[id(node)] < self._ends[begin]

    def all(self, kind: type[NodeT]) -> list[NodeT]:
        """Return every node of exactly this type, in source order."""
        found = self._by_type.get(kind)
        if found is None:
            nodes = self.nodes
            found = self._by_type[kind] = [nodes[at] for at in self._ranks_of_type.get(kind, ())]
        return found

    def own(self, kind: type[NodeT]) -> list[NodeT]:
        """Return every node of exactly this type in the file itself, in source order."""
        found = self.all(kind)
        if not self.texts:
            return found
        return found[: bisect_left(found, self._starts[1], key=self.order)]

    def in_file(self, facts: Iterable[FactT]) -> Iterator[FactT]:
        """Yield those of some facts whose node is in the file itself."""
        return (fact for fact in facts if self.is_own(fact.node))

    def spelled(self, word: str) -> Sequence[cst.Name]:
        """Return every name with this spelling, in source order."""
        return self._spelled.get(word, ())

    def words(self, region: cst.CSTNode) -> Iterator[str]:
        """Yield the names and the names of attributes in some code."""
        yield from (name.value for name in self.within(region, cst.Name))
        yield from (each.attr.value for each in self.within(region, cst.Attribute))

    @cached_property
    def _spelled(self) -> dict[str, list[cst.Name]]:
        found: dict[str, list[cst.Name]] = {}
        for name in self.all(cst.Name):
            if name.value in found:
                found[name.value].append(name)
            else:
                found[name.value] = [name]
        return found

    def among(self, nodes: Sequence[NodeT], outer: cst.CSTNode) -> Sequence[NodeT]:
        """Return those of some nodes, given in source order, that are inside `outer`."""
        low = bisect_left(nodes, self.order(outer), key=self.order)
        return nodes[low : bisect_left(nodes, self.end(outer), low, key=self.order)]

    def within(self, outer: cst.CSTNode, kind: type[NodeT]) -> Iterator[NodeT]:
        """Yield the nodes of exactly this type inside `outer`, in source order."""
        ranks = self._ranks_of_type.get(kind, ())
        low = bisect_left(ranks, self.ranks[id(outer)])
        high = bisect_left(ranks, self.end(outer), low)
        return iter(self.all(kind)[low:high] if low < high else ())

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the statement (a line of small statements or a compound one) around `node`."""
        for at in chain((node,), self.ancestors(node)):
            if isinstance(at, cst.BaseStatement):
                return at
            if isinstance(at, cst.SimpleStatementSuite):
                return cast("cst.BaseStatement", self.parent(at))
        raise ValueError("a module is no statement")

    def smallest_statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the small statement around `node`, or the compound one with it in its header."""
        kinds = (cst.BaseSmallStatement, cst.BaseStatement, cst.Module)
        return next(at for at in chain((node,), self.ancestors(node)) if isinstance(at, kinds))

    def beside(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the statements of the block around `node`, splitting lines that hold several."""
        block = self.parent(self.smallest_statement(node))
        if isinstance(block, cst.SimpleStatementLine):
            block = self.parent(block)
        if isinstance(block, (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)):
            for line in block.body:
                yield from line.body if isinstance(line, cst.SimpleStatementLine) else (line,)

    def branches(self, node: cst.CSTNode) -> Iterator[tuple[cst.If, bool]]:
        """Yield the `if`s of the same function around a node, and whether their body holds it."""
        for child, outer in self.outward(node):
            if isinstance(outer, cst.FunctionDef):
                return
            if isinstance(outer, cst.If) and child is not outer.test:
                yield outer, child is outer.body

    def choice(self, one: cst.CSTNode, other: cst.CSTNode) -> cst.If | None:
        """Return the innermost `if` that runs one node or the other, not both."""
        taken = dict(self.branches(one))
        sides = self.branches(other)
        chosen = next((each for each, side in sides if taken.get(each, side) != side), None)
        return chosen or self._leaving(*sorted((one, other), key=self.order))

    def _leaving(self, first: cst.CSTNode, last: cst.CSTNode) -> cst.If | None:
        """Return the `if` around a node that leaves the block before it gets to another node."""
        ends = (cst.Return, cst.Raise, cst.Continue, cst.Break)
        for branch, taken in self.branches(first):
            block = self.parent(branch)
            if taken and isinstance(last_line(branch.body), ends):
                if block is not None and self.inside(last, block):
                    return None if self.inside(last, branch) else branch
        return None

    def tests_around(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yield the tests of the `if`s in the same function whose body contains a node."""
        return (branch.test for branch, taken in self.branches(node) if taken)

    def span(self, node: cst.CSTNode) -> Span:
        """Return the span of a node; that of an expression includes its own parentheses."""
        return self._places.span(node)

    @cached_property
    def _places(self) -> Places:
        return Places(self.source, self.syntax, self.texts, self.ancestors)

    def header(self, loop: cst.For | cst.While) -> Span:
        """Return the characters of the header of a loop, without its colon."""
        head = loop.iter if isinstance(loop, cst.For) else loop.test
        return Span(self.span(loop).start, self.span(head).end)

    def holds(self, node: cst.CSTNode, span: Span) -> bool:
        """Return whether some code begins inside a node."""
        whole = self.span(node)
        return whole.start <= span.start < whole.end

    def holding(self, span: Span, kind: type[NodeT]) -> list[NodeT]:
        """Return the file's own nodes of exactly this type around some code, the outer first."""
        return [each for each in self.own(kind) if self.holds(each, span)]

    def text(self, node: cst.CSTNode) -> str:
        """Return the source text of a node, or its generated code if it is not from the file."""
        if id(node) not in self.ranks:
            return self.module.code_for_node(node)
        span = self.span(node)
        return self.source.text[span.start : span.end]

    def bare(self, node: cst.BaseExpression) -> Span:
        """Return the span of an expression without the parentheses around it."""
        span = self.span(node)
        if not node.lpar:
            return span
        code = self.source.text[span.start : span.end]
        try:
            start, end = within_parentheses(code, len(node.lpar))
        except ValueError:
            return span
        return Span(span.start + start, span.start + end)

    def breaks_lines(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression has line breaks that need the brackets around it."""
        text = self.text(node)
        try:
            return ("\n" in text or "\r" in text) and breaks_lines(text)
        except ValueError:
            return True

    def comments(self, node: cst.CSTNode) -> list[str]:
        """Return the comments inside a node."""
        return comments_of(self.code(node))

    def code(self, node: cst.CSTNode) -> str:
        """Return the code of a node for messages, comparison and reuse elsewhere.

        Code without comments is joined into one line; an expression loses its own parentheses where
        they make no difference.
        """
        if isinstance(node, cst.BaseExpression):
            code = self.argument(node)
            atom = isinstance(node, _ATOMS) or code == "()"
            return f"({code})" if node.lpar and "#" not in code and not atom else code
        if isinstance(node, cst.Arg):
            name = f"{node.keyword.value}=" if node.keyword is not None else node.star
            return f"{name}{self.argument(node.value)}"
        if isinstance(node, (cst.BaseSmallStatement, cst.SimpleStatementLine)):
            return _joined(self.text(node), 0)
        return self.text(node)

    def argument(self, node: cst.BaseExpression) -> str:
        """Return the code of an expression like `code`, without any parentheses around it."""
        return _joined(self.text(node), len(node.lpar))

    def is_closed(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression can be an operand of any operator without parentheses."""
        return isinstance(node, _ATOMS) or bool(node.lpar)

    def operand(self, node: cst.BaseExpression) -> str:
        """Return the code of an expression as an operand, in parentheses where it needs them."""
        code = self.code(node)
        return code if self.is_closed(node) else f"({code})"

    def brief(self, node: cst.CSTNode) -> str:
        """Return the code of a node on one line, leaving out the arguments of a long call."""
        code = " ".join(self.code(node).split())
        if len(code) <= _LONG:
            return code
        if not isinstance(node, cst.Call):
            return f"{code[: _LONG - 3]}..."
        called = self._called(node)
        if len(called) > _LONG and isinstance(node.func, cst.Attribute):
            return f".{node.func.attr.value}({'...' if node.args else ''})"
        return called

    def _called(self, node: cst.BaseExpression) -> str:
        """Return the callee of a chain of calls and attributes, without any arguments."""
        if isinstance(node, cst.Call):
            return f"{self._called(node.func)}({'...' if node.args else ''})"
        if isinstance(node, cst.Attribute):
            return f"{self._called(node.value)}.{node.attr.value}"
        return self.code(node)


def _joined(text: str, pairs: int) -> str:
    """Return code as one line without its parentheses, unchanged if it has a comment."""
    if "#" in text or not (pairs or "\n" in text or "\r" in text):
        return text
    try:
        start, end = within_parentheses(text, pairs)
        return one_line(text[start:end])
    except ValueError:
        return text


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
