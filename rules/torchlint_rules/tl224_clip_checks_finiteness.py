"""TL224: a clipping that reads the norm of the gradients in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Frequency, Rate, Role, Rule, Script, State

_OPTION: Final = "error_if_nonfinite"
_CLIP: Final = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
_BECAUSE: Final = "gradients that are NaN or infinite no longer stop the training with an error"


class ClipChecksFiniteness(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every clipping in a training step that raises for norms that are not finite."""
        if not script.program.devices.can_use_accelerator:
            return
        for site in script.calls.of(*_CLIP):
            if site.argument(_OPTION).equals(True):
                yield from self._finding(script, site, "")
        for site in script.calls.of_methods("clip_gradients"):
            option = site.argument(_OPTION)
            if not _is_fabric(script, site.node) or site.argument("max_norm").state is State.ABSENT:
                continue
            if option.state is State.ABSENT or option.equals(True):
                yield from self._finding(script, site, ", as Fabric does by default")

    def _finding(self, script: Script, site: CallSite, more: str) -> Iterator[Finding]:
        if not _each_step(script, site.node):
            return
        message = (
            f"`{script.code(site.node.func)}` waits for the norm of the gradients in every step "
            f"to raise if it is not finite{more}; pass {_OPTION}=False"
        )
        given = site.given(_OPTION)
        written = given is None or script.code(given.value) == "True"
        fix = None
        if written:
            edits = script.edits.set_argument(site.node, given, _OPTION, "False")
            fix = Fix.unsafe(f"Pass {_OPTION}=False", edits, because=_BECAUSE)
        yield Finding(self.code, script.span(site.node), message, fix)


def _is_fabric(script: Script, call: cst.Call) -> bool:
    """Return whether a method is one of Fabric, made here or named so."""
    owner = script.calls.at(call).receiver
    made = script.values.origins.of(owner).values
    if any(
        each.call is value
        for each in script.program.trainings.arguments("fabric")
        for value in made
    ):
        return True
    word = owner.attr if isinstance(owner, cst.Attribute) else owner
    return not made and isinstance(word, cst.Name) and word.value == "fabric"


def _each_step(script: Script, call: cst.Call) -> bool:
    if script.loops.frequency(call) is not Frequency.EVERY_PASS:
        return False
    loop = script.loops.batch_loop(call)
    if loop is not None:
        return loop.role is Role.TRAIN_BATCH
    function = script.scopes.function(call)
    return function is not None and script.loops.rate(function) is Rate.STEP
