"""The `full` format: each finding with its source, its notes and its fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchlint.report.block import block

if TYPE_CHECKING:
    from torchlint.report.entry import Entry
    from torchlint.report.paint import Paint


def full(entries: Sequence[Entry], paint: Paint) -> str:
    """Return the findings of a file in full, separated by blank lines."""
    return "\n".join("\n".join(block(entry, paint)) + "\n" for entry in entries)
