"""Program: the structure of a training script: its entry, epoch loop and loaders."""

from __future__ import annotations

from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loop, Role
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.syntax.methods import method_of

_LOADER: Final = "torch.utils.data.DataLoader"


class Start(NamedTuple):
    """The statements where a script starts: those of the module or of its main guard."""

    block: cst.Module | cst.BaseSuite
    statement: cst.CSTNode
    """The statement of the block that runs the node in question."""


class Program(LoopAnalysis):
    """Relates the parts of a training script to each other."""

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
        if isinstance(guard, cst.If) and "__name__" in self.tree.code(guard.test):
            if guard.body not in line:
                return None
            return Start(guard.body, line[line.index(guard.body) - 1])
        return Start(self.tree.module_of(node), guard)

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
        origin = self.origins.of(loader)
        made = origin.values[0] if origin.complete and len(origin.values) == 1 else None
        is_loader = isinstance(made, cst.Call) and self.names.name(made.func) == _LOADER
        return cst.ensure_type(made, cst.Call) if is_loader else None

    def draws(self, loader: cst.Call) -> list[Loop]:
        """Return the loops that iterate over the loader that a call creates."""
        return [
            loop
            for loop in self.loops.all()
            if loop.loader is not None and self.loader_call(loop.loader) is loader
        ]

    def is_batch_size(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a batch size: `len(x)`, `x.size(0)`, `x.shape[0]`."""
        found = self.values.value_of(node).node if isinstance(node, cst.Name) else node
        if isinstance(found, cst.Call):
            first = [self.tree.code(arg.value) for arg in found.args] == ["0"]
            is_size = method_of(found) == "size" and first
            return is_size or self.names.name(found.func) == "builtins.len"
        if not isinstance(found, cst.Subscript) or not isinstance(found.value, cst.Attribute):
            return False
        first = self.tree.code(found.slice[0].slice) == "0"
        return first and found.value.attr.value == "shape"
