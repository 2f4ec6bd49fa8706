"""TL706: several processes that all train on the whole dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Duty, Finding, Kind, Loader, Role, Rule, Script, State, Trait

_SHARING: Final = frozenset(
    "rank ranks world shard shards sharded replica replicas distributed ddp node nodes".split()
)
_SWITCHES: Final = _SHARING | frozenset("gpu gpus parallel nproc multi single".split())


class UndistributedSampler(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader without a sampler that trains a wrapped network."""
        if not script.program.processes.has_wraps or _is_alone(script):
            return
        seen: set[Loader] = set()
        for loop in script.loops.of(Role.TRAIN_BATCH):
            regions = script.functions.reached(loop.node.body)
            wrapped = any(any(script.program.processes.networks(each)) for each in regions)
            if not wrapped or script.loops.is_done(loop.node, Duty.SHARDING):
                continue
            made = script.loaders.made_by(loop.loader) if loop.loader is not None else []
            for loader in made:
                if loader in seen or not _draws_all(script, loader):
                    continue
                seen.add(loader)
                yield Finding(self.code, script.span(loader.node), _message(script, loader))


def _message(script: Script, loader: Loader) -> str:
    data = script.code(loader.dataset) if loader.dataset is not None else ""
    named = f"`{data}`" if data.replace(".", "").isidentifier() else "its data"
    return (
        f"every process goes through all of {named} in each epoch: give {loader.label} a "
        "`DistributedSampler`, which splits it among them"
    )


def _is_alone(script: Script) -> bool:
    """Return whether the file shows that there is only one process."""
    joined = list(script.calls.of("torch.distributed.init_process_group"))
    return bool(joined) and all(site.argument("world_size").equals(1) for site in joined)


def _draws_all(script: Script, loader: Loader) -> bool:
    """Return whether nothing shows that a loader only reads a part of the data."""
    for name in ("sampler", "batch_sampler"):
        value = loader.argument(name)
        if value.state is not State.ABSENT and not value.equals(None):
            return False
    dataset = loader.dataset
    if dataset is None or _is_switched(script, loader.node):
        return False
    origin = script.values.origins.of(dataset)
    traits = loader.traits
    if not origin.complete or Trait.ITERABLE in traits:
        return False
    if Trait.UNSEEN in traits and loader.argument("shuffle").state is State.ABSENT:
        return False  # it may be iterable, which no sampler suits
    if any(script.kind(value) is Kind.SEQUENCE for value in origin.values):
        return False
    return not any(_is_shared(script, value) for value in (dataset, *origin.values))


def _is_switched(script: Script, call: cst.Call) -> bool:
    """Return whether the construction of a loader depends on a test about processes."""
    for outer in script.tree.ancestors(call):
        if isinstance(outer, (cst.If, cst.IfExp)) and _says(script, outer.test, _SWITCHES):
            return True
    return False


def _is_shared(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a dataset, or its class in this file, knows about other processes."""
    if _says(script, value, _SHARING):
        return True
    owner = script.functions.definition(value.func) if isinstance(value, cst.Call) else None
    return owner is not None and _says(script, owner, _SHARING)


def _says(script: Script, node: cst.CSTNode, spoken: frozenset[str]) -> bool:
    return not spoken.isdisjoint(script.names.words(script.code(node)))
