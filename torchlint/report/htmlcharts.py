"""The charts of the HTML report, as SVG in the page's own colors, light or dark."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median, quantiles
from typing import Final

from markupsafe import Markup

from torchlint.harness.judging.anatomy import Step
from torchlint.harness.judging.verdict import Curves
from torchlint.report.svg import Axis, Plot

_SIDES: Final = ("original", "fixed")
_HEIGHT: Final = 260
_ROW: Final = 40
_BINS: Final = 40
_TAIL: Final = 1.5
"""Steps this many times slower than the 95th percentile are counted, not drawn."""
_UNITS: Final = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (0.0, "µs", 1e6))
_CURVES: Final = 3
"""Up to this many losses of a step are drawn as separate curves, more as their mean."""
_TIPS: Final = 100
"""Up to this many steps tell their losses on hover; of more, evenly many."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with its caption."""

    title: str
    svg: Markup
    note: str = ""


def step_times(before: Curves, after: Curves, what: str = "step") -> Chart | None:
    """Draw the distribution of step times of both sides, None where nothing was timed.

    `what` names what was timed: a step or a whole run.
    """
    sides = [_durations(before), _durations(after)]
    if not all(sides):
        return None
    factor, unit = _unit(median(sides[0]))
    scaled = [[time * factor for time in times] for times in sides]
    limit = _limit(scaled)
    drawn = [time for times in scaled for time in times if time <= limit]
    across = Axis.over(drawn, f"time of a {what} ({unit})")
    edges = [across.low + (across.high - across.low) * at / _BINS for at in range(_BINS + 1)]
    shares = [_shares(times, edges) for times in scaled]
    up = Axis(0.0, max(map(max, shares)), f"share of the {what}s (%)")
    plot = Plot("step times", _HEIGHT, across, up)
    for name, times, heights in zip(_SIDES, scaled, shares, strict=True):
        plot.outline(name, edges, heights)
        middle = median(times)
        plot.line(name, [(middle, up.low), (middle, up.high)], 1.5, is_dashed=name == "fixed")
    for left, right, *both in zip(edges, edges[1:], *shares, strict=False):
        if any(both):
            told = ", ".join(
                f"{name} {share:.3g} %" for name, share in zip(_SIDES, both, strict=True)
            )
            plot.tip(left, right, f"{left:.4g} to {right:.4g} {unit}: {told}")
    plot.legend(
        (name, f"{name}: {median(times):.3g} {unit}", name == "fixed")
        for name, times in zip(_SIDES, scaled, strict=True)
    )
    slow = sum(time > limit for times in scaled for time in times)
    counted = f"; {slow} {what}s slower than {limit:.3g} {unit} are not drawn" if slow else ""
    return Chart(f"{what.capitalize()} times", plot.markup(), f"the lines are medians{counted}")


def losses(before: Curves, after: Curves) -> Chart | None:
    """Draw the losses of both sides in one picture, None where there are none."""
    sides = [_loss_curves(before), _loss_curves(after)]
    curves = [curve for side in sides for curve in side]
    if not curves:
        return None
    across = Axis(0.0, max(max(steps) for steps, _ in curves), "step")
    plot = Plot(
        "losses", _HEIGHT, across, Axis.over((at for _, side in curves for at in side), "loss")
    )
    looks = (("original", 4.5, 0.45), ("fixed", 1.8, 1.0))
    for side, (name, width, opacity) in zip(sides, looks, strict=True):
        for steps, values in side:
            points = zip(steps, values, strict=True)
            plot.line(name, points, width, opacity, is_dashed=name == "fixed")
    _tell_losses(plot, sides)
    plot.legend(
        (name, name, name == "fixed") for name, side in zip(_SIDES, sides, strict=True) if side
    )
    return Chart("Losses", plot.markup(), _loss_note(before, after))


