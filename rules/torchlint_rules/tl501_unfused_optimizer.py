"""TL501: an optimizer that could step in one fused kernel and does not."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

import libcst as cst

from torchlint.api import (
    CallSite,
    Finding,
    Fix,
    Impact,
    Note,
    Optimizer,
    Rule,
    Script,
    State,
    receiver_of,
)
from torchlint_rules.shared.cuda import in_environment
from torchlint_rules.shared.leftoptions import LeftOption, left_options

_OWNERS: Final = {
    "torch.optim.Adam": (2, 0),
    "torch.optim.AdamW": (2, 0),
    "torch.optim.SGD": (2, 3),
    "torch.optim.Adagrad": (2, 9),
}
"""The version of torch with a fused kernel for each on CUDA; 2.4 has all of them on the CPU."""
_SHARDING: Final = (
    "higher",
    "torch.distributed.tensor",
    "torch.distributed._tensor",
    "torch.distributed._composable",
    "torch.distributed.fsdp.fully_shard",
)
"""Modules whose functions may turn the parameters of a network into other tensors."""
_OTHER_TENSORS: Final = (
    "torch_xla",
    "accelerate.parallelism_config",
    *(
        f"accelerate.{name}"
        for name in (
            "FullyShardedDataParallelPlugin utils.FullyShardedDataParallelPlugin "
            "utils.ParallelismConfig utils.MegatronLMPlugin utils.MegatronLMDummyScheduler"
        ).split()
    ),
)
"""Imports after which parameters may be tensors that fused kernels do not support."""
_SHARDED: Final = ("torch.distributed.fsdp", "torch.distributed._fsdp", "fairscale", "apex")
_COMPLEX: Final = frozenset("cfloat cdouble complex64 complex128".split())
_FULL: Final = (32, "32", "32-true")
_CHOICES: Final = ("fused", "foreach", "differentiable")
_TRAINER: Final = LeftOption(
    "optim",
    ("adamw_torch",),
    ("transformers", "trl"),
    "launches several kernels per step",
    "the state of a checkpoint that was saved without it switches it off",
    "medium",
    beside=("deepspeed", "fsdp", "fsdp_config", "parallelism_config", "use_cpu", "no_cuda"),
    instead='"adamw_torch_fused"',
)
_AS_WELL: Final = "and so does this one"
_TITLE: Final = "Pass `fused={}`"


class UnfusedOptimizer(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every optimizer that has a fused kernel and leaves `fused` at its default."""
        if script.program.devices.can_use_accelerator and script.program.target.device != "mps":
            few = any(True for _ in script.calls.of("peft.get_peft_model", "peft.LoraConfig"))
            told = _TRAINER._replace(impact="low") if few else _TRAINER
            yield from left_options(script, self.code, told)
        own = script.tree.in_file(script.optimizers)
        sites = [site for site in own if site.name in _OWNERS and _undecided(site)]
        sites = [
            site
            for site in sites
            if site.node.args and not script.program.purpose.is_test(site.node)
        ]
        sites = [site for site in sites if not site.tunes_tensors]
        sites = [site for site in sites if not _may_be_sharded(script, site)]
        if not sites or script.functions.imports(*_OTHER_TENSORS) or in_environment(script):
            return
        found: dict[cst.CSTNode, list[tuple[Optimizer, str]]] = {}
        for site in sites:
            value = None if _may_be_clipped_scaled(script, site) else _value(script, site)
            if value is None or _has_odd_parameters(script, site):
                continue
            if not _is_short(script, site.node):
                found.setdefault(script.scopes.home(site.node), []).append((site, value))
        for each in found.values():
            yield self._finding(script, each)

    def _finding(self, script: Script, found: list[tuple[Optimizer, str]]) -> Finding:
        (site, value), *others = found
        label = site.label
        message = f"{label} launches several kernels per step"
        advice = f"pass `fused={value}` to `{script.code(site.node.func)}`"
        restored = dict.fromkeys(call for each, _ in found for call in each.restores)
        notes = [Note(script.span(each.node), _AS_WELL) for each, _ in others]
        fix = None
        if restored:
            name = label.strip("`") if label.startswith("`") else "optimizer"
            again = f'`for group in {name}.param_groups: group["fused"] = True`'
            advice += f", and again where its state was loaded: {again}"
            said = "a state saved without `fused` switches it off"
            notes += [Note(script.span(each), said) for each in restored]
        elif script.program.devices.framework == "none" and not script.functions.imports(*_SHARDED):
            known = filter(None, (_fix(script, *each) for each in found))
            fixes = sorted(known, key=attrgetter("safety"))
            fix = (Fix.of_several(fixes) or fixes[0]) if fixes else None
        impact: Impact | None = None if script.program.devices.can_use_accelerator else "low"
        span = script.span(site.node)
        return Finding(self.code, span, f"{message}: {advice}", fix, tuple(notes), impact)


def _is_short(script: Script, optimizer: cst.Call) -> bool:
    """Return whether a step of an optimizer is short whatever its kernels are."""
    modules = script.modules
    return modules.sizes.updates_tiny(optimizer) or modules.graphs.are_behind(optimizer)


def _undecided(site: CallSite) -> bool:
    """Return whether no argument chooses an implementation of the step."""
    if any(site.argument(name).state is not State.ABSENT for name in _CHOICES):
        return False
    return site.name != "torch.optim.SGD" or not _is_plain(site)


