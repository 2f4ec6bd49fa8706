"""Taking out what was left on, with the imports that nothing else needs."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from torchlint.api import Edits, Record, Script

__all__ = ["Leftover", "taken_out"]


class Leftover(Record):
    """A context or a line that goes, and the edits that take it out."""

    gone: cst.WithItem | cst.SimpleStatementLine
    edits: Edits

    @classmethod
    def of(cls, script: Script, gone: cst.WithItem | cst.SimpleStatementLine) -> Leftover | None:
        """Give the edits for a line that stands alone, or for one of the contexts of a `with`."""
        rewrite = script.rewrite
        if isinstance(gone, cst.SimpleStatementLine):
            return cls(gone, rewrite.drop(gone)) if rewrite.stands_alone(gone) else None
        statement = script.parent(gone)
        if not isinstance(statement, cst.With):
            return None
        alone = len(statement.items) == 1
        edits = rewrite.unwrap(statement) if alone else rewrite.without_item(statement, gone)
        return cls(gone, edits) if edits is not None else None


def taken_out(script: Script, place: Leftover, together: Sequence[Leftover]) -> Edits | None:
    """Take a leftover out, with the imports that nothing else needs.

    Leftovers that share an import as its only users go in one fix. None where an import that
    would be left over cannot be taken out.
    """
    rewrite = script.rewrite
    alone = rewrite.without_imports(place.gone)
    if alone is None:
        return None
    if alone:
        return rewrite.united(place.edits, alone)
    shared = rewrite.without_imports(*(each.gone for each in together))
    if not shared or _nested(script, together):
        return place.edits
    return rewrite.united(*(each.edits for each in together), shared)


def _nested(script: Script, places: Sequence[Leftover]) -> bool:
    """Whether one of some leftovers stands in the body of another, or beside it."""
    statements = [script.statement(place.gone) for place in places]
    return any(
        at != other and script.tree.inside(one, statements[other])
        for at, one in enumerate(statements)
        for other in range(len(statements))
    )
