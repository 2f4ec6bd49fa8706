"""TL223: a progress bar of Lightning that reads a value in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.api import Finding, Frequency, Kind, Rate, Rule, Script

_LOGS: Final = ("self.log", "self.log_dict")


class ProgressBarReadsMetrics(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every value that a training step logs to the progress bar."""
        if not script.program.devices.can_use_accelerator:
            return
        if any(
            each.is_literal("accelerator", "cpu") or each.is_literal("enable_progress_bar", False)
            for each in script.program.trainings.arguments("lightning")
        ):
            return
        for site in script.calls.of_methods("log", "log_dict"):
            call = site.node
            function = script.scopes.function(call)
            if function is None or script.loops.rate(function) is not Rate.STEP:
                continue
            if script.loops.owner(call) != "lightning" or script.code(call.func) not in _LOGS:
                continue
            if not site.argument("prog_bar").equals(True) or site.argument("on_step").equals(False):
                continue
            given = site.given("value", 1)
            if given is not None and script.kind(given.value) is Kind.NUMBER:
                continue
            if script.loops.frequency(call) is not Frequency.EVERY_PASS:
                continue
            message = (
                f"`prog_bar=True` makes `{script.code(call.func)}` wait for the device in every "
                "step, whether the bar is drawn or not: log it with `on_step=False, on_epoch=True`"
            )
            yield Finding(self.code, script.span(call), message)
