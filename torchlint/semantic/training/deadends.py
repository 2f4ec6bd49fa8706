"""Dead ends: programs that always raise before they get anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops, Role
from torchlint.semantic.scope.libraries import EXITS
from torchlint.semantic.scope.limits import REACHED
from torchlint.semantic.scope.target import Target
from torchlint.semantic.syntax.methods import last_line, receiver_of, word_of
from torchlint.semantic.training.fitting import Fitting

_WITHOUT_NEXT: Final = (1, 13)
_LOADER: Final = "torch.utils.data.DataLoader"
_CATCHING: Final = frozenset(
    f"builtins.{name}" for name in "Exception BaseException TypeError AttributeError".split()
)
_LATER: Final = (cst.Lambda, cst.FunctionDef, cst.ClassDef, cst.GeneratorExp)
_PERHAPS: Final = (cst.IfExp, cst.BooleanOperation, cst.ListComp, cst.SetComp, cst.DictComp)
_LEAVING: Final = (cst.Return, cst.Break, cst.Continue)


class DeadEnds(LoopAnalysis):
    """Follows the lines that run whenever a file is started to the first call that raises."""

    def __init__(self, loops: Loops, target: Target) -> None:
        super().__init__(loops)
        self.target = target
        self.fitting = Fitting(self.functions)
        self._stuck: dict[cst.FunctionDef, bool] = {}

    @cached_property
    def is_start_stuck(self) -> bool:
        """Whether the file, when it is started, always raises for a call that cannot work."""
        own = [line for line in self.tree.module.body if self.tree.is_own(line)]
        return self._is_stuck(own, REACHED)

    def _is_stuck(self, lines: Iterable[cst.BaseStatement], depth: int) -> bool:
        """Return whether every run raises in some lines, before it has trained or evaluated."""
        for line in lines:
            if self._is_dead_end(line, depth):
                return True
            if self._may_leave(line) or self._works(line):
                return False
        return False

    def _works(self, line: cst.CSTNode) -> bool:
        """Return whether a line may train or evaluate: what raises behind it ends real work."""
        if isinstance(line, (cst.FunctionDef, cst.ClassDef)):
            return False
        regions = self.functions.reached(line)
        return any(
            loop.role is not Role.OTHER and self.tree.inside(loop.node, region)
            for loop in self.loops.all()
            for region in regions
        )

    def _is_dead_end(self, line: cst.CSTNode, depth: int) -> bool:
        if isinstance(line, cst.SimpleStatementLine):
            return self._raises(line, depth)
        if isinstance(line, cst.If):
            return self._raises(line.test, depth) or self._is_branch_stuck(line, depth)
        if isinstance(line, cst.For):
            return self._raises(line.iter, depth) or self._is_block_stuck(line.body, depth)
        if isinstance(line, cst.While):
            return self._is_block_stuck(line.body, depth)
        if isinstance(line, cst.With):
            return not self._suppresses(line) and self._is_block_stuck(line.body, depth)
        return isinstance(line, cst.Try) and self._is_attempt_stuck(line, depth)

    def _is_block_stuck(self, block: cst.BaseSuite, depth: int) -> bool:
        if isinstance(block, cst.IndentedBlock):
            return self._is_stuck(block.body, depth)
        return self._raises(block, depth)

    def _is_branch_stuck(self, line: cst.If, depth: int) -> bool:
        if not self._is_block_stuck(line.body, depth):
            return False
        if "__name__" in self.tree.code(line.test):
            return True
        other = line.orelse
        if isinstance(other, cst.Else):
            return self._is_block_stuck(other.body, depth)
        return isinstance(other, cst.If) and self._is_branch_stuck(other, depth)

    def _is_attempt_stuck(self, line: cst.Try, depth: int) -> bool:
        """Return whether what an attempt raises ends the program, or at least each pass."""
        if not self._is_block_stuck(line.body, depth):
            return False
        last = (last_line(each.body) for each in line.handlers if self._catches(each))
        return all(isinstance(each, cst.Continue | cst.Raise) for each in last)

    def _suppresses(self, line: cst.With) -> bool:
        calls = (each.item for each in line.items)
        return any(isinstance(each, cst.Call) and word_of(each) == "suppress" for each in calls)

    def _catches(self, handler: cst.ExceptHandler) -> bool:
        caught = handler.type
        if caught is None:
            return True
        elements = [each.value for each in caught.elements] if isinstance(caught, cst.Tuple) else []
        names = [self.names.name(each) for each in elements or [caught]]
        return any(name is None or name in _CATCHING for name in names)

    def _may_leave(self, line: cst.CSTNode) -> bool:
        """Return whether a line may end its block or function early, or the program in order."""
        home = self.scopes.function(line)
        if any(
            self.scopes.function(each) is home
            for kind in _LEAVING
            for each in self.tree.within(line, kind)
        ):
            return True
        return any(self.names.name(call.func) in EXITS for call in self.tree.within(line, cst.Call))

    def _raises(self, line: cst.CSTNode, depth: int) -> bool:
        """Return whether a call that certainly runs with a line raises."""
        return any(
            self.fitting.fails(call) or self._asks_old_iterator(call) or self._runs(call, depth)
            for call in self.tree.within(line, cst.Call)
            if self._is_sure(call, line)
        )

    def _is_sure(self, call: cst.Call, line: cst.CSTNode) -> bool:
        for outer in self.tree.ancestors(call):
            if outer is line:
                return True
            if isinstance(outer, (*_LATER, *_PERHAPS)):
                return False
        return call is line

    def _asks_old_iterator(self, call: cst.Call) -> bool:
        """Return whether a call asks the iterator of a `DataLoader` for a batch by `next()`.

        That method is gone since torch 1.13.
        """
        held = receiver_of(call, "next")
        if held is None or call.args or not self.target.has(_WITHOUT_NEXT):
            return False
        origin = self.origins.of(held)
        return bool(origin.values) and origin.complete and all(map(self._iterates, origin.values))

    def _iterates(self, value: cst.BaseExpression) -> bool:
        """Return whether an expression is an iterator of a `DataLoader`."""
        if not isinstance(value, cst.Call) or self.names.name(value.func) != "builtins.iter":
            return False
        loaders = self.origins.of(value.args[0].value).values if value.args else ()
        return bool(loaders) and all(
            isinstance(each, cst.Call) and self.names.name(each.func) == _LOADER for each in loaders
        )

    def _runs(self, call: cst.Call, depth: int) -> bool:
        """Return whether a call runs a function that never gets to its end."""
        function = self.functions.callee(call) if depth else None
        if function is None or function.decorators or function.asynchronous is not None:
            return False
        if function not in self._stuck:
            self._stuck[function] = False
            if not self.functions.is_generator(function):
                self._stuck[function] = self._is_block_stuck(function.body, depth - 1)
        return self._stuck[function]
