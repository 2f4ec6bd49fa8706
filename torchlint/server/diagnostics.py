"""Findings as diagnostics of an editor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lsprotocol import types

from torchlint.finding import Finding, Note
from torchlint.registry.selection import values
from torchlint.report.card import Card, card_of
from torchlint.report.entry import severity_of
from torchlint.server.checked import Checked
from torchlint.server.subject import Positions

NAME: Final = "torchlint"
_SEVERITIES: Final = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


def diagnostics(checked: Checked, positions: Positions) -> list[types.PublishDiagnosticsParams]:
    """Return the diagnostics of each document, one per finding."""
    found: dict[str, list[types.Diagnostic]] = defaultdict(list)
    for finding in checked.findings:
        place = positions.place(finding.span)
        found[place.uri].append(diagnostic(finding, checked, positions))
    return [
        types.PublishDiagnosticsParams(document.uri, found[document.uri], document.version)
        for document in checked.subject.documents
    ]


def diagnostic(finding: Finding, checked: Checked, positions: Positions) -> types.Diagnostic:
    """Return the diagnostic of a finding, with its notes as related places."""
    card = card_of(checked.head(finding.code).load())
    return types.Diagnostic(
        range=positions.place(finding.span).range,
        message=finding.message,
        severity=_severity(card, finding.impact or card.impact, checked),
        code=finding.code,
        code_description=types.CodeDescription(card.link) if card.link else None,
        source=NAME,
        related_information=list(_related(finding, positions)) or None,
    )


def _severity(card: Card, impact: str, checked: Checked) -> types.DiagnosticSeverity:
    rules, chosen = checked.rules, checked.settings.severity
    severities = values(rules.known, chosen, rules.groups) if chosen else {}
    return _SEVERITIES[severity_of(impact, severities.get(card.code))]


def _related(
    finding: Finding, positions: Positions
) -> Iterator[types.DiagnosticRelatedInformation]:
    for note in finding.notes:
        yield types.DiagnosticRelatedInformation(_place(note, positions), note.message)


def _place(note: Note, positions: Positions) -> types.Location:
    if not note.path:
        return positions.place(note.span)
    start = types.Position(note.row - 1, 0)
    return types.Location(Path(note.path).absolute().as_uri(), types.Range(start, start))
