"""Removing leftover debugging code, with imports that become unused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Edits, Script

_TOGETHER: Final = 20
"""The maximum number of places that one fix removes, so that imports go with the last."""


class Leftover(NamedTuple):
    """A context manager or a line to remove, and the edits that remove it."""

    gone: cst.WithItem | cst.SimpleStatementLine
    edits: Edits

    @classmethod
    def of(cls, script: Script, gone: cst.WithItem | cst.SimpleStatementLine) -> Leftover | None:
        """Return the edits for a line of its own, or for one context manager of a `with`."""
        rewrite = script.edits
        if isinstance(gone, cst.SimpleStatementLine):
            return cls(gone, rewrite.drop(gone)) if rewrite.stands_alone(gone) else None
        statement = script.tree.parent(gone)
        if not isinstance(statement, cst.With):
            return None
        alone = len(statement.items) == 1
        edits = rewrite.unwrap(statement) if alone else rewrite.without_item(statement, gone)
        return cls(gone, edits) if edits is not None else None


def removal_of(script: Script, place: Leftover, together: Sequence[Leftover]) -> Edits | None:
    """Return the edits that remove a leftover, with imports that become unused.

    One fix removes all leftovers that are the only users of an import. None if an unused import
    could not be removed.
    """
    rewrite = script.edits
    alone = rewrite.without_imports(place.gone)
    if alone is None:
        return None
    if alone:
        return rewrite.united(place.edits, alone)
    shared = rewrite.without_imports(*(each.gone for each in together))
    if not shared or len(together) > _TOGETHER or _nested(script, together):
        return place.edits
    return rewrite.united(*(each.edits for each in together), shared)


def _nested(script: Script, places: Sequence[Leftover]) -> bool:
    """Return whether one of some leftovers is nested in another, or in the same `with`."""
    statements = [script.tree.statement(place.gone) for place in places]
    return any(
        at != other and script.tree.inside(one, statements[other])
        for at, one in enumerate(statements)
        for other in range(len(statements))
    )
