"""Measured speed-ups of the fixes of rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchlint.page.files import pack_folder

if TYPE_CHECKING:
    from torchlint.rule import Rule

EVIDENCE: Final = "evidence.json"
"""The file beside the rules of a pack: a list of measurements for each code."""

_UNCHANGED: Final = {
    "SAME": "no measurable difference",
    "DIFFERENT": "the numbers are others",
    "UNSURE": "too noisy to tell",
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One comparison of a script before and after a fix, on one device."""

    device: str
    torch: str
    verdict: str
    ratio: float
    """The step time of the original over that of the fixed one: above 1 is faster."""
    low: float
    high: float

    @property
    def on_cpu(self) -> bool:
        """Whether it was measured on a CPU, so it says nothing about accelerators."""
        return self.device.upper().startswith("CPU")

    @property
    def words(self) -> str:
        """The result in one line, with its device."""
        times = f"{self.ratio:.2f} times as fast ({self.low:.2f} to {self.high:.2f})"
        result = _UNCHANGED.get(self.verdict, times)
        return f"{result} on {self.device}, torch {self.torch}"


def measurements(written: Sequence[Mapping[str, Any]]) -> tuple[Measurement, ...]:
    """Read measurements from JSON with the field names of `verify --json`, accelerators first."""
    read = [
        Measurement(
            device=each["device"],
            torch=each["torch"],
            verdict=each["verdict"],
            ratio=each["speedup"]["ratio"],
            low=each["speedup"]["low"],
            high=each["speedup"]["high"],
        )
        for each in written
    ]
    return tuple(sorted(read, key=lambda each: each.on_cpu))


def measurements_of(rule: type[Rule]) -> tuple[Measurement, ...]:
    """Return the measurements that the pack of a rule ships for it; empty if there are none."""
    module = getattr(sys.modules.get(rule.__module__), "__file__", None)
    return measurements_beside(module, rule.code) if module else ()


def gain_of(rule: type[Rule]) -> Measurement | None:
    """Return the measurement that shows what a rule's fix gains, None where there is none."""
    return next(conclusive(measurements_of(rule), rule.gain, rule.device), None)


def conclusive(measured: Sequence[Measurement], gain: str, device: str) -> Iterator[Measurement]:
    """Yield the measurements that show what the fix of a rule with this gain and device gains.

    A step time says nothing about a rule whose gain is not speed, and one of a CPU nothing about a
    rule for accelerators. One that is too noisy to tell shows nothing either.
    """
    for each in measured if gain == "speed" else ():
        if each.verdict != "UNSURE" and not (each.on_cpu and device == "accelerator"):
            yield each


def measurements_beside(file: str, code: str) -> tuple[Measurement, ...]:
    """Return the measurements of a rule, looked up by the file of its module."""
    evidence = Path(pack_folder(file), EVIDENCE)
    if not evidence.is_file():
        return ()
    import json

    return measurements(json.loads(evidence.read_text(encoding="utf-8")).get(code, ()))
