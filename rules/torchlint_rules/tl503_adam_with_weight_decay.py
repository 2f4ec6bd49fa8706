"""TL503: Adam, whose weight decay is rescaled with the gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Rule, Script, State, Value

_DECAY: Final = "weight_decay"
_POSITION: Final = 4


class AdamWithWeightDecay(Rule):
    """
    ## What it does
    Flags `torch.optim.Adam` with a weight decay above zero, for all parameters or a group of them.

    ## Why it is slow
    Adam adds the decay to the gradient and then divides both by the gradient's running size, so
    weights with large gradients hardly decay at all. `AdamW` decays all alike, usually generalises
    better, and lets learning rate and decay be tuned apart: fewer runs until both fit. One step
    takes the same time.

    ## When not to
    Keep Adam to reproduce results that were published with it. A decay that comes from arguments or
    a configuration is never flagged, for it may be zero.

    ## Fix safety
    There is no automatic fix: `AdamW(..., weight_decay=x)`, or `decoupled_weight_decay=True`, is
    another algorithm whose decay has to be tuned anew. `AdamW` without it decays by 0.01.
    """

    code = "TL503"
    name = "adam-with-weight-decay"
    summary = "Adam rescales its weight decay with the gradients"
    impact = "low"
    safety = None
    articles = ("S2", "S3.5")
    needs = ("weight_decay", "Adam")
    since = (1, 2)

    invalid = {
        "for all parameters": """
              import torch
              def main(model):
            !     optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)
            """,
        "by position": """
              from torch.optim import Adam
              def main(model):
            !     return Adam(model.parameters(), 1e-3, (0.9, 0.999), 1e-8, 0.01)
            """,
        "a constant": """
              from torch import optim
              WEIGHT_DECAY = 1e-4
              class Agent:
                  def __init__(self, critic):
            !         self.optimizer = optim.Adam(critic.parameters(), weight_decay=WEIGHT_DECAY)
            """,
        "a group of parameters": """
              from torch import optim
              def main(model):
            !     optimizer = optim.Adam([
                      {"params": model.body.parameters(), "weight_decay": 5e-4},
                      dict(params=model.head.parameters(), weight_decay=0),
                  ], lr=1e-3)
            """,
        "a group of parameters that has a name": """
              from torch import optim
              def main(model):
                  groups = [
                      dict(params=model.body.parameters(), weight_decay=0.0),
                      dict(params=model.head.parameters(), weight_decay=0.1),
                  ]
            !     optimizer = optim.Adam(groups, lr=1e-3)
            """,
        "in a dictionary in sight": """
              from torch import optim
              def main(model):
                  options = {"lr": 1e-3, "weight_decay": 0.05}
            !     optimizer = optim.Adam(model.parameters(), **options)
            """,
    }
    valid = {
        "no decay": """
            from torch import optim
            def main(model):
                a = optim.Adam(model.parameters(), lr=1e-3)
                b = optim.Adam(model.parameters(), lr=1e-3, weight_decay=0)
                c = optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.0)
                d = optim.Adam([{"params": model.parameters(), "weight_decay": 0}])
            """,
        "decoupled already": """
            from torch import optim
            def main(model):
                a = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
                b = optim.Adam(model.parameters(), weight_decay=0.1, decoupled_weight_decay=True)
            """,
        "an argument that may be zero": """
            from torch import optim
            def main(model, args, weight_decay=0.1, **options):
                a = optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
                b = optim.Adam(model.parameters(), **options)
            """,
        "SGD's decay is what it says": """
            from torch import optim
            def main(model):
                return optim.SGD(model.parameters(), lr=0.1, weight_decay=5e-4)
            """,
        "a test": """
            import pytest
            import torch
            def test_decay(model):
                torch.optim.Adam(model.parameters(), weight_decay=0.1)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every Adam that surely decays weights through the gradient."""
        for site in script.calls("torch.optim.Adam"):
            decay = _decay(script, site)
            if decay is None or site.argument("decoupled_weight_decay").state is not State.ABSENT:
                continue
            if script.imports("pytest", "unittest"):
                return
            label = script.optimizers.label(site.node)
            message = (
                f"Adam divides the decay of {script.code(decay)} by the size of the gradients, so "
                f"that {label} hardly decays what has large ones: use `AdamW`, and tune the decay anew"
            )
            yield Finding(self.code, script.span(site.node), message)


def _decay(script: Script, site: CallSite) -> cst.BaseExpression | None:
    """Give the decay that an optimizer, or a group of its parameters, surely has."""
    found = site.argument(_DECAY, _POSITION)
    if _is_positive(found):
        return found.node
    given = site.given("params", 0)
    groups = script.value_of(given.value).node if given is not None else None
    if not isinstance(groups, (cst.List, cst.Tuple)):
        return None
    for element in groups.elements:
        if isinstance(element.value, (cst.Dict, cst.Call)):
            entry = script.values.entry(element.value, _DECAY)
            if _is_positive(entry):
                return entry.node
    return None


def _is_positive(value: Value) -> bool:
    number = value.literal
    return type(number) in (int, float) and number > 0
