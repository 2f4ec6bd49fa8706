"""A verification as one self-contained page of HTML."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from torchlint import __version__
from torchlint.harness.judging.anatomy import Step
from torchlint.harness.judging.verdict import Outcome, Report, Verdict
from torchlint.harness.plan import Variant
from torchlint.report.htmlcharts import Chart, losses, one_step, step_times
from torchlint.report.paint import Paint
from torchlint.report.text import printable
from torchlint.report.unified import diff_lines
from torchlint.report.verification import (
    changed_files,
    conditions,
    facts,
    nothing_to_verify,
    shown_outcomes,
    sites,
    time_text,
    verdict_text,
)
from torchlint.source import Source

_PLAIN: Final = Paint()
_TONES: Final = {
    Verdict.FASTER: "good",
    Verdict.SAME: "same",
    Verdict.SLOWER: "bad",
    Verdict.DIFFERENT: "bad",
    Verdict.UNSURE: "open",
}
_KINDS: Final = {
    "all": "all fixes together",
    "kept": "kept fixes together",
    "tree": "the working tree",
}
_LONG: Final = "because"
"""The fact that is shown in a fix's section, since the table has no room for it."""
_CLASSES: Final = {"+": "added", "-": "removed", "@": "hunk", "\\": "hunk"}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a diff and its kind."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Part:
    """The share of a phase in a step, for both sides, as text."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Section:
    """One variant: its row in the table and its section."""

    key: str
    title: str
    codes: str
    verdict: str
    decision: str
    tone: str
    safety: str
    facts: dict[str, str]
    sites: tuple[str, ...]
    warnings: tuple[str, ...]
    doubts: tuple[str, ...]
    charts: list[Chart]
    parts: list[_Part]
    diff: list[_Line]
    shown: bool
    """Whether the section is open at first."""


def verification_html(report: Report) -> str:
    """Return the report as a page; the files must not have changed since the verification."""
    environment = Environment(
        loader=PackageLoader("torchlint.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections, after = _sections(report), ("--", *report.args) if report.args else ()
    return environment.get_template("verification.html").render(
        report=report,
        command=shlex.join(["torchlint", "verify", report.script, *after]),
        conditions=conditions(report),
        sections=sections,
        labels=_labels(sections),
        versions=f"Python {platform.python_version()}, torchlint {__version__}",
        verdicts=_summary(report),
        nothing=nothing_to_verify(report),
    )


def _visible(value: object) -> object:
    """Return text from outside with everything invisible escaped."""
    return printable(value) if type(value) is str else value


def _summary(report: Report) -> str:
    """Return the number of fixes by verdict, that of all together where none was tested alone."""
    alone = [outcome for outcome in report.outcomes if outcome.variant.kind == "rule"]
    verdicts = [outcome.verdict for outcome in alone or report.outcomes]
    return ", ".join(f"{verdicts.count(each)} {each.value}" for each in Verdict if each in verdicts)


def _sections(report: Report) -> list[_Section]:
    """Return the variants in order; the most important one is open."""
    outcomes = shown_outcomes(report)
    kinds = [outcome.variant.kind for outcome in outcomes]
    shown = next((kinds.index(kind) for kind in ("kept", "all") if kind in kinds), 0)
    return [
        _section(report, outcome, str(number), number == shown)
        for number, outcome in enumerate(outcomes)
    ]


def _labels(sections: list[_Section]) -> list[str]:
    """Return the facts that any variant has, for the columns of the table."""
    labels = [label for section in sections for label, text in section.facts.items() if text]
    return [label for label in dict.fromkeys(labels) if label != _LONG]


def _section(report: Report, outcome: Outcome, key: str, shown: bool) -> _Section:
    variant = outcome.variant
    codes = " ".join(variant.codes)
    charts = (
        step_times(outcome.before, outcome.after, "run" if report.whole else "step"),
        losses(outcome.before, outcome.after),
        one_step(outcome.before.step, outcome.after.step),
    )
    return _Section(
        key=key,
        title=_KINDS.get(variant.kind, codes),
        codes=codes,
        verdict=outcome.verdict.value,
        decision=verdict_text(outcome),
        tone=_TONES[outcome.verdict],
        safety=variant.safety.word,
        facts=dict(facts(outcome)),
        sites=sites(outcome),
        warnings=outcome.warnings,
        doubts=tuple(f"{doubt.name}: {doubt.message}" for doubt in outcome.doubts),
        charts=[chart for chart in charts if chart is not None],
        parts=_parts(outcome.before.step, outcome.after.step),
        diff=list(_diff(report, variant)),
        shown=shown,
    )


def _parts(before: Step | None, after: Step | None) -> list[_Part]:
    sides = [dict(step.means) if step else {} for step in (before, after)]
    return [_Part(name, *(_spent(side, name) for side in sides)) for name in (sides[0] or sides[1])]


def _spent(means: dict[str, float], name: str) -> str:
    whole = sum(means.values())
    return f"{time_text(means[name])} ({means[name] / whole:.0%})" if whole else ""


def _diff(report: Report, variant: Variant) -> Iterator[_Line]:
    """Return the changes of the variant, by file."""
    for file in changed_files(report, variant):
        content = Path(file).read_bytes() if Path(file).is_file() else b""
        source = Source.from_bytes(content, relpath(file))
        before, after = (_side(source, file, side) for side in (report.before, variant))
        for at, line in enumerate(diff_lines(before, after, _PLAIN)):
            yield _Line("file" if at < 2 else _CLASSES.get(line[:1], "context"), line)


def _side(source: Source, file: str, variant: Variant) -> Source:
    """Return a file as a variant has it; `source` is the one on disk."""
    if file in variant.absent:
        return source.with_text("")
    return source.with_text(variant.texts[file]) if file in variant.texts else source
