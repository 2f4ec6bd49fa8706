"""Batching: datasets that return a whole batch for a list of indices, and its memory layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.semantic.data.itemwork import ItemWork
from torchlint.semantic.scope.libraries import is_data_library
from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import index_of, method_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_DATASETS: Final = frozenset({"torch.utils.data.Dataset", "builtins.object", "typing.Generic"})
_CASTS: Final = frozenset("float double half bfloat16 long int short bool clone detach".split())
_PERMUTING: Final = frozenset(
    "permute transpose swapaxes swapdims movedim moveaxis rollaxis mT channels_last "
    "channels_last_3d expand expand_as broadcast_to as_strided".split()
)


class Layout(Enum):
    """The memory layout of a dataset's tensors, which an indexed batch inherits."""

    ROWS = auto()
    """Contiguous, or in a layout that makes no difference to a batch."""
    PERMUTED = auto()
    UNSEEN = auto()


class Batching(ValueAnalysis):
    """Finds datasets where `dataset[[3, 1]]` equals collating the two items."""

    def __init__(self, values: KnownValues, work: ItemWork) -> None:
        super().__init__(values)
        self.work = work

    @memoized(None)
    def tensors(self, dataset: cst.BaseExpression) -> list[cst.BaseExpression] | None:
        """Return the tensors that a dataset indexes; None if it may reject a list of indices."""
        if self.kinds.kind(dataset) is Kind.TENSOR:
            return [dataset]
        origin = self.origins.of(dataset)
        if not origin.complete or not origin.values:
            return None
        found: list[cst.BaseExpression] = []
        for value in origin.values:
            inner = self._of_made(value) if isinstance(value, cst.Call) else None
            if inner is None:
                return None
            found += inner
        return found

    def layout(self, tensors: list[cst.BaseExpression]) -> Layout:
        """Return the memory layout of tensors, as far as the file shows it."""
        seen: set[int] = set()
        found = {layout for one in tensors for layout in self._layouts(one, seen, ASSIGNED)}
        if Layout.PERMUTED in found:
            return Layout.PERMUTED
        return Layout.UNSEEN if Layout.UNSEEN in found else Layout.ROWS

    # -- datasets -------------------------------------------------------------

    def _of_made(self, call: cst.Call) -> list[cst.BaseExpression] | None:
        name = self.names.name(call.func)
        if name == "torch.utils.data.TensorDataset":
            return [arg.value for arg in call.args]
        if name == "torch.utils.data.random_split" and call.args:
            return self.tensors(call.args[0].value)
        if name == "torch.utils.data.Subset" and len(call.args) == 2:
            chosen = call.args[1].value
            return self.tensors(call.args[0].value) if self._plain_indices(chosen) else None
        owner = self.functions.definition(call.func)
        return self._of_class(owner) if isinstance(owner, cst.ClassDef) else None

    def _plain_indices(self, node: cst.BaseExpression) -> bool:
        """Return whether indices are known to be plain numbers, not tensors."""
        origin = self.origins.of(node)
        return origin.complete and all(
            self.names.name(value.func) in ("builtins.range", "builtins.list")
            or (method_of(value) == "tolist")
            or self.kinds.kind(value) is Kind.NDARRAY
            if isinstance(value, cst.Call)
            else isinstance(value, cst.List)
            and all(isinstance(each.value, cst.Integer) for each in value.elements)
            for value in origin.values
        )

    def _of_class(self, owner: cst.ClassDef) -> list[cst.BaseExpression] | None:
        read = self.functions.method(owner, "__getitem__")
        if read is None or self.functions.method(owner, "__getitems__") is not None:
            return None
        known = {line.name.value for line in self.functions.lineage(owner)}
        if any(b not in _DATASETS and b not in known for b in self.functions.bases(owner)):
            return None
        index = read.params.params[1:]
        if len(index) != 1 or read.decorators:
            return None
        values = self._given_back(read.body.body, index[0].name.value)
        found: list[cst.BaseExpression] = []
        for value in values or ():
            taken = self._taken(value, index[0].name.value)
            if taken is None:
                return None
            found += taken
        return found or None

    def _given_back(
        self, lines: Sequence[cst.CSTNode], index: str
    ) -> list[cst.BaseExpression] | None:
        """Return the expressions that a method assigns and returns; None if it does other work."""
        found: list[cst.BaseExpression] = []
        for line in lines:
            if isinstance(line, cst.If) and self._lists_tensor(line, index):
                continue
            if isinstance(line, cst.If) and self.work.is_left_out(_asked_for(line.test)):
                rest = line.orelse.body.body if isinstance(line.orelse, cst.Else) else ()
                values = self._given_back(rest, index) if line.orelse is None or rest else None
                if values is None:
                    return None
                found += values
                continue
            if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
                return None
            small = line.body[0]
            if isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString):
                continue
            if not isinstance(small, (cst.Assign, cst.Return)) or small.value is None:
                return None
            if isinstance(small, cst.Assign) and len(small.targets) != 1:
                return None
            found.append(small.value)
        return found

    def _lists_tensor(self, line: cst.If, index: str) -> bool:
        """Return whether a line is `if torch.is_tensor(index): index = index.tolist()`."""
        test = line.test
        return (
            isinstance(test, cst.Call)
            and self.names.name(test.func) == "torch.is_tensor"
            and line.orelse is None
            and self.tree.code(line.body).strip() == f"{index} = {index}.tolist()"
        )

    def _taken(self, value: cst.BaseExpression, index: str) -> list[cst.BaseExpression] | None:
        """Return the tensors that an expression indexes, None for any other expression."""
        parts: list[cst.BaseExpression] = []
        if isinstance(value, (cst.Tuple, cst.List)):
            parts = [each.value for each in value.elements]
        elif isinstance(value, cst.Dict):
            parts = [each.value for each in value.elements if isinstance(each, cst.DictElement)]
            if len(parts) != len(value.elements):
                return None
        elif isinstance(value, cst.Name):
            return [] if self.scopes.only(value).assigned is not None else None
        elif isinstance(value, cst.Call):
            func = value.func
            if isinstance(func, cst.Attribute) and func.attr.value in _CASTS and not value.args:
                return self._taken(func.value, index)
            return None
        elif isinstance(value, cst.Subscript):
            return self._item(value, index)
        found = [self._taken(part, index) for part in parts]
        joined = [one for each in found if each is not None for one in each]
        return joined if parts and None not in found else None

    def _item(self, node: cst.Subscript, index: str) -> list[cst.BaseExpression] | None:
        """Return the tensor in `self.x[index]`."""
        at = index_of(node)
        plain = isinstance(at, cst.Name) and at.value == index
        held = isinstance(node.value, cst.Attribute) and self.kinds.kind(node.value) is Kind.TENSOR
        return [node.value] if plain and held else None

    # -- memory ---------------------------------------------------------------

    def _layouts(self, node: cst.CSTNode, seen: set[int], depth: int) -> Iterator[Layout]:
        """Yield the layouts that an expression and its parts show."""
        if id(node) in seen:
            return
        seen.add(id(node))
        if not depth:
            yield Layout.UNSEEN
            return
        for attribute in self.tree.within(node, cst.Attribute):
            if attribute.attr.value in _PERMUTING:
                yield Layout.PERMUTED
        modules: set[cst.BaseExpression] = set()
        for held in self.tree.within(node, cst.Attribute):
            linked = self.names.linked(held)
            if linked:
                modules.add(held.value)
                yield from self._layouts_of_bindings(linked, seen, depth - 1)
                continue
            for binding in self.functions.attribute(held):
                yield from self._layouts_of_binding(binding.value, binding.node, seen, depth - 1)
        for name in self.tree.within(node, cst.Name):
            if name not in modules:
                yield from self._layouts_of_bindings(self.scopes.reaching(name), seen, depth - 1)

    def _layouts_of_bindings(
        self, bindings: Iterable[Binding], seen: set[int], depth: int
    ) -> Iterator[Layout]:
        for binding in bindings:
            if binding.how is How.IMPORT:
                if not is_data_library(binding.qualified):
                    yield Layout.UNSEEN
            elif isinstance(binding.node, cst.FunctionDef):
                for returned in self.functions.returns(binding.node):
                    yield from self._layouts(returned, seen, depth)
            elif isinstance(binding.node, cst.ClassDef):
                continue
            else:
                yield from self._layouts_of_binding(binding.value, binding.node, seen, depth)

    def _layouts_of_binding(
        self, value: cst.BaseExpression | None, node: cst.CSTNode, seen: set[int], depth: int
    ) -> Iterator[Layout]:
        given = [value] if value is not None else []
        if isinstance(node, cst.Param):
            if self.functions.owner_of_self(node) is not None:
                return
            given = self.functions.given(node)
        if not given:
            yield Layout.UNSEEN
        for one in given:
            yield from self._layouts(one, seen, depth)


def _asked_for(test: cst.BaseExpression) -> cst.BaseExpression:
    """Return what a test asks for: `hook` of `if hook:` and of `if hook is not None:`."""
    if isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].operator, cst.IsNot):
        return test.left
    return test
