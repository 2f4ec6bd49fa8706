"""Imports while a file is fixed: none goes before all fixes are made, for another may use it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from torchlint.edit import Edit, Span
from torchlint.engine.lostimports import imports_of
from torchlint.engine.parsing import syntax_tree
from torchlint.engine.trust import harm
from torchlint.finding import Finding
from torchlint.source import Source

__all__ = ["KeptImports", "tidying"]


class KeptImports:
    """The edits that fixes of one text make while its imports have to stay."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def edits(self, findings: Iterable[Finding]) -> list[Edit]:
        """Give the edits of some fixes without what they take out of imports.

        A fix of which nothing would be left is about the imports themselves, and is given whole.
        """
        return [edit for each in findings if each.fix for edit in self._of(each.fix.edits)]

    def _of(self, edits: Sequence[Edit]) -> Sequence[Edit]:
        if not any(map(_only_deletes, edits)):
            return edits
        return [kept for edit in edits for kept in self._kept(edit)] or edits

    def _kept(self, edit: Edit) -> Sequence[Edit]:
        """Give what is left of an edit when the imports that it takes out, or takes from, stay."""
        span = edit.span
        met = [each for each in self._imports if span in each or each in span]
        if not met or not _only_deletes(edit):
            return [edit]
        left = [each for each in self._between(span, met) if not self._is_blank(each)]
        return [edit] if left and edit.text else [Edit(each, "") for each in left]

    def _between(self, span: Span, imports: Sequence[Span]) -> Iterator[Span]:
        """Yield the parts of a range that belong to no line of some imports."""
        rows, starts = self.source.position, self.source.line_starts
        at = span.start
        for each in imports:
            end = starts[rows(each.start).row - 1]
            if at < end:
                yield Span(at, end)
            row = rows(each.end).row
            at = max(at, starts[row] if row < len(starts) else len(self.source.text))
        if at < span.end:
            yield Span(at, span.end)

    def _is_blank(self, span: Span) -> bool:
        return not self.source.text[span.start : span.end].strip()

    @cached_property
    def _imports(self) -> list[Span]:
        """The statements that import, in their order."""
        return sorted(_span(self.source, node) for node in imports_of(syntax_tree(self.source)))


def tidying(before: Source, after: Source) -> Sequence[Edit]:
    """Give the edits that take out of `after` what nothing uses since it was made of `before`."""
    from torchlint.semantic.imports import spare_imports

    edits = spare_imports(before, after)
    if not edits or not after.takes(edits) or harm(after, after.edited(edits), edits):
        return ()
    return edits


def _span(source: Source, node: ast.Import | ast.ImportFrom) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = _offset(source, node.lineno, node.col_offset)
    return Span(start, _offset(source, node.end_lineno, node.end_col_offset))


def _offset(source: Source, row: int, width: int) -> int:
    """Give the character that follows a number of bytes of a line."""
    return source.line_starts[row - 1] + len(source.line(row).encode()[:width].decode())


def _only_deletes(edit: Edit) -> bool:
    """Whether an edit writes no code in the place of what it takes out."""
    lines = edit.text.splitlines()
    return edit.span.start < edit.span.end and not any(
        line.strip() and not line.lstrip().startswith("#") for line in lines
    )
