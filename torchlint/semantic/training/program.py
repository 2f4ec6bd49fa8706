"""Program: the structure of a training script: its entry, epoch loop and loaders."""

from __future__ import annotations

from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.loops.loops import Loop, Loops, Role
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.values import State

_LOADERS: Final = frozenset({"torch.utils.data.DataLoader"})


class Start(NamedTuple):
    """The statements where a script starts: those of the module or of its main guard."""

    block: cst.Module | cst.BaseSuite
    statement: cst.CSTNode
    """The statement of the block that runs the node in question."""


class Program(ValueAnalysis):
    """Relates the parts of a training script to each other."""

    def __init__(self, values: KnownValues, loops: Loops) -> None:
        super().__init__(values)
        self.loops = loops

    # -- entry ------------------------------------------------------

    @memoized(None)
    def entry(self, node: cst.CSTNode) -> Start | None:
        """Return the start of the script run that reaches a node, None unless there is just one."""
        function = self.scopes.function(node)
        if function is None:
            return self._top_level(node)
        if function.decorators or self.functions.escapes(function):
            return None
        if self.scopes.class_of(function) is not None:
            return None
        found = [self.entry(call) for call in self.functions.callers(function)]
        entries = [entry for entry in found if entry is not None]
        if not entries or len(entries) != len(found):
            return None
        same = all(entry.statement is entries[0].statement for entry in entries)
        return entries[0] if same else None

    def _top_level(self, node: cst.CSTNode) -> Start | None:
        if self.scopes.class_of(node) is not None:
            return None
        line = [node, *self.tree.ancestors(node)]
        guard = line[-2]
        if isinstance(guard, cst.If) and self._is_guard(guard):
            if guard.body not in line:
                return None
            return Start(guard.body, line[line.index(guard.body) - 1])
        return Start(self.tree.module_of(node), guard)

    def _is_guard(self, line: cst.If) -> bool:
        return any(name.value == "__name__" for name in self.tree.within(line.test, cst.Name))

    # -- loops and loaders ----------------------------------------------------

    def training_loops(self) -> list[Loop]:
        """Return the batch loops that train networks."""
        return [loop for loop in self.loops.all() if loop.role is Role.TRAIN_BATCH]

    def epoch_loop(self, batches: Loop) -> Loop | None:
        """Return the loop around a batch loop, in the same function or in its callers."""
        return self._loop_around(batches.node)

    @memoized(None)
    def _loop_around(self, node: cst.CSTNode) -> Loop | None:
        near = next(self.loops.around(node), None)
        function = self.scopes.function(node)
        if near is not None or function is None:
            return near
        found = {self._loop_around(call) for call in self.functions.callers(function)}
        return found.pop() if len(found) == 1 else None

    @memoized(None)
    def loader_call(self, loader: cst.BaseExpression) -> cst.Call | None:
        """Return the one `DataLoader(...)` that an expression can be."""
        value = self.values.value_of(loader)
        if value.state is State.KNOWN and isinstance(value.node, cst.Call):
            if self.names.name(value.node.func) in _LOADERS:
                return value.node
            function = self.functions.definition(value.node.func)
            if isinstance(function, cst.FunctionDef):
                return self._returned(function, ())
        if isinstance(loader, cst.Name):
            return self._unpacked(self.scopes.reaching(loader))
        return None

    def _unpacked(self, bindings: tuple[Binding, ...]) -> cst.Call | None:
        if len(bindings) != 1:
            return None
        binding = bindings[0]
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            found = {self.loader_call(given) for given in self.functions.given(binding.node)}
            return found.pop() if len(found) == 1 else None
        if binding.how is How.UNPACKED and isinstance(binding.value, cst.Call):
            function = self.functions.definition(binding.value.func)
            if isinstance(function, cst.FunctionDef) and not binding.starred:
                return self._returned(function, binding.path)
        return None

    def _returned(self, function: cst.FunctionDef, path: tuple[int, ...]) -> cst.Call | None:
        returned = self.functions.returns(function)
        if len(returned) != 1:
            return None
        value = returned[0]
        for index in path:
            if not isinstance(value, cst.Tuple) or index >= len(value.elements):
                return None
            value = value.elements[index].value
        return self.loader_call(value)

    def draws(self, loader: cst.Call) -> list[Loop]:
        """Return the loops that iterate over the loader that a call creates."""
        return [
            loop
            for loop in self.loops.all()
            if loop.loader is not None and self.loader_call(loop.loader) is loader
        ]

    def is_batch_size(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a batch size: `len(x)`, `x.size(0)`, `x.shape[0]`."""
        if isinstance(node, cst.Call):
            if self.names.name(node.func) == "builtins.len":
                return True
            return (
                method_of(node) == "size"
                and len(node.args) == 1
                and isinstance(node.args[0].value, cst.Integer)
                and node.args[0].value.value == "0"
            )
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
            index = node.slice[0].slice
            return (
                node.value.attr.value == "shape"
                and isinstance(index, cst.Index)
                and isinstance(index.value, cst.Integer)
                and index.value.value == "0"
            )
        if isinstance(node, cst.Name):
            value = self.values.value_of(node)
            return (
                value.state is State.KNOWN
                and value.node is not None
                and not isinstance(value.node, cst.Name)
                and self.is_batch_size(value.node)
            )
        return False
