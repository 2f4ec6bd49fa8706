"""TL111: the same text is tokenised in every step, in the process that trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Frequency, Grad, How, Per, Rate, Role, Rule, Script, method_of
from torchlint_rules.shared.grouping import joined
from torchlint_rules.shared.tokenizers import tokenizer_of

_GENERATES: Final = frozenset("generate sample rollout".split())
_CURE: Final = "tokenize the texts once, before the training, and only pad each batch"


class TokenisedEachStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every tokenizer that training waits for in each step, once for each function."""
        yield from joined(script, self._found(script), ("call", "calls"))

    def _found(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        for call in script.tree.own(cst.Call):
            tokenizer = tokenizer_of(script, call)
            if tokenizer is None:
                continue
            place = _place(script, call)
            if place:
                message = (
                    f"`{script.code(tokenizer)}` runs {place}, while the device waits: {_CURE}"
                )
                yield script.scopes.home(call), Finding(self.code, script.span(call), message)


def _place(script: Script, call: cst.Call) -> str:
    """Return where a call runs in every step, empty if it runs there rarely or for other text."""
    loop = script.loops.batch_loop(call)
    if loop is not None:
        if (
            loop.role is not Role.TRAIN_BATCH
            or script.loops.frequency(call) is not Frequency.EVERY_PASS
            or script.loops.generation.is_beside(script.span(call))
        ):
            return ""
        fresh = not _is_given(script, call.args[0].value) and any(
            script.calls.at(each).method in _GENERATES
            for each in script.tree.within(loop.node.body, cst.Call)
        )
        return "" if fresh or not _depends_on(script, call, loop.node) else "in every step"
    function = script.scopes.function(call)
    if function is None:
        return ""
    is_step = script.loops.rate(function) is Rate.STEP
    if not is_step and function.name.value != "forward":
        trained = script.loops.is_in_loop(call, Role.TRAIN_BATCH)
        is_step = trained and script.answer(_is_given, call.args[0].value, False)
    if is_step:
        often = script.loops.frequency(call) is Frequency.EVERY_PASS
        return "in every step" if often and _depends_on(script, call, function) else ""
    records = script.values.gradients.grad(call) is not Grad.OFF
    if function.name.value == "forward" and records and _is_network(script, function):
        return "in every forward pass" if _depends_on(script, call, function) else ""
    return "for every batch, without workers" if _collates(script, function) else ""


def _is_given(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether text is right from what a loop is over, in functions too: `batch["text"]`."""
    names = list(script.tree.within(node, cst.Name))
    bound = [each for name in names for each in script.scopes.reaching(name)]
    return bool(bound) and all(
        each.how is How.LOOP or _all_given(script, script.functions.held(each)) for each in bound
    )


def _all_given(script: Script, values: list[cst.BaseExpression]) -> bool:
    return bool(values) and not any(
        any(True for _ in script.tree.within(each, cst.Call))
        or not script.answer(_is_given, each, False)
        for each in values
    )


def _depends_on(script: Script, call: cst.Call, region: cst.CSTNode) -> bool:
    """Return whether a loop, or a function's parameters, decide what text a call gets."""
    return any(
        script.tree.inside(binding.node, region)
        and (
            not isinstance(binding.node, cst.Param)
            or script.functions.owner_of_self(binding.node) is None
        )
        for arg in call.args
        for name in script.tree.within(arg.value, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _is_network(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a function belongs to a network that does not freeze itself."""
    owner = script.scopes.class_of(function)
    if owner is None or _freezes_itself(script, owner):
        return False
    return any(
        base.startswith("torch.nn.") or base.rpartition(".")[2] == "Module"
        for base in script.functions.bases(owner)
    )


def _freezes_itself(script: Script, owner: cst.ClassDef) -> bool:
    """Return whether a class switches its own gradients off: the encoder of a prompt."""
    return any(
        script.code(line.targets[0].target).endswith(".requires_grad")
        and script.values.value_of(line.value).equals(False)
        for line in script.tree.within(owner, cst.Assign)
    ) or any(
        method_of(call) == "requires_grad_" and call.args
        for call in script.tree.within(owner, cst.Call)
    )


def _collates(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a function collates the batches of a loader without workers."""
    collating = (each.node for each in script.loaders.items.all() if each.per is Per.BATCH)
    if function not in collating or script.loaders.datasets.work.drawn(function):
        return False
    loaders = [
        loader
        for loader in script.loaders
        if any(
            script.functions.run_by(value) is function for value in loader.possible("collate_fn")
        )
    ]
    return bool(loaders) and all(loader.has_no_workers for loader in loaders)
