"""Trainers of Lightning and accelerators that leave the precision at float32."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Fix, Script, TrainerArguments, receiver_of
from torchlint_rules.shared.cuda import makers, trained_in

_GPUS: Final = ("gpu", "cuda", "auto")
_DECIDING: Final = ("precision", "plugins")
_PREPARING: Final = (
    "mixed_precision", "fp16", "cpu", "deepspeed_plugin", "fsdp_plugin", "megatron_lm_plugin",
)  # fmt: skip
_PRETRAINED: Final = re.compile(r"(?:transformers|diffusers)\.(?:\w+\.)+from_pretrained")
_WEIGHING: Final = frozenset("ppo grpo reinforce advantage advantages".split())


class Trainer(NamedTuple):
    """A call that configures a training in float32, and the option that would change it."""

    call: cst.Call
    option: str
    doubt: str
    unless: str = ""

    def fix(self, script: Script) -> Fix:
        """Return the fix that passes the option."""
        edits = script.edits.with_keyword(self.call, *self.option.split("=", 1))
        doubt = f"products are rounded to fewer bits; {self.doubt}"
        return Fix.unsafe(f"Pass `{self.option}`", edits, because=doubt)


def trainers_in_float32(script: Script) -> Iterator[Trainer]:
    """Yield what configures a training on a GPU of a network of some size without a precision."""
    for each in _trainers(script):
        if each.given("gpus") is not None:
            yield Trainer(each.call, "precision=16", "a step whose gradients overflow is skipped")
        else:
            doubt = 'Lightning before 2.0 calls it "bf16"'
            yield Trainer(each.call, 'precision="bf16-mixed"', doubt)
    for call in _accelerators(script):
        doubt, unless = "it overrides `accelerate config`", " unless `accelerate config` says more"
        yield Trainer(call, 'mixed_precision="bf16"', doubt, unless)


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


def _accelerators(script: Script) -> Iterator[cst.Call]:
    """Yield the accelerators without a precision that train a network made by others."""
    if script.program.target.device not in ("auto", "cuda"):
        return
    for each in script.program.trainings.arguments("accelerate"):
        if each.has_splat or not each.is_off(*_PREPARING):
            continue
        trained = [
            network
            for step in script.loops.steps.all
            if (owner := receiver_of(step.backward, "backward")) is not None
            and each.call in script.values.origins.of(owner).values
            for network in trained_in(script, step)
        ]
        made = [call for network in trained for call in makers(script, network)]
        if any(_PRETRAINED.fullmatch(script.name(call.func) or "") for call in made):
            yield each.call


def _weighs_actions(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a network learns from ratios of probabilities, which bfloat16 rounds to 1."""
    owner = script.functions.instance_of(network)
    names = script.tree.within(owner, cst.Name) if owner is not None else ()
    return any(not _WEIGHING.isdisjoint(script.names.words(name.value)) for name in names)
