"""TL804: torch is restricted to deterministic kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Script
from torchlint_rules.shared.removal import Leftover, removal_of

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
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every setting that requests determinism in each run."""
        found = [
            each
            for each in script.program.determinism.settings()
            if not script.loops.conditions.is_conditional(
                each.node, "determin", "reproduc", "debug"
            )
            and not (script.program.target.device == "cpu" and each.name.startswith(_ON_GPU))
        ]
        lines = [_leftover(script, each.node) for each in found]
        together = [line for line in lines if line is not None]
        for each, line in zip(found, lines, strict=True):
            edits = removal_of(script, line, together) if line is not None else None
            fix = Fix.unsafe("Remove it", edits, because=_BECAUSE) if edits is not None else None
            message = _message(script.code(each.node), _COSTS.get(each.name, _COST))
            yield Finding(self.code, script.span(each.node), message, fix)
        yield from self._trainers(script)

    def _trainers(self, script: Script) -> Iterator[Finding]:
        for call in script.tree.all(cst.Call):
            given = script.calls.at(call).given("deterministic")
            if given is None or not script.values.value_of(given.value).equals(True):
                continue
            name = script.name(call.func) or ""
            if name.startswith(_FRAMEWORKS) and name.endswith(".Trainer"):
                if not script.loops.conditions.is_conditional(call, "determin", "reproduc"):
                    message = _message(script.code(given), _COST)
                    yield Finding(self.code, script.span(given), message)


def _message(code: str, cost: str) -> str:
    return f"`{code}` {cost}: remove it where runs need not be repeated bit for bit"


def _leftover(script: Script, node: cst.Assign | cst.Call) -> Leftover | None:
    """Return the line to remove, None if it does something else as well."""
    if isinstance(node, cst.Assign) and len(node.targets) > 1:
        return None
    if isinstance(node, cst.Call) and not isinstance(script.tree.parent(node), cst.Expr):
        return None
    line = script.tree.statement(node)
    return Leftover.of(script, line) if isinstance(line, cst.SimpleStatementLine) else None
