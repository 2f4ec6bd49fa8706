"""Generation: the loops whose every pass lets a network generate, which takes seconds."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import LoopNode, Loops, Role
from torchlint.semantic.scope.memo import Memo
from torchlint.semantic.syntax.methods import word_of
from torchlint.semantic.values.gradient import Grad, Gradients
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.kinds import Kinds

_GENERATE: Final = "generate"
_SETTINGS: Final = frozenset(
    (
        "max_new_tokens min_new_tokens max_length max_tokens gen_length num_beams do_sample "
        "temperature top_p top_k num_return_sequences generation_config sampling_params"
    ).split()
)
"""Arguments that only a function that generates takes."""


class Generation(Analysis):
    """Finds loops beside whose passes a wait of a millisecond is nothing."""

    def __init__(
        self,
        functions: Functions,
        kinds: Kinds,
        loops: Loops,
        gradients: Gradients,
        frequencies: Frequencies,
    ) -> None:
        super().__init__(functions)
        self.kinds = kinds
        self.loops = loops
        self.gradients = gradients
        self.frequencies = frequencies
        self._loops = Memo(False, self.names.trail, self._fills)

    def is_beside(self, span: Span) -> bool:
        """Return whether each pass of the loop that runs some code generates."""
        around = [
            loop.node
            for loop in self.loops.all()
            if span.start in range(*self._range(loop.node.body))
        ]
        inner = max(around, key=lambda each: self._range(each)[0], default=None)
        return inner is not None and self._loops.answer(inner)

    def _fills(self, loop: LoopNode) -> bool:
        return any(
            self.generates(call) and self.frequencies.below(call, loop) is Frequency.EVERY_PASS
            for call in self.functions.own(loop.body, cst.Call)
        )

    def _range(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self.tree.span(node)
        return span.start, span.end

    def generates(self, call: cst.Call) -> bool:
        """Return whether a call runs a network many times, without gradients."""
        if self._is_spelled(call):
            return True
        return any(
            any(map(self._is_spelled, self.functions.own(body, cst.Call)))
            or (isinstance(body, cst.FunctionDef) and self.samples(body))
            for callee in self.functions.callees(call)
            for body in self.functions.reached(callee)
        )

    def _is_spelled(self, call: cst.Call) -> bool:
        if word_of(call) != _GENERATE:
            return False
        if any(arg.keyword is not None and arg.keyword.value in _SETTINGS for arg in call.args):
            return True
        func = call.func
        return isinstance(func, cst.Attribute) and self.kinds.kind(func.value) is Kind.MODULE

    def samples(self, function: cst.FunctionDef) -> bool:
        """Return whether a function runs a network in a loop, without batches and gradients."""
        loops: list[LoopNode] = [
            *self.functions.own(function, cst.For),
            *self.functions.own(function, cst.While),
        ]
        return any(
            self.loops.loop(loop).role is Role.OTHER
            and self.loops.runs_module_itself(loop.body)
            and self.gradients.grad(loop) is Grad.OFF
            for loop in loops
        )
