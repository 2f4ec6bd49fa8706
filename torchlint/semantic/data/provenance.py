"""Provenance: whether a value is made only by code in this file or in known libraries."""

from __future__ import annotations

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.data.itemwork import ItemWork
from torchlint.semantic.data.unseen import UnseenSearch
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.values.known import ValueAnalysis


class Provenance(ValueAnalysis):
    """Finds the first part of a value that code outside this file made."""

    def __init__(self, work: ItemWork) -> None:
        super().__init__(work.values)
        self.work = work

    @cached_method
    def unseen_tensors(self, dataset: cst.BaseExpression) -> str:
        """Return what may put device tensors into a dataset's items, "" if nothing can."""
        return self._described(UnseenSearch(self.work, handles=False).items(dataset))

    def unseen_items(self, dataset: cst.BaseExpression) -> str:
        """Return what may put anything but tensors into a dataset's items, "" if nothing can."""
        made = self.work.origins.of(dataset)
        tensors = made.complete and all(
            isinstance(value, cst.Call)
            and self.names.name(value.func) == "torch.utils.data.TensorDataset"
            for value in made.values
        )
        return "" if tensors and made.values else self.unseen_tensors(dataset)

    def unseen_source(self, dataset: cst.BaseExpression) -> str:
        """Return which source of a dataset may be an open file, "" if none can."""
        return self._described(UnseenSearch(self.work, handles=True).items(dataset))

    def unseen_batches(self, collate: cst.BaseExpression) -> str:
        """Return what may put device tensors into a collate function's batches, "" if nothing."""
        return self._described(UnseenSearch(self.work, handles=False).made(collate))

    def unseen_class(self, node: cst.BaseExpression) -> str:
        """Return the class of an object, or the base class, that is not visible, "" if all are."""
        return self._described(UnseenSearch(self.work, handles=False).of_class(node))

    def unseen_owner(self, owner: cst.ClassDef, method: cst.FunctionDef) -> str:
        """Return what besides a method's own body may change its result, "" if nothing can."""
        return self._described(UnseenSearch(self.work, handles=False).owner(owner, method))

    def unseen_tensor(self, node: cst.BaseExpression) -> str:
        """Return what may make a value something other than a tensor, "" if nothing can."""
        return self._described(UnseenSearch(self.work, handles=False).tensor(node))

    def called_elsewhere(self, *nodes: cst.BaseExpression) -> str:
        """Return why values may be others than those in view, "" if all callers are in view."""
        for node in nodes:
            given = self.work.origins.of(node).given
            function = self.scopes.function(given) if given is not None else None
            if function is not None:
                return f"`{function.name.value}` may be called from other modules"
        return ""

    def _described(self, node: cst.CSTNode | None) -> str:
        """Return how a message names an unseen thing: its code and the module it comes from."""
        if node is None:
            return ""
        if isinstance(node, cst.Param) and self.work.functions.given_unseen(node):
            return f"what other modules pass as `{node.name.value}`"
        if isinstance(node, cst.Param):
            return f"`{node.name.value}`, which callers give,"
        code = " ".join(self.tree.code(node).split())
        root: cst.CSTNode = node
        while isinstance(root, (cst.Attribute, cst.Subscript, cst.Call)):
            root = root.func if isinstance(root, cst.Call) else root.value
        binding = self.scopes.only(root)
        if root is node and binding.how is How.PARAMETER:
            return f"`{code}`, which callers give,"
        module = _module(binding) if root is node else ""
        return f"`{code}` of module `{module}`" if module else f"`{code}`"


def _module(binding: Binding) -> str:
    """Return the module that an import names, "" for any other binding."""
    line = binding.node
    if isinstance(line, cst.ImportFrom) and line.module is not None:
        return "." * len(line.relative) + dotted(line.module)
    return binding.qualified.rpartition(".")[0]
