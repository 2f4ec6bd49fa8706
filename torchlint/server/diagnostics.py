"""Findings as diagnostics of an editor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lsprotocol import types

from torchlint.finding import Finding
from torchlint.report.card import card_of
from torchlint.server.checked import Checked
from torchlint.server.positions import Positions

__all__ = ["NAME", "diagnostic", "diagnostics"]

NAME: Final = "torchlint"
_UNPARSABLE: Final = "TL001"


def diagnostics(checked: Checked, positions: Positions) -> list[types.Diagnostic]:
    """Return a diagnostic per finding."""
    return [diagnostic(finding, checked, positions) for finding in checked.findings]


def diagnostic(finding: Finding, checked: Checked, positions: Positions) -> types.Diagnostic:
    """Return the diagnostic of a finding, with its notes as related places."""
    card = card_of(checked.head(finding.code).load())
    return types.Diagnostic(
        range=positions.range(finding.span),
        message=finding.message,
        severity=_severity(finding.code, finding.impact or card.impact),
        code=finding.code,
        code_description=types.CodeDescription(card.link) if card.link else None,
        source=NAME,
        related_information=list(_related(finding, checked, positions)) or None,
    )


def _severity(code: str, impact: str) -> types.DiagnosticSeverity:
    if code == _UNPARSABLE:
        return types.DiagnosticSeverity.Error
    if impact == "low":
        return types.DiagnosticSeverity.Information
    return types.DiagnosticSeverity.Warning


def _related(
    finding: Finding, checked: Checked, positions: Positions
) -> Iterator[types.DiagnosticRelatedInformation]:
    for note in finding.notes:
        place = types.Location(checked.uri, positions.range(note.span))
        yield types.DiagnosticRelatedInformation(place, note.message)
