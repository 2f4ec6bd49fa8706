"""Edits that take the construction of a value out of a loop."""

from __future__ import annotations

from itertools import takewhile

import libcst as cst

from torchlint.semantic.edits.rewrite import Edits, Rewrite


class LoopEdits(Rewrite):
    """Makes the edits of fixes, with those that make a value once, before a loop."""

    def hoisted(self, value: cst.BaseExpression, loop: cst.For | cst.While) -> Edits | None:
        """Move the line that assigns a value before a loop around it.

        None if the value needs the loop, or its names have other values there or are read earlier.
        """
        line = self.tree.statement(value)
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(small, cst.Assign) or small.value is not value:
            return None
        if not self.stands_alone(line) or not self.stands_alone(loop):
            return None
        between = takewhile(lambda outer: outer is not loop, self.tree.ancestors(line))
        if not all(isinstance(outer, (cst.IndentedBlock, cst.For, cst.While)) for outer in between):
            return None
        targets: list[cst.BaseExpression] = [each.target for each in small.targets]
        for target in targets:
            if isinstance(target, cst.Tuple):
                targets += [element.value for element in target.elements]
            elif not isinstance(target, cst.Name) or not self._is_bound_once(target, line, loop):
                return None
        return None if self._needs(value, loop, line) else self.moved(line, loop, behind=False)

    def _needs(
        self, value: cst.CSTNode, loop: cst.For | cst.While, line: cst.BaseStatement
    ) -> bool:
        """Return whether a loop binds a name of a value, other than by the value's own line."""
        return any(
            self.tree.inside(binding.node, loop) and not self.tree.inside(binding.node, line)
            for name in self.tree.within(value, cst.Name)
            for binding in self.scopes.reaching(name)
        )

    def _is_bound_once(
        self, target: cst.Name, line: cst.BaseStatement, loop: cst.For | cst.While
    ) -> bool:
        """Return whether a loop assigns a name in one line only and reads it after that line."""
        if target.value in self.scopes.scope(target).outward:
            return False
        return not any(
            name.value == target.value
            and not self.tree.inside(name, line)
            and (self._is_stored(name) or self.tree.order(name) < self.tree.order(line))
            for name in self.tree.within(loop, cst.Name)
        )

    def _is_stored(self, name: cst.Name) -> bool:
        """Return whether a name is assigned or deleted."""
        if isinstance(self.tree.smallest_statement(name), cst.Del):
            return True
        return not self.scopes.reads(name) or self.scopes.stored(name) is not None

    def named_before(
        self, value: cst.BaseExpression, word: str, loop: cst.For | cst.While
    ) -> Edits | None:
        """Name a value before the loop that makes it, None if the name is taken."""
        code = self.tree.code(value)
        if "\n" in code or self.tree.spelled(word):
            return None
        return (*self.before(loop, f"{word} = {code}"), *self.replace(value, word))
