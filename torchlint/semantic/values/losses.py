"""Losses: the values that a script, or a framework for it, calls `backward` on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.calls.hooks import Hooks
from torchlint.semantic.scope.libraries import is_library
from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import (
    index_of,
    last_word,
    method_of,
    named_arguments,
    receiver_of,
)
from torchlint.semantic.values.iteration import Iteration

_OUTPUTS: Final = "return_outputs"
_PLAIN: Final = 2
"""The arguments of a trainer's `compute_loss` before the one that asks for the outputs."""
_SCALES: Final = frozenset(
    "weight weights scale coef coeff coefficient lambda factor ratio w fn func".split()
)
_Identity = Binding | int | str
"""What a value is known by elsewhere: a binding, a function in view, or a name out of it."""
_ARITHMETIC: Final = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide)
SENDING: Final = ("backward", "manual_backward")
"""The methods that start a backward pass; Lightning's module has the second."""
_SENDERS: Final = frozenset(
    "accelerator fabric scaler loss_scaler model_engine engine autograd".split()
)
"""The last words of what sends its argument backward, being no loss itself."""


class Losses(Analysis):
    """Finds the names and attributes whose value `backward()` starts from."""

    def __init__(self, functions: Functions, hooks: Hooks, iteration: Iteration) -> None:
        super().__init__(functions)
        self.hooks, self.iteration = hooks, iteration

    def sent_backward(self, bindings: Iterable[Binding]) -> bool:
        """Return whether `backward` is called on the value of any of these bindings."""
        return not self._bindings.isdisjoint(bindings)

    def gives(self, call: cst.Call) -> bool:
        """Return whether `backward` is called on what the same function gives, here or elsewhere.

        It is a function in view, or one that the script imports from a module of its own.
        """
        return not self._givers.isdisjoint(self._called(call))

    @cached_property
    def _givers(self) -> frozenset[_Identity]:
        calls = (part for part in self._parts if isinstance(part, cst.Call))
        return frozenset(each for call in calls for each in self._called(call))

    @cached_property
    def _parts(self) -> tuple[cst.BaseExpression, ...]:
        """What, or fractions of what, adds up to what goes backward, but for names."""
        made = (each.value for each in self._bindings if each.how is How.ASSIGN and not each.path)
        given = (value for each in self._bindings for value in self._returned(each))
        values = (*self.values, *filter(None, made), *given)
        return tuple(part for value in values for part in _parts(value))

    def _called(self, call: cst.Call) -> Iterator[_Identity]:
        """Yield what identifies the functions that a call may run, except those of libraries.

        An object out of view that an attribute keeps is known by the attribute: `self.loss(x)`.
        """
        yield from map(id, self.functions.callees(call))
        name = self.names.name(call.func)
        if name is not None and not is_library(name):
            yield name
        if isinstance(call.func, cst.Attribute) and _says_loss(call.func.attr.value):
            yield from self.functions.attribute(call.func)

    def is_entry(self, node: cst.Subscript) -> bool:
        """Return whether an entry of a dictionary goes backward, here or where its maker is called.

        What a function gives has the same entries wherever it is called.
        """
        return bool(self._entries) and not self._entries.isdisjoint(self._identities(node))

    @cached_property
    def _entries(self) -> frozenset[tuple[_Identity, str]]:
        entries = (part for part in self._parts if isinstance(part, cst.Subscript))
        return frozenset(each for entry in entries for each in self._identities(entry))

    def _identities(self, node: cst.Subscript) -> Iterator[tuple[_Identity, str]]:
        """Yield what identifies an entry: its key, with its dictionary and what makes that."""
        key = _key(node)
        for binding in self.scopes.reaching(node.value) if key else ():
            yield binding, key
            if isinstance(binding.value, cst.Call) and not binding.path:
                yield from ((each, key) for each in self._called(binding.value))

    def inherited(self, call: cst.Call) -> bool | None:
        """Return whether an overridden method gives a loss alone, None if it may not give one.

        `super().compute_loss(model, inputs, return_outputs=True)` gives it first in a tuple.
        """
        if not self.hooks.inherits_loss(call):
            return None
        if method_of(call) == "prediction_step":
            return False
        plain = [arg for arg in call.args if arg.keyword is None]
        asked = [*named_arguments(call, _OUTPUTS), *(arg.value for arg in plain[_PLAIN:])]
        if method_of(call) != "compute_loss" or not asked:
            return True
        return {"True": False, "False": True}.get(self.tree.code(asked[0]))

    def in_container(self, node: cst.BaseExpression) -> bool:
        """Return whether members of a container, or of its `items()`, go backward in a sum."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            node = node.func.value if node.func.attr.value in ("items", "values") else node
        bindings = self.scopes.reaching(node) if isinstance(node, cst.Name) else ()
        made = [each.value for each in bindings if isinstance(each.value, cst.Call)]
        return not self._containers.isdisjoint(bindings) or any(map(self._fills, made))

    def _fills(self, call: cst.Call) -> bool:
        """Return whether a function gives a container of which members go backward elsewhere."""
        made = [each.value for each in self._containers if isinstance(each.value, cst.Call)]
        return any(not {*self._called(each)}.isdisjoint(self._called(call)) for each in made)

    def holds_losses(self, value: cst.BaseExpression) -> bool:
        """Return whether a value is assigned to a container of which members go backward."""
        return any(each.value is value for each in self._containers)

    @cached_property
    def _containers(self) -> frozenset[Binding]:
        """The bindings of containers of which members are summands of a loss."""
        made = [each.value for each in self._bindings if each.value is not None]
        names = (name for value in (*self.values, *made) for name in _containers(value))
        return frozenset(binding for name in names for binding in self.scopes.reaching(name))

    def feeds(self, place: cst.Name | cst.Attribute) -> bool:
        """Return whether what a name or an attribute holds becomes part of what goes backward."""
        if isinstance(place, cst.Name):
            return (place.value, self._home(place)) in self._fed
        parts = (each for value in self.values for each in self.tree.within(value, cst.Attribute))
        return dotted(place) in map(dotted, parts)

    @cached_property
    def _fed(self) -> frozenset[tuple[str, int]]:
        """The names, with their scopes, that become part of a value `backward` is called on."""
        found: set[tuple[str, int]] = set()
        seen: set[Binding] = set()
        edge = list(self.values)
        for _ in range(ASSIGNED):
            names = [name for value in edge for name in self.tree.within(value, cst.Name)]
            found.update((name.value, self._home(name)) for name in names)
            bindings = dict.fromkeys(each for name in names for each in self.scopes.reaching(name))
            edge = [each.value for each in bindings if each.value is not None and each not in seen]
            added = (value for name in names for value in self.functions.added(name))
            edge += [each for each in added if isinstance(self.tree.parent(each), cst.Assign)]
            seen.update(bindings)
        return frozenset(found)

    def _home(self, name: cst.Name) -> int:
        """Return the identity of the scope in which a name is bound."""
        return id(self.scopes.lookup(name.value, self.scopes.scope(name)))

    @cached_property
    def _bindings(self) -> frozenset[Binding]:
        found = {
            binding
            for value in self.values
            for name in _summands(value)
            for binding in self.scopes.reaching(name)
        }
        edge = list(found)
        while edge:
            for value in self._held(edge.pop()):
                for name in _summands(value, sure=False):
                    new = set(self.scopes.reaching(name)) - found
                    found |= new
                    edge.extend(new)
        return frozenset(found)

    def _held(self, binding: Binding) -> list[cst.BaseExpression]:
        """Return what a name is assigned, draws from a list, or gets from calls in view."""
        if binding.how is not How.LOOP or binding.value is None:
            return [*self.functions.held(binding), *self._returned(binding)]
        source, inner = self.iteration.source(binding.value, binding.path)
        if source is None or inner:
            return []
        drawn = [each for one in self.scopes.reaching(source) for each in self.functions.held(one)]
        lists = [each for each in drawn or [source] if isinstance(each, (cst.List, cst.Tuple))]
        return [each.value for made in lists for each in made.elements]

    def _returned(self, binding: Binding) -> list[cst.BaseExpression]:
        """Return what functions in view return for a name: `loss, scores = step(batch)`."""
        if not isinstance(binding.value, cst.Call) or binding.how is How.LOOP:
            return []
        callees = self.functions.callees(binding.value)
        found = [value for each in callees for value in self.functions.returns(each)]
        for index in binding.path:
            tuples = [each.elements for each in found if isinstance(each, cst.Tuple)]
            found = [each[index].value for each in tuples if each[index:]]
        return found

    def is_attribute(self, node: cst.Attribute) -> bool:
        """Return whether an attribute (`output.loss`) goes backward in the function around it."""
        sent = self._attributes
        return bool(sent) and self._place(node) in sent

    @cached_property
    def _attributes(self) -> frozenset[tuple[cst.CSTNode, str]]:
        return frozenset(self._place(part) for part in self._parts if type(part) is cst.Attribute)

    def _place(self, node: cst.Attribute) -> tuple[cst.CSTNode, str]:
        path = dotted(node)  # none of `net(x).loss`, which is only where it is written
        return (self.scopes.home(node) if path else node), path

    @cached_property
    def values(self) -> tuple[cst.BaseExpression, ...]:
        """Every expression that `backward` is called on."""
        return tuple(self._find_values())

    def _find_values(self) -> Iterator[cst.BaseExpression]:
        for call in self.tree.all(cst.Call):
            func = call.func
            if type(func) is not cst.Attribute:
                continue
            if func.attr.value in SENDING:
                by_method = self.functions.callee(call) is not None
                yield from (v for v in sent(call) if not (by_method and v is func.value))
        yield from self.hooks.losses()


def sent(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """Yield what a call of `backward` starts from: `loss`, `scaler.scale(loss)`, its argument."""
    if not isinstance(call.func, cst.Attribute):
        return
    receiver = call.func.value
    if isinstance(receiver, cst.Call) and method_of(receiver) == "scale" and receiver.args:
        yield receiver.args[0].value
        return
    if call.args and call.args[0].keyword is None:
        # accelerator.backward(loss), and loss.backward(gradient)
        yield call.args[0].value
        if method_of(call) != "backward" or dotted(receiver).rpartition(".")[2] in _SENDERS:
            return
    yield receiver


def _says_loss(name: str) -> bool:
    """Return whether a name says that it is a loss, not what one is scaled by."""
    found = words(name)
    return "loss" in found and _SCALES.isdisjoint(found)


def _parts(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the attributes, entries and calls that a value is, is a fraction of, or adds up."""
    if isinstance(value, (cst.Attribute, cst.Subscript, cst.Call)):
        yield value
    elif isinstance(value, cst.BinaryOperation):
        for side in (value.left, value.right):
            parts = _parts(side)
            if isinstance(value.operator, cst.Divide) and side is value.left:
                yield from parts
            elif isinstance(value.operator, (cst.Add, cst.Subtract)):
                yield from (
                    each
                    for each in parts
                    if not isinstance(each, cst.Attribute) or _says_loss(each.attr.value)
                )
            elif isinstance(value.operator, cst.Multiply):
                yield from (each for each in parts if _says_loss(_word(each)))


