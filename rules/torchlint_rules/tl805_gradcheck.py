"""TL805: gradients that a training script checks by finite differences."""

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
_DEPTH: Final = 3


class Gradcheck(Rule):
    """
    ## What it does
    Flags `gradcheck` and `gradgradcheck` in a script that trains.

    ## Why it is slow
    The gradient of every element of every input is compared with a finite difference, which takes
    two forward passes for each of them, in float64. `gradgradcheck` does the same for the backward
    pass.

    ## When not to
    Files that train nothing, tests, and checks behind a condition are left alone: that is where
    they belong.

    ## Fix safety
    Reported only. A check that fails stops the training, which somebody may rely on; move it to a
    test.
    """

    code = "TL805"
    name = "gradcheck"
    summary = "gradients are checked numerically in a script that trains"
    impact = "medium"
    safety = None
    articles = ("S3.13",)
    needs = ("gradcheck", "gradgradcheck")

    invalid = {
        "before the training": """
              import torch
              from torch.autograd import gradcheck
              model = torch.nn.Linear(4, 4).double()
            ! assert gradcheck(model, torch.randn(2, 4, dtype=torch.float64, requires_grad=True))
              for x in loader:
                  model(x).sum().backward()
                  optimizer.step()
            """,
        "in every step, in a helper, for second derivatives too": """
              import torch
              import torch.autograd as ag
              def check(layer, x):
            !     ag.gradcheck(layer, x)
            !     torch.autograd.gradcheck.gradgradcheck(layer, x)
              def train(model, loader, optimizer):
                  for x in loader:
                      check(model, x)
                      model(x).sum().backward()
                      optimizer.step()
            """,
    }
    valid = {
        "a test, and a test in a file of its own that trains nothing": """
            import torch
            def test_layer():
                assert torch.autograd.gradcheck(layer, x)
            torch.autograd.gradcheck(layer, x)
            """,
        "a test beside the training": """
            import torch
            def test_layer():
                assert torch.autograd.gradcheck(layer, x)
            for x in loader:
                model(x).sum().backward()
                optimizer.step()
            """,
        "behind a condition, in a helper that nobody calls": """
            import torch
            def check_gradients():
                torch.autograd.gradcheck(layer, x)
            for x in loader:
                if args.check:
                    torch.autograd.gradcheck(layer, x)
                model(x).sum().backward()
                optimizer.step()
            """,
        "a function of one's own": """
            import torch
            def gradcheck(model, x):
                return model(x)
            for x in loader:
                gradcheck(model, x).sum().backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every numerical check that a training script makes unconditionally."""
        sites = list(script.calls(*_CHECKS))
        if not sites or not script.loops(Role.TRAIN_BATCH):
            return
        for site in sites:
            if not script.switched(site.node, "check", "test", "grad"):
                often = " in every batch" if _is_repeated(script, site.node) else ""
                yield Finding(
                    self.code,
                    script.span(site.node),
                    f"`{script.code(site.node.func)}` runs the network twice for each element of "
                    f"its inputs{often}: move it to a test",
                )


def _is_repeated(script: Script, call: cst.Call) -> bool:
    """Whether each pass of a training loop makes a check."""
    return any(
        script.tree.inside(call, body)
        for loop in script.loops(Role.TRAIN_BATCH)
        for body in script.functions.reached(loop.node.body, _DEPTH)
    )
