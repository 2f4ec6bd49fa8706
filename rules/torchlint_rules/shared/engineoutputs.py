"""Outputs of Ignite's engines: what is read of them after every batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Frequency, Rate, Script, method_of

_AVERAGES: Final = (
    "ignite.metrics.RunningAverage",
    "ignite.handlers.ProgressBar",
    "ignite.handlers.TerminateOnNan",
    "ignite.handlers.FastaiLRFinder",
    "ignite.handlers.lr_finder.FastaiLRFinder",
    "ignite.contrib.handlers.ProgressBar",
    "ignite.contrib.handlers.tqdm_logger.ProgressBar",
    "ignite.engine.common.setup_common_training_handlers",
    "ignite.contrib.engines.common.setup_common_training_handlers",
    "ignite.handlers.common.setup_common_training_handlers",
)
"""What reads the output of every batch once it is attached."""
_TRAINER: Final = "ignite.engine.create_supervised_trainer"
_EVALUATOR: Final = "ignite.engine.create_supervised_evaluator"
_EACH_TIME: Final = "ignite.engine.Events.ITERATION_COMPLETED"
_OUTPUTS: Final = ("output", "metrics")


def numbers_of_losses(script: Script, code: str) -> Iterator[Finding]:
    """Yield the trainers of Ignite that read each loss, where no handler needs its number."""
    if not script.program.devices.can_use_accelerator or reads_outputs(script):
        return
    for site in script.calls.of(_TRAINER):
        if site.has_splat or site.given("output_transform") is not None:
            continue
        shown = script.tree.brief(site.node.func)
        message = (
            f"`{shown}` reads the number of every loss, which waits for the device in every batch:"
            " pass `output_transform=lambda x, y, y_pred, loss: loss.detach()`"
        )
        yield Finding(code, script.span(site.node.func), message, impact="medium")


def reads_outputs(script: Script) -> bool:
    """Return whether something attached to an engine reads its output after every batch."""
    return script.once(_reads_outputs)


def _reads_outputs(script: Script) -> bool:
    if any(True for _ in script.calls.of(*_AVERAGES)):
        return True
    return any(
        script.name(each) == _EACH_TIME and _is_read(script, call)
        for each in script.functions.attributes("ITERATION_COMPLETED")
        if (call := script.tree.taker(each)) is not None
    )


def _is_of_evaluator(script: Script, call: cst.Call) -> bool:
    """Return whether a handler is for an engine that only evaluates."""
    origin = script.values.origins.of(script.calls.at(call).receiver)
    return bool(origin.known) and all(
        isinstance(made, cst.Call) and _evaluates(script, made) for made in origin.known
    )


def _evaluates(script: Script, engine: cst.Call) -> bool:
    """Return whether a call makes an engine whose process evaluates."""
    if script.name(engine.func) == _EVALUATOR:
        return True
    process = engine.args[0].value if engine.args else engine.func
    function = script.functions.definition(process)
    return (
        isinstance(function, cst.FunctionDef)
        and script.loops.rate(function) is Rate.EVALUATION_STEP
    )


def _is_read(script: Script, call: cst.Call) -> bool:
    """Return whether a call may have the output of an engine read after each of its batches."""
    if _is_of_evaluator(script, call):
        return False
    handler: cst.CSTNode | None = None
    if method_of(call) == "on":
        mark = script.tree.parent(call)
        handler = script.tree.parent(mark) if isinstance(mark, cst.Decorator) else None
    elif method_of(call) == "add_event_handler":
        given = script.calls.at(call).given("handler")
        handler = script.functions.definition(given.value) if given is not None else None
        if given is not None and handler is None:
            return False
    return not isinstance(handler, cst.FunctionDef) or any(
        node.attr.value in _OUTPUTS
        and script.loops.frequency(node, handler) is Frequency.EVERY_PASS
        for node in script.tree.within(handler.body, cst.Attribute)
    )
