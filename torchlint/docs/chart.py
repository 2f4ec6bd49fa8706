"""The chart of the README: the time of a step after each fix, drawn from the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from torchlint.measurement import Measurement, measurements
from torchlint.rule import Rule

_WIDTH: Final = 860
_NAMES: Final = 250
_TRACK: Final = 340
_LIMIT: Final = 1.2 * _TRACK
_ROW: Final = 20
_HEAD: Final = 44
_DECIDED: Final = {"FASTER": "faster", "SAME": "same", "SLOWER": "slower"}
_GAINS: Final = {"memory": "memory", "results": "right results", "upkeep": "upkeep"}
_STYLE: Final = """\
<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.head { font-weight: 600; font-size: 14px; } .dim { fill: #57606a; }
.page { fill: #ffffff; stroke: #d0d7de; } .track { fill: #e6eaef; }
.faster { fill: #0072b2; } .same { fill: #8c959f; } .slower { fill: #c2410c; }
.range { stroke: #1f2328; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .dim { fill: #9ba5b0; } .page { fill: #0d1117; stroke: #30363d; }
.track { fill: #21262d; } .faster { fill: #5ab4f0; }
.same { fill: #6e7681; } .slower { fill: #ff9d5c; }
.range { stroke: #e6edf3; }
}
</style>"""


def speed_chart(
    rules: Sequence[type[Rule]], evidence: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """Return the SVG with a bar for each rule whose measurement decided, by device."""
    found = [
        (each, rule)
        for rule in rules
        for each in measurements(evidence.get(rule.code, ()))
        if each.verdict in _DECIDED
    ]
    found.sort(key=lambda pair: (pair[0].on_cpu, *_machine(pair), -pair[0].ratio))
    dates = sorted(
        each["date"] for written in evidence.values() for each in written if "date" in each
    )
    body, height = [], 0
    for (device, torch), group in groupby(found, _machine):
        members = list(group)
        title = f"Time of a training step after the fix, on {device}, torch {torch}"
        body.append(_text(16, height + 22, title, "head"))
        body.append(_text(16, height + 38, "the full bar is the step before the fix", "dim"))
        for row, (each, rule) in enumerate(members):
            body.extend(_bar(each, rule, height + _HEAD + row * _ROW))
        height += _HEAD + len(members) * _ROW + 8
    measured = f"measured {dates[0]} to {dates[-1]}" if dates else "not measured yet"
    body.append(_text(16, height + 14, f"{measured}; lines are 95 % confidence intervals", "dim"))
    height += 26
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
            f' width="{_WIDTH}" role="img" aria-label="Step times before and after each fix">',
            _STYLE,
            f'<rect class="page" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}"'
            ' rx="6"/>',
            *body,
            "</svg>\n",
        )
    )


def _machine(pair: tuple[Measurement, type[Rule]]) -> tuple[str, str]:
    return pair[0].device, pair[0].torch


def _bar(each: Measurement, rule: type[Rule], y: int) -> Iterator[str]:
    """Yield the name of a rule, its bar, the interval and the speed-up."""
    tone = _DECIDED[each.verdict]
    low, high = (min(_LIMIT, _TRACK / ratio) for ratio in (each.high, each.low))
    length = min(_LIMIT, _TRACK / each.ratio)
    middle = y + _ROW / 2
    yield _text(16, y + 14, f"{rule.code} {rule.name}", "")
    for kind, width in (("track", _TRACK), (tone, length)):
        yield (
            f'<rect class="{kind}" x="{_NAMES}" y="{y + 3}" width="{width:.1f}"'
            f' height="{_ROW - 6}"/>'
        )
    yield (
        f'<line class="range" x1="{_NAMES + low:.1f}" x2="{_NAMES + high:.1f}"'
        f' y1="{middle:g}" y2="{middle:g}"/>'
    )
    said = "no difference" if tone == "same" else f"{each.ratio:.2f}x"
    yield _text(round(_NAMES + _LIMIT + 8), y + 14, said + _aim(each, rule), "")


def _aim(each: Measurement, rule: type[Rule]) -> str:
    """Return what a rule is for, where that is not speed on this device by default."""
    if not rule.default:
        return ", off by default"
    if rule.gain != "speed":
        return f", for {_GAINS[rule.gain]}"
    return ", for GPUs" if each.on_cpu and rule.device == "accelerator" else ""


def _text(x: int, y: int, said: str, kind: str) -> str:
    return f'<text{f" class={kind!r}" if kind else ""} x="{x}" y="{y}">{escape(said)}</text>'
