from __future__ import annotations

from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.report.card import Card
from torchlint.report.entry import Entry
from torchlint.report.report import Report
from torchlint.source import Source

PAGE = "## What it does\nFlags `.item()` on every step.\n\n## Why it is slow\nThe host waits."

CARDS = {
    "TL201": Card("TL201", "sync-in-training-loop", "waits", "high", "exact", page=PAGE),
    "TL401": Card("TL401", "bias-before-batchnorm", "a bias for nothing", "low", "unsafe"),
    "TL206": Card("TL206", "module-moved-in-loop", "moved again", "medium", "exact"),
    "XY001": Card("XY001", "pack-of-others", "unknown to us", "low", None),
}

SCRIPT = """\
import torch
from torch import nn

net = nn.Sequential(
    nn.Linear(4, 4),
\tnn.BatchNorm1d(4),
)
total = 0.0
for x, y in loader:
    net.to(device)
    loss = criterion(net(x), y)  # 損失
    損失 = "損失"; total += loss.item()

print(total)
"""


def span_of(text: str, part: str, start: int = 0) -> Span:
    """Return the place of `part` in `text`."""
    at = text.index(part, start)
    return Span(at, at + len(part))


def sample_findings(text: str) -> list[Finding]:
    linear = span_of(text, "nn.Linear(4, 4)")
    item = span_of(text, "loss.item()")
    total = span_of(text, "total += loss.item()")
    end = span_of(text, "\nprint(total)").start
    return [
        Finding(
            "TL206",
            span_of(text, "net = nn.Sequential(\n    nn.Linear(4, 4),\n\tnn.BatchNorm1d(4),\n)"),
            "`net` is moved on every step: build it on the device",
        ),
        Finding(
            "TL401",
            linear,
            "the batch norm that follows cancels the bias of `nn.Linear(4, 4)`",
            Fix.unsafe(
                "Pass bias=False",
                (Edit(Span(linear.end - 1, linear.end - 1), ", bias=False"),),
                because="drops the bias from checkpoints and shifts the random stream",
            ),
            (Note(span_of(text, "nn.BatchNorm1d(4)"), "this layer cancels it"),),
        ),
        Finding(
            "TL201",
            item,
            "`loss.item()` waits for the GPU on every step: add up on the device",
            Fix.exact(
                "Add up on the device, convert after the loop",
                (
                    Edit(total, "total = total + loss.detach().double()"),
                    Edit(Span(end, end), "total = float(total)\n"),
                ),
            ),
        ),
        Finding("XY001", Span(0, len("import torch")), "a finding of another pack"),
    ]


def report_of(
    text: str = SCRIPT,
    findings: list[Finding] | None = None,
    path: str = "train.py",
    threshold: Safety = Safety.CLOSE,
) -> Report:
    """Make a report of one file from its text and its findings."""
    source = Source(path, text)
    found = sample_findings(text) if findings is None else findings
    found.sort(key=lambda finding: finding.span)
    entries = tuple(Entry(path, source, each, CARDS[each.code], threshold) for each in found)
    return Report(entries, files=1)
