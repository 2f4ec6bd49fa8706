"""Generation: the loops whose every pass lets a network generate, which takes seconds."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import LoopNode, Loops, Role
from torchlint.semantic.scope.limits import CALLERS
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import named_arguments, word_of
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind

_GENERATE: Final = "generate"
_DRAW: Final = "torch.multinomial"
_SETTINGS: Final = frozenset(
    "max_new_tokens min_new_tokens max_length max_tokens gen_length num_beams do_sample "
    "temperature top_p top_k num_return_sequences generation_config sampling_params".split()
)
"""Arguments that only a function that generates takes."""
_OF_LANGUAGE: Final = frozenset(
    "inputs_embeds past_key_values past_key_value attention_mask position_ids".split()
)
"""Arguments that only the passes of language models take."""
_NAMED: Final = frozenset("sample samples sampling generate decode ddim translate".split())
_NETWORKS: Final = frozenset("model net network unet denoiser".split())
_EMBEDS: Final = "get_input_embeddings"


class Generation(LoopAnalysis):
    """Finds loops beside whose passes a wait of a millisecond is nothing."""

    def __init__(self, loops: Loops, frequencies: Frequencies) -> None:
        super().__init__(loops)
        self.frequencies = frequencies

    def is_beside(self, span: Span) -> bool:
        """Return whether each pass of the loop that runs some code generates."""
        loops = [each for each in self._loop_nodes if self.tree.holds(each.body, span)]
        inner = max(loops, key=self.tree.order, default=None)
        function = self._home(span)
        if inner is not None and (function is None or self.tree.inside(inner, function)):
            return self._fills(inner)
        return function is not None and self._is_called_beside(function, CALLERS)

    def _is_called_beside(self, function: cst.FunctionDef, depth: int) -> bool:
        """Return whether a function generates, or is called where each pass of a loop does."""
        if self._generates_in(function):
            return True
        callers = self.functions.callers(function)
        if not callers or not depth or self.functions.escapes(function):
            return False
        return all(self._is_run_beside(call, depth - 1) for call in callers)

    def _is_run_beside(self, call: cst.Call, depth: int) -> bool:
        around = next(self.loops.around(call), None)
        if around is not None:
            return self._fills(around.node)
        function = self.scopes.function(call)
        return function is not None and self._is_called_beside(function, depth)

    def _home(self, span: Span) -> cst.FunctionDef | None:
        return next(reversed(self.tree.holding(span, cst.FunctionDef)), None)

    def is_part(self, span: Span) -> bool:
        """Return whether code samples from a network, once for each element that it makes."""
        if any(self.only_samples(each) for each in self._loop_nodes if self.tree.holds(each, span)):
            return True
        function = self._home(span)
        return function is not None and (self._is_named_for(function) or self._draws(function))

    @memoized(False)
    def _is_named_for(self, function: cst.FunctionDef) -> bool:
        """Return whether a function runs a network in a loop, and is named for what it draws."""
        if _NAMED.isdisjoint(words(function.name.value)):
            return False
        around = [
            self.loops.loop(each) for each in self._loop_nodes if self.tree.inside(each, function)
        ]
        if not around or any(
            each.role in (Role.EPOCH, Role.TRAIN_BATCH) or each.loader is not None
            for each in around
        ):
            return False
        given = (param.name.value for param in function.params.params)
        return self.loops.runs_module(function.body) or not _NETWORKS.isdisjoint(given)

    @property
    def _loop_nodes(self) -> list[LoopNode]:
        return [loop.node for loop in self.loops.all() if self.tree.is_own(loop.node)]

    def is_part_of_language_model(self, span: Span) -> bool:
        """Return whether the function or class of some code runs a language model, too."""
        functions = self.tree.holding(span, cst.FunctionDef)
        around = (*functions, *self.tree.holding(span, cst.ClassDef))
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
        return any(map(self._generates_in, self.functions.callees(call)))

    @memoized(False)
    def _generates_in(self, function: cst.FunctionDef) -> bool:
        """Return whether each run of a function generates."""
        return self.samples(function) or any(
            self.generates(call) and self.frequencies.below(call, function) is Frequency.EVERY_PASS
            for call in self.functions.own(function, cst.Call)
        )

    def _is_spelled(self, call: cst.Call) -> bool:
        if word_of(call) != _GENERATE:
            return False
        if named_arguments(call, *_SETTINGS):
            return True
        func = call.func
        return isinstance(func, cst.Attribute) and self.kinds.kind(func.value) is Kind.MODULE

    def samples(self, function: cst.FunctionDef) -> bool:
        """Return whether a function runs a network in a loop, without batches and gradients."""
        return any(self._samples_in(loop.node) for loop in self.loops.own(function))

    def only_samples(self, loop: LoopNode) -> bool:
        """Return whether each pass of a loop runs a network, and none plays an episode."""
        return self._samples_in(loop) and not self.loops.environments.are_stepped_in(loop)

    def _samples_in(self, loop: LoopNode) -> bool:
        if self.loops.loop(loop).role is not Role.OTHER:
            return False
        return self.loops.runs_module_itself(loop.body) and any(
            self.gradients.grad(call) is Grad.OFF and self._is_fed_by_itself(call, loop)
            for call in self.functions.own(loop.body, cst.Call)
            if self._is_pass(call)
        )

    def _is_pass(self, call: cst.Call) -> bool:
        """Return whether a call runs a network, or a method of one."""
        func = call.func
        run = [func, func.value] if isinstance(func, cst.Attribute) else [func]
        return any(self.kinds.kind(each) is Kind.MODULE for each in run)

    def _draws(self, function: cst.FunctionDef) -> bool:
        """Return whether a function draws once from what a network says, not in its own pass."""
        if function.name.value == "forward":
            return False
        called = (self.names.name(call.func) for call in self.functions.own(function, cst.Call))
        return _DRAW in called and not any(
            self.loops.loop(each).role is not Role.OTHER or self.loops.runs_module(each.body)
            for each in self._loop_nodes
            if self.tree.inside(each, function)
        )

    def _is_fed_by_itself(self, call: cst.Call, loop: LoopNode) -> bool:
        """Return whether a pass of a loop gives a network what the one before came to."""
        edge: list[cst.CSTNode] = [arg.value for arg in call.args]
        seen: set[cst.CSTNode] = set()
        filled = {
            dotted(line.targets[0].target.value)
            for line in self.functions.own(loop.body, cst.Assign)
            if isinstance(line.targets[0].target, cst.Subscript)
        }
        for region in edge:
            for name in self.tree.within(region, cst.Name):
                if name.value in filled:
                    return True
                for binding in self.scopes.reaching(name):
                    if not self.tree.inside(binding.node, loop) or binding.node in seen:
                        continue
                    if self.tree.order(binding.node) > self.tree.order(self.tree.statement(call)):
                        return True
                    if binding.value is not None:
                        if self.tree.inside(call, binding.value):
                            return True
                        seen.add(binding.node)
                        edge.append(binding.value)
        return False
