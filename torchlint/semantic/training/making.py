"""Making: which code makes the networks that are meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.training.networks import Networks, Root
from torchlint.semantic.training.reach import Reach

_LIBRARIES: Final = ("torch.", "torchvision.", "timm.", "transformers.", "segmentation_models")
_PARTS: Final = frozenset("modules named_modules children named_children".split())
Code = frozenset[cst.CSTNode | None]
"""Calls, classes and functions; None if it may be any code."""


class Making(Analysis):
    """Follows networks to the code that makes them, and to all that this code mentions."""

    def __init__(self, functions: Functions, networks: Networks, reach: Reach) -> None:
        super().__init__(functions)
        self.networks = networks
        self.reach = reach

    def may_make(self, node: cst.CSTNode, *networks: cst.BaseExpression) -> bool:
        """Return whether the code at a node may make one of some networks, or a part of it."""
        roots = (root for each in networks for root in self._roots(each))
        return self.may_be_in(node, self.code(roots))

    def may_be_in(self, node: cst.CSTNode, code: Code) -> bool:
        """Return whether a node is in some code, or in what that mentions."""
        if None in code:
            return True
        found = self._closure(code)
        return node in found or any(outer in found for outer in self.tree.ancestors(node))

    @cached_method
    def _closure(self, code: Code) -> frozenset[cst.CSTNode]:
        return self.reach.closure([each for each in code if each is not None])

    def code(self, roots: Iterable[Root]) -> Code:
        """Return the code that makes the networks of some roots."""
        return frozenset(self._made_by(roots))

    def _roots(self, node: cst.BaseExpression) -> Iterable[Root]:
        """Return what creates a network, for a part of one that a loop goes through as well."""
        for each in self.scopes.reaching(node):
            drawn = each.value.func if isinstance(each.value, cst.Call) else None
            if each.how is How.LOOP and isinstance(drawn, cst.Attribute):
                if drawn.attr.value in _PARTS:
                    return self.networks.roots(drawn.value)
        return self.networks.roots(node)

    def _made_by(self, roots: Iterable[Root]) -> Iterator[cst.CSTNode | None]:
        for root in roots:
            made = self.functions.definition(root.func) if isinstance(root, cst.Call) else None
            if isinstance(root, cst.ClassDef):
                yield root
            elif not isinstance(root, cst.CSTNode) or isinstance(root, cst.Param):
                yield None
            elif made is not None:
                yield made
            elif isinstance(root, cst.Call):
                known = (self.names.name(root.func) or "").startswith(_LIBRARIES)
                yield root if known else None
