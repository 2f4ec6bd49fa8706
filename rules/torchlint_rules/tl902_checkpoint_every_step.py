"""TL902: a checkpoint that is written in every step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    CALLERS,
    Finding,
    Frequency,
    Kind,
    Note,
    Role,
    Rule,
    Script,
    receiver_of,
    word_of,
)

_KEEPERS: Final = frozenset({"accelerator", "fabric", "engine"})
_KEEPING: Final = ("save_pretrained", "save_state", "save_checkpoint")
"""The methods by which Transformers, Accelerate and DeepSpeed write what they hold."""
_FABRIC: Final = "fabric"
_CALLBACK: Final = re.compile(
    r"(?:lightning(?:\.pytorch)?|pytorch_lightning)\.callbacks\.(?:\w+\.)*ModelCheckpoint"
)
_OFTEN: Final = 10
"""The number of steps up to which a trainer writes more than it trains."""

_Interval = tuple[cst.CSTNode, str, int, tuple[Note, ...]]
"""Where an option asks for checkpoints, its name, how many steps it means, and notes."""


class CheckpointEveryStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every checkpoint that each step writes unconditionally."""
        for call, done in (*_written(script), *_copied(script)):
            if _each_step(script, call, CALLERS):
                message = f"every training step {done}"
                notes = script.loops.repetition.notes_on_callers(call)
                yield Finding(self.code, script.span(call), message, None, notes)
        for place, option, steps, notes in (*_arguments(script), *_callbacks(script)):
            told = "every step" if steps == 1 else f"every {steps} steps"
            message = (
                f"`{option}={steps}` writes the network and the optimizer's state to disk after "
                f"{told}, and the training waits: write them once an epoch or every few hundred "
                "steps"
            )
            yield Finding(self.code, script.span(place), message, None, notes)


def _written(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield the calls that write a checkpoint, and what a message says of each."""
    for call in _writes(script):
        if what := _checkpoint(script, call):
            cure = "write it once an epoch or every so many steps"
            yield call, f"writes {what} to disk and waits for it; {cure}"


def _copied(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield the calls that copy the state of a network, and what a message says of each."""
    for call in (site.node for site in script.calls.of("copy.deepcopy")):
        network = receiver_of(call.args[0].value, "state_dict") if len(call.args) == 1 else None
        if network is not None and script.kind(network) is Kind.MODULE:
            state = f"the state of `{script.code(network)}`"
            yield call, f"copies {state}, tensor by tensor: copy it when it is to be kept"


def _arguments(script: Script) -> Iterator[_Interval]:
    """Yield where the arguments of a trainer ask for a checkpoint after every few steps."""
    for arguments in script.program.trainings.arguments("transformers", "trl"):
        strategy, steps = arguments.setting("save_strategy"), arguments.setting("save_steps")
        if strategy is None or strategy.value != "steps" or arguments.is_trial:
            continue
        if steps is not None and not steps.is_default and steps.counts(_OFTEN):
            place = arguments.given("save_steps") or arguments.call
            yield place, "save_steps", steps.value, arguments.notes("save_steps")


def _callbacks(script: Script) -> Iterator[_Interval]:
    """Yield where a callback of Lightning writes a checkpoint after every few steps."""
    trainers = list(script.program.trainings.arguments("lightning"))
    if trainers and all(each.is_trial for each in trainers):
        return
    option = "every_n_train_steps"
    for site in script.calls.of(*filter(_CALLBACK.fullmatch, script.calls.called)):
        steps = site.argument(option).literal
        if type(steps) is int and 1 <= steps <= _OFTEN:
            yield site.given(option) or site.node, option, steps, ()


def _writes(script: Script) -> Iterator[cst.Call]:
    """Yield the calls that may write a checkpoint and are not functions of this file."""
    yield from (site.node for site in script.calls.of("torch.save"))
    for site in script.calls.of_methods("save"):
        if _FABRIC in script.names.words(script.code(site.receiver)):
            yield site.node
    for site in script.calls.of_methods(*_KEEPING):
        call = site.node
        said = site.receiver
        network = script.kind(said) is Kind.MODULE
        if network or not _KEEPERS.isdisjoint(script.names.words(script.code(said))):
            yield call
    for state in script.calls.of_methods("state_dict"):
        taker = _taker(script, state.node)
        last = word_of(taker) if taker is not None else ""
        if taker is not None and "save" in script.names.words(last):
            if script.functions.callee(taker) is None and script.name(taker.func) != "torch.save":
                yield taker


def _taker(script: Script, state: cst.Call) -> cst.Call | None:
    """Return the call that gets a state dict, in a dictionary or directly."""
    at: cst.CSTNode = state
    while isinstance(outer := script.tree.parent(at), (cst.DictElement, cst.Dict)):
        at = outer
    return script.tree.taker(at)


def _checkpoint(script: Script, call: cst.Call) -> str:
    """Return the user's name for the checkpoint that a call writes, empty if it writes none."""
    saved = receiver_of(call, *_KEEPING)
    if saved is not None:
        return f"`{script.code(saved)}`"
    own = receiver_of(call, "save") is not None and script.name(call.func) != "torch.save"
    given = script.calls.at(call).given("state", 1) if own else None
    given = given or script.calls.at(call).given("obj", 0)
    if given is None:
        return ""
    if script.kind(given.value) is Kind.MODULE:
        return f"`{script.code(given.value)}`"
    value = script.values.value_of(given.value).node or given.value
    for each in value.elements if isinstance(value, cst.Dict) else ():
        if script.kind(each.value) is Kind.MODULE:
            return f"the state of `{script.code(each.value)}`"
    for attribute in script.tree.within(value, cst.Attribute):
        if attribute.attr.value == "state_dict":
            return f"the state of `{script.code(attribute.value)}`"
    return ""


def _each_step(script: Script, node: cst.CSTNode, depth: int) -> bool:
    """Return whether every iteration of a loop that trains on batches reaches a node."""
    if script.loops.frequency(node) is not Frequency.EVERY_PASS or _is_conditional(script, node):
        return False
    loop = script.loops.batch_loop(node)
    if loop is not None:
        return loop.role is Role.TRAIN_BATCH
    function = script.scopes.function(node)
    return (
        function is not None
        and depth > 0
        and any(
            _each_step(script, caller, depth - 1) for caller in script.functions.callers(function)
        )
    )


def _is_conditional(script: Script, node: cst.CSTNode) -> bool:
    """Return whether an `if`, an `except` or the end of a loop decides whether a node runs."""
    loop = script.loops.batch_loop(node)
    for child, parent in script.tree.outward(node):
        if isinstance(parent, cst.FunctionDef):
            return False
        if loop is not None and parent is loop.node:
            return isinstance(child, cst.Else)
        if isinstance(parent, cst.If) and child is not parent.test:
            return True
        if isinstance(parent, (cst.ExceptHandler, cst.IfExp, cst.Else, cst.Finally)):
            return True
    return False
