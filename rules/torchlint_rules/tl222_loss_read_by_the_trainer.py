"""TL222: a trainer that looks for NaN in the loss of every batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Script

_OPTION: Final = "logging_nan_inf_filter"
_OWN_WAYS: Final = ("training_step", "_inner_training_loop", "train")


class LossReadByTheTrainer(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the arguments of every trainer that reads each loss to filter NaN from the log."""
        if not script.program.devices.can_use_accelerator:
            return
        for trainer in script.program.trainings.trainers("transformers"):
            arguments = trainer.arguments
            if arguments is None or arguments.framework != "transformers" or arguments.is_trial:
                continue
            owner = script.functions.definition(trainer.call.func)
            if isinstance(owner, cst.ClassDef):
                if any(script.functions.method(owner, name) is not None for name in _OWN_WAYS):
                    continue
            filtered = arguments.setting(_OPTION)
            if filtered is None or filtered.value is not True:
                continue
            if not arguments.is_off("use_cpu", "no_cuda", "use_ipex"):
                continue
            given = arguments.given(_OPTION)
            message = (
                "the trainer reads the loss twice in every batch to keep NaN out of the log; pass "
                f"{_OPTION}=False"
            )
            fix = None
            if given is not None or arguments.takes(_OPTION):
                edits = script.edits.set_argument(arguments.call, given, _OPTION, "False")
                fix = Fix.exact(f"Pass {_OPTION}=False", edits)
            notes = arguments.notes(_OPTION)
            yield Finding(self.code, script.span(arguments.call), message, fix, notes)
