"""Plots as inline SVG, in the colors of the page, light or dark, with values on hover."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

_WIDTH: Final = 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 18, 28, 46
_TICKS: Final = 5
_NARROW: Final = 1e-9
"""A range below this share of its values is widened, so that it has distinct ticks."""


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
