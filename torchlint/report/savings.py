"""What the kept fixes save of an epoch and of a training: time, money and energy."""

from __future__ import annotations

from typing import Final

from torchlint.harness.judging.keeping import candidates, together
from torchlint.harness.judging.verdict import Outcome, Report
from torchlint.report.summary import plural

_KILOWATT_HOUR: Final = 3.6e6
"""Joules of one."""
_FEWEST: Final = 0.01
"""Kilowatt hours below which joules are easier to read."""


def savings(report: Report) -> str:
    """Return a sentence on what an epoch and a training save, empty where that was not measured.

    A time that processor time decided is not one that anybody would wait less.
    """
    outcome = together(report, candidates(report))
    if outcome is None or outcome.work is not None or not report.epoch_steps or report.whole:
        return ""
    before, after = outcome.step_time.before, outcome.step_time.after
    if outcome.speedup is None or before is None or after is None or after >= before:
        return ""
    steps = report.epoch_steps
    saved = steps * (before - after)
    said = f"saves {_duration(saved)} of the {_duration(steps * before)} that {_steps(steps)} take"
    whole = _whole(report, outcome, saved)
    return f"{said}{f': {whole}' if whole else ''}"


def _whole(report: Report, outcome: Outcome, saved: float) -> str:
    """Return what all epochs save, or one of them where their number is unknown."""
    epochs = report.epochs or 1
    parts = []
    if report.epochs:
        parts.append(f"{_duration(saved * epochs)} of {plural(epochs, 'epoch')}")
    hours = saved * epochs / 3600
    if report.price is not None:
        each = "" if report.epochs else " an epoch"
        cost = hours * report.price * report.devices
        parts.append(f"{cost:.2f} ${each} at {report.price:.2f} $/h")
    energy = outcome.energy
    if energy.before is not None and energy.after is not None and energy.before > energy.after:
        joules = (energy.before - energy.after) * (report.epoch_steps or 0) * epochs
        parts.append(_energy(joules))
    return ", ".join(parts)


def _steps(steps: float) -> str:
    return f"the {plural(round(steps), 'training step')} of an epoch"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def _energy(joules: float) -> str:
    hours = joules / _KILOWATT_HOUR
    return f"{hours:.2g} kWh" if hours >= _FEWEST else f"{joules:.3g} J"