def _word(part: cst.BaseExpression) -> str:
    """Return the key of an entry, or the last word of an attribute or of what a call calls."""
    if isinstance(part, cst.Subscript):
        return _key(part)
    return last_word(part.func if isinstance(part, cst.Call) else part)


def _key(entry: cst.Subscript) -> str:
    """Return the text that is the key of an entry, empty if it has no such key."""
    index = index_of(entry)
    return str(index.evaluated_value) if isinstance(index, cst.SimpleString) else ""


def _summands(value: cst.BaseExpression, sure: bool = True) -> Iterator[cst.Name]:
    """Yield the names that a value is, is a fraction of, or adds up.

    If it is not `sure` that a name goes backward itself, only losses among what is added up.
    """
    if isinstance(value, cst.Name):
        yield value
    elif isinstance(value, cst.IfExp):
        yield from _summands(value.body, sure)
        yield from _summands(value.orelse, sure)
    elif isinstance(value, cst.BinaryOperation) and isinstance(value.operator, _ARITHMETIC):
        divides = isinstance(value.operator, cst.Divide)
        alone = divides or (sure and isinstance(value.operator, cst.Multiply))
        for side in (value.left,) if alone else (value.left, value.right):
            names = _summands(side, sure)
            yield from (name for name in names if sure or divides or _says_loss(name.value))


def _containers(value: cst.BaseExpression) -> Iterator[cst.Name]:
    """Yield the containers of which a sum takes members: `sum(d.values())`, `d["a"] + d["b"]`."""
    if isinstance(value, cst.BinaryOperation):
        yield from _containers(value.left)
        yield from _containers(value.right)
    elif isinstance(value, cst.Subscript) and isinstance(value.value, cst.Name):
        if isinstance(index_of(value), cst.SimpleString):
            yield value.value
    elif isinstance(value, cst.Call) and (whole := receiver_of(value, "mean", "sum")) is not None:
        yield from _containers(whole)
    elif isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.args:
        inner = value.args[0].value
        if value.func.value == "sum" and isinstance(inner, (cst.GeneratorExp, cst.ListComp)):
            inner = inner.for_in.iter
        if isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute):
            held = inner.func.value
            if inner.func.attr.value == "values" and isinstance(held, cst.Name):
                yield held
