"""A verification as Markdown: for a comment on a pull request, or the summary of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.harness.judging.verdict import Outcome, Report
from torchlint.report.markdown import cell, html
from torchlint.report.summary import plural
from torchlint.report.verification import (
    conditions,
    facts,
    nothing_to_verify,
    shown_outcomes,
    title,
    verdict_text,
)

_COLUMNS: Final = ("speed", "processor time", "numbers", "syncs per step", "waiting for data")
_SIGNS: Final = {"keep": "✅", "revert": "❌", "none": "➖"}


def verification_markdown(report: Report) -> str:
    """Return a table of verdicts, the conditions, and what is doubtful folded below."""
    where, *how = conditions(report)
    lines = [f"### torchlint verify: {cell(report.script)}", ""]
    lines += _table(report) if report.outcomes else [cell(nothing_to_verify(report))]
    lines += ["", "<br>".join(cell(line) for line in (f"Measured {where}", *how)), ""]
    doubts = list(_doubts(report))
    if doubts:
        lines += [f"<details><summary>{plural(len(doubts), 'remark')}</summary>", "", *doubts, ""]
        lines += ["</details>", ""]
    return "\n".join(lines)


def _table(report: Report) -> list[str]:
    outcomes = shown_outcomes(report)
    found = [dict(facts(outcome)) for outcome in outcomes]
    columns = [name for name in _COLUMNS if any(each[name] for each in found)]
    head = ("what", "verdict", *columns)
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for outcome, each in zip(outcomes, found, strict=True):
        verdict = f"{_sign(report, outcome)} {verdict_text(outcome)}"
        texts = (each[name].replace("->", "→") for name in columns)
        rows.append(f"| {' | '.join(map(cell, (title(outcome), verdict, *texts)))} |")
    return rows


def _sign(report: Report, outcome: Outcome) -> str:
    if outcome.decision == "revert" and not report.fails(outcome):
        return _SIGNS["none"]
    return _SIGNS[outcome.decision]


def _doubts(report: Report) -> Iterator[str]:
    for doubt in report.doubts:
        yield f"- {html(f'{doubt.name}: {doubt.message}')}"
    for outcome in shown_outcomes(report):
        for doubt in outcome.doubts:
            yield f"- {html(f'{title(outcome)}: {doubt.name}: {doubt.message}')}"
        for warning in outcome.warnings:
            yield f"- {html(f'{title(outcome)}: new warning: {warning}')}"
