"""Claimed gains of rules, compared with the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchlint.measurement import Measurement, measurements
from torchlint.rule import Rule



def contradictions(
    rules: Sequence[type[Rule]], evidence: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield a line for each default rule whose claim the measurements contradict.

    An impact of medium or high claims a faster step, a low one only that no step is slower.
    Measurements on an accelerator decide; those on a CPU count where there are no others, and
    the rule is not for accelerators. A rule that is off by default claims nothing.
    """
    for rule in rules:
        if not rule.default or rule.gain != "speed":
            continue
        refuting = ("SLOWER",) if rule.impact == "low" else ("SAME", "SLOWER")
        for each in _decisive(rule, measurements(evidence.get(rule.code, ()))):
            if each.verdict in refuting:
                yield (
                    f"{rule.code} claims impact {rule.impact}, but was measured {each.verdict} "
                    f"on {each.device}, torch {each.torch}: write `default: false`, or claim less"
                )


def _decisive(rule: type[Rule], found: Sequence[Measurement]) -> Sequence[Measurement]:
    accelerators = [each for each in found if not each.on_cpu]
    if accelerators or rule.device == "accelerator":
        return accelerators
    return found
