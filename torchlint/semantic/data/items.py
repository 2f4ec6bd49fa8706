"""Items: the functions of a file that run when a loader reads an item or collates a batch."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.scope.words import words
from torchlint.semantic.values.kind import Kind, derived
from torchlint.semantic.values.known import ValueAnalysis

_LOADER: Final = "torch.utils.data.DataLoader"


class Per(Enum):
    """How often a function runs during loading."""

    ITEM = auto()
    """Once for each item read by index."""
    STREAM = auto()
    """Once for each stream of an iterable dataset."""
    BATCH = auto()
    """Once for each batch, to collate its items."""


class ItemCode(NamedTuple):
    """A function that runs during loading; `label` is how messages name it."""

    node: cst.FunctionDef | cst.Lambda
    per: Per
    label: str
    owner: cst.ClassDef | None


class Items(ValueAnalysis):
    """Finds the code of datasets and collate functions."""

    def all(self) -> list[ItemCode]:
        """Return the functions that run for items and batches, each once, in source order."""
        found = {id(code.node): code for code in (*self._of_datasets(), *self._of_loaders())}
        return sorted(found.values(), key=lambda code: self.tree.order(code.node))

    def makes_batches(self, owner: cst.ClassDef) -> bool:
        """Return whether a dataset makes whole batches itself, since it reads their size."""
        read = self.tree.within(owner, cst.Attribute)
        return any(each.attr.value == "batch_size" for each in read)

    def _of_datasets(self) -> Iterator[ItemCode]:
        """Yield the methods through which the datasets of this file return items."""
        handed = {
            self.functions.definition(value.func)
            for call in self._loaders()
            if (given := self.values.argument_node(call, "dataset", 0)) is not None
            for value in self.origins.of(given.value).values
            if isinstance(value, cst.Call)
        }
        for owner in self.tree.all(cst.ClassDef):
            bases = self.functions.bases(owner)
            named = owner.name.value.endswith("Dataset") and self._own_method(owner, "__len__")
            if derived(bases) is not Kind.DATASET and owner not in handed and not named:
                continue
            read = self._own_method(owner, "__getitem__")
            if read is not None:
                yield ItemCode(read, Per.ITEM, f"{owner.name.value}.__getitem__", owner)
            stream = self._own_method(owner, "__iter__")
            if stream is not None and any(base.endswith("IterableDataset") for base in bases):
                yield ItemCode(stream, Per.STREAM, f"{owner.name.value}.__iter__", owner)

    def _own_method(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        found = self.functions.method(owner, name)
        return found if found is not None and self.tree.inside(found, owner) else None

    def _of_loaders(self) -> Iterator[ItemCode]:
        """Yield the collate functions passed to loaders, and those named like one."""
        for call in self._loaders():
            given = self.values.expression(call, "collate_fn", 6)
            for value in self.origins.of(given).values if given is not None else ():
                if isinstance(value, cst.Lambda):
                    yield ItemCode(value, Per.BATCH, "the collate function", None)
                function = self.functions.run_by(value)
                if function is not None:
                    yield ItemCode(function, Per.BATCH, self._label(function), None)
        for function in self.tree.all(cst.FunctionDef):
            named = words(function.name.value)
            is_collate = "collate" in named and "test" not in named and self._collates(function)
            by_hand = self.functions.callers(function) and not self.functions.escapes(function)
            if is_collate and not by_hand and not self._makes_functions(function):
                yield ItemCode(function, Per.BATCH, self._label(function), None)

    def _collates(self, function: cst.FunctionDef) -> bool:
        """Return whether a function named like one may collate: no method of some other class."""
        owner = self.scopes.class_of(function)
        if owner is None or function.name.value.strip("_") in ("collate", "collate_fn"):
            return True
        return derived(self.functions.bases(owner)) is Kind.DATASET or bool(function.decorators)

    def _makes_functions(self, function: cst.FunctionDef) -> bool:
        return any(
            isinstance(self.functions.definition(value), cst.FunctionDef)
            or isinstance(value, cst.Lambda)
            for value in self.functions.returns(function)
        )

    def _label(self, function: cst.FunctionDef) -> str:
        owner = self.scopes.scope(function).node
        name = function.name.value
        return f"{owner.name.value}.{name}" if isinstance(owner, cst.ClassDef) else name

    def _loaders(self) -> Iterator[cst.Call]:
        for call in self.tree.all(cst.Call):
            if self.names.name(call.func) == _LOADER:
                yield call
