"""The pictures of the lists of rules: a chart of measured gains, and a report of `check`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from torchlint.config import Settings
from torchlint.engine.checking import check_source
from torchlint.measurement import Measurement, measurements
from torchlint.registry import load_registry
from torchlint.report.card import brief_card
from torchlint.report.entry import Entry
from torchlint.report.formats import render
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.rule import Rule
from torchlint.source import Source
from torchlint.testing.checkout import Checkout

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
_SCRIPT: Final = "fixtures/readme/train.py"
_SELECT: Final = ("TL201", "TL601")
_COLUMNS: Final = 96
_CHARACTER: Final = 7.8
_LINE: Final = 18
_MARGIN: Final = 16
_STYLED: Final = re.compile(r"\x1b\[([0-9;]*)m")
_CLASSES: Final = {"1": "bold", "2": "dim", "31": "red", "32": "green", "35": "magenta"}
_TERMINAL: Final = """\
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; }
rect { fill: #f6f8fa; stroke: #d0d7de; }
.bold { font-weight: 600; } .dim { opacity: 0.6; }
.red { fill: #b3261e; } .green { fill: #1a7f37; } .magenta { fill: #8250df; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } rect { fill: #0d1117; stroke: #30363d; }
.red { fill: #ff7b72; } .green { fill: #56d364; } .magenta { fill: #d2a8ff; }
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


def picture(tree: Checkout) -> str:
    """Return the SVG of a real report about the script of the README."""
    command = f"$ torchlint check --select {','.join(_SELECT)} train.py"
    lines = [command, *_report(tree).splitlines()]
    width = _COLUMNS * _CHARACTER + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}"'
            f' width="{width:g}" role="img" aria-label="{escape(command)}">',
            _TERMINAL,
            f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1}" rx="6"/>',
            *(_printed(line, row) for row, line in enumerate(lines) if line),
            "</svg>\n",
        )
    )


def _report(tree: Checkout) -> str:
    registry = load_registry()
    text = (tree.root / _SCRIPT).read_text(encoding="utf-8")
    settings = Settings(select=_SELECT)
    found = check_source(Source("train.py", text), registry.select(settings), settings)
    assert found.source is not None
    cards = {code: brief_card(registry.find(code)) for code in _SELECT}
    entries = tuple(
        Entry("train.py", found.source, each, cards[each.code]) for each in found.findings
    )
    return render(Report(entries, files=1), Paint(color=True, width=_COLUMNS), "full")


def _printed(line: str, row: int) -> str:
    y = _MARGIN + row * _LINE + 13
    return f'<text x="{_MARGIN}" y="{y}" xml:space="preserve">{"".join(_spans(line))}</text>'


def _spans(line: str) -> Iterator[str]:
    """Yield the parts of a line with their styles."""
    codes: list[str] = []
    plain, *styled = _STYLED.split(line)
    yield escape(plain, quote=False)
    for code, text in zip(styled[::2], styled[1::2], strict=True):
        codes = [] if code in ("", "0") else [*codes, *code.split(";")]
        if text:
            names = " ".join(_CLASSES[each] for each in codes)
            inner = escape(text, quote=False)
            yield f'<tspan class="{names}">{inner}</tspan>' if names else inner
