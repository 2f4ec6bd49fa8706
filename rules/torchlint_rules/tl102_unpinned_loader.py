"""TL102: a loader whose batches are copied to the GPU from pageable memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Loader, Rule, Script
from torchlint_rules.shared.grouping import joined, maker
from torchlint_rules.shared.leftoptions import LeftOption, left_options
from torchlint_rules.shared.pinning import available, is_unpinned, unseen

_PIN: Final = "pin_memory"
_BECAUSE: Final = "a dataset that keeps its tensors on the GPU cannot be pinned"
_TRAINER: Final = LeftOption(
    "dataloader_pin_memory",
    (False,),
    ("transformers", "trl"),
    "makes every batch be copied twice on its way to the GPU",
    _BECAUSE,
    "low",
    beside=("use_cpu", "no_cuda"),
)
_TURNED_OFF: Final = "pinned memory was turned off here"
_CYCLE: Final = "itertools.cycle"
_KEPT: Final = f"`{_CYCLE}` keeps every batch, and pinned memory cannot be swapped out"


class UnpinnedLoader(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loader whose batches go to a GPU from pageable memory."""
        yield from joined(script, self._of_loaders(script), ("loader", "loaders"))
        if script.program.devices.can_use_accelerator and script.program.target.device != "mps":
            yield from left_options(script, self.code, _TRAINER)

    def _of_loaders(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        own = script.tree.in_file(script.loaders)
        for loader in filter(partial(is_unpinned, script), own):
            asked = available(script)
            assert asked is not None
            message = (
                f"{loader.label} does not pin memory, so every batch is copied "
                f"twice on its way to the GPU; pass pin_memory={asked}"
            )
            fix = _fix(script, loader, asked)
            finding = Finding(self.code, script.span(loader.node), message, fix)
            yield maker(script, loader.node), finding


def _is_kept(script: Script, loader: Loader) -> bool:
    """Return whether all batches of a loader stay in memory, to be repeated."""
    kept = (site.argument("iterable", 0).node for site in script.calls.of(_CYCLE))
    return any(
        loader.node in script.values.origins.of(each).values for each in kept if each is not None
    )


def _fix(script: Script, loader: Loader, asked: str) -> Fix | None:
    imported = script.edits.importing("torch", at=loader.node)
    if imported is None:
        return None
    torch, edits = imported
    value = asked.replace("torch", torch, 1)
    given = loader.given(_PIN)
    change = script.edits.set_argument(loader.node, given, _PIN, value)
    deprecated = loader.given("pin_memory_device")
    if deprecated is not None:
        if not script.program.target.has((2, 8)):
            return None
        change = (*change, *script.edits.without_argument(loader.node, deprecated))
    title = f"Pass pin_memory={value}"
    because = _KEPT if _is_kept(script, loader) else unseen(script, loader)
    because = because or (_TURNED_OFF if given is not None else "")
    doubt = script.program.target.doubt((2, 6)) if "accelerator" in asked else ""
    if doubt:
        because = because or f"`torch.accelerator` {doubt}"
    if because:
        return Fix.unsafe(title, change, edits, because=because)
    return Fix.exact(title, change, edits)
