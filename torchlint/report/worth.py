"""What a finding is worth: the measured gain of its fix, else a guess by its impact."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from torchlint.measurement import Measurement
    from torchlint.report.entry import Entry

_ASSUMED: Final = {"error": 1.5, "warning": 1.15, "note": 1.03}
"""The speed-up to rank an unmeasured finding by."""
_ASIDE: Final = re.compile(r" *\(.*\)|^NVIDIA +")
_SEVERE_FIRST: Final = {"error": 0, "warning": 1, "note": 2}


class Worth(NamedTuple):
    """The expected gain of fixing the findings of one rule."""

    ratio: float
    figure: str = ""
    """The measured speed-up with its device, empty if it was not measured."""

    @classmethod
    def of(cls, entry: Entry) -> Worth:
        """Return what a finding is worth: measured in its script or on a fixture, or assumed."""
        own, evidence = entry.measured, _evidence(entry)
        if own is not None and own.verdict == "FASTER":
            return cls(own.ratio, f"{own.ratio:.1f}x measured here")
        if own is not None:
            return cls(1.0)
        if entry.traced is not None:
            share = min(entry.traced.share, 0.99)
            return cls(1 / (1 - share), f"{share:.0%} of the trace")
        if evidence is not None:
            return cls(evidence.ratio, figure(evidence))
        return cls(_ASSUMED[entry.severity])


def figure(measurement: Measurement) -> str:
    """Return a measured speed-up with the short name of its device."""
    return f"{measurement.ratio:.1f}x on {_ASIDE.sub('', measurement.device)}"


def tag(entry: Entry) -> str:
    """Return the impact of a finding, with the measured speed-up of its fix."""
    evidence = _evidence(entry) if entry.measured is None else None
    parts = (entry.impact, figure(evidence) if evidence is not None else "")
    return ", ".join(filter(None, parts))


def _evidence(entry: Entry) -> Measurement | None:
    """Return the speed-up measured on a fixture, None where little is at stake in this script."""
    evidence = entry.card.evidence
    faster = evidence is not None and evidence.verdict == "FASTER"
    return evidence if faster and entry.impact != "low" else None


def in_order_of(order: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return findings by `impact`, `cost` or `code`, else as they are."""
    if order == "impact":
        return sorted(entries, key=lambda entry: _SEVERE_FIRST[entry.severity])
    if order == "cost":
        return sorted(entries, key=lambda entry: -Worth.of(entry).ratio)
    if order == "code":
        return sorted(entries, key=lambda entry: entry.finding.code)
    return list(entries)
