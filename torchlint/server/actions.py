"""Code actions: quick fixes, suppression comments, and all safe fixes at once."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lsprotocol import types

from torchlint.edit import Edit, Span, in_order
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.registry.selection import values
from torchlint.report.card import Card, card_of
from torchlint.report.entry import severity_of
from torchlint.server.checked import Checked
from torchlint.server.subject import Positions
from torchlint.source import Source

FIX_ALL: Final = "source.fixAll.torchlint"
Changes = Iterable[tuple[int | None, Iterable[Edit]]]
"""Edits by the cell that they are in, or None for a script."""
NAME: Final = "torchlint"
_SEVERITIES: Final = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


@dataclass(frozen=True)
class Actions:
    """The code actions for one version of a script or notebook.

    `versioned` says whether the editor accepts edits for a version, and `resolves` whether it
    asks for the edits of an action only when that was chosen.
    """

    checked: Checked
    positions: Positions
    versioned: bool
    resolves: bool

    def offered(self, params: types.CodeActionParams) -> Iterator[types.CodeAction]:
        """Yield the actions for a range, of the requested kinds."""
        only = params.context.only
        if _wanted(types.CodeActionKind.QuickFix.value, only):
            span = self.positions.span(params.text_document.uri, params.range)
            near = [] if span is None else self.checked.near(span)
            yield from (self._fix(finding) for finding in near if self.checked.is_sound(finding))
            yield from self._silencing(near)
        if _wanted(FIX_ALL, only) and self.checked.has_safe_fixes():
            yield self._fix_all()

    def edit_of_all(self) -> types.WorkspaceEdit:
        """Return the edits of all safe fixes."""
        edits = changed_lines(self.checked.source, self.checked.fixed())
        return workspace_edit(self.positions, edits, self.versioned)

    def _fix(self, finding: Finding) -> types.CodeAction:
        fix = finding.fix
        assert fix is not None
        return types.CodeAction(
            title=f"{fix.title} ({finding.code}, {_safety(fix)})",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[diagnostic(finding, self.checked, self.positions)],
            is_preferred=fix.safety >= Safety.CLOSE or None,
            edit=workspace_edit(
                self.positions, edits_of(self.checked.source, fix.edits), self.versioned
            ),
        )

    def _silencing(self, findings: Iterable[Finding]) -> Iterator[types.CodeAction]:
        position = self.checked.source.position
        by_line = {(each.code, position(each.span.start).row): each for each in findings}
        for finding in by_line.values():
            after = self.checked.silenced(finding)
            if after is None:
                continue
            edits = changed_lines(self.checked.source, after)
            yield types.CodeAction(
                title=f"Ignore {finding.code} here",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[diagnostic(finding, self.checked, self.positions)],
                edit=workspace_edit(self.positions, edits, self.versioned),
            )

    def _fix_all(self) -> types.CodeAction:
        action = types.CodeAction(title="Apply all safe torchlint fixes", kind=FIX_ALL)
        subject = self.checked.subject
        if self.resolves:
            action.data = {"uri": subject.uri, "versions": subject.versions}
        else:
            action.edit = self.edit_of_all()
        return action


def _wanted(kind: str, only: Iterable[str] | None) -> bool:
    """Return whether actions of a kind were requested; `source` requests `source.fixAll` too."""
    return only is None or any(f"{kind}.".startswith(f"{each}.") for each in map(_text, only))


def _text(kind: types.CodeActionKind | str) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind


def _safety(fix: Fix) -> str:
    return f"{fix.safety.word}: {fix.because}" if fix.because else fix.safety.word


def workspace_edit(positions: Positions, changes: Changes, versioned: bool) -> types.WorkspaceEdit:
    """Return edits of the open documents, bound to their versions if `versioned`."""
    made = {
        positions.subject.document(cell): [
            types.TextEdit(positions.range_in(cell, edit.span), edit.text)
            for edit in in_order(edits)
        ]
        for cell, edits in changes
    }
    if not versioned:
        return types.WorkspaceEdit(changes={each.uri: edits for each, edits in made.items()})
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(each.uri, each.version), [*edits]
            )
            for each, edits in made.items()
        ]
    )


def edits_of(source: Source, edits: Iterable[Edit]) -> Changes:
    """Return edits of a text by the cells that they are in."""
    return [(cell, own) for cell, _, own in source.edits_by_part(edits)]


def changed_lines(before: Source, after: Source) -> Changes:
    """Return edits of whole lines that turn one text into another."""
    pairs = zip(before.parts(), after.parts(), strict=True)
    found = ((cell, tuple(_changed_lines(old, new))) for (cell, old), (_, new) in pairs)
    return [(cell, edits) for cell, edits in found if edits]


def _changed_lines(before: Source, after: Source) -> Iterator[Edit]:
    old, new = _lines(before), _lines(after)
    starts = [*before.line_starts, len(before.text)]
    for tag, first, last, at, end in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            yield Edit(Span(starts[first], starts[last]), "".join(new[at:end]))


def _lines(source: Source) -> list[str]:
    ends = [*source.line_starts[1:], len(source.text)]
    return [source.text[a:b] for a, b in zip(source.line_starts, ends, strict=True)]


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
