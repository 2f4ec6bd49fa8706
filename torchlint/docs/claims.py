"""Claimed gains of rules, compared with the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from torchlint.measurement import Measurement, measurements
from torchlint.rule import Rule

__all__ = ["contradictions"]

_FOR_ACCELERATORS: Final = ("TL102", "TL107", "TL2", "TL3", "TL7", "TL803")
"""Code prefixes of rules that claim a gain on accelerators, which a CPU cannot refute."""

_NOT_IN_THE_STEP: Final = {
    "TL208": "memory",
    "TL303": "steps that are not skipped",
    "TL304": "fewer epochs",
    "TL402": "fewer epochs",
    "TL407": "memory",
    "TL504": "fewer epochs",
    "TL505": "fewer epochs",
    "TL506": "fewer epochs",
    "TL602": "scores that are right",
    "TL604": "fewer epochs",
    "TL702": "fewer epochs",
    "TL703": "a script that starts",
    "TL903": "the weights that were meant",
}
"""What rules improve that do not claim a faster step."""


def contradictions(
    rules: Sequence[type[Rule]], evidence: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield a line for each default rule whose claim the measurements contradict.

    An impact of medium or high claims a faster step, a low one only that no step is slower.
    Measurements on an accelerator decide; those on a CPU count where there are no others, and
    the rule is not for accelerators. A rule that is off by default claims nothing.
    """
    for rule in rules:
        if not rule.default or rule.code in _NOT_IN_THE_STEP:
            continue
        refuting = ("SLOWER",) if rule.impact == "low" else ("SAME", "SLOWER")
        for each in _decisive(rule.code, measurements(evidence.get(rule.code, ()))):
            if each.verdict in refuting:
                yield (
                    f"{rule.code} claims impact {rule.impact}, but was measured {each.verdict} "
                    f"on {each.device}, torch {each.torch}: write `default: false`, or claim less"
                )


def _decisive(code: str, found: Sequence[Measurement]) -> Sequence[Measurement]:
    accelerators = [each for each in found if not each.on_cpu]
    if accelerators or code.startswith(_FOR_ACCELERATORS):
        return accelerators
    return found
