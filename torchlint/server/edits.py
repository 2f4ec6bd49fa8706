"""Changes of a document as edits of an editor."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from lsprotocol import types

from torchlint.edit import Edit, Span, in_order
from torchlint.server.checked import Checked
from torchlint.server.positions import Positions
from torchlint.source import Source


def workspace_edit(
    checked: Checked, positions: Positions, edits: Iterable[Edit], versioned: bool
) -> types.WorkspaceEdit:
    """Return the edits of one document, bound to its version if `versioned`."""
    made = [types.TextEdit(positions.range(edit.span), edit.text) for edit in in_order(edits)]
    if not versioned:
        return types.WorkspaceEdit(changes={checked.uri: made})
    document = types.OptionalVersionedTextDocumentIdentifier(checked.uri, checked.version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, made)])


def changed_lines(before: Source, after: Source) -> Iterator[Edit]:
    """Yield edits of whole lines that turn one text into another."""
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
