"""The charts of the HTML report, as SVG in the page's own colors, light or dark."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median, quantiles
from typing import Final

from markupsafe import Markup, escape

from torchlint.harness.judging.anatomy import Step
from torchlint.harness.judging.verdict import Curves

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
_WIDTH: Final = 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 18, 28, 46
_TICKS: Final = 5
_NARROW: Final = 1e-9
"""A range below this share of its values is widened, so that it has distinct ticks."""


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


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values with its label."""

    low: float
    high: float
    label: str

    @classmethod
    def over(cls, values: Iterable[float], label: str) -> Axis:
        """Return the axis that holds all finite values, with room where they are one point."""
        finite = [value for value in values if math.isfinite(value)] or [0.0]
        low, high = min(finite), max(finite)
        largest = max(abs(low), abs(high))
        if high - low <= _NARROW * largest or largest < sys.float_info.min:
            room = 0.05 * largest or 0.5
            low, high = low - room, high + room
        return cls(low, high, label)

    def share(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high one."""
        return min(1.0, max(0.0, (value - self.low) / self._span))

    def ticks(self) -> list[float]:
        """Return round values within the range, about five."""
        rough = self._span / _TICKS
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = next(magnitude * by for by in (1, 2, 5, 10) if magnitude * by >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [at * step for at in range(first, last + 1)]

    @property
    def _span(self) -> float:
        return min(self.high - self.low, sys.float_info.max)


class Plot:
    """A plot under construction; colors are the names of the page's variables."""

    def __init__(self, name: str, height: int, across: Axis, up: Axis | None = None) -> None:
        self._name = name
        self._height = height
        self._across = across
        self._up = up or Axis(0.0, 1.0, "")
        self._parts: list[str] = []
        self._draw_across()
        if up is not None:
            self._draw_up()

    def outline(self, color: str, edges: Sequence[float], heights: Sequence[float]) -> None:
        """Draw a histogram as a filled outline."""
        corners = [(edges[0], 0.0)]
        for left, right, height in zip(edges, edges[1:], heights, strict=False):
            corners += [(left, height), (right, height)]
        path = self._path([*corners, (edges[-1], 0.0)])
        self._add(
            f'<path d="{path}" fill="var(--{color})" fill-opacity=".35" stroke="var(--{color})"/>'
        )

    def line(
        self,
        color: str,
        points: Iterable[tuple[float, float]],
        width: float,
        opacity: float = 1.0,
        is_dashed: bool = False,
    ) -> None:
        """Draw a line through the points, with gaps where a value is not finite."""
        dashes = ' stroke-dasharray="6 4"' if is_dashed else ""
        self._add(
            f'<path d="{self._path(points)}" fill="none" stroke="var(--{color})" '
            f'stroke-width="{width}" stroke-opacity="{opacity}"{dashes}/>'
        )

    def bar(self, color: str, row: float, half: float, start: float, end: float, tip: str) -> None:
        """Draw a horizontal bar around a height of the vertical axis, `half` to each side."""
        self._box(start, end, row - half, row + half, f'fill="var(--{color})"', tip)

    def tip(self, start: float, end: float, text: str) -> None:
        """Show a text while the pointer is over a vertical strip."""
        self._box(start, end, self._up.low, self._up.high, 'fill="transparent"', text)

    def name_row(self, row: float, text: str) -> None:
        """Write a name left of a height of the vertical axis."""
        self._text(_LEFT - 8, self._y(row) + 5, text, "end")

    def legend(self, entries: Iterable[tuple[str, str, bool]]) -> None:
        """Name colors above the plot: color, text, and whether its line is dashed."""
        left = float(_LEFT)
        for color, text, is_dashed in entries:
            dashes = ' stroke-dasharray="6 4"' if is_dashed else ""
            self._add(
                f'<path d="M{left:g} 12h24" stroke="var(--{color})" stroke-width="3"{dashes}/>'
            )
            self._text(left + 30, 16, text, "start")
            left += 190

    def markup(self) -> Markup:
        """Return the finished picture as a part of a page."""
        size = f"0 0 {_WIDTH} {self._height}"
        head = f'<svg role="img" aria-label="{escape(self._name)}" viewBox="{size}" font-size="15">'
        return Markup("".join([head, *self._parts, "</svg>"]))

    def _draw_across(self) -> None:
        bottom = self._height - _BOTTOM
        for tick in self._across.ticks():
            x = self._x(tick)
            self._add(
                f'<path d="M{x:.2f} {_TOP}V{bottom}" stroke="var(--faint)" stroke-width=".5"/>'
            )
            self._text(x, bottom + 18, _short(tick), "middle")
        self._add(f'<path d="M{_LEFT} {bottom}H{_WIDTH - _RIGHT}" stroke="var(--faint)"/>')
        self._text((_LEFT + _WIDTH - _RIGHT) / 2, self._height - 6, self._across.label, "middle")

    def _draw_up(self) -> None:
        for tick in self._up.ticks():
            y = self._y(tick)
            self._add(
                f'<path d="M{_LEFT} {y:.2f}H{_WIDTH - _RIGHT}" stroke="var(--faint)" '
                'stroke-width=".5"/>'
            )
            self._text(_LEFT - 6, y + 5, _short(tick), "end")
        middle = (_TOP + self._height - _BOTTOM) / 2
        self._text(13, middle, self._up.label, "middle", f' transform="rotate(-90 13 {middle:g})"')

    def _x(self, value: float) -> float:
        return _LEFT + self._across.share(value) * (_WIDTH - _LEFT - _RIGHT)

    def _y(self, value: float) -> float:
        bottom = self._height - _BOTTOM
        return bottom - self._up.share(value) * (bottom - _TOP)

    def _path(self, points: Iterable[tuple[float, float]]) -> str:
        path, command = [], "M"
        for x, y in points:
            if not math.isfinite(y):
                command = "M"
                continue
            path.append(f"{command}{self._x(x):.2f} {self._y(y):.2f}")
            command = "L"
        return "".join(path)

    def _box(self, start: float, end: float, low: float, high: float, look: str, tip: str) -> None:
        left, top = self._x(start), self._y(high)
        width, height = self._x(end) - left, self._y(low) - top
        self._add(
            f'<rect x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{height:.2f}" {look}>'
            f"<title>{escape(tip)}</title></rect>"
        )

    def _text(self, x: float, y: float, text: str, anchor: str, more: str = "") -> None:
        self._add(
            f'<text x="{x:.2f}" y="{y:.2f}" fill="var(--ink)" text-anchor="{anchor}"{more}>'
            f"{escape(text)}</text>"
        )

    def _add(self, part: str) -> None:
        self._parts.append(part)


def _short(value: float) -> str:
    return f"{value:.6g}"
