"""Measuring: code that runs to find out how fast something is, or how much memory it needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.syntax.methods import method_of

_NAMED: Final = re.compile(
    r"(?:\w*_)?(?:benchmark|bench|profile|timeit|speed|throughput|latency)\w*"
)
_PROFILER: Final = "torch.profiler.profile"
_WAITS: Final = "torch.cuda.synchronize"
CLOCKS: Final = frozenset({"time.time", "time.perf_counter", "time.monotonic"})
_METERS: Final = (
    "torch.cuda.reset_peak_memory_stats", "torch.cuda.reset_max_memory_allocated",
    "torch.utils.benchmark.Timer", "timeit.timeit", "timeit.repeat",
)  # fmt: skip


class Measuring(Analysis):
    """Finds the functions and loops that measure."""

    def is_measured(self, node: cst.CSTNode) -> bool:
        """Return whether a node runs in a function named for it, or in a loop with a meter."""
        return self.is_named(node) or any(
            (bool(self.tree.among(self._meters, around)) or self._is_waited_for(around))
            if isinstance(around, (cst.For, cst.While))
            else isinstance(around, cst.With) and any(map(self._is_profiler, around.items))
            for around in self.tree.ancestors(node)
        )

    def _is_profiler(self, item: cst.WithItem) -> bool:
        return isinstance(item.item, cst.Call) and self.names.name(item.item.func) == _PROFILER

    def _is_waited_for(self, loop: cst.For | cst.While) -> bool:
        """Return whether the next line waits for all work of a loop, as only a clock needs."""
        block = self.tree.parent(loop)
        lines = list(block.body) if isinstance(block, (cst.IndentedBlock, cst.Module)) else [loop]
        after = lines[lines.index(loop) + 1 :][:1]
        calls = (call for line in after for call in self.tree.within(line, cst.Call))
        return any(self.names.name(call.func) == _WAITS for call in calls)

    def is_named(self, node: cst.CSTNode) -> bool:
        """Return whether the function around a node is named for measuring."""
        function = self.scopes.function(node)
        return function is not None and _NAMED.fullmatch(function.name.value) is not None

    def times(self, node: cst.CSTNode) -> bool:
        """Return whether a statement synchronizes next to a line that reads a clock."""
        if not self.functions.attributes("synchronize"):
            return False
        line: cst.CSTNode | None = None if type(node) is cst.Module else self.tree.statement(node)
        block = self.tree.parent(line)
        if isinstance(line, cst.For | cst.If) and isinstance(line.body, cst.SimpleStatementSuite):
            line, block = line.body, line
        if not isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            return False
        if not any(map(self._waits, self.tree.within(line, cst.Call))):
            return False
        beside: Sequence[cst.CSTNode] = (line,)
        if isinstance(block, cst.IndentedBlock):
            at = block.body.index(line)
            beside = block.body[max(at - 1, 0) : at + 2]
        return any(
            (self.names.name(call.func) or "") in CLOCKS or (method_of(call) == "record")
            for other in beside
            for call in self.tree.within(other, cst.Call)
        )

    def _waits(self, call: cst.Call) -> bool:
        """Return whether a call synchronizes, or runs a function that does nothing else."""
        if method_of(call) == "synchronize":
            return True
        callee = self.functions.callee(call)
        done = [] if callee is None else [*self.tree.within(callee.body, cst.Expr)]
        calls = [each.value for each in done if not isinstance(each.value, cst.SimpleString)]
        return bool(calls) and all(method_of(each) == "synchronize" for each in calls)

    @cached_property
    def _meters(self) -> list[cst.Call]:
        return [call for call in self.tree.all(cst.Call) if self.names.name(call.func) in _METERS]
