"""Edits thought in nodes: keywords, imports, statements and blocks, with their layout kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import libcst as cst

from torchlint.edit import Edit, Span
from torchlint.semantic.scopes import How, Scopes, dotted
from torchlint.semantic.tree import Tree
from torchlint.source import Source

__all__ = ["Edits", "Rewrite"]

Edits = tuple[Edit, ...]

_LINE_END: Final = re.compile(r"\r\n|\n|\r|\Z")


class Rewrite:
    """Makes the edits of fixes; every method gives edits that keep comments and layout."""

    def __init__(self, source: Source, tree: Tree, scopes: Scopes) -> None:
        self.source = source
        self.text = source.text
        self.tree = tree
        self.scopes = scopes
        self.newline = source.newline

    # -- places ---------------------------------------------------------------

    def line_start(self, offset: int) -> int:
        """Give the offset at which the line of an offset begins."""
        row = self.source.position(offset).row
        return self.source.line_starts[row - 1]

    def line_end(self, offset: int) -> int:
        """Give the offset at which the line of an offset ends, before its line end."""
        match = _LINE_END.search(self.text, offset)
        assert match is not None
        return match.start()

    def after_line(self, offset: int) -> int:
        """Give the offset at which the next line begins."""
        match = _LINE_END.search(self.text, offset)
        assert match is not None
        return match.end()

    def indent_of(self, node: cst.CSTNode) -> str:
        """Give the white space before the line on which a node begins."""
        start = self.tree.span(node).start
        line = self.text[self.line_start(start) : start]
        return line[: len(line) - len(line.lstrip())]

    def stands_alone(self, statement: cst.CSTNode) -> bool:
        """Whether a statement has its lines to itself, so that lines can go before and after."""
        if not isinstance(self.tree.parent(statement), (cst.IndentedBlock, cst.Module)):
            return False
        return not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) == 1

    # -- expressions ----------------------------------------------------------

    def replace(self, node: cst.CSTNode, text: str) -> Edits:
        """Put `text` in the place of a node, its own parentheses included."""
        return (Edit(self.tree.span(node), text),)

    def insert(self, offset: int, text: str) -> Edits:
        """Put `text` between two characters."""
        return (Edit(Span(offset, offset), text),)

    def delete(self, start: int, end: int) -> Edits:
        """Take out a range of characters."""
        return (Edit(Span(start, end), ""),)

    def set_argument(self, call: cst.Call, given: cst.Arg | None, name: str, value: str) -> Edits:
        """Change the value of an argument, or add it as a keyword where none is given."""
        return self.replace(given.value, value) if given else self.with_keyword(call, name, value)

    def with_keyword(self, call: cst.Call, name: str, value: str) -> Edits:
        """Add a keyword argument at the end of a call, in the call's own layout."""
        if not call.args:
            end = self.tree.span(call).end - sum(len(self.tree.text(p)) for p in call.rpar)
            return self.insert(end - 1, f"{name}={value}")
        last = call.args[-1]
        end = self.tree.span(last.value).end
        start = self.tree.span(last).start
        line = self.line_start(start)
        own_line = not self.text[line:start].strip()
        if not own_line or (len(call.args) == 1 and self.line_start(end) != line):
            return self.insert(end, f", {name}={value}")
        comma = isinstance(last.comma, cst.Comma)
        tail = self.text[end : self.line_end(end)]
        added = f"{self.newline}{self.text[line:start]}{name}={value}"
        if "#" not in tail:
            return self.insert(end, f",{added}")
        edits = () if comma else self.insert(end, ",")
        return (*edits, *self.insert(self.line_end(end), f"{added}{',' if comma else ''}"))

    def without_argument(self, call: cst.Call, arg: cst.Arg) -> Edits:
        """Take an argument out of a call, its comma with it."""
        index = list(call.args).index(arg)
        start = self.tree.span(arg).start
        if index + 1 < len(call.args):
            return self.delete(start, self.tree.span(call.args[index + 1]).start)
        if index:
            start = self.tree.span(call.args[index - 1].value).end
        return self.delete(start, self.tree.span(arg.value).end)

    # -- imports --------------------------------------------------------------

    def importing(self, module: str, name: str | None = None) -> tuple[str, Edits] | None:
        """Give how to write a module (or a name of it) and the edits that import it.

        None where the word is taken by something else in this file.
        """
        wanted = f"{module}.{name}" if name else module
        for bound, bindings in self.scopes.module.bindings.items():
            if len(bindings) == 1 and bindings[0].how is How.IMPORT and "." not in bound:
                if bindings[0].qualified == wanted and self._at_top(bindings[0].node):
                    return bound, ()
        word = name or module.partition(".")[0]
        bound_here = self.scopes.module.bindings.get(word, [])
        if any(b.how is not How.IMPORT or b.qualified != word for b in bound_here) or (
            bound_here and name
        ):
            return None
        line = f"from {module} import {name}" if name else f"import {module}"
        return name or module, self.insert(self._import_place(), f"{line}{self.newline}")

    def _at_top(self, node: cst.CSTNode) -> bool:
        line = self.tree.parent(node)
        return line is not None and self.tree.parent(line) is self.tree.module

    def _import_place(self) -> int:
        """Find the line before which an import goes: behind docstring and `__future__`."""
        body = self.tree.module.body
        first = 0
        for index, line in enumerate(body):
            small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
            if isinstance(small, cst.ImportFrom) and small.module is not None:
                if dotted(small.module) == "__future__":
                    first = index + 1
                    continue
            if isinstance(small, (cst.Import, cst.ImportFrom)):
                return self.line_start(self.tree.span(line).start)
            docstring = isinstance(small, cst.Expr) and isinstance(
                small.value, (cst.SimpleString, cst.ConcatenatedString)
            )
            if not docstring or index:
                break
            first = index + 1
        if first < len(body):
            return self.line_start(self.tree.span(body[first]).start)
        return self.after_line(self.tree.span(body[-1]).end) if body else len(self.text)

    # -- statements -----------------------------------------------------------

    def before(self, statement: cst.CSTNode, *lines: str) -> Edits:
        """Put lines before a statement, indented as it is."""
        start = self.tree.span(statement).start
        indent = self.indent_of(statement)
        text = "".join(f"{indent}{line}{self.newline}" for line in lines)
        return self.insert(self.line_start(start), text)

    def after(self, statement: cst.CSTNode, *lines: str) -> Edits:
        """Put lines behind a statement and its comments, indented as it is."""
        indent = self.indent_of(statement)
        end = self._end_with_comments(self.tree.span(statement).end, indent)
        place = self.after_line(end)
        if self.line_end(end) == len(self.text):
            text = "".join(f"{self.newline}{indent}{line}" for line in lines)
            return self.insert(len(self.text), text)
        return self.insert(place, "".join(f"{indent}{line}{self.newline}" for line in lines))

    def _end_with_comments(self, end: int, indent: str) -> int:
        """Give the end of a statement with the comment lines that are indented as its body is."""
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
        """Put lines at the head of a block, behind its docstring; None for a one-line suite."""
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

    def drop(self, statement: cst.SimpleStatementLine) -> Edits:
        """Take out a statement; its comment stays, an emptied block gets `pass`."""
        span = self.tree.span(statement)
        block = self.tree.parent(statement)
        if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
            return self.replace(statement, "pass")
        tail = self.text[span.end : self.line_end(span.end)]
        if tail.strip():
            return self.delete(span.start, span.end + len(tail) - len(tail.lstrip()))
        return self.delete(self.line_start(span.start), self.after_line(span.end))

    # -- blocks ---------------------------------------------------------------

    def unit(self) -> str:
        """Give one step of indentation of this file."""
        return self.tree.module.default_indent

    def wrap(self, statements: Sequence[cst.CSTNode], header: str) -> Edits:
        """Put neighbouring statements under a new header line (`with torch.no_grad():`)."""
        start = self.line_start(self.tree.span(statements[0]).start)
        end = self.tree.span(statements[-1]).end
        indent = self.indent_of(statements[0])
        rows = self._rows(start, end, statements)
        first = f"{indent}{header}{self.newline}{self.unit()}"
        return (
            *self.insert(start, first),
            *(edit for row in rows if row != start for edit in self.insert(row, self.unit())),
        )

    def unwrap(self, statement: cst.With) -> Edits | None:
        """Take off the header of a `with` and move its body out; None for a one-line suite."""
        block = statement.body
        if not isinstance(block, cst.IndentedBlock):
            return None
        span = self.tree.span(statement)
        first = self.tree.span(block.body[0])
        depth = len(self.indent_of(block.body[0])) - len(self.indent_of(statement))
        start = self.after_line(self._header_end(statement))
        head = self._header_end(statement)
        keep = self.text[head : self.line_end(head)].strip()
        if keep:
            edits = self.delete(span.start, self.text.index(keep, head))
        else:
            edits = self.delete(self.line_start(span.start), start)
        rows = self._rows(start, max(span.end, first.end), [statement])
        for row in rows:
            white = re.match(r"[ \t]*", self.text[row:])
            width = min(depth, len(white.group())) if white else 0
            if width:
                edits = (*edits, *self.delete(row, row + width))
        return edits

    def _header_end(self, statement: cst.With) -> int:
        """Give the offset behind the colon of a `with`."""
        last = statement.items[-1]
        node = last.asname.name if last.asname is not None else last.item
        return self.text.index(":", self.tree.span(node).end) + 1

    def _rows(self, start: int, end: int, nodes: Sequence[cst.CSTNode]) -> list[int]:
        """Give where the lines of a region begin, without blank ones and insides of strings."""
        inside = [
            self.tree.span(text)
            for node in nodes
            for kind in (cst.SimpleString, cst.FormattedString)
            for text in self.tree.within(node, kind)
        ]
        return [
            row
            for row in self.source.line_starts
            if start <= row < end
            and self.text[row : self.line_end(row)].strip()
            and not any(span.start < row < span.end for span in inside)
        ]
