"""Keeping imports during fixes as long as another fix or another file may use them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from torchlint.caching import cached_method
from torchlint.edit import Edit, Span
from torchlint.engine.fixproblem import bound_by, fix_problem, importable
from torchlint.engine.parsing import UnparsableError, syntax_tree
from torchlint.engine.usedelsewhere import UsedElsewhere
from torchlint.finding import Finding
from torchlint.program.outline import imports_in
from torchlint.source import Source

_WORD: Final = re.compile(r"[^\W\d]\w*")


class KeptImports:
    """The edits of fixes without those that remove imports, or imports of given words."""

    def __init__(self, source: Source, words: frozenset[str] | None = None) -> None:
        self.source = source
        self.words = words

    def edits(self, findings: Iterable[Finding]) -> list[Edit]:
        """Return the edits of fixes without removals of imports.

        A fix that only removes imports is returned whole.
        """
        return [edit for each in findings if each.fix for edit in self._of(each.fix.edits)]

    def _of(self, edits: Sequence[Edit]) -> Sequence[Edit]:
        if not any(map(_only_deletes, edits)):
            return edits
        return self.left(edits) or edits

    def left(self, edits: Sequence[Edit]) -> Sequence[Edit]:
        """Return the edits without removals of imports."""
        return [kept for edit in edits for kept in self._kept(edit)]

    def _kept(self, edit: Edit) -> Sequence[Edit]:
        """Return what is left of an edit if the imports that it removes are kept."""
        span = edit.span
        met = [each for each in self._imports if span in each or each in span]
        if not met or not _only_deletes(edit):
            return [edit]
        left = [each for each in self._between(span, met) if not self._is_blank(each)]
        return [edit] if left and edit.text else [Edit(each, "") for each in left]

    def _between(self, span: Span, imports: Sequence[Span]) -> Iterator[Span]:
        """Yield the parts of a span that are on no line of these imports."""
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
        """Return whether a span has no code, only white space and line continuations."""
        return not self.source.text[span.start : span.end].replace("\\", " ").strip()

    @cached_property
    def _imports(self) -> list[Span]:
        """The spans of the import statements, in order."""
        return sorted(
            _span(self.source, node)
            for node in imports_in(syntax_tree(self.source).body)
            if self.words is None or not self.words.isdisjoint(map(bound_by, node.names))
        )


class SharedImports:
    """The imports of one text that fixes must keep, because they are used outside of it.

    Outside are the files that import names from this one, and the magics of a notebook. `tree` is
    the syntax tree of the text, if it is known.
    """

    def __init__(
        self, source: Source, used_elsewhere: UsedElsewhere, tree: ast.Module | None = None
    ) -> None:
        self.source = source
        self.tree = tree
        self.used_elsewhere = used_elsewhere
        self.import_uses: dict[str, bool | None] = {}
        """The names asked about, and whether other files use them (None: unknown)."""

    @cached_method
    def spare(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...] | None:
        """Return the edits of a fix that keep shared imports; None if it cannot be made so."""
        needed = self.needed(edits)
        if not needed:
            return edits
        left = tuple(KeptImports(self.source, needed).left(edits))
        return left if left and not self.needed(left) else None

    def needed(self, edits: Sequence[Edit]) -> frozenset[str]:
        """Return the names used elsewhere whose import the edits would remove or change."""
        if not any(map(self._meets_import, edits)):
            return frozenset()
        try:
            after = self.source.edited(edits)
            now = importable(syntax_tree(after))
        except (ValueError, UnparsableError):
            return frozenset()
        gone = self._importable.keys() - now.keys()
        changed = {
            word for word, things in self._importable.items() if not things <= now.get(word, things)
        }
        return self._of_others(frozenset(gone), frozenset(changed), after)

    def _of_others(
        self, gone: frozenset[str], changed: frozenset[str], after: Source
    ) -> frozenset[str]:
        names = gone | changed
        if not names:
            return names
        answer = self.used_elsewhere(after, names)
        for name in names:
            self.import_uses[name] = None if answer is None else name in answer
        spoken = frozenset(_WORD.findall(after.text)) if after.is_notebook else frozenset[str]()
        return (
            (gone if answer is None else answer)
            | (gone & spoken)
            | (names & self.source.hidden_words)
        )

    def _meets_import(self, edit: Edit) -> bool:
        start, end = edit.span.start, edit.span.end
        return any(start < each.end and each.start < end for each in self._spans)

    @cached_property
    def _tree(self) -> ast.Module:
        return self.tree or syntax_tree(self.source)

    @cached_property
    def _spans(self) -> list[Span]:
        return [_span(self.source, node) for node in imports_in(self._tree.body)]

    @cached_property
    def _importable(self) -> dict[str, set[str]]:
        return importable(self._tree)


def import_cleanup(before: Source, after: Source, used_elsewhere: UsedElsewhere) -> Sequence[Edit]:
    """Return the edits that remove imports of `after` that fixes of `before` made unused."""
    from torchlint.semantic.edits.imports import spare_imports

    edits = spare_imports(before, after)
    needed = SharedImports(after, used_elsewhere).needed(edits)
    if needed:
        edits = spare_imports(before, after, needed)
    if not edits or not after.takes(edits) or fix_problem(after, after.edited(edits), edits):
        return ()
    return edits


def _span(source: Source, node: ast.Import | ast.ImportFrom) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = _offset(source, node.lineno, node.col_offset)
    return Span(start, _offset(source, node.end_lineno, node.end_col_offset))


def _offset(source: Source, row: int, width: int) -> int:
    """Return the offset of a UTF-8 byte column in a line."""
    return source.line_starts[row - 1] + len(source.line(row).encode()[:width].decode())


def _only_deletes(edit: Edit) -> bool:
    """Return whether an edit removes text and inserts no code."""
    lines = edit.text.splitlines()
    return edit.span.start < edit.span.end and not any(
        line.strip() and not line.lstrip().startswith("#") for line in lines
    )
