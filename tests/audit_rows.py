"""Audits of texts, as the tests of the checklist ask for them."""

from __future__ import annotations

from functools import cache

from torchlint.audit import Row, audit
from torchlint.config import Settings
from torchlint.registry import Registry, load_registry
from torchlint.source import Source

__all__ = ["catalogue", "rows_of"]


@cache
def catalogue() -> Registry:
    """Return the catalogue of rules, read once."""
    return load_registry()


def rows_of(text: str, settings: Settings | None = None) -> dict[str, Row]:
    """Return the rows of a script by technique."""
    done = audit(Source("train.py", text), catalogue(), settings or Settings())
    assert (done.errors, done.warnings) == ((), ())
    return {row.technique: row for row in done.rows}
