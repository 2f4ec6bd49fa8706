"""The results of the Python API: findings and fixes as plain data with rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchlint.edit import in_order
from torchlint.engine.results import FileResult, FixResult
from torchlint.finding import Finding, Fix, Note
from torchlint.registry import RuleHead
from torchlint.source import Position, Source


@dataclass(frozen=True)
class TextEdit:
    """One replacement: `content` replaces the text between two positions."""

    content: str
    location: Position
    end_location: Position
    cell: int | None = None


@dataclass(frozen=True)
class DiagnosticFix:
    """The fix of a finding: edits that are made together or not at all."""

    title: str
    safety: str
    """`exact`, `close`, `unsafe`, or `show` for a fix that is only shown."""
    because: str
    """Why the fix is not exact; empty if it is."""
    edits: tuple[TextEdit, ...]


@dataclass(frozen=True)
class DiagnosticNote:
    """A second place that belongs to a finding."""

    message: str
    location: Position
    end_location: Position
    cell: int | None = None


@dataclass(frozen=True)
class Diagnostic:
    """One finding. Rows and columns count from 1, in a notebook within the cell."""

    code: str
    name: str
    message: str
    filename: str
    location: Position
    end_location: Position
    fix: DiagnosticFix | None = None
    notes: tuple[DiagnosticNote, ...] = ()
    cell: int | None = None
    """The number of the cell, counted from 1 over all kinds of cells; None in a script."""
    impact: str = ""
    """`high`, `medium` or `low`."""


@dataclass(frozen=True)
class AppliedFix:
    """A fix that was made."""

    code: str
    name: str
    message: str
    """The message of the finding that was fixed."""
    title: str
    safety: str
    because: str


@dataclass(frozen=True)
class FixedSource:
    """A source after its fixes."""

    text: str
    """The whole source; for a notebook its JSON."""
    applied: tuple[AppliedFix, ...]
    remaining: tuple[Diagnostic, ...]
    """The findings of the fixed source."""
    changed: bool


class CheckError(Exception):
    """A rule or a rule pack failed; `errors` has one line for each.

    The results of the other rules are kept: `remaining` has their findings, and after `fix`
    `fixed` has the fixed source.
    """

    def __init__(
        self,
        errors: tuple[str, ...],
        remaining: tuple[Diagnostic, ...] = (),
        fixed: FixedSource | None = None,
    ) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors
        self.remaining = remaining
        self.fixed = fixed


def diagnostics_of(result: FileResult, heads: Mapping[str, RuleHead]) -> tuple[Diagnostic, ...]:
    """Return the findings of a check as diagnostics."""
    if result.source is None:
        return ()
    return tuple(_diagnostic(result.source, finding, heads) for finding in result.findings)


def fixed_of(result: FixResult, heads: Mapping[str, RuleHead]) -> FixedSource:
    """Return the outcome of fixing a source."""
    after = result.after
    return FixedSource(
        after.file_text,
        tuple(
            AppliedFix(
                each.code,
                heads[each.code].name,
                each.message,
                each.fix.title,
                each.fix.safety.word,
                each.fix.because,
            )
            for each in result.applied
            if each.fix is not None
        ),
        tuple(_diagnostic(after, finding, heads) for finding in result.left),
        result.changed,
    )


def _diagnostic(source: Source, finding: Finding, heads: Mapping[str, RuleHead]) -> Diagnostic:
    part = source.part(finding.span)
    return Diagnostic(
        finding.code,
        heads[finding.code].name,
        finding.message,
        source.path,
        part.start,
        part.end,
        None if finding.fix is None else _fix(source, finding.fix),
        tuple(_note(source, note) for note in finding.notes),
        part.cell,
        finding.impact or heads[finding.code].impact,
    )


def _fix(source: Source, fix: Fix) -> DiagnosticFix:
    edits = tuple(
        TextEdit(edit.text, part.position(edit.span.start), part.position(edit.span.end), cell)
        for cell, part, group in source.edits_by_part(fix.edits)
        for edit in in_order(group)
    )
    return DiagnosticFix(fix.title, fix.safety.word, fix.because, edits)


def _note(source: Source, note: Note) -> DiagnosticNote:
    part = source.part(note.span)
    return DiagnosticNote(note.message, part.start, part.end, part.cell)
