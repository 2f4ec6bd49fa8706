"""Lightning's trainers that leave the precision at float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Script, TrainerArguments

_GPUS: Final = ("gpu", "cuda", "auto")
_DECIDING: Final = ("precision", "plugins")
_WEIGHING: Final = frozenset("ppo grpo reinforce advantage advantages".split())


def trainers_in_float32(script: Script) -> Iterator[tuple[cst.Call, str, str]]:
    """Yield trainers without a precision, the option that gives them one, and what it changes."""
    for each in _trainers(script):
        if each.given("gpus") is not None:
            yield each.call, "precision=16", "a step whose gradients overflow is skipped"
        else:
            yield each.call, 'precision="bf16-mixed"', 'Lightning before 2.0 calls it "bf16"'


def _trainers(script: Script) -> Iterator[TrainerArguments]:
    """Yield the trainers for a GPU that fit networks of some size without a precision."""
    fits = [site for site in script.calls.of_methods("fit") if site.node.args]
    for each in script.program.trainings.arguments("lightning"):
        if each.read is not None or each.has_splat or each.is_trial:
            continue
        if not _is_for_gpu(script, each) or not each.is_off(*_DECIDING):
            continue
        trained = [
            site.node.args[0].value
            for site in fits
            if any(each.call is made for made in script.values.origins.of(site.receiver).values)
        ]
        if trained and not script.modules.sizes.are_tiny(*trained):
            if not any(_weighs_actions(script, network) for network in trained):
                yield each


def _is_for_gpu(script: Script, trainer: TrainerArguments) -> bool:
    """Return whether a trainer is told to use a GPU, also by the option that Lightning 2 lost."""
    given, setting = trainer.given("gpus"), trainer.setting("gpus")
    if setting is not None:
        return bool(setting.value)
    asks = given is not None and "torch.cuda" in script.code(given.value)
    return asks or trainer.is_literal("accelerator", *_GPUS)


def _weighs_actions(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a network learns from ratios of probabilities, which bfloat16 rounds to 1."""
    owner = script.functions.instance_of(network)
    names = script.tree.within(owner, cst.Name) if owner is not None else ()
    return any(not _WEIGHING.isdisjoint(script.names.words(name.value)) for name in names)
