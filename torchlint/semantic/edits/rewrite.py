"""Edits of nodes: keywords, imports, statements and blocks, with their layout kept."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.edit import Edit, Span, joined
from torchlint.semantic.edits.expressionedits import Edits, ExpressionEdits
from torchlint.semantic.scope.scopes import Binding, How, Scopes, dotted
from torchlint.semantic.syntax.oneline import comments_of
from torchlint.semantic.syntax.tree import Tree
from torchlint.source import Source

__all__ = ["Edits", "Rewrite"]

_INDENT: Final = "    "
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_HEADER: Final = re.compile(r"(?:[^#:]|#[^\r\n]*(?![^\r\n]))*:")
_STOP: Final = re.compile(r"(?:(?:[ \t\f]|\\(?:\r\n|\n|\r))*;)?(?:[ \t\f]*\\(?:\r\n|\n|\r))*")
"""The end of a statement: a semicolon, or backslashes that join it to blank lines."""


class Rewrite(ExpressionEdits):
    """Makes the edits of fixes; every method keeps comments and layout."""

    def __init__(self, source: Source, tree: Tree, scopes: Scopes) -> None:
        super().__init__(source, tree)
        self.scopes = scopes

    # -- imports --------------------------------------------------------------

    def importing(
        self,
        module: str,
        name: str | None = None,
        alias: str = "",
        *,
        at: cst.CSTNode | None = None,
    ) -> tuple[str, Edits] | None:
        """Return the spelling of a module (or a name of it) and the edits that import it.

        `alias` is the name to import the module under if the file does not import it yet.
        `at` is the first node that will use it, by default the first code of the file: existing
        imports count only above it, and a new one is put above it.

        None if the file uses the name for something else.
        """
        wanted = f"{module}.{name}" if name else module
        for bound in self.scopes.imports.get(wanted, ()):
            if any(self._is_above(each.node, at) for each in self.scopes.module.bindings[bound]):
                return bound, ()
        word = alias or name or module.partition(".")[0]
        meaning = wanted if alias or name else word
        bound_here = self.scopes.module.bindings.get(word, [])
        if any(b.how is not How.IMPORT or b.qualified != meaning for b in bound_here):
            return None
        line = f"from {module} import {name}" if name else f"import {module}"
        if alias:
            line = f"{line} as {alias}"
        place = self._import_place(module, at)
        return alias or name or module, self.insert(place, f"{line}{self.newline}")

    def importing_names(
        self, module: str, *names: str, at: cst.CSTNode | None = None
    ) -> tuple[tuple[str, ...], Edits] | None:
        """Return the spellings of names of a module and the edits that import them.

        Names are added to an existing import of the module above `at` if there is one.
        """
        line = self._import_line(module, at)
        words: list[str] = []
        edits: Edits = ()
        missing: list[str] = []
        for name in names:
            found = self.importing(module, name, at=at)
            if found is None:
                return None
            words.append(found[0])
            if found[1] and line is not None:
                missing.append(name)
            else:
                edits = (*edits, *found[1])
        return tuple(words), (*edits, *(self._added_names(line, missing) if line else ()))

    def _import_line(self, module: str, at: cst.CSTNode | None) -> cst.ImportFrom | None:
        """Return the first `from module import …` above a place that can take more names."""
        for line in self.tree.all(cst.ImportFrom):
            named = line.module is not None and dotted(line.module) == module and not line.relative
            if named and not isinstance(line.names, cst.ImportStar) and self._is_above(line, at):
                return line
        return None

    def _added_names(self, line: cst.ImportFrom, names: Sequence[str]) -> Edits:
        """Add names to an import at their places in its sort order."""
        assert not isinstance(line.names, cst.ImportStar)
        known = [alias.evaluated_name for alias in line.names]
        spans = [self.tree.span(alias) for alias in line.names]
        in_order = known == sorted(known)
        first: list[str] = []
        edits: Edits = ()
        for name in sorted(names):
            behind = [at for at, other in enumerate(known) if other < name or not in_order]
            if not behind:
                first.append(name)
                continue
            gap = self._name_gap(spans[behind[-1]].start)
            last = line.names[behind[-1]]
            end = self.tree.span(last.asname.name if last.asname else last.name).end
            edits = (*edits, *self.insert(end, f",{gap}{name}"))
        gap = self._name_gap(spans[0].start)
        return (*self.insert(spans[0].start, "".join(f"{n},{gap}" for n in first)), *edits)[
            0 if first else 1 :
        ]

    def _name_gap(self, offset: int) -> str:
        """Return the separator of an import's names: a line break if each has its own line."""
        line = self.line_start(offset)
        white = self.text[line:offset]
        return " " if white.strip() else f"{self.newline}{white}"

    @cached_method
    def without_imports(self, *gone: cst.CSTNode) -> Edits | None:
        """Remove the imports that only the nodes in `gone` use.

        None if such an import cannot be removed: it shares its line with other statements or
        stands in a `try`.
        """
        return self._cut_imports(gone)

    def _cut_imports(self, gone: Sequence[cst.CSTNode]) -> Edits | None:
        edits: Edits = ()
        roots = [name for node in gone for name in self.tree.within(node, cst.Name)]
        within = frozenset(map(id, roots))
        lines: dict[int, list[Binding]] = {}
        for root in roots:
            binding = self.scopes.only(root)
            if binding.how is not How.IMPORT:
                continue
            if not self.tree.is_own(binding.node):  # behind an import of another module
                continue
            known = lines.setdefault(id(binding.node), [])
            if binding not in known and not self.scopes.used_outside(binding, within):
                known.append(binding)
        for unused in lines.values():
            cut = self.without_import(unused) if unused else ()
            if cut is None:
                return None
            edits = (*edits, *cut)
        return edits

    def without_import(self, unused: Sequence[Binding]) -> Edits | None:
        """Remove some names from the import that binds them."""
        node = unused[0].node
        line = self.tree.parent(node)
        if not isinstance(node, (cst.Import, cst.ImportFrom)) or isinstance(
            node.names, cst.ImportStar
        ):
            return None
        if not isinstance(line, cst.SimpleStatementLine) or not self.stands_alone(line):
            return None
        if any(isinstance(outer, cst.Try) for outer in self.tree.ancestors(line)):
            return None
        words = [alias.evaluated_alias or alias.evaluated_name for alias in node.names]
        firsts = [word.partition(".")[0] for word in words]
        if len(unused) == len(node.names):
            return self.drop(line)
        if any(firsts.count(binding.name) != 1 for binding in unused):
            return None
        gone = {firsts.index(binding.name) for binding in unused}
        if len(gone) == len(node.names):  # a name can be bound twice: by an import, and by a star
            return self.drop(line)
        spans = []
        for alias in node.names:
            last = alias.asname.name if alias.asname is not None else alias.name
            spans.append(Span(self.tree.span(alias.name).start, self.tree.span(last).end))
        return self._without_all(spans, gone)

    def _is_above(self, node: cst.CSTNode, at: cst.CSTNode | None) -> bool:
        """Return whether an import has always run before a node, by default the first code."""
        line = self.tree.parent(node)
        if line is None or self.tree.parent(line) is not self.tree.module:
            return False
        place = self.tree.span(at).start if at is not None else self._first_code
        return self.tree.span(node).end <= place

    @cached_property
    def _first_code(self) -> int:
        """The offset of the first statement that is neither an import nor a constant."""
        for line in self.tree.module.body:
            small = line.body if isinstance(line, cst.SimpleStatementLine) else [line]
            if not all(isinstance(each, _PRELUDE) or _is_constant(each) for each in small):
                return self.tree.span(line).start
        return len(self.text)

    def _import_place(self, module: str, at: cst.CSTNode | None) -> int:
        """Return where a new import goes: first, or behind its parent package's import."""
        package, _, part = module.partition(".")
        for whole in self.tree.all(cst.Import) if part else ():
            line = self.tree.statement(whole)
            if self._is_above(whole, at) and self.stands_alone(line):
                if any(dotted(alias.name) == package for alias in whole.names):
                    return self.after_line(self.tree.span(line).end)
        if self.source.is_notebook and at is not None:
            return self._notebook_place(at)
        return self._head_place(self.tree.module.body)

    def _notebook_place(self, at: cst.CSTNode) -> int:
        """Return the first import above a node, or the first code of the node's cell."""
        for line in self.tree.module.body:
            small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
            if isinstance(small, (cst.Import, cst.ImportFrom)) and self._is_above(small, at):
                if not (isinstance(small, cst.ImportFrom) and _is_future(small)):
                    return self.line_start(self.tree.span(line).start)
        start = self.source.part_start(self.tree.span(at).start)
        cell = [line for line in self.tree.module.body if self.tree.span(line).start >= start]
        return self._head_place(cell)

    def _head_place(self, body: Sequence[cst.BaseStatement | cst.BaseSmallStatement]) -> int:
        """Return where the first import of some lines goes: behind docstring and `__future__`."""
        first = 0
        for index, line in enumerate(body):
            together = line.body if isinstance(line, cst.SimpleStatementLine) else (None,)
            small = together[0]
            if isinstance(small, cst.ImportFrom) and _is_future(small):
                first = index + 1
                continue
            if isinstance(small, (cst.Import, cst.ImportFrom)):
                return self.line_start(self.tree.span(line).start)
            if isinstance(small, cst.Expr) and isinstance(small.value, cst.Integer):
                if len(together) > 1:
                    break
                first = index + 1
                continue
            docstring = isinstance(small, cst.Expr) and isinstance(
                small.value, (cst.SimpleString, cst.ConcatenatedString)
            )
            if not docstring or index:
                break
            first = index + 1
        if first < len(body):
            return self.line_start(self.start_of(body[first]))
        return self.after_line(self.tree.span(body[-1]).end) if body else len(self.text)

    # -- statements -----------------------------------------------------------

    def before(self, statement: cst.CSTNode, *lines: str) -> Edits:
        """Insert lines before a statement, with its indentation."""
        start = self.start_of(statement)
        indent = self.indent_of(statement)
        text = "".join(f"{indent}{line}{self.newline}" for line in lines)
        return self.insert(self.line_start(start), text)

    def decorate(self, function: cst.FunctionDef, decorator: str) -> Edits:
        """Put a decorator directly above `def`, below the decorators that are there."""
        text = f"{self.indent_of(function)}@{decorator}{self.newline}"
        return self.insert(self.line_start(self.tree.span(function).start), text)

    def after(self, statement: cst.CSTNode, *lines: str) -> Edits:
        """Insert lines behind a statement and its comments, with its indentation."""
        indent = self.indent_of(statement)
        end = self._end_with_comments(self.tree.span(statement).end, indent)
        place = self.after_line(end)
        if self.line_end(end) == len(self.text):
            text = "".join(f"{self.newline}{indent}{line}" for line in lines)
            return self.insert(len(self.text), text)
        return self.insert(place, "".join(f"{indent}{line}{self.newline}" for line in lines))

    def _end_with_comments(self, end: int, indent: str) -> int:
        """Return the end of a statement, with comment lines indented like its body."""
        at = self.after_line(end)
        while at < len(self.text):
            line = self.text[at : self.line_end(at)]
            white = line[: len(line) - len(line.lstrip())]
            if line.strip() and not (line.lstrip().startswith("#") and len(white) > len(indent)):
                break
            if line.strip():
                end = at + len(line)
            at = self.after_line(at + len(line))
        return end

    def first_in(self, block: cst.BaseSuite, *lines: str) -> Edits | None:
        """Insert lines at the head of a block, behind its docstring; None for a one-line suite."""
        if not isinstance(block, cst.IndentedBlock):
            return None
        head = block.body[0]
        small = head.body[0] if isinstance(head, cst.SimpleStatementLine) else None
        if (
            isinstance(self.tree.parent(block), cst.FunctionDef)
            and isinstance(small, cst.Expr)
            and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))
        ):
            return self.after(head, *lines)
        return self.before(head, *lines)

    def drop(self, statement: cst.BaseStatement) -> Edits:
        """Remove a statement; its comments stay, an emptied block gets `pass`, an `else:` goes."""
        return self._dropped(statement, is_emptied=self._is_all([statement]))

    def _is_all(self, statements: Sequence[cst.BaseStatement]) -> bool:
        """Return whether statements of one block are the whole block."""
        block = self.tree.parent(statements[0])
        return isinstance(block, cst.IndentedBlock) and len(block.body) == len(statements)

    def _dropped(self, statement: cst.BaseStatement, *, is_emptied: bool) -> Edits:
        span = Span(self.start_of(statement), self.tree.span(statement).end)
        stop = self._stop(span.end)
        tail = self.text[stop : self.line_end(stop)]
        end = stop + len(tail) - len(tail.lstrip())
        left = comments_of(self.text[span.start : span.end])
        if is_emptied and (whole := self._emptied_else(statement)) is not None:
            return whole
        if is_emptied:
            left, end = [*left, "pass"], stop
        elif left:
            left, end = ([*left, ""], end) if tail.strip() else (left, stop)
        elif not tail.strip():
            return self._without_lines(statement, self.line_start(span.start))
        text = f"{self.newline}{self.indent_of(statement)}".join(left)
        return (Edit(Span(span.start, end), text),)

    def _emptied_else(self, last: cst.BaseStatement) -> Edits | None:
        """Remove the `else:` whose last statement goes, None for another block or a comment."""
        block = self.tree.parent(last)
        branch = self.tree.parent(block)
        if not isinstance(branch, cst.Else):
            return None
        start = self.line_start(self.tree.span(branch).start)
        end = self.after_line(self._stop(self.tree.span(last).end))
        return None if "#" in self.text[start:end] else self.delete(start, end)

    def _stop(self, end: int) -> int:
        """Return the end of a statement, its terminator included."""
        found = _STOP.match(self.text, end)
        return found.end() if found else end

    def _without_lines(self, statement: cst.CSTNode, start: int) -> Edits:
        """Remove the lines from an offset to the end of a statement."""
        block = self.tree.parent(statement)
        end = self.after_line(self._stop(self.tree.span(statement).end))
        above, below = self._blank_above(start), self._blank_below(end)
        if start - above and below - end:
            return self.delete(*((above, end) if start - above < below - end else (start, below)))
        first = isinstance(block, cst.IndentedBlock) and block.body[0] is statement
        return self.delete(start, below if first else end)

    def moved(
        self, statement: cst.CSTNode, place: cst.CSTNode, *, behind: bool, text: str | None = None
    ) -> Edits | None:
        """Move a statement, with the comments directly above it, before or behind another one.

        `text` replaces the statement if given. None if it is the whole block, is already there, has
        lines that cannot be reindented, or has comments that `text` would lose.
        """
        block = self.tree.parent(statement)
        if not isinstance(block, (cst.IndentedBlock, cst.Module)) or len(block.body) == 1:
            return None
        couple = [place, statement] if behind else [statement, place]
        if text is None and any(list(pair) == couple for pair in pairwise(block.body)):
            return None
        span = Span(self.start_of(statement), self.tree.span(statement).end)
        indent = self.indent_of(statement)
        if text is not None and comments_of(self.text[span.start : span.end]):
            return None
        start = self.line_start(span.start)
        while start and self._is_comment(self.line_start(start - 1), indent):
            start = self.line_start(start - 1)
        code = self.text[span.start : span.end] if text is None else text
        tail = self.text[span.end : self.line_end(span.end)]
        whole = f"{self.text[start : span.start]}{code}{tail}"
        lines = _LINE_END.split(whole)
        if any(line.strip() and not line.startswith(indent) for line in lines):
            return None
        put = self.after if behind else self.before
        added = put(place, *(line[len(indent) :] for line in lines))
        return self.united(self._without_lines(statement, start), added)

    def _is_comment(self, line: int, indent: str) -> bool:
        """Return whether a line holds only a comment with this indentation."""
        return self.text.startswith(f"{indent}#", line)

    def drop_all(self, statements: Sequence[cst.BaseStatement]) -> Edits:
        """Remove statements that have their lines to themselves, merging the gaps around them.

        Their comments stay, an emptied block gets `pass`, an `else:` goes.
        """
        blocks: dict[int, list[cst.BaseStatement]] = {}
        for statement in dict.fromkeys(statements):
            blocks.setdefault(id(self.tree.parent(statement)), []).append(statement)
        last_of_all = [members[-1] for members in blocks.values() if self._is_all(members)]
        parts = [
            self._dropped(statement, is_emptied=statement in last_of_all)
            for members in blocks.values()
            for statement in members
        ]
        lines = sorted({edit for part in parts for edit in part})
        for first, last in _runs(lines, self.text):
            below = self._blank_below(last)
            if first - self._blank_above(first) and below - last:
                parts.append(self.delete(last, below))
        return self.united(*parts)

    def _blank_above(self, start: int) -> int:
        """Return where the blank lines above a line begin."""
        while start:
            previous = self.line_start(start - 1)
            if self.text[previous:start].strip():
                break
            start = previous
        return start

    def _blank_below(self, end: int) -> int:
        """Return where the blank lines below a line end."""
        while end < len(self.text) and not self.text[end : self.after_line(end)].strip():
            end = self.after_line(end)
        return end

    # -- blocks ---------------------------------------------------------------

    def unit(self) -> str:
        """Return one level of indentation of this file."""
        return self.tree.module.default_indent or _INDENT

    def wrap(self, statements: Sequence[cst.CSTNode], header: str, inside: Edits = ()) -> Edits:
        """Put neighbouring statements under a new header line (`with torch.no_grad():`).

        `inside` are edits within these statements that are made as well.
        """
        start = self.line_start(self.start_of(statements[0]))
        indent = self.indent_of(statements[0])
        end = self._end_with_comments(self.tree.span(statements[-1]).end, indent)
        rows = self._rows(start, end, statements)
        first = f"{header}{self.newline}{indent}{self.unit()}"
        edits = self.insert(start + len(indent), first)
        for row in rows:
            if row != start:
                edits += self.insert(row + self._shared(row, indent), self.unit())
        return joined(self.text, edits + inside)

    def unwrap(self, statement: cst.With) -> Edits | None:
        """Remove the header of a `with` and dedent its body.

        None for a one-line suite and for a header with comments between its lines.
        """
        block = statement.body
        if not isinstance(block, cst.IndentedBlock):
            return None
        span = self.tree.span(statement)
        colon = self._header_end(statement)
        header = self.text[span.start : colon]
        if "#" in header and "\n" in header.replace("\r", "\n"):
            return None
        indent = self.indent_of(statement)
        depth = len(self.indent_of(block.body[0])) - len(indent)
        comment = self.text[colon : self.line_end(colon)].lstrip()
        start = self.after_line(colon)
        if comment:
            edits = self.delete(span.start, self.line_end(colon) - len(comment))
        else:
            edits = self.delete(self.line_start(span.start), self._blank_below(start))
        end = self._end_with_comments(span.end, indent)
        edits += self._moved_left(start, end, indent, depth, [statement])
        return joined(self.text, edits)

    def dedent(self, statement: cst.With, last: Sequence[cst.CSTNode]) -> Edits:
        """Move the last statements of a `with`, with their comments, out of it."""
        indent = self.indent_of(statement)
        depth = len(self.indent_of(last[0])) - len(indent)
        start = self.line_start(self.start_of(last[0]))
        while self.text[self.line_start(start - 1) : start].lstrip().startswith("#"):
            start = self.line_start(start - 1)
        end = self._end_with_comments(self.tree.span(last[-1]).end, indent)
        return joined(self.text, self._moved_left(start, end, indent, depth, last))

    def _moved_left(
        self, start: int, end: int, indent: str, depth: int, nodes: Sequence[cst.CSTNode]
    ) -> Edits:
        """Remove `depth` columns of indentation from the lines of a region."""
        edits: Edits = ()
        for row in self._rows(start, end, nodes):
            at = row + self._shared(row, indent)
            white = re.compile(r"[ \t]*").match(self.text, at)
            width = min(depth, len(white.group()) if white else 0)
            if width:
                edits = (*edits, *self.delete(at, at + width))
        return edits

    def _shared(self, row: int, indent: str) -> int:
        """Return the length of `indent` if a line begins with it, else 0."""
        return len(indent) if self.text.startswith(indent, row) else 0

    def _header_end(self, statement: cst.With) -> int:
        """Return the offset behind the colon of a `with`."""
        last = statement.items[-1]
        node = last.asname.name if last.asname is not None else last.item
        found = _HEADER.match(self.text, self.tree.span(node).end)
        assert found is not None
        return found.end()

    def _rows(self, start: int, end: int, nodes: Sequence[cst.CSTNode]) -> list[int]:
        """Return where the lines of a region begin, without blank lines and insides of strings."""
        inside = [
            self.tree.span(text)
            for node in nodes
            for kind in (cst.SimpleString, cst.FormattedString)
            for text in self.tree.within(node, kind)
        ]
        rows = self.source.line_starts
        return [
            row
            for row in rows[bisect_left(rows, start) : bisect_left(rows, end)]
            if self.text[row : self.line_end(row)].strip()
            and not any(span.start < row < span.end for span in inside)
        ]


_PRELUDE: Final = (cst.Import, cst.ImportFrom)


def _is_constant(line: cst.CSTNode) -> bool:
    """Return whether a line is a docstring or stands for a notebook command."""
    strings = (cst.Integer, cst.SimpleString, cst.ConcatenatedString)
    return isinstance(line, cst.Expr) and isinstance(line.value, strings)


def _is_future(line: cst.ImportFrom) -> bool:
    return line.module is not None and dotted(line.module) == "__future__"


def _runs(deleted: Sequence[Edit], text: str) -> list[tuple[int, int]]:
    """Return adjacent whole-line deletions merged into one range each."""
    found: list[tuple[int, int]] = []
    for edit in deleted:
        if edit.text or text[edit.span.end - 1 : edit.span.end] not in ("\n", "\r"):
            continue
        if found and found[-1][1] >= edit.span.start:
            found[-1] = (found[-1][0], max(found[-1][1], edit.span.end))
        else:
            found.append((edit.span.start, edit.span.end))
    return found
