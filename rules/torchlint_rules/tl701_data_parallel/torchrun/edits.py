"""Edits of a script: lines before, after, above and around statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from torchlint.api import Edit, Edits, Script, Span
from torchlint_rules.tl701_data_parallel.torchrun.shape import Shape


@dataclass
class Writer:
    """Collects the edits of one part of the rewrite."""

    script: Script
    shape: Shape
    edits: list[Edit] = field(default_factory=list)

    def lines(self, *lines: str) -> list[str]:
        """Indent lines that are written with tabs by the unit of the file."""
        return [line.replace("\t", self.script.edits.unit()) for line in lines]

    def before(self, statement: cst.CSTNode, *lines: str) -> None:
        """Insert lines before a statement."""
        self.edits += self.script.edits.before(statement, *self.lines(*lines))

    def after(self, statement: cst.CSTNode, *lines: str) -> None:
        """Insert lines after a statement."""
        self.edits += self.script.edits.after(statement, *self.lines(*lines))

    def above(self, statement: cst.CSTNode, *lines: str) -> None:
        """Insert lines above a statement and its comments."""
        rewrite = self.script.edits
        indent = rewrite.indent_of(statement)
        text = "".join(f"{indent}{line}{rewrite.newline}" for line in self.lines(*lines))
        self.edits += rewrite.insert(rewrite.above(statement), text)

    def under(self, statement: cst.CSTNode, *header: str) -> None:
        """Indent a statement under the last of some header lines."""
        rewrite = self.script.edits
        indent = rewrite.indent_of(statement)
        lines = f"{rewrite.newline}{indent}".join(self.lines(*header))
        self.edits += rewrite.wrap([statement], lines)


def merged(edits: Sequence[Edit]) -> Edits:
    """Merge all insertions at one place into one edit, in the order in which they were added."""
    texts: dict[Span, list[str]] = {}
    for edit in dict.fromkeys(edits):
        texts.setdefault(edit.span, []).append(edit.text)
    return tuple(Edit(span, "".join(parts)) for span, parts in texts.items())
