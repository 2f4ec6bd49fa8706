"""Item keys: what one entry of a dataset's items, which are dictionaries, depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.syntax.methods import index_of

_TIMES: Final = 200
"""How many expressions of one method are followed at most."""


class ItemKeys(Analysis):
    """Follows an entry of an item back through the method that makes the item."""

    def __init__(self, functions: Functions) -> None:
        super().__init__(functions)

    @cached_method
    def expressions(self, read: cst.FunctionDef, key: str) -> tuple[cst.BaseExpression, ...]:
        """Return all expressions of a method that an entry depends on; none if it is not in sight.

        The conditions around them are among them.
        """
        seen: dict[cst.BaseExpression, None] = {}
        edge = list(self._entries(read, key))
        while edge and len(seen) < _TIMES:
            node = edge.pop()
            if node not in seen:
                seen[node] = None
                edge += self._behind(node, read)
        return tuple(seen) if not edge else ()

    def _entries(self, read: cst.FunctionDef, key: str) -> Iterator[cst.BaseExpression]:
        """Yield the values that a method puts under a key, with the conditions around them."""
        for element in self.functions.own(read, cst.DictElement):
            if _is_key(element.key, key):
                yield element.value
                yield from self._conditions(element, read)
        for line in self.functions.own(read, cst.Assign):
            target = line.targets[0].target
            index = index_of(target)
            if index is not None and _is_key(index, key):
                yield line.value
                yield from self._conditions(line, read)

    def _behind(
        self, node: cst.BaseExpression, read: cst.FunctionDef
    ) -> Iterator[cst.BaseExpression]:
        """Yield what the names of an expression were assigned in a method."""
        for name in self.tree.within(node, cst.Name):
            for binding in self.scopes.reaching(name):
                if binding.value is not None and self.tree.inside(binding.node, read):
                    yield binding.value
                    yield from self._conditions(binding.node, read)
                    yield from self._changes(name, read)

    def _changes(self, name: cst.Name, read: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
        """Yield the calls that may change the object of a local name: `parts.append(…)`."""
        for used in self.tree.spelled(name.value):
            holder = self.tree.parent(used)
            call = self.tree.parent(holder) if isinstance(holder, cst.Attribute) else None
            line = self.tree.parent(call) if isinstance(call, cst.Call) else None
            if isinstance(call, cst.Call) and isinstance(line, cst.Expr):
                if self.tree.inside(call, read):
                    yield call
                    yield from self._conditions(call, read)

    def _conditions(self, node: cst.CSTNode, read: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
        for outer in self.tree.ancestors(node):
            if outer is read:
                return
            if isinstance(outer, (cst.If, cst.While)):
                yield outer.test


def _is_key(node: cst.BaseExpression, key: str) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == key
