"""Changes of documents as edits of an editor."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from lsprotocol import types

from torchlint.edit import Edit, Span, in_order
from torchlint.server.positions import Positions
from torchlint.source import Source

Changes = Iterable[tuple[int | None, Iterable[Edit]]]
"""Edits by the cell that they are in, or None for a script."""


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
