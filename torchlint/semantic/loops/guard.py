"""Guard: which code runs when a file is imported, and which only when it is the script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.limits import REACHED
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.syntax.tree import NodeT
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_POOL: Final = frozenset("map starmap imap imap_unordered apply apply_async map_async".split())


class Guard(ValueAnalysis):
    """Finds the code that runs at import, which every spawned worker process repeats."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__(values)
        self._known: dict[int, bool] = {}

    def guards(self) -> list[cst.If]:
        """Return the `if __name__ == "__main__":` statements in view."""
        return self._guards

    @cached_property
    def _guards(self) -> list[cst.If]:
        return [
            line
            for line in self.tree.body
            if isinstance(line, cst.If) and "__name__" in self.tree.code(line.test)
        ]

    def at_import(self, node: cst.CSTNode) -> bool:
        """Return whether importing the file runs a node, directly or through calls."""
        function = self.scopes.function(node)
        if function is None:
            return not any(self.tree.inside(node, guard) for guard in self._guards)
        found = self._known.get(id(function))
        if found is None:
            self._known[id(function)] = False
            found = self._known[id(function)] = any(
                self.at_import(call) for call in self.functions.callers(function)
            )
        return found

    def protects(self, node: cst.CSTNode) -> bool:
        """Return whether a main guard is in view and no unseen code may run a node."""
        if not self._guards:
            return False
        edge = [self.scopes.home(node)]
        for home in edge:
            if isinstance(home, cst.FunctionDef):
                if self.functions.called_unseen(home):
                    return False
                callers = map(self.scopes.home, self.functions.callers(home))
                edge += [each for each in dict.fromkeys(callers) if each not in edge]
        return True

    def starts(self, node: cst.CSTNode, *others: cst.CSTNode) -> bool:
        """Return whether a main guard of its module runs a node, and one of the others if any."""
        return any(
            self._runs(guard, node) and (not others or any(self._runs(guard, at) for at in others))
            for guard in self._guards
            if self.tree.module_of(guard) == self.tree.module_of(node)
        )

    def _runs(self, guard: cst.If, node: cst.CSTNode) -> bool:
        inside = self.tree.inside(node, guard)
        return inside or self.scopes.home(node) in self.functions.reached(guard, REACHED)

    def first(self, nodes: Iterable[NodeT]) -> NodeT | None:
        """Return the first node of a program, the same one for each of its files.

        Modules with a main guard come first, then the others by their paths.
        """
        starts = {self.tree.module_of(guard) for guard in self._guards}

        def place(node: NodeT) -> tuple[bool, str, int]:
            started = self.tree.module_of(node) in starts
            return not started, self.tree.path_of(node), self.tree.order(node)

        return min(nodes, key=place, default=None)

    def in_daemon(self, node: cst.CSTNode) -> bool:
        """Return whether a node runs in a process that may not have child processes."""
        return any(
            isinstance(run, cst.FunctionDef)
            and any(self.tree.inside(node, body) for body in self.functions.reached(run))
            for run in self._daemons
        )

    @cached_property
    def _daemons(self) -> tuple[cst.CSTNode | None, ...]:
        """Return the functions that pools and daemonic processes run."""
        return tuple(self._find_daemons())

    def _find_daemons(self) -> Iterator[cst.CSTNode | None]:
        for call in self.tree.all(cst.Call):
            name = self.functions.names.name(call.func) or ""
            target = None
            if name.endswith("multiprocessing.Process"):
                if self.values.argument(call, "daemon").equals(True):
                    target = self.values.argument_node(call, "target", 1)
            elif method_of(call) in _POOL:
                target = self.values.argument_node(call, "func", 0)
            if target is not None:
                yield self.functions.definition(target.value)
