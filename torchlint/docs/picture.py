"""The picture of the README: what `torchlint check` prints, as an SVG for light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Final

from torchlint.config import Settings
from torchlint.engine.checking import check_source
from torchlint.registry import load_registry
from torchlint.report.card import brief_card
from torchlint.report.entry import Entry
from torchlint.report.formats import render
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.source import Source
from torchlint.testing.checkout import Checkout

_SCRIPT: Final = "fixtures/readme/train.py"
_SELECT: Final = ("TL201", "TL601")
_COLUMNS: Final = 96
_CHARACTER: Final = 7.8
_LINE: Final = 18
_MARGIN: Final = 16
_STYLED: Final = re.compile(r"\x1b\[([0-9;]*)m")
_CLASSES: Final = {"1": "bold", "2": "dim", "31": "red", "32": "green", "35": "magenta"}
_STYLE: Final = """\
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
            _STYLE,
            f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1}" rx="6"/>',
            *(_text(line, row) for row, line in enumerate(lines) if line),
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


def _text(line: str, row: int) -> str:
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
