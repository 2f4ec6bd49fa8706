"""The part of a finding that is about the file itself: linked code has its own turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchlint.finding import Finding, Note

if TYPE_CHECKING:
    from torchlint.semantic.script import Script


def own_part(finding: Finding, script: Script) -> Finding | None:
    """Return a finding without a fix of linked code, None if it stands in linked code.

    Notes about linked code become notes about other files.
    """
    end = len(script.source.text)
    fix = finding.fix
    edits = fix.edits if fix is not None else ()
    places = [finding.span, *(edit.span for edit in edits), *(note.span for note in finding.notes)]
    if all(span.end <= end for span in places):
        return finding
    if finding.span.end > end:
        return None
    if any(edit.span.end > end for edit in edits):
        fix = None
    return replace(finding, fix=fix, notes=tuple(_notes(finding, script, end)))


def _notes(finding: Finding, script: Script, end: int) -> Iterator[Note]:
    for note in finding.notes:
        if note.span.end <= end:
            yield note
        else:
            place = script.tree.place_at(note.span.start)
            path = as_given(place.path, script.tree.view.path, script.source.path)
            yield Note.elsewhere(note.message, path, place.row)


def as_given(path: str, own: str, given: str) -> str:
    """Return a path of the project relative to the folder that the file was given from.

    `own` is the path of the file in the project, `given` that on the command line.
    """
    beside = os.path.relpath(path, os.path.dirname(own) or ".")  # noqa: PTH120
    return os.path.normpath(os.path.join(os.path.dirname(given), beside))  # noqa: PTH118, PTH120
