"""TL107: a dataset or collate function that puts tensors on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, ItemCode, Per, Rule, Script

_LOADS: Final = {Per.ITEM: "each item", Per.STREAM: "each item", Per.BATCH: "each batch"}


class DeviceWorkInDataset(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loading function that puts tensors on a device, once."""
        if not script.program.devices.can_use_accelerator:
            return
        seen: set[int] = set()
        items = script.loaders.items
        for code in items.all():
            if code.owner is not None and items.makes_batches(code.owner):
                continue
            call = _moving(script, code)
            if call is None or id(call) in seen:
                continue
            seen.add(id(call))
            message = (
                f"`{code.label}` puts {_LOADS[code.per]} on the device, so the loader can have "
                "neither workers nor pinned memory; move whole batches in the loop"
            )
            yield Finding(self.code, script.span(call), message)


def _moving(script: Script, code: ItemCode) -> cst.Call | None:
    """Return the first call that puts a tensor on a device while an item or a batch is loaded."""
    for call in script.functions.run_in(code.node):
        if script.loaders.datasets.work.moves_to_device(call):
            return call
    return None
