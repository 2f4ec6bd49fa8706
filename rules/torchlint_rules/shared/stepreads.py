"""Reads in functions that make one training step for a loop out of view: a part of TL201."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Form, Kept, Kind, Note, Role, Script

_SHARES: Final = "read as well: keep this on the device, too"


def step_reads(script: Script, code: str) -> Iterator[Finding]:
    """Yield a finding for each function of one step that only returns or keeps what it reads."""
    if not script.readings.are_in_file or not script.program.devices.can_use_accelerator:
        return
    for step, found in script.once(kept_in_steps):
        shown = script.tree.brief(found[0].reading.node)
        kept = next((each.target for each in found if each.target is not None), None)
        cure = (
            "return the detached tensor, and read it where it is shown"
            if kept is None
            else f"keep detached tensors in `{script.tree.brief(kept)}`, and read them together"
        )
        message = f"`{shown}` waits for the device in every `{step.name.value}`: {cure}"
        notes = tuple(Note(script.span(each.reading.node), _SHARES) for each in found[1:])
        span = script.span(found[0].reading.node)
        yield Finding(code, span, message, None, notes, impact="medium")


def kept_in_steps(script: Script) -> list[tuple[cst.FunctionDef, list[Kept]]]:
    """Return the functions of one step, with what code of theirs only returns or keeps a loss.

    That is their own code, or that of one function that they call and no training loop in view.
    """
    code_of = script.readings.waits.code_of_pass
    told: list[tuple[cst.FunctionDef, list[Kept]]] = []
    seen = {each for loop in script.loops.of(Role.TRAIN_BATCH) for each in code_of(loop.node)}
    for step in script.tree.all(cst.FunctionDef):
        for function in code_of(step) if _makes_step(script, step) else ():
            if function in seen or not isinstance(function, cst.FunctionDef):
                continue
            seen.add(function)
            found = [
                each
                for each in script.readings.waits.of_step(function)
                if script.scopes.function(each.reading.node) is function
                if each.reading.form is Form.NUMBER or script.kind(each.reading.tensor) is Kind.LOSS
            ]
            if any(script.kind(each.reading.tensor) is Kind.LOSS for each in found):
                told.append((step, found))
    return told


def _makes_step(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a function that nothing in view calls is one step of a training."""
    if script.loops.step_functions.makes(function):
        return True
    if script.functions.callers(function) or script.scopes.function(function) is not None:
        return False
    own = script.functions.own(function.body, cst.Call)
    acts = [*filter(script.loops.is_step, own), *script.loops.step_functions.losses(function)]
    return (
        bool(acts)
        and script.loops.ownership.rate(function) is None
        and all(script.loops.batch_loop(each) is None for each in acts)
        and script.loops.each_step(acts[0])
    )