def one_step(before: Step | None, after: Step | None) -> Chart | None:
    """Draw the phases of a usual step of each side, None where they were not measured."""
    rows = [(name, step) for name, step in zip(_SIDES, (before, after), strict=True) if step]
    if not rows:
        return None
    factor, unit = _unit(max(step.seconds for _, step in rows))
    longest = max(step.seconds for _, step in rows) * factor
    across = Axis.over((0.0, longest), f"time since the step began ({unit})")
    plot = Plot("one step", 74 + _ROW * len(rows), across)
    for at, (name, step) in enumerate(rows):
        row = 1 - (at + 0.5) / len(rows)
        half = 0.3 / len(rows)
        plot.name_row(row, name)
        whole = step.seconds * factor
        plot.bar("faint", row, half, 0.0, whole, f"{name}: {whole:.3g} {unit} in all")
        for phase in step.phases:
            start, end = phase.start * factor, phase.end * factor
            plot.bar(phase.name, row, half, start, end, f"{phase.name}: {end - start:.3g} {unit}")
    clock = "the device's clock" if any(step.on_device for _, step in rows) else "the host's clock"
    return Chart("One step", plot.markup(), f"{clock}; the median step of each side")


def _shares(times: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Return the share of the times in each bin, in percent of all times."""
    counts = [0] * (len(edges) - 1)
    for time in times:
        if time <= edges[-1]:
            counts[min(bisect_right(edges, time) - 1, len(counts) - 1)] += 1
    return [100 * count / len(times) for count in counts]


def _tell_losses(plot: Plot, sides: Sequence[Sequence[tuple[list[int], list[float]]]]) -> None:
    """Tell the losses of the steps, or of evenly many of them, on hover."""
    known: dict[int, list[str]] = {}
    for name, side in zip(_SIDES, sides, strict=True):
        for curve in side:
            for step, value in zip(*curve, strict=True):
                known.setdefault(step, []).append(f"{name} {value:.6g}")
    steps = sorted(known)
    shown = steps[:: -(-len(steps) // _TIPS)]
    for step, following in zip_longest(shown, shown[1:], fillvalue=steps[-1] + 1):
        plot.tip(step - 0.5, following - 0.5, f"step {step}: {', '.join(known[step])}")


def _durations(curves: Curves) -> list[float]:
    return [time for runs in curves.times for run in runs for time in run]


def _unit(seconds: float) -> tuple[float, str]:
    """Return the unit for a time, and the factor from seconds to it."""
    return next((factor, unit) for least, unit, factor in _UNITS if seconds >= least)


def _limit(sides: Sequence[Sequence[float]]) -> float:
    """Return the end of the axis: the slowest step, or where a long tail begins."""
    pooled = [time for times in sides for time in times]
    far = _TAIL * quantiles(pooled, n=20)[-1] if len(pooled) > 1 else math.inf
    return min(max(pooled), far) * (1 + 1e-9)


def _loss_curves(curves: Curves) -> list[tuple[list[int], list[float]]]:
    """Return steps and losses of each curve: one per loss of a step, or their mean."""
    by_step: dict[int, list[float]] = {}
    for step, loss in zip(curves.loss_steps, curves.losses, strict=True):
        by_step.setdefault(step, []).append(loss if math.isfinite(loss) else math.nan)
    if not by_step:
        return []
    steps = sorted(by_step)
    count = len(by_step[steps[0]])
    if count > _CURVES or any(len(values) != count for values in by_step.values()):
        means = [sum(by_step[step]) / len(by_step[step]) for step in steps]
        return [([step + 1 for step in steps], means)]
    return [
        ([step + 1 for step in steps], [by_step[step][at] for step in steps]) for at in range(count)
    ]


def _loss_note(before: Curves, after: Curves) -> str:
    values = (*before.losses, *after.losses)
    odd = sum(not math.isfinite(value) for value in values)
    notes = [f"{odd} losses are not finite and not drawn"] if odd else []
    if len(set(before.loss_steps)) * _CURVES < len(before.losses):
        notes.append("the mean of a step's losses")
    elif len(set(before.loss_steps)) < len(before.losses):
        notes.append("a curve for each loss of a step")
    return "; ".join(notes)
