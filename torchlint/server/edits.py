"""Changes of a document as an editor makes them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from lsprotocol import types

from torchlint.edit import Edit, Span
from torchlint.server.checked import Checked
from torchlint.server.positions import Positions
from torchlint.source import Source

__all__ = ["changed_lines", "workspace_edit"]


def workspace_edit(
    checked: Checked, positions: Positions, edits: Iterable[Edit], versioned: bool
) -> types.WorkspaceEdit:
    """Give the edits of one document, for the version that they were made for if `versioned`."""
    made = [
        types.TextEdit(positions.range(edit.span), edit.text)
        for edit in sorted(dict.fromkeys(edits), key=lambda edit: edit.span)
    ]
    if not versioned:
        return types.WorkspaceEdit(changes={checked.uri: made})
    document = types.OptionalVersionedTextDocumentIdentifier(checked.uri, checked.version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, made)])


def changed_lines(before: Source, after: Source) -> Iterator[Edit]:
    """Yield edits that make one text of another, whole lines at a time."""
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
