"""TL224: a clipping that reads the norm of the gradients in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.api import CallSite, Finding, Fix, Rule, Script, State

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
            if script.loops.owner(site.node) != "fabric":
                continue
            if site.argument("max_norm").state is State.ABSENT:
                continue
            if option.state is State.ABSENT or option.equals(True):
                yield from self._finding(script, site, ", as Fabric does by default")

    def _finding(self, script: Script, site: CallSite, more: str) -> Iterator[Finding]:
        if not script.loops.each_step(site.node):
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
