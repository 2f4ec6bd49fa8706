"""The format for people: each finding with its source, its notes and its fix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchlint.report.summary import summary

if TYPE_CHECKING:
    from torchlint.report.paint import Paint
    from torchlint.report.report import Report

__all__ = ["full"]


def full(report: Report, paint: Paint) -> str:
    """Give every finding in full and a last line that says what to do next."""
    return "\n".join([*_blocks(report, paint), *summary(report, paint)])


def _blocks(report: Report, paint: Paint) -> Iterator[str]:
    if report.entries:
        from torchlint.report.block import block

        for entry in report.entries:
            yield "\n".join(block(entry, paint)) + "\n"
