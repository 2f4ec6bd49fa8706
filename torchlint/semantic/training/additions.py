"""Additions: statements that add values to a sum, a list, a meter or an entry."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.syntax.methods import container_of, index_of, receiver_of
from torchlint.semantic.values.facts import ValueFacts
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis


class Adding(Enum):
    """How a value is added to the existing one."""

    SUM = auto()
    APPEND = auto()
    EXTEND = auto()
    METER = auto()
    MIX = auto()
    """Into a running mean, or into a newly created array."""
    ENTRY = auto()
    """Into an entry of an array or a list."""


class Addition(NamedTuple):
    """A statement that adds `values` to `target`, anywhere in the file."""

    adding: Adding
    target: cst.BaseExpression
    values: tuple[cst.BaseExpression, ...]


_METRICS: Final = "torchmetrics"
_LIST_METHODS: Final = ("append", "extend")
_METER_METHODS: Final = frozenset("update add add_batch push record accumulate".split())
_BEST: Final = ("builtins.max", "builtins.min")
_JOINS: Final = frozenset("append concatenate hstack vstack cat concat".split())
_NOT_METERS: Final = (Kind.MAPPING, Kind.OPTIMIZER, Kind.SCALER, Kind.TENSOR, Kind.LOSS)
ADDING_METHODS: Final = (*_LIST_METHODS, *_METER_METHODS)


class Additions(ValueAnalysis):
    """Splits statements that add something into what they add to and the values."""

    values: ValueFacts

    def parts(self, node: cst.CSTNode) -> Addition | None:
        """Split a statement, or the call in it, into target and values if it adds something."""
        if isinstance(node, cst.Call):
            return self.of_call(node)
        if not isinstance(node, (cst.AugAssign, cst.Assign)):
            return None
        found = self.of_assign(node)
        return self.mixed(node) if found is None and isinstance(node, cst.Assign) else found

    def of_call(self, node: cst.Call) -> Addition | None:
        """Split a call as a statement of its own (`kept.append(value)`, `meter.update(value)`)."""
        func = node.func
        if type(self.tree.parent(node)) is not cst.Expr:
            return None
        if type(func) is not cst.Attribute:
            return self._of_metric(node) or self._of_helper(node)
        method, target = func.attr.value, func.value
        values = tuple(arg.value for arg in node.args if not arg.star)
        if method in _LIST_METHODS and len(node.args) == 1 == len(values):
            adding = Adding.APPEND if method == "append" else Adding.EXTEND
            return Addition(adding, target, values)
        if method in _METER_METHODS and values and self.kinds.kind(target) not in _NOT_METERS:
            if not self.kinds.functions.is_self(target):
                return Addition(Adding.METER, target, values)
        return self._of_metric(node)

    def _of_metric(self, node: cst.Call) -> Addition | None:
        """Split the call of a metric of torchmetrics, as it is or in a dictionary of them."""
        values = tuple(arg.value for arg in node.args if not arg.star)
        path = dotted(container_of(node.func)) if self.kinds.functions.imports(_METRICS) else ""
        if not path or not values:
            return None
        lines = (
            self.tree.parent(each)
            for each in self.tree.all(cst.AssignTarget)
            if dotted(container_of(each.target)) == path
        )
        is_made = any(
            (self.kinds.names.name(call.func) or "").startswith(f"{_METRICS}.")
            for line in lines
            if isinstance(line, cst.Assign)
            for call in (line.value, *self.tree.within(line.value, cst.Call))
            if isinstance(call, cst.Call)
        )
        return Addition(Adding.METER, node.func, values) if is_made else None

    def _of_helper(self, node: cst.Call) -> Addition | None:
        """Split the call of a function that sets entries of one of its arguments."""
        callee = self.kinds.functions.callee(node)
        if callee is None:
            return None
        filled = {
            held.value
            for each in self.tree.within(callee.body, cst.AssignTarget)
            if isinstance(each.target, cst.Subscript)
            and isinstance(held := container_of(each.target), cst.Name)
        }
        taken = [each.name.value for each in callee.params.params if each.name.value in filled]
        target = self.kinds.functions.passed(node, callee, taken[0]) if len(taken) == 1 else None
        values = tuple(
            each.value for each in node.args if not each.star and each.value is not target
        )
        return Addition(Adding.METER, target, values) if target is not None and values else None

    def of_assign(self, node: cst.AugAssign | cst.Assign) -> Addition | None:
        """Split `total += value`, `total = total + value` or `kept += [value]`."""
        if isinstance(node, cst.AugAssign):
            if not isinstance(node.operator, cst.AddAssign):
                return None
            sides: tuple[cst.BaseExpression, cst.BaseExpression] | None = (node.target, node.value)
        else:
            sides = self._added(node)
        if sides is None:
            return None
        target, value = sides
        if self.kinds.kind(value) is Kind.STRING:
            return None
        if isinstance(value, cst.List):
            if len(value.elements) != 1:
                return None
            return Addition(Adding.APPEND, target, (value.elements[0].value,))
        known = self.scopes.reaching(target) if isinstance(target, cst.Name) else ()
        if any(isinstance(each.value, cst.List) for each in known):
            return Addition(Adding.EXTEND, target, (value,))
        return Addition(Adding.SUM, target, (value,))

    def mixed(self, node: cst.Assign) -> Addition | None:
        """Split `m = 0.9 * m + v`, `a = np.append(a, v)`, `best = max(best, v)` or `a[i] = v`.

        A sum that starts with its first value is one, too: `v if a is None else a + v`.
        """
        target, value = node.targets[0].target, node.value
        if len(node.targets) != 1:
            return None
        if isinstance(target, cst.Subscript):
            return self._entered(target, value)
        path = dotted(target) if isinstance(target, (cst.Name, cst.Attribute)) else ""
        parts: list[cst.BaseExpression] = []
        if isinstance(value, cst.BinaryOperation) or _starts_or_adds(value):
            parts = list(_operands(value))
        elif isinstance(value, cst.Call) and _grows(self.kinds.names.name(value.func)):
            given = [arg.value for arg in value.args if arg.keyword is None]
            if given and isinstance(given[0], (cst.Tuple, cst.List)):
                given = [each.value for each in given[0].elements]
            parts = given
        values = tuple(part for part in parts if dotted(part) != path)
        if not path or not values or len(values) == len(parts):
            return None
        return Addition(Adding.MIX, target, values)

    def _entered(self, target: cst.Subscript, value: cst.BaseExpression) -> Addition | None:
        index = target.slice[0].slice
        if not isinstance(index, cst.Index) or isinstance(index.value, cst.SimpleString):
            return None
        if self.kinds.kind(target.value) is Kind.MAPPING:
            if self.kinds.kind(index.value) is not Kind.NUMBER:
                return None
        if self.values.placement.may_be_on_device(target.value):
            return None
        return Addition(Adding.ENTRY, target, (value,))

    def _added(self, node: cst.Assign) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        """Split `total = total + value` or `totals[k] = totals.get(k, 0) + value`."""
        target, value = node.targets[0].target, node.value
        if len(node.targets) != 1 or not isinstance(
            target, (cst.Name, cst.Attribute, cst.Subscript)
        ):
            return None
        if type(value) is not cst.BinaryOperation or type(value.operator) is not cst.Add:
            return None
        if self._was(value.left, target):
            return target, value.right
        return (target, value.left) if self._was(value.right, target) else None

    def _was(self, node: cst.BaseExpression, target: cst.BaseExpression) -> bool:
        """Return whether an expression is what a target has been so far."""
        if not isinstance(target, cst.Subscript):
            path = dotted(target)
            return bool(path) and dotted(node) == path
        entry = self.tree.code(target)
        if isinstance(node, cst.Subscript):
            return self.tree.code(node) == entry
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return False
        if node.func.attr.value != "get" or not node.args:
            return False
        return f"{self.tree.code(node.func.value)}[{self.tree.code(node.args[0].value)}]" == entry

    def stands_apart(self, use: cst.BaseExpression, node: cst.CSTNode) -> bool:
        """Return whether a use of an object calls a method that uses nothing of what another sets.

        `node` is the call of the other one, such as `meter.update(loss)` beside `meter.tick()`.
        """
        call = self.tree.parent(self.tree.parent(use))
        if not isinstance(call, cst.Call) or receiver_of(call) is not use:
            return False
        used, kept = self._state(call), self._state(node)
        return bool(used and kept) and used.isdisjoint(kept)

    @cached_method
    def _state(self, call: cst.CSTNode) -> frozenset[str]:
        """Return the attributes of its object that a method uses, none if they are not known."""
        functions = self.kinds.functions
        callee = functions.callee(call) if isinstance(call, cst.Call) else None
        owner = self.scopes.class_of(callee) if callee is not None else None
        if callee is None or owner is None:
            return frozenset()
        lineage, found = functions.lineage(owner), set()
        for body in functions.reached(callee):
            for name in self.tree.within(body, cst.Name):
                if self.scopes.class_of(body) in lineage and functions.is_self(name):
                    part = self.tree.parent(name)
                    if not isinstance(part, cst.Attribute):
                        return frozenset()
                    found.add(part.attr.value)
        return frozenset(found)

    def holds_entry(self, node: cst.BaseExpression) -> bool:
        """Return whether a use of a container sets an entry, or asks if there is one."""
        holder = self.tree.parent(node)
        while isinstance(holder, cst.Subscript) and isinstance(
            entry := self.tree.parent(holder), cst.Subscript
        ):
            holder = entry
        if isinstance(holder, cst.Subscript):
            line = self.tree.parent(holder)
            adds = isinstance(line, cst.AugAssign) and line.target is holder
            return adds or isinstance(line, cst.AssignTarget)
        if isinstance(holder, cst.Attribute) and holder.attr.value == "get":
            line = self.tree.parent(self.tree.parent(holder))
            filled = container_of(line.targets[0].target) if isinstance(line, cst.Assign) else None
            return filled is not None and dotted(filled) == dotted(node)
        return isinstance(holder, cst.ComparisonTarget) and isinstance(
            holder.operator, (cst.In, cst.NotIn)
        )


def has_fixed_keys(entry: cst.Subscript | cst.Call) -> bool:
    """Return whether an entry, or those that `update` sets, are the same in every pass."""
    if isinstance(entry, cst.Subscript):
        return isinstance(taken_part(entry), str)
    made = [each.value for each in entry.args if each.keyword is None]
    return all(
        isinstance(each, cst.Dict)
        and all(isinstance(getattr(one, "key", None), cst.SimpleString) for one in each.elements)
        for each in made
    )


def taken_part(item: cst.BaseExpression) -> int | str | None:
    """Return the part that a subscript takes, None if that depends on values."""
    key = index_of(item)
    if isinstance(key, cst.Integer):
        return int(key.value, 0)
    return key.value if isinstance(key, cst.SimpleString) else None


def _operands(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the operands of arithmetic, and of both cases of a choice."""
    if isinstance(node, cst.BinaryOperation):
        yield from _operands(node.left)
        yield from _operands(node.right)
    elif isinstance(node, cst.IfExp):
        yield from _operands(node.body)
        yield from _operands(node.orelse)
    else:
        yield node


def _starts_or_adds(value: cst.BaseExpression) -> bool:
    """Return whether a choice that calls nothing decides between a start and a sum."""
    return (
        isinstance(value, cst.IfExp)
        and isinstance(value.test, cst.Comparison)
        and isinstance(value.test.left, cst.Name)
        and any(isinstance(side, cst.BinaryOperation) for side in (value.body, value.orelse))
    )


def _grows(name: str | None) -> bool:
    """Return whether a function joins arrays into one, or keeps the best of numbers."""
    module, _, last = (name or "").rpartition(".")
    return (module in ("numpy", "torch") and last in _JOINS) or name in _BEST
