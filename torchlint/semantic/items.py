"""Items: the functions of a file that run whenever a loader reads an item or makes a batch."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.record import Record
from torchlint.semantic.functions import Functions
from torchlint.semantic.kind import Kind, derived
from torchlint.semantic.origins import Origins
from torchlint.semantic.values import Values
from torchlint.semantic.words import words

__all__ = ["ItemCode", "Items", "Per"]

_LOADER: Final = "torch.utils.data.DataLoader"


class Per(Enum):
    """What a function runs for."""

    ITEM = auto()
    """An item that is asked for by its index."""
    STREAM = auto()
    """The items of an iterable dataset, one after the other."""
    BATCH = auto()
    """The items of a batch, to put them together."""


class ItemCode(Record):
    """A function that loading runs; `label` is what the user calls it."""

    node: cst.FunctionDef | cst.Lambda
    per: Per
    label: str
    owner: cst.ClassDef | None


class Items:
    """Finds the code of datasets and collate functions."""

    def __init__(self, functions: Functions, values: Values, origins: Origins) -> None:
        self.functions = functions
        self.values = values
        self.origins = origins
        self.tree = functions.tree
        self.scopes = functions.scopes
        self.names = functions.names

    def all(self) -> list[ItemCode]:
        """Give the functions that run for items and batches, each once, in their order."""
        found = {id(code.node): code for code in (*self._of_datasets(), *self._of_loaders())}
        return sorted(found.values(), key=lambda code: self.tree.order(code.node))

    def _of_datasets(self) -> Iterator[ItemCode]:
        """Yield the methods with which the datasets of this file give items."""
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
        """Yield the collate functions that loaders get, and those that are named so."""
        for call in self._loaders():
            given = self.values.argument_node(call, "collate_fn", 6)
            for value in self.origins.of(given.value).values if given is not None else ():
                if isinstance(value, cst.Lambda):
                    yield ItemCode(value, Per.BATCH, "the collate function", None)
                function = self._callable(value)
                if function is not None:
                    yield ItemCode(function, Per.BATCH, self._label(function), None)
        for function in self.tree.all(cst.FunctionDef):
            if "collate" in words(function.name.value) and not self._makes_functions(function):
                yield ItemCode(function, Per.BATCH, self._label(function), None)

    def _callable(self, value: cst.BaseExpression) -> cst.FunctionDef | None:
        """Give the function that an object, a partial or a name runs when it is called."""
        found = self.functions.definition(value)
        if isinstance(found, cst.FunctionDef):
            return found
        owner = self.functions.instance_of(value)
        return self.functions.method(owner, "__call__") if owner is not None else None

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
