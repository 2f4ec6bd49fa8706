"""The charts of the HTML report, as SVG in the page's own colors, light or dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from torchlint.harness.judging.anatomy import Step
from torchlint.harness.judging.verdict import Curves

__all__ = ["Chart", "losses", "one_step", "step_times"]

_WIDTH: Final = 4.4
_COLORS: Final = {
    "ink": "#010101",
    "faint": "#020202",
    "original": "#030303",
    "fixed": "#040404",
    "data": "#050505",
    "forward": "#060606",
    "backward": "#070707",
    "optimizer": "#080808",
}
"""Placeholder colors, each replaced by the page's variable of its name."""
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.edgecolor": _COLORS["faint"],
    "axes.labelcolor": _COLORS["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": False,
    "grid.color": _COLORS["faint"],
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "legend.labelcolor": _COLORS["ink"],
    "text.color": _COLORS["ink"],
    "xtick.color": _COLORS["ink"],
    "ytick.color": _COLORS["ink"],
}
_BINS: Final = 40
_TAIL: Final = 1.5
"""Steps this many times slower than the 95th percentile are counted, not drawn."""
_UNITS: Final = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (0.0, "µs", 1e6))
_CURVES: Final = 3
"""Up to this many losses of a step are drawn as separate curves, more as their mean."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with its caption."""

    title: str
    svg: Markup
    note: str = ""


def step_times(before: Curves, after: Curves, key: str, what: str = "step") -> Chart | None:
    """Draw the distribution of step times of both sides, None where nothing was timed.

    `key` differs for each picture of a page; `what` names what was timed: a step or a whole
    run.
    """
    sides = [_durations(before), _durations(after)]
    if not all(sides):
        return None
    factor, unit = _unit(median(sides[0]))
    scaled = [[time * factor for time in times] for times in sides]
    limit = _limit(scaled)
    low = min(map(min, scaled))
    edges = [low + (limit - low) * at / _BINS for at in range(_BINS + 1)]
    with _figure("step times", key, 2.6) as drawing:
        axes = drawing.axes
        for name, times, line in zip(("original", "fixed"), scaled, ("-", "--"), strict=True):
            color = _COLORS[name]
            weights = [100 / len(times)] * len(times)
            label = f"{name}: {median(times):.3g} {unit}"
            axes.hist(times, edges, weights=weights, color=color, alpha=0.35)
            axes.hist(times, edges, weights=weights, color=color, histtype="step")
            axes.axvline(median(times), color=color, linestyle=line, linewidth=1.5, label=label)
        axes.set_xlabel(f"time of a {what} ({unit})")
        axes.set_ylabel(f"share of the {what}s (%)")
        drawing.legend()
    slow = sum(time > limit for times in scaled for time in times)
    counted = f"; {slow} {what}s slower than {limit:.3g} {unit} are not drawn" if slow else ""
    return Chart(f"{what.capitalize()} times", drawing.svg, f"the lines are medians{counted}")


def losses(before: Curves, after: Curves, key: str) -> Chart | None:
    """Draw the losses of both sides in one picture, None where there are none."""
    sides = [_loss_curves(before), _loss_curves(after)]
    if not any(sides):
        return None
    with _figure("losses", key, 2.6) as drawing:
        axes = drawing.axes
        looks = (("original", "-", 4.5, 0.45), ("fixed", "--", 1.8, 1.0))
        for curves, (name, line, width, alpha) in zip(sides, looks, strict=True):
            for at, (steps, values) in enumerate(curves):
                axes.plot(
                    steps,
                    values,
                    line,
                    color=_COLORS[name],
                    linewidth=width,
                    alpha=alpha,
                    label=name if at == 0 else None,
                )
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        drawing.legend()
    return Chart("Losses", drawing.svg, _loss_note(before, after))


def one_step(before: Step | None, after: Step | None, key: str) -> Chart | None:
    """Draw the phases of a usual step of each side, None where they were not measured."""
    rows = [(name, step) for name, step in (("fixed", after), ("original", before)) if step]
    if not rows:
        return None
    factor, unit = _unit(max(step.seconds for _, step in rows))
    with _figure("one step", key, 1.0 + 0.4 * len(rows)) as drawing:
        axes = drawing.axes
        for row, (_, step) in enumerate(rows):
            axes.barh(row, step.seconds * factor, 0.6, color=_COLORS["faint"], alpha=0.4)
            for phase in step.phases:
                axes.barh(
                    row,
                    (phase.end - phase.start) * factor,
                    0.6,
                    phase.start * factor,
                    color=_COLORS[phase.name],
                )
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.set_ylim(-0.5, len(rows) - 0.5)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, None)
        axes.set_xlabel(f"time since the step began ({unit})")
        axes.grid(axis="y", visible=False)
    clock = "the device's clock" if any(step.on_device for _, step in rows) else "the host's clock"
    return Chart("One step", drawing.svg, f"{clock}; the median step of each side")


class _Drawing:
    """A figure under construction: `axes` to draw on, and the finished picture."""

    def __init__(self, name: str, height: float) -> None:
        self._name = name
        self._figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(self._figure)
        self.axes: Axes = self._figure.add_subplot()
        self.axes.grid(visible=True)
        self.axes.set_axisbelow(True)
        self.svg = Markup()

    def legend(self) -> None:
        """Add a legend for the two sides above the picture."""
        self._figure.legend(loc="outside upper left", ncols=2)

    def finish(self) -> None:
        """Return the finished picture."""
        file = io.StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self._figure.savefig(file, format="svg", transparent=True, metadata=metadata)
        self.svg = _inline(file.getvalue(), self._name)


@contextmanager
def _figure(name: str, key: str, height: float) -> Iterator[_Drawing]:
    """Return a drawing in the report's own style, whatever the user's matplotlib style is."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, "svg.hashsalt": f"{name} {key}"})
        drawing = _Drawing(name, height)
        yield drawing
        drawing.finish()


def _inline(svg: str, name: str) -> Markup:
    """Turn an SVG file into a part of a page: no header, the page's colors, a spoken name."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(name)}"', 1)
    for variable, color in _COLORS.items():
        svg = svg.replace(color, f"var(--{variable})")
    return Markup(svg)


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