def _is_plain(site: CallSite) -> bool:
    """Return whether an SGD has neither momentum nor weight decay."""
    groups = site.given("params")
    if groups is not None and any(
        word in site.values.tree.code(groups) for word in ("mom", "decay")
    ):
        return False
    return all(
        value.state is State.ABSENT or value.equals(0) or value.equals(0.0)
        for value in (site.argument("momentum"), site.argument("weight_decay"))
    )


def _may_be_clipped_scaled(script: Script, site: CallSite) -> bool:
    """Return whether Lightning may clip gradients in mixed precision, which `fused` makes fail."""
    if script.loops.owner(site.node) != "lightning":
        return False
    trainers = list(script.program.trainings.arguments("lightning"))
    return not trainers or any(
        not each.is_off("gradient_clip_val")
        and not each.is_literal("gradient_clip_val", 0, 0.0)
        and not each.is_off("precision")
        and not each.is_literal("precision", *_FULL)
        for each in trainers
    )


def _has_odd_parameters(script: Script, site: CallSite) -> bool:
    """Return whether parameters of an optimizer may be complex, or get sparse gradients."""
    if not _odd_places(script):
        return False
    odd, built = _odd_places(script.around(site.node)), _built(script, site)
    if built is None:
        return bool(odd)
    return any(script.tree.inside(node, region) for node in odd for region in built)


def _odd_places(script: Script) -> list[cst.CSTNode]:
    """Return the complex types, and the embeddings with sparse gradients."""
    odd: list[cst.CSTNode] = [
        node for word in _COMPLEX for node in script.functions.attributes(word)
    ]
    for call in script.calls.of("torch.nn.Embedding", "torch.nn.EmbeddingBag"):
        sparse = call.argument("sparse")
        if sparse.state is not State.ABSENT and not sparse.equals(False):
            odd.append(call.node)
    return odd


def _may_be_sharded(script: Script, site: CallSite) -> bool:
    """Return whether a network of an optimizer may hold tensors without a fused kernel."""
    if not script.functions.imports(*_SHARDING):
        return False
    networks = _networks(script, site)
    names = (each for each in script.calls.called if each.startswith(_SHARDING))
    sharded = [call.node.args[0].value for call in script.calls.of(*names) if call.node.args]
    if not networks or not sharded:
        return True
    return any(script.modules.may_touch(one, each) for one in sharded for each in networks)


def _networks(script: Script, site: CallSite) -> list[cst.BaseExpression]:
    """Return the networks whose parameters an optimizer gets."""
    given = site.given("params", 0)
    calls = script.tree.within(given, cst.Call) if given is not None else ()
    found = (receiver_of(call, "parameters", "named_parameters") for call in calls)
    return [each for each in found if each is not None]


def _built(script: Script, site: CallSite) -> list[cst.CSTNode] | None:
    """Return the code that builds the networks of an optimizer, None if some are unknown."""
    found = [script.modules.sizes.regions(root) for root in script.modules.held(site.node)]
    return [each for part in found for each in part] if all(found) else None


def _value(script: Script, site: CallSite) -> str | None:
    """Return the value for `fused`, None if a possible version of torch lacks the kernel."""
    target, owner = script.program.target, site.name or ""
    if not script.program.devices.can_use_accelerator:
        return "True" if target.has((2, 4)) else None
    if not target.has(_OWNERS[owner]):
        return None
    anywhere = target.has((2, 6)) and owner != "torch.optim.Adagrad"
    if not anywhere and not script.program.moves.only_cuda(site.node):
        return None if owner == "torch.optim.Adagrad" else "torch.cuda.is_available()"
    return "True" if target.has((2, 4)) else "torch.cuda.is_available()"


def _fix(script: Script, site: Optimizer, value: str) -> Fix | None:
    found = script.edits.importing("torch", at=site.node) if value != "True" else ("torch", ())
    if found is None:
        return None
    word, imported = found
    title = _TITLE.format(value)
    added = script.edits.with_keyword(site.node, "fused", value.replace("torch", word, 1))
    edits = (*added, *imported)
    if value != "True" and not script.program.target.has((2, 4)):
        because = "parameters have to be on the GPU when the optimizer is made"
        return Fix.unsafe(title, edits, because=because)
    doubt = script.program.target.doubt(_needed(script, site)) if value == "True" else ""
    if doubt:
        return Fix.unsafe(title, edits, because=f"`fused=True` {doubt}")
    if _reads_scaled_gradients(script):
        because = "gradients stay scaled by the scaler, and this file reads them"
        return Fix.unsafe(title, edits, because=because)
    if site.is_stepped_unseen:
        because = "a state that another file loads may switch it off, and stop a `GradScaler`"
        return Fix.unsafe(title, edits, because=because)
    return Fix.close(title, edits, because="the fused kernel rounds differently")


def _needed(script: Script, site: CallSite) -> tuple[int, int]:
    """Return the oldest torch that supports `fused=True` on every device that may be used."""
    is_accelerated = script.program.devices.can_use_accelerator
    if is_accelerated and not script.program.moves.only_cuda(site.node):
        return (2, 6)
    return max(_OWNERS[site.name or ""], (2, 4)) if is_accelerated else (2, 4)


def _reads_scaled_gradients(script: Script) -> bool:
    """Return whether code reads gradients and a scaler is used without `unscale_`."""
    scalers = script.calls.of("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")
    if next(scalers, None) is None or next(script.calls.of_methods("unscale_"), None) is not None:
        return False
    return any(
        node.attr.value == "grad" and script.name(node) is None
        for node in script.tree.all(cst.Attribute)
    )
