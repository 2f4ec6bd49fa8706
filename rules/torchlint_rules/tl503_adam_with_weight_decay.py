"""TL503: Adam, whose adaptive step rescales the weight decay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Rule, Script, State, Value

_DECAY: Final = "weight_decay"

_NO_MATTER: Final = 1e-5
"""A decay up to here changes no weight noticeably, decoupled or not."""


class AdamWithWeightDecay(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every Adam that certainly decays weights through the gradient."""
        for site in script.optimizers:
            if site.name != "torch.optim.Adam":
                continue
            decay = _decay(script, site)
            if decay is None or site.argument("decoupled_weight_decay").state is not State.ABSENT:
                continue
            if site.tunes_tensors or script.program.purpose.is_test(site.node):
                continue
            message = (
                f"{site.label} rescales its weight decay of {script.code(decay)} by Adam's "
                "adaptive step, so weights with large gradients barely decay: use `AdamW` and tune "
                "the decay again"
            )
            yield Finding(self.code, script.span(site.node), message)


def _decay(script: Script, site: CallSite) -> cst.BaseExpression | None:
    """Return the literal weight decay of an optimizer or of a parameter group."""
    found = site.argument(_DECAY)
    if _matters(found):
        return found.node
    given = site.given("params")
    groups = script.values.value_of(given.value).node if given is not None else None
    if not isinstance(groups, (cst.List, cst.Tuple)):
        return None
    for element in groups.elements:
        if isinstance(element.value, (cst.Dict, cst.Call)):
            entry = script.values.entry(element.value, _DECAY)
            if _matters(entry):
                return entry.node
    return None


def _matters(value: Value) -> bool:
    number = value.literal
    return type(number) in (int, float) and number > _NO_MATTER
