"""Gradient mode: whether autograd records at a statement."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.syntax.methods import entered, last_word, method_of, receiver_of
from torchlint.semantic.values.values import State, Values


class Grad(Enum):
    """Whether autograd records; UNKNOWN if it depends on a flag or on the caller."""

    ON = auto()
    OFF = auto()
    UNKNOWN = auto()


_OFF: Final = frozenset({"torch.no_grad", "torch.inference_mode"})
_WORD: Final = re.compile(r"no_?grad|inference_?mode|without_?grad", re.IGNORECASE)
_MARKED: Final = ("no_grad", "inference_mode", "set_grad_enabled")


class Gradients(Analysis):
    """Finds the gradient mode through `with`, decorators, callers and global switches."""

    def __init__(self, functions: Functions, values: Values) -> None:
        super().__init__(functions)
        self.values = values

    def grad(self, node: cst.CSTNode) -> Grad:
        """Return whether autograd records at a node."""
        found = self._decided(node)
        return self._of_function(found) if isinstance(found, cst.FunctionDef) else found

    def lacking(self, function: cst.FunctionDef, nodes: Iterable[cst.CSTNode]) -> list[cst.Call]:
        """Return the calls of a function around nodes that record there, if its others do not."""
        if {*map(self._decided, nodes)} != {function} or self._marked(function):
            return []
        modes = {call: self.grad(call) for call in self.functions.callers(function)}
        mixed = {*modes.values()} == {Grad.ON, Grad.OFF}
        return [call for call, mode in modes.items() if mixed and mode is Grad.ON]

    def _decided(self, node: cst.CSTNode) -> Grad | cst.FunctionDef:
        """Return whether autograd records at a node, or the function whose callers decide it."""
        child: cst.CSTNode = node
        later = False
        for outer in self.tree.ancestors(node):
            later = later or type(outer) is cst.Lambda
            if type(outer) is cst.With and child is outer.body:
                for item in reversed(outer.items):
                    mode = self.mode(item.item)
                    if mode is not None:
                        # enable_grad() has no effect inside inference_mode().
                        return Grad.OFF if self._inferring(outer) else mode
            elif type(outer) is cst.FunctionDef and child is outer.body:
                return self._switched(node, outer) or (Grad.UNKNOWN if later else outer)
            child = outer
        switched = self._switched(node, self.tree.module_of(node))
        return switched or (Grad.UNKNOWN if later else Grad.ON)

    def is_volatile(self, region: cst.CSTNode) -> bool:
        """Return whether code asks for no graph as before torch 0.4, by `volatile=True`."""
        given = (arg.keyword for arg in self.tree.within(region, cst.Arg))
        return any(each is not None and each.value == "volatile" for each in given)

    def mode(self, node: cst.BaseExpression) -> Grad | None:
        """Return the mode that a context manager or a decorator sets, None if it sets none."""
        node = entered(node)
        if isinstance(node, cst.Call):
            name = self.names.name(node.func)
            if name in _OFF:
                return (
                    self._flag(node, inverted=True) if name.endswith("inference_mode") else Grad.OFF
                )
            if name == "torch.enable_grad":
                return Grad.ON
            if name == "torch.set_grad_enabled":
                return self._flag(node, inverted=False)
            manager = self._of_manager(node)
            if manager is None and isinstance(node.func, (cst.Name, cst.Attribute)):
                return self.mode(node.func) if name is None else self._by_word(node.func)
            return manager
        if isinstance(node, (cst.Name, cst.Attribute)):
            name = self.names.name(node)
            if name in _OFF:
                return Grad.OFF
            if name == "torch.enable_grad":
                return Grad.ON
            found = self._of_alias(node)
            return found if found is not None else self._by_word(node)
        if isinstance(node, cst.IfExp):
            modes = {self.mode(node.body), self.mode(node.orelse)}
            return modes.pop() if len(modes) == 1 else Grad.UNKNOWN
        return None

    def _inferring(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in inference mode, which nothing inside can undo."""
        managers: list[cst.BaseExpression] = []
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.With):
                managers += [item.item for item in outer.items]
            elif isinstance(outer, cst.FunctionDef):
                managers += [decorator.decorator for decorator in outer.decorators]
                break
        named = [m.func if isinstance(m, cst.Call) else m for m in managers]
        return any(
            self.names.name(name) == "torch.inference_mode" and self.mode(manager) is Grad.OFF
            for name, manager in zip(named, managers, strict=True)
        )

    def _flag(self, call: cst.Call, inverted: bool) -> Grad:
        value = self.values.argument(call, "mode", 0)
        if value.state is State.ABSENT:
            return Grad.OFF if inverted else Grad.UNKNOWN
        if value.literal is True:
            return Grad.OFF if inverted else Grad.ON
        if value.literal is False:
            return Grad.ON if inverted else Grad.OFF
        return Grad.UNKNOWN

    @memoized(None)
    def _of_alias(self, node: cst.Name | cst.Attribute) -> Grad | None:
        """Follow `context = torch.no_grad()`."""
        values = (each.assigned for each in self.functions.bindings(node))
        modes = {self.mode(each) for each in values if each is not None}
        if not modes or modes == {None}:
            return None
        return modes.pop() if len(modes) == 1 else Grad.UNKNOWN

    def _of_manager(self, call: cst.Call) -> Grad | None:
        """Return the mode set by a context manager of this file that may disable gradients."""
        function = self.functions.callee(call)
        if function is None:
            return None
        spoken = (
            self.names.name(mention)
            for kind in (cst.Attribute, cst.Name)
            for mention in self.tree.within(function.body, kind)
        )
        marks = {f"torch.{word}" for word in _MARKED}.intersection(spoken)
        if not marks:
            return None
        return Grad.OFF if marks <= _OFF else Grad.UNKNOWN

    def _switched(self, node: cst.CSTNode, outer: cst.CSTNode) -> Grad | None:
        """Return the mode left by a statement `torch.set_grad_enabled(False)` before a node."""
        found: Grad | None = None
        for call in self._switches:
            if (
                self.tree.order(call) < self.tree.order(node)
                and self.tree.inside(call, outer)
                and self.scopes.home(call) is self.scopes.home(node)
            ):
                found = self._left_by(call)
        return found

    def _left_by(self, call: cst.Call) -> Grad | None:
        """Return the mode that a statement leaves: for good, unless something may exit it."""
        if self.names.name(call.func) == "torch.set_grad_enabled":
            return self._flag(call, inverted=False)
        entered = receiver_of(call, "__enter__")
        return self.mode(entered) if isinstance(entered, cst.Call) else Grad.UNKNOWN

    @cached_property
    def _switches(self) -> list[cst.Call]:
        """The statements that set the gradient mode for the lines after them."""
        return [
            line.value
            for line in self.tree.all(cst.Expr)
            if isinstance(line.value, cst.Call) and self._is_switch(line.value)
        ]

    def _is_switch(self, call: cst.Call) -> bool:
        if self.names.name(call.func) == "torch.set_grad_enabled":
            return True
        entered = receiver_of(call, "__enter__")
        if entered is None and method_of(call) == "enter_context" and call.args:
            entered = call.args[0].value
        return entered is not None and self.mode(entered) is not None

    @memoized(Grad.ON)
    def _of_function(self, function: cst.FunctionDef) -> Grad:
        marked = self._marked(function)
        if marked is not None:
            return marked
        callers = self.functions.callers(function)
        if not callers:
            return self._module_wide()
        modes = {self.grad(call) for call in callers}
        if len(modes) > 1:
            return Grad.UNKNOWN
        mode = modes.pop()
        return Grad.UNKNOWN if mode is Grad.OFF and self.functions.escapes(function) else mode

    def _marked(self, function: cst.FunctionDef) -> Grad | None:
        """Return the mode that a function's decorators set, None if they set none."""
        modes = (self.mode(each.decorator) for each in function.decorators)
        return next((mode for mode in modes if mode is not None), None)

    def _module_wide(self) -> Grad:
        """Return the mode that module-level code leaves for functions called elsewhere."""
        for call in self._switches:
            if self.scopes.function(call) is None and method_of(call) != "enter_context":
                return self._left_by(call) or Grad.ON
        return Grad.ON

    def _by_word(self, node: cst.Name | cst.Attribute) -> Grad | None:
        """Return the mode that the name of an unseen context manager suggests."""
        if self.functions.definition(node) is not None:
            return None
        word = last_word(node)
        if word in ("no_grad", "inference_mode"):
            return Grad.OFF
        return Grad.UNKNOWN if _WORD.search(word) else None
