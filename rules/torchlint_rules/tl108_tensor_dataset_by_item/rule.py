"""TL108: tensors in memory that a loader collates item by item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Finding,
    Fix,
    Layout,
    Loader,
    Rule,
    Script,
    State,
    is_none,
    method_of,
)
from torchlint_rules.shared.grouping import joined, maker
from torchlint_rules.tl108_tensor_dataset_by_item.batchsampler import whole_batches

_LOST: Final = frozenset("batch_size batch_sampler drop_last sampler collate_fn".split())
_MODULE: Final = "torch.utils.data"


class TensorDatasetByItem(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader that collates items which one indexing operation could return."""
        if script.program.devices.framework != "none":
            return
        yield from joined(script, self._of_loaders(script), ("loader", "loaders"))

    def _of_loaders(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        for loader in script.tree.in_file(script.loaders):
            dataset = loader.dataset
            tensors = script.loaders.batching.tensors(dataset) if dataset is not None else None
            if dataset is None or tensors is None or not _makes_batches(loader):
                continue
            if loader.takes_one_batch or loader.joins_graphs:
                continue
            of_opacus = any(method_of(call).startswith("make_private") for call in loader.receivers)
            if of_opacus or _is_asked(script, loader):
                continue
            named = script.code(dataset.func if isinstance(dataset, cst.Call) else dataset)
            message = (
                f"{loader.label} collates every batch item by item, but "
                f"`{named}` can be indexed with a whole batch; pass "
                "batch_size=None and a BatchSampler as sampler"
            )
            change = whole_batches(script, loader, dataset)
            fix = _fix(script, loader, tensors, change) if change is not None else None
            finding = Finding(self.code, script.span(loader.node), message, fix)
            yield maker(script, loader.node), finding


def _makes_batches(loader: Loader) -> bool:
    """Return whether a loader certainly collates several items with torch's own function."""
    size = loader.batch_size
    if size.state in (State.ABSENT, State.UNKNOWN) or size.equals(1) or size.equals(None):
        return False
    return all(
        (given := loader.argument(name)).state is State.ABSENT or given.equals(None)
        for name in ("batch_sampler", "collate_fn")
    ) and all(
        loader.argument(name).state is not State.UNKNOWN
        for name in ("shuffle", "sampler", "drop_last")
    )


def _is_asked(script: Script, loader: Loader) -> bool:
    """Return whether the file reads an attribute of a loader that the fix would change."""
    return any(
        attribute.attr.value in _LOST and loader in script.loaders.made_by(attribute.value)
        for attribute in script.tree.all(cst.Attribute)
    )


# -- the fix ------------------------------------------------------------------


def _fix(script: Script, loader: Loader, tensors: list[cst.BaseExpression], change: Edits) -> Fix:
    title = "Take whole batches by their indices"
    layout = script.loaders.batching.layout(tensors)
    because = ""
    if layout is Layout.PERMUTED:
        because = "batches of permuted tensors lie permuted in memory: `view` may fail on them"
    elif layout is Layout.UNSEEN:
        because = (
            "if the tensors, which are made in code that is not visible here, are permuted views, "
            "then batches of them lie permuted in memory"
        )
    elif loader.escapes or not loader.passes:
        because = "code that is not visible here gets the loader, whose batch_size becomes None"
    elif not _has_known_sampler(script, loader):
        because = "if the sampler gives something else than numbers, it indexes differently"
    return Fix.unsafe(title, change, because=because) if because else Fix.exact(title, change)


def _has_known_sampler(script: Script, loader: Loader) -> bool:
    """Return whether indices come from one of torch's own samplers."""
    sampler = loader.given("sampler")
    if sampler is None:
        return True
    origin = script.values.origins.of(sampler.value)
    return origin.complete and all(
        is_none(value)
        or (
            isinstance(value, cst.Call)
            and (script.name(value.func) or "").startswith(f"{_MODULE}.")
        )
        for value in origin.values
    )
