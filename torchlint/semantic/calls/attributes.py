"""Attributes: what is assigned to the attributes of modules and of instances."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.instances import SAME
from torchlint.semantic.calls.part import Part
from torchlint.semantic.calls.passing import Passing
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import receiver_of

_HYPERPARAMETERS: Final = "self.hparams"
_KEEPS: Final = "save_hyperparameters"
"""The method of Lightning that keeps the parameters of `__init__`."""


class Attributes(Part):
    """Finds the bindings of attributes: in the methods of a class, and outside of it."""

    def __init__(self, passing: Passing) -> None:
        super().__init__(passing.functions)
        self.passing = passing

    def bindings(self, node: cst.Attribute) -> tuple[Binding, ...]:
        """Return the bindings of an attribute of a module or of an instance of a class in view."""
        functions = self.functions
        if known := self.names.linked(node) or self._kept_parameters(node):
            return known
        owner = functions.instance_of(node.value)
        if owner is None:
            named = functions.definition(node.value)
            owner = named if type(named) is cst.ClassDef else None
        if owner is None:
            path = dotted(node)
            return self.scopes.reaching_name(path, node, self.scopes.scope(node)) if path else ()
        found: list[Binding] = []
        lineage = functions.lineage(owner)
        for number, line in enumerate(lineage):
            bindings = self.scopes.scope_at(line).bindings
            found += bindings.get(f"self.{node.attr.value}", [])
            for binding in bindings.get(node.attr.value, []):
                if binding.how in (How.DECLARED, How.ASSIGN):
                    found += self.passing.of_field(binding, line)
            if any(not self._reads(binding, node.attr.value) for binding in found):
                found += self._assigned_later(node.attr.value, lineage[: number + 1], lineage)
                break
        return (*found, *self._assigned_outside(node.attr.value, lineage))

    def handed(self, instance: cst.BaseExpression, name: str) -> cst.BaseExpression | None:
        """Return what the call that makes an instance passes for an attribute that keeps it."""
        functions = self.functions
        known = () if isinstance(instance, cst.Call) else functions.bindings(instance)
        made = known[0].value if len(known) == 1 else instance
        owner = functions.definition(made.func) if isinstance(made, cst.Call) else None
        if not isinstance(made, cst.Call) or not isinstance(owner, cst.ClassDef):
            return None
        start = functions.method(owner, "__init__")
        kept = [
            binding.value
            for line in functions.lineage(owner)
            for binding in self.scopes.scope_at(line).bindings.get(f"self.{name}", ())
        ]
        value = kept[0] if len(kept) == 1 else None
        while isinstance(value, cst.Call) and (moved := receiver_of(value, *SAME)) is not None:
            value = moved
        if start is None or not isinstance(value, cst.Name):
            return None
        parameter = self.scopes.only(value).parameter
        if parameter is None or self.scopes.function(value) is not start:
            return None
        return self.passing.passed(made, start, parameter.name.value)

    def _kept_parameters(self, node: cst.Attribute) -> tuple[Binding, ...]:
        """Return the parameter that `self.hparams.name` holds, if the class keeps them."""
        function = self.scopes.function(node) if dotted(node.value) == _HYPERPARAMETERS else None
        owner = self.scopes.class_of(function) if function is not None else None
        start = self.functions.method(owner, "__init__") if owner is not None else None
        if start is None or not any(
            each.attr.value == _KEEPS for each in self.tree.within(start, cst.Attribute)
        ):
            return ()
        found = self.scopes.scope_at(start).bindings.get(node.attr.value, [])
        return tuple(each for each in found if each.how is How.PARAMETER)

    def _assigned_later(
        self, name: str, nearer: list[cst.ClassDef], lineage: list[cst.ClassDef]
    ) -> Iterator[Binding]:
        """Yield what methods of base classes assign to an attribute when nearer ones call them."""
        callers = self.functions.callers
        for base in lineage[len(nearer) :]:
            for binding in self.scopes.scope_at(base).bindings.get(f"self.{name}", []):
                function = self.scopes.function(binding.node)
                if function is None or function.name.value == "__init__":
                    continue
                if any(self.scopes.class_of(call) in nearer for call in callers(function)):
                    yield binding

    def _assigned_outside(self, name: str, lineage: list[cst.ClassDef]) -> Iterator[Binding]:
        """Yield what other code assigns to an attribute of an instance: `trainer.model = net`."""
        for owner, binding in self._outside.get(name, ()):
            if self.functions.instance_of(owner) in lineage:
                yield binding

    @cached_property
    def _outside(self) -> dict[str, list[tuple[cst.BaseExpression, Binding]]]:
        """The assignments to attributes of anything but `self`, with what they belong to."""
        found: dict[str, list[tuple[cst.BaseExpression, Binding]]] = {}
        for each in self.tree.all(cst.Attribute):
            binding = self.scopes.stored(each)
            if binding is not None and binding.how is How.ASSIGN and dotted(each.value) != "self":
                found.setdefault(each.attr.value, []).append((each.value, binding))
        return found

    def _reads(self, binding: Binding, name: str) -> bool:
        """Return whether an attribute is made from what it was (`self.data = kept(self.data)`)."""
        return binding.value is not None and any(
            read.attr.value == name and dotted(read.value) == "self"
            for read in self.tree.within(binding.value, cst.Attribute)
        )
