"""Lightning's trainers that leave the precision at float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Fix, Script

_GPUS: Final = ("gpu", "cuda", "auto")
_DECIDING: Final = ("precision", "plugins")
_WEIGHING: Final = frozenset("ppo grpo reinforce advantage advantages".split())
_BECAUSE: Final = 'bfloat16 rounds to 8 bits; Lightning before 2.0 calls it "bf16"'


def trainers_in_float32(script: Script) -> Iterator[cst.Call]:
    """Yield the trainers for a GPU that fit networks of some size without a precision."""
    fits = [site for site in script.calls.of_methods("fit") if site.node.args]
    for each in script.program.trainings.arguments("lightning"):
        if each.read is not None or each.has_splat or each.is_trial:
            continue
        if not each.is_literal("accelerator", *_GPUS) or not each.is_off(*_DECIDING):
            continue
        trained = [
            site.node.args[0].value
            for site in fits
            if any(each.call is made for made in script.values.origins.of(site.receiver).values)
        ]
        if trained and not script.modules.sizes.are_tiny(*trained):
            if not any(_weighs_actions(script, network) for network in trained):
                yield each.call


def _weighs_actions(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a network learns from ratios of probabilities, which bfloat16 rounds to 1."""
    owner = script.functions.instance_of(network)
    names = script.tree.within(owner, cst.Name) if owner is not None else ()
    return any(not _WEIGHING.isdisjoint(script.names.words(name.value)) for name in names)


def in_mixed_precision(script: Script, trainer: cst.Call) -> Fix:
    """Return the fix that passes the precision to a trainer."""
    edits = script.edits.with_keyword(trainer, "precision", '"bf16-mixed"')
    return Fix.unsafe('Pass `precision="bf16-mixed"`', edits, because=_BECAUSE)
