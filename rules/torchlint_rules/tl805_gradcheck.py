"""TL805: a training script that checks gradients numerically."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Role, Rule, Script

_CHECKS: Final = (
    "torch.autograd.gradcheck",
    "torch.autograd.gradgradcheck",
    "torch.autograd.gradcheck.gradcheck",
    "torch.autograd.gradcheck.gradgradcheck",
)


class Gradcheck(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every numerical check that a training script makes unconditionally."""
        sites = list(script.calls.of(*_CHECKS))
        if not sites or not script.loops.of(Role.TRAIN_BATCH):
            return
        for site in sites:
            if not script.loops.conditions.is_conditional(site.node, "check", "test", "grad"):
                often = " in every batch" if _is_repeated(script, site.node) else ""
                yield Finding(
                    self.code,
                    script.span(site.node),
                    f"`{script.code(site.node.func)}` runs the network twice for each element of "
                    f"its inputs{often}: move it to a test",
                )


def _is_repeated(script: Script, call: cst.Call) -> bool:
    """Return whether each iteration of a training loop makes a check."""
    return any(
        script.tree.inside(call, body)
        for loop in script.loops.of(Role.TRAIN_BATCH)
        for body in script.functions.reached(loop.node.body)
    )
