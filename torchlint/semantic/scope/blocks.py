"""Blocks: the statement lists around nodes, and which of them always bind a name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping
from itertools import takewhile
from operator import attrgetter
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.scope.bindings import Binding, How
from torchlint.semantic.syntax.tree import Tree

_BLOCKS: Final = frozenset({cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module})
Fork = cst.If | cst.Try
_ByBlock = Mapping[cst.CSTNode, Binding]
_AT: Final = attrgetter("at")


class Blocks:
    """Relates bindings to the statement lists in which they happen."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_method
    def blocks(self, node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
        """Return the statement lists around a node, innermost first; `with` bodies do not count."""
        outer = self.tree.nearest(node, _BLOCKS)
        return () if outer is None else self._blocks_from(outer)

    @cached_method
    def _blocks_from(self, block: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
        """Return a statement list and those around it, leaving out `with` bodies."""
        parent = self.tree.parent(block)
        kind = type(parent)
        ends = parent is None or kind is cst.FunctionDef or kind is cst.ClassDef
        outer = self.blocks(block) if not ends else ()
        return outer if kind is cst.With else (block, *outer)

    @cached_method
    def _home(self, binding: Binding) -> tuple[cst.CSTNode, ...]:
        """Return the statement lists in which a binding always happens, innermost first."""
        node = binding.node
        if type(node) is cst.For:
            found = (node.body, *self.blocks(node))
        elif type(node) is cst.Param:
            owner = self.tree.parent(self.tree.parent(node))
            body = owner.body if type(owner) is cst.FunctionDef else None
            found = (body,) if body is not None else ()
        elif type(node) is cst.ExceptHandler:
            found = (node.body, *self.blocks(node))
        else:
            found = self.blocks(node)
        return found

    def among(
        self, bindings: list[Binding], outer: cst.CSTNode, low: int = 0, high: int | None = None
    ) -> list[Binding]:
        """Return those of some bindings that are inside `outer`, in their order."""
        first = bisect_left(bindings, self.tree.order(outer), low, high, key=_AT)
        return bindings[first : bisect_left(bindings, self.tree.end(outer), first, high, key=_AT)]

    def _exclusive(
        self, binding: Binding, around: tuple[cst.CSTNode, ...], known: set[cst.CSTNode]
    ) -> bool:
        """Return whether a binding is in the other branch of an `if` around the place."""
        inner: cst.CSTNode | None = None
        for block in self.blocks(binding.node):
            if block in known:
                break
            inner = block
        choice = self._choice(inner) if inner is not None else None
        return choice is not None and any(self.tree.inside(block, choice) for block in around)

    def _is_hidden(self, binding: Binding, later: _ByBlock, known: Container[cst.CSTNode]) -> bool:
        """Return whether one of some later bindings always follows, short of an error."""
        block = next((each for each in self._home(binding) if each in later), None)
        if block is None:
            return False
        inner = takewhile(lambda each: each not in known, self.tree.ancestors(block))
        first, last = self.tree.order(binding.node), self.tree.order(later[block].node)
        exits = (*self.tree.within(block, cst.Break), *self.tree.within(block, cst.Continue))
        left = any(first < self.tree.order(each) < last for each in exits)
        return not left and not any(isinstance(each, cst.Try | cst.TryStar) for each in inner)

    @cached_method
    def _choice(self, branch: cst.CSTNode) -> cst.If | None:
        """Return the first `if` of the chain with a branch, None if it is no branch of one."""
        owner = self.tree.parent(branch)
        if type(owner) is cst.Else or type(owner) is cst.If:
            return self._choice(owner) or (owner if type(owner) is cst.If else None)
        return None

    def _fork(self, binding: Binding, known: set[cst.CSTNode]) -> Fork | None:
        """Return the outermost `if` or `try` that decides whether a binding happens."""
        outermost: Fork | None = None
        for outer in self.tree.ancestors(binding.node):
            if type(outer) in _BLOCKS and outer in known:
                break
            if isinstance(outer, (cst.If, cst.Try)):
                outermost = outer
            elif isinstance(outer, (cst.For, cst.While)):
                outermost = None
        return outermost

    def is_certain(self, bindings: Iterable[Binding], known: Iterable[cst.CSTNode]) -> bool:
        """Return whether a name has a value wherever some statement lists are running."""
        inside, made = set(known), tuple(bindings)
        forks, bound = [self._fork(each, inside) for each in made], self._bound_blocks(made)
        return any(fork is None or self._binds(fork, bound) for fork in forks)

    def _bound_blocks(self, bindings: Iterable[Binding]) -> set[cst.CSTNode]:
        """Return the statement lists in which some bindings always give a new value."""
        homes = (self._home(each) for each in bindings if each.how is not How.AUGMENTED)
        return {home[0] for home in homes if home}

    def _binds(self, fork: cst.CSTNode, bound: set[cst.CSTNode]) -> bool:
        """Return whether every path through an `if` or `try` binds or leaves the block."""
        if isinstance(fork, cst.Try):
            parts: list[cst.CSTNode] = [fork.body, *(handler.body for handler in fork.handlers)]
            return bool(fork.handlers) and all(self._settles(part, bound) for part in parts)
        if not isinstance(fork, cst.If) or fork.orelse is None:
            return False
        rest = fork.orelse.body if isinstance(fork.orelse, cst.Else) else fork.orelse
        return self._settles(fork.body, bound) and (
            self._binds(rest, bound) if isinstance(rest, cst.If) else self._settles(rest, bound)
        )

    def _settles(self, block: cst.CSTNode, bound: set[cst.CSTNode]) -> bool:
        """Return whether a block always binds, also inside a fork, or leaves at its end."""
        if block in bound:
            return True
        lines = block.body if isinstance(block, cst.IndentedBlock) else ()
        return any(self._binds(line, bound) for line in lines) or (
            bool(lines)
            and isinstance(lines[-1], cst.SimpleStatementLine)
            and isinstance(lines[-1].body[-1], (cst.Return, cst.Raise, cst.Continue, cst.Break))
        )
