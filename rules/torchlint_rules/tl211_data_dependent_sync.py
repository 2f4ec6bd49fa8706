"""TL211: every step forces a GPU sync to learn a tensor's values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.api import Cause, Finding, Rule, Script
from torchlint_rules.shared.graphbreaks import without_breaks
from torchlint_rules.shared.stepguards import step_guards

_NUMBER: Final = "keep the number on the host too"
_INDICES: Final = "torch.where(condition, a, b) needs no indices"
_BEFORE: Final = "count on the device, or do it before training"
_MASKED: Final = "multiply by the mask, or use torch.where"
_LATER: Final = "choose on the device with torch.where, or look now and then"
_WHOLE: Final = "`.{word}()` of the tensor is one operation"
_CURES: Final = {
    **dict.fromkeys(("test", "bool", "isnan", "isinf", "isfinite"), _LATER),
    "mask": _MASKED,
    "bounds": "keep lengths on the host too",
    "nonzero": _INDICES,
    "argwhere": _INDICES,
    "where": _INDICES,
    "unique": _BEFORE,
    "unique_consecutive": _BEFORE,
    "masked_select": _MASKED,
    "bincount": "pass minlength",
    "range": _NUMBER,
    "arange": _NUMBER,
    "sorted": _NUMBER,
    "any": _WHOLE,
    "elements": "stack the tests on the device, and read one result",
    "all": _WHOLE,
    "max": _WHOLE,
    "min": _WHOLE,
    "equal": "(a == b).all() stays on the device",
    "allclose": "compare on the device, and read the result now and then",
    "pack_padded_sequence": "keep the lengths on the host",
    "clip_grad_norm_": "leave out error_if_nonfinite=True",
    "validate_args": "pass validate_args=False",
}


class DataDependentSync(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every operation in each step for which the host must know a tensor's values."""
        if script.program.devices.can_use_accelerator:
            yield from without_breaks(script, self._waits(script))

    def _waits(self, script: Script) -> Iterator[Finding]:
        guards = [part for each in step_guards(script) for part in (each.holder.test, each.asked)]
        for sync in script.readings.syncs.of(Cause.TESTED, Cause.SIZED, Cause.CHECKED):
            place = sync.node
            if sync.word not in _CURES or any(script.tree.inside(place, each) for each in guards):
                continue
            if script.loops.each_step(place):
                cure = _CURES[sync.word].format(word=sync.word)
                message = f"`{script.tree.brief(place)}` waits for the device in every step: {cure}"
                notes = script.loops.repetition.notes_on_callers(place)
                yield Finding(self.code, script.span(place), message, None, notes)
