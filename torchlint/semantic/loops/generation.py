"""Generation: the loops whose every pass lets a network generate, which takes seconds."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import LoopNode, Loops, Role
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.syntax.methods import word_of
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_GENERATE: Final = "generate"
_SETTINGS: Final = frozenset(
    (
        "max_new_tokens min_new_tokens max_length max_tokens gen_length num_beams do_sample "
        "temperature top_p top_k num_return_sequences generation_config sampling_params"
    ).split()
)
"""Arguments that only a function that generates takes."""
_OF_LANGUAGE: Final = frozenset(
    "inputs_embeds past_key_values past_key_value attention_mask position_ids".split()
)
"""Arguments that only the passes of language models take."""
_EMBEDS: Final = "get_input_embeddings"


class Generation(ValueAnalysis):
    """Finds loops beside whose passes a wait of a millisecond is nothing."""

    def __init__(self, values: KnownValues, loops: Loops, frequencies: Frequencies) -> None:
        super().__init__(values)
        self.loops = loops
        self.frequencies = frequencies

    def is_beside(self, span: Span) -> bool:
        """Return whether each pass of the loop that runs some code generates."""
        inner = self._inner([each for each in self._loop_nodes if self.tree.holds(each.body, span)])
        return inner is not None and self._fills(inner)

    def is_sampling(self, span: Span) -> bool:
        """Return whether code is part of a loop in which a network samples."""
        inner = self._inner([each for each in self._loop_nodes if self.tree.holds(each, span)])
        return inner is not None and self.only_samples(inner)

    @property
    def _loop_nodes(self) -> list[LoopNode]:
        return [loop.node for loop in self.loops.all() if self.tree.is_own(loop.node)]

    def _inner(self, nodes: list[LoopNode]) -> LoopNode | None:
        return max(nodes, key=self.tree.order, default=None)

    def is_part_of_language_model(self, span: Span) -> bool:
        """Return whether the function or class of some code runs a language model, too."""
        around = [
            each
            for each in (*self.tree.all(cst.FunctionDef), *self.tree.all(cst.ClassDef))
            if self.tree.is_own(each) and self.tree.holds(each, span)
        ]
        outer = min(around, key=self.tree.order, default=None)
        if outer is None:
            return False
        keywords = (arg.keyword for arg in self.tree.within(outer, cst.Arg))
        return any(each is not None and each.value in _OF_LANGUAGE for each in keywords) or any(
            each.attr.value == _EMBEDS for each in self.tree.within(outer, cst.Attribute)
        )

    @memoized(False)
    def _fills(self, loop: LoopNode) -> bool:
        return any(
            self.generates(call) and self.frequencies.below(call, loop) is Frequency.EVERY_PASS
            for call in self.functions.own(loop.body, cst.Call)
        )

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
        return any(map(self._samples_in, loops))

    def only_samples(self, loop: LoopNode) -> bool:
        """Return whether each pass of a loop runs a network, and none plays an episode."""
        return self._samples_in(loop) and not self.loops.environments.are_stepped_in(loop)

    def _samples_in(self, loop: LoopNode) -> bool:
        return (
            self.loops.loop(loop).role is Role.OTHER
            and self.loops.runs_module_itself(loop.body)
            and self.gradients.grad(loop) is Grad.OFF
        )
