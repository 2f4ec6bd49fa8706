"""TL301: training in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Grad, Note, Rule, Script, Step
from torchlint_rules.shared.cuda import keeps_to_float32, may_be_cuda, trains_in_float32
from torchlint_rules.tl301_full_precision_training.devicenames import visible_device
from torchlint_rules.tl301_full_precision_training.trainers import trainers_in_float32

_PARALLEL: Final = "torch.nn.DataParallel"
_BFLOAT16: Final = (1, 10)
"""The first torch whose autocast takes bfloat16; float16 came with 1.6 and needs a scaler."""
_TITLE: Final = "Run the forward pass and the loss under bfloat16 autocast"


class FullPrecisionTraining(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the forward pass of every step that runs in float32."""
        for trainer, option, doubt in trainers_in_float32(script):
            around = script.around(trainer)
            if not script.program.purpose.is_test(trainer) and not keeps_to_float32(around):
                message = (
                    f"`{script.code(trainer.func)}` trains in float32; pass `{option}` to use "
                    "tensor cores"
                )
                edits = script.edits.with_keyword(trainer, *option.split("="))
                because = f"products are rounded to fewer bits; {doubt}"
                fix = Fix.unsafe(f"Pass `{option}`", edits, because=because)
                yield Finding(self.code, script.span(trainer.func), message, fix)
        if not may_be_cuda(script):
            return
        for step in script.loops.steps.all:
            is_here = any(map(script.tree.is_own, step.forwards))
            if is_here and trains_in_float32(script, step):
                yield _finding(self.code, script, step)


def _finding(code: str, script: Script, step: Step) -> Finding:
    recorded = [
        each for each in step.forwards if script.values.gradients.grad(each) is not Grad.OFF
    ]
    call = next((each for each in recorded if _is_of_trained(script, each)), step.forwards[0])
    named = script.code(call)
    if len(named) > 40 or "\n" in named:
        named = f"{script.code(call.func)}(…)"
    has_bfloat16 = script.program.target.has(_BFLOAT16)
    wrapped = "bfloat16 `autocast`" if has_bfloat16 else "`torch.cuda.amp.autocast`"
    scaled = "" if has_bfloat16 else ", and scale the loss by a `GradScaler`,"
    message = (
        f"`{named}` trains in float32; wrap forward and loss in {wrapped}{scaled} to use "
        "tensor cores"
    )
    parallel = next(iter(script.around(step.backward).calls.of(_PARALLEL)), None)
    notes: tuple[Note, ...] = ()
    fix = None
    if parallel is not None:
        note = "its threads do not see the dtype: put autocast inside the network's `forward`"
        notes = (Note(script.span(parallel.node), note),)
    elif has_bfloat16:
        fix = _fix(script, step)
    return Finding(code, script.span(call), message, fix, notes)


def _is_of_trained(script: Script, forward: cst.Call) -> bool:
    """Return whether a forward pass is that of a network that an optimizer may hold."""
    network, modules = script.modules.lineage.network(forward), script.modules
    return network is None or not (
        modules.sizes.is_weightless(network) or modules.unheld(network) is not None
    )


def _fix(script: Script, step: Step) -> Fix | None:
    """Wrap the forward pass and the loss, None if a later line forbids it."""
    if not step.lines or not all(script.edits.stands_alone(line) for line in step.lines):
        return None
    if _becomes_array(script, step) or any(_leaves(script, line) for line in step.lines):
        return None
    written = script.edits.importing("torch", at=step.lines[0])
    if written is None:
        return None
    torch, imported = written
    device = visible_device(script, step.backward, step.lines[0])
    enabled = f'{device}.type == "cuda"' if device else f"{torch}.cuda.is_available()"
    header = f'with {torch}.autocast("cuda", dtype={torch}.bfloat16, enabled={enabled}):'
    return Fix.unsafe(
        _TITLE,
        imported,
        script.edits.wrap(step.lines, header),
        because="bfloat16 rounds to 8 bits; a GPU before Ampere wants float16 and a GradScaler",
    )


def _leaves(script: Script, line: cst.BaseStatement) -> bool:
    """Return whether a statement runs backward, steps, or makes an array."""
    for call in script.tree.within(line, cst.Call):
        if script.loops.is_step(call):
            return True
        if script.calls.at(call).method == "numpy":
            return True
    return False


def _becomes_array(script: Script, step: Step) -> bool:
    """Return whether a NumPy array is made from a name that the wrapped lines assign."""
    given = {
        name.value
        for line in step.lines
        for name in script.tree.within(line, cst.Name)
        if script.scopes.stored(name) is not None
    }
    region = script.scopes.region(step.backward)
    numpy = (name for name in script.calls.called if name.startswith("numpy."))
    return any(
        name.value in given
        for site in (*script.calls.of(*numpy), *script.calls.of_methods("numpy"))
        if script.tree.inside(site.node, region)
        for name in script.tree.within(site.node, cst.Name)
    )
