"""TL804: torch is kept to deterministic kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Safety, Script
from torchlint_rules._leftover import Leftover, taken_out

_COSTS: Final = {
    "torch.backends.cudnn.deterministic": "keeps cuDNN to kernels that are slower in part",
    "torch.backends.cudnn.enabled": "switches cuDNN off, so that other, slower kernels convolve",
    "torch.utils.deterministic.fill_uninitialized_memory": "fills every new tensor first",
    "CUBLAS_WORKSPACE_CONFIG": "keeps cuBLAS to one small workspace",
}
_COST: Final = "keeps torch to kernels that are slower in part, and fills every new tensor first"
_ON_GPU: Final = ("torch.backends.cudnn.", "CUBLAS_WORKSPACE_CONFIG")
_BECAUSE: Final = "two runs with one seed need not give the same numbers any more"
_FRAMEWORKS: Final = ("lightning", "pytorch_lightning")


class DeterministicKernels(Rule):
    """
    ## What it does
    Flags settings that ask for the same numbers in every run: `cudnn.deterministic = True`,
    `use_deterministic_algorithms(True)`, CUBLAS_WORKSPACE_CONFIG, Lightning's
    `deterministic=True`; and `cudnn.enabled = False`, which is mostly left over from a hunt for an
    error.

    ## Why it is slow
    For some operations the fastest kernel adds up in any order. Determinism forbids it, forbids
    cuDNN to choose by measuring, and fills new tensors before they are written. On a CPU steps
    took 1.05 to 1.07 times as long; on a GPU it depends on the network.

    ## When not to
    Keep them where runs have to be repeated bit for bit. The rule is off unless you select it, and
    settings behind a condition (`if args.seed is not None:`) or in tests are left alone.

    ## Fix safety
    Unsafe: two runs with one seed need not give the same numbers any more.
    """

    code = "TL804"
    name = "deterministic-kernels"
    summary = "torch is kept to deterministic kernels"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S3.6",)
    needs = (
        "deterministic",
        "cudnn.enabled",
        "CUBLAS_WORKSPACE_CONFIG",
    )
    about = ("torch", "lightning")
    default = False

    invalid = {
        "cuDNN": """
              import torch
              torch.manual_seed(0)
            - torch.backends.cudnn.deterministic = True
              torch.backends.cudnn.benchmark = False
            """,
        "through an import of its own, which goes along": """
              import torch
            - import torch.backends.cudnn as cudnn
              def main():
                  torch.manual_seed(0)
            -     cudnn.deterministic = True
              main()
            """,
        "cuDNN switched off": """
              import torch
              from torch.backends import cudnn
              cudnn.benchmark = True
            - cudnn.enabled = False
            """,
        "all of torch, with what it needs": """
            - import os
              import torch
            - os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
            - torch.use_deterministic_algorithms(True, warn_only=True)
            - torch.utils.deterministic.fill_uninitialized_memory = True
            - torch.set_deterministic_debug_mode("error")
              x = torch.ones(1)
            """,
        "two flags in one line: reported, left alone": """
              import torch
            ! torch.backends.cudnn.deterministic = torch.backends.cudnn.benchmark = True
            ! torch.manual_seed(0); torch.use_deterministic_algorithms(True)
            """,
        "Lightning's trainer: reported, left alone": """
              import lightning as L
            ! trainer = L.Trainer(max_epochs=3, deterministic=True)
            """,
    }
    valid = {
        "off, or decided by somebody": """
            import torch
            def main(args):
                torch.backends.cudnn.deterministic = False
                torch.backends.cudnn.enabled = True
                torch.backends.cudnn.deterministic = args.deterministic
                torch.use_deterministic_algorithms(args.deterministic)
                torch.set_deterministic_debug_mode("default")
            """,
        "only when a seed is given": """
            import torch
            def main(args):
                if args.seed is not None:
                    torch.manual_seed(args.seed)
                    torch.backends.cudnn.deterministic = True
            """,
        "a helper for runs that are to be repeated": """
            import torch
            def make_reproducible():
                torch.use_deterministic_algorithms(True)
            """,
        "a test": """
            import torch
            def test_same_numbers():
                torch.use_deterministic_algorithms(True)
            """,
        "asked for, not set": """
            import torch
            if torch.backends.cudnn.deterministic:
                print("slow")
            """,
        "code for the CPU, where cuDNN is not used": """
            # target-device: cpu
            import torch
            torch.backends.cudnn.deterministic = True
            """,
        "a flag of one's own": """
            import torch
            class Options:
                pass
            options = Options()
            options.deterministic = True
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every setting that asks for determinism in each run."""
        found = [
            each
            for each in script.determinism.settings()
            if not script.switched(each.node, "determin", "reproduc", "debug")
            and not (script.target.device == "cpu" and each.name.startswith(_ON_GPU))
        ]
        lines = [_leftover(script, each.node) for each in found]
        together = [line for line in lines if line is not None]
        for each, line in zip(found, lines, strict=True):
            edits = taken_out(script, line, together) if line is not None else None
            fix = Fix.unsafe("Take it out", edits, because=_BECAUSE) if edits is not None else None
            message = _message(script.code(each.node), _COSTS.get(each.name, _COST))
            yield Finding(self.code, script.span(each.node), message, fix)
        yield from self._trainers(script)

    def _trainers(self, script: Script) -> Iterator[Finding]:
        for call in script.all(cst.Call):
            given = script.call(call).given("deterministic")
            if given is None or not script.value_of(given.value).equals(True):
                continue
            name = script.name(call.func) or ""
            if name.startswith(_FRAMEWORKS) and name.endswith(".Trainer"):
                if not script.switched(call, "determin", "reproduc"):
                    message = _message(script.code(given), _COST)
                    yield Finding(self.code, script.span(given), message)


def _message(code: str, cost: str) -> str:
    return f"`{code}` {cost}: take it out where runs need not be repeated bit for bit"


def _leftover(script: Script, node: cst.Assign | cst.Call) -> Leftover | None:
    """Give the line that goes, None where it does something else as well."""
    if isinstance(node, cst.Assign) and len(node.targets) > 1:
        return None
    if isinstance(node, cst.Call) and not isinstance(script.parent(node), cst.Expr):
        return None
    line = script.statement(node)
    return Leftover.of(script, line) if isinstance(line, cst.SimpleStatementLine) else None
