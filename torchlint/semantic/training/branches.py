"""Branches: code behind a comparison that no value in view satisfies, a return or an exit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.scope.libraries import EXITS
from torchlint.semantic.values.known import ValueAnalysis

_JUMPS: Final = (cst.Return, cst.Raise, cst.Break, cst.Continue)


class Branches(ValueAnalysis):
    """Finds what never runs: the branch of `if device == "cuda":` for "cuda:0" or "cpu".

    A single constant is no proof, since people change it to switch code on.
    """

    def are_never_taken(self, span: Span) -> bool:
        """Return whether code stands in a branch that is never taken, or behind a return."""
        return any(self.tree.holds(branch, span) for branch in self._never_taken)

    def is_behind_exit(self, node: cst.CSTNode) -> bool:
        """Return whether a line of the same block, or of one around it, ends the program before.

        Such a line is soon taken out again: the code behind it is no mistake.
        """
        line: cst.CSTNode | None = node
        while line is not None:
            block = self.tree.parent(line)
            ends = self._ends.get(id(block))
            if ends is not None and block is not None:
                lines = list(block.children)
                if lines.index(ends) < lines.index(line):
                    return True
            line = block
        return False

    @cached_property
    def _ends(self) -> dict[int, cst.CSTNode]:
        """The first line in a block that ends the program, by the block."""
        found: dict[int, cst.CSTNode] = {}
        for call in self.tree.all(cst.Call):
            holder = self.tree.parent(call)
            if isinstance(holder, cst.Expr) and self.names.name(call.func) in EXITS:
                line = self.tree.statement(call)
                found.setdefault(id(self.tree.parent(line)), line)
        return found

    @cached_property
    def _never_taken(self) -> list[cst.CSTNode]:
        branches = [
            line.body
            for line in self.tree.all(cst.If)
            if self.tree.is_own(line) and self._never_holds(line.test)
        ]
        return [*branches, *self._behind_jumps()]

    def _behind_jumps(self) -> Iterator[cst.CSTNode]:
        """Yield the statements behind one that always leaves their block."""
        for block in self.tree.all(cst.IndentedBlock):
            leaves = False
            for line in block.body:
                for each in line.body if isinstance(line, cst.SimpleStatementLine) else (line,):
                    if leaves:
                        yield each
                    leaves = leaves or isinstance(each, _JUMPS)

    def _never_holds(self, test: cst.BaseExpression) -> bool:
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return False
        operator, wanted = test.comparisons[0].operator, test.comparisons[0].comparator
        if not isinstance(operator, cst.Equal) or not isinstance(wanted, cst.SimpleString):
            return False
        known = self.origins.of(test.left).known
        texts = [each.evaluated_value for each in known if isinstance(each, cst.SimpleString)]
        return len(texts) == len(known) > 1 and wanted.evaluated_value not in texts
