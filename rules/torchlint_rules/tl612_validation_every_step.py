"""TL612: a validation of the whole set after every training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.api import Finding, Fix, Rule, Script, TrainerArguments

_INTERVAL: Final = "val_check_interval"
_OFTEN: Final = 10
"""The number of steps up to which a validation is more work than the training between two."""


class ValidationEveryStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the options of a trainer that make it validate after every few steps."""
        for arguments in script.program.trainings.arguments("lightning"):
            yield from self._of_lightning(script, arguments)
        for arguments in script.program.trainings.arguments("transformers", "trl"):
            yield from self._of_transformers(script, arguments)

    def _of_lightning(self, script: Script, arguments: TrainerArguments) -> Iterator[Finding]:
        given = arguments.given(_INTERVAL)
        if not arguments.is_literal(_INTERVAL, 1) or arguments.is_trial:
            return
        if not arguments.is_off("limit_val_batches"):
            return
        message = (
            f"`{_INTERVAL}=1` validates after every batch, because the whole number counts "
            "batches: write 1.0 to validate once per epoch"
        )
        fix, notes = None, arguments.notes(_INTERVAL)
        if given is not None and not notes:
            fix = Fix.unsafe(
                "Validate once per epoch",
                script.edits.set_argument(arguments.call, given, _INTERVAL, "1.0"),
                because="validation runs at other steps, and so does what follows from it",
            )
        span = script.span(given or arguments.call)
        yield Finding(self.code, span, message, fix, notes)

    def _of_transformers(self, script: Script, arguments: TrainerArguments) -> Iterator[Finding]:
        strategy = arguments.setting("eval_strategy")
        if strategy is None or strategy.value != "steps" or arguments.is_trial:
            return
        named = "eval_steps"
        steps = arguments.setting(named)
        if steps is not None and steps.value is None:
            named = "logging_steps"
            steps = arguments.setting(named)
        if steps is None or steps.is_default or not steps.counts(_OFTEN):
            return
        given = arguments.given(named)
        told = "every step" if steps.value == 1 else f"every {steps.value} steps"
        why = ", used because `eval_steps` is missing," if named == "logging_steps" else ""
        message = (
            f"`{named}={steps.value}`{why} runs through the whole evaluation set after {told}: "
            'evaluate every few hundred steps, or with `eval_strategy="epoch"`'
        )
        span = script.span(given or arguments.call)
        yield Finding(self.code, span, message, notes=arguments.notes(named))
