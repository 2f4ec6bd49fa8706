"""Edits within a line and within an expression, with their layout kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import libcst as cst

from torchlint.edit import Edit, Span
from torchlint.semantic.tree import Tree
from torchlint.source import Source

__all__ = ["Edits", "ExpressionEdits"]

Edits = tuple[Edit, ...]

_WIDTH: Final = 100
_LINE_END: Final = re.compile(r"\r\n|\n|\r|\Z")


class ExpressionEdits:
    """Makes the edits that change expressions; all keep comments and layout."""

    def __init__(self, source: Source, tree: Tree) -> None:
        self.source = source
        self.text = source.text
        self.tree = tree
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

    def above(self, statement: cst.CSTNode) -> int:
        """Give where the blank lines and the comments begin that stand right above a statement."""
        indent = self.indent_of(statement)
        row = self.source.position(self.tree.span(statement).start).row
        while row > 1:
            line = self.source.line(row - 1)
            if line.strip() and not line.startswith(f"{indent}#"):
                break
            row -= 1
        return self.source.line_starts[row - 1]

    def stands_alone(self, statement: cst.CSTNode) -> bool:
        """Whether a statement has its lines to itself, so that lines can go before and after."""
        if not isinstance(self.tree.parent(statement), (cst.IndentedBlock, cst.Module)):
            return False
        return not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) == 1

    # -- expressions ----------------------------------------------------------

    def closing(self, call: cst.Call) -> int:
        """Give the offset of the parenthesis that ends the arguments of a call."""
        return self.tree.bare(call).end - 1

    def unlinked(self, call: cst.Call, text: str = "") -> Edits:
        """Take a method off what it is called on, with `text` in its place."""
        assert isinstance(call.func, cst.Attribute)
        whole, inner = self.tree.bare(call), self.tree.span(call.func.value)
        opening = self.delete(whole.start, inner.start) if call.func.lpar else ()
        return (*opening, Edit(Span(inner.end, whole.end), text))

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
            return self.insert(self.closing(call), f"{name}={value}")
        last = call.args[-1]
        end = self.tree.span(last.value).end
        start = self.tree.span(last).start
        line = self.line_start(start)
        own_line = not self.text[line:start].strip()
        if not own_line or (len(call.args) == 1 and self.line_start(end) != line):
            return self.insert(end, f",{self._gap(call, f' {name}={value}')}{name}={value}")
        comma = isinstance(last.comma, cst.Comma)
        tail = self.text[end : self.line_end(end)]
        added = f"{self.newline}{self.text[line:start]}{name}={value}"
        if "#" not in tail or self.tree.bare(call).end <= self.line_end(end):
            return self.insert(end, f",{added}")
        edits = () if comma else self.insert(end, ",")
        return (*edits, *self.insert(self.line_end(end), f"{added}{',' if comma else ''}"))

    def _gap(self, call: cst.Call, added: str) -> str:
        """Give what parts a new argument from the last one: a new line where this one is full."""
        first, last = self.tree.span(call.args[0]), self.tree.span(call.args[-1])
        line = self.line_start(last.start)
        width = self.line_end(last.end) - line + len(added) + 1
        if width <= _WIDTH or self.line_start(last.end) != line:
            return " "
        shared = line == self.line_start(self.tree.span(call).start)
        before = self.text[line : first.start] if shared else self.text[line : last.start]
        indent = " " * len(before) if shared else before[: len(before) - len(before.lstrip())]
        if (shared and "\t" in before) or len(indent) + len(added) > _WIDTH:
            return " "
        return f"{self.newline}{indent}"

    def without_argument(self, call: cst.Call, arg: cst.Arg) -> Edits:
        """Take an argument out of a call, its comma with it, and the lines that held but it."""
        start, end = len(self.text[: self.tree.span(arg).start].rstrip()), self.closing(call)
        if len(call.args) == 1 and "#" not in self.text[self.line_start(start) : end]:
            return self.delete(start, end)
        spans = [self.tree.span(each) for each in call.args]
        ends = [self.tree.span(each.value).end for each in call.args]
        index = list(call.args).index(arg)
        return self._without([Span(s.start, e) for s, e in zip(spans, ends, strict=True)], index)

    def without_item(self, statement: cst.With, item: cst.WithItem) -> Edits | None:
        """Take one context manager out of a `with`; None for the only one and with comments."""
        if len(statement.items) == 1 or "#" in self.tree.text(item.item):
            return None
        spans = []
        for each in statement.items:
            last = each.asname.name if each.asname is not None else each.item
            spans.append(Span(self.tree.span(each.item).start, self.tree.span(last).end))
        return self._without(spans, list(statement.items).index(item))

    def _without(self, members: Sequence[Span], index: int) -> Edits:
        """Take one of several things between commas out; a comment behind it stays."""
        member = members[index]
        if len(members) == 1:
            return self.delete(member.start, self._behind_comma(member.end))
        if index + 1 == len(members):
            start = members[index - 1].end if index else member.start
            if "#" not in self.text[start : member.start]:
                return self.delete(start, member.end)
        elif "#" not in self.text[member.end : members[index + 1].start]:
            return self.delete(member.start, members[index + 1].start)
        end = self._behind_comma(member.end)
        tail = self.text[end : self.line_end(end)]
        line = self.line_start(member.start)
        if not tail.strip() and not self.text[line : member.start].strip():
            return self.delete(line, self.after_line(end))
        return self.delete(member.start, end + len(tail) - len(tail.lstrip()))

    def _behind_comma(self, offset: int) -> int:
        """Give the offset behind a comma that follows at once, the offset itself without one."""
        found = re.compile(r"[ \t]*,").match(self.text, offset)
        return found.end() if found else offset

    def united(self, *parts: Edits) -> Edits:
        """Put edits together, deletions that overlap as one and around an insertion as two."""
        made: list[Edit] = []
        for edit in sorted({edit for part in parts for edit in part}):
            last = made[-1] if made else None
            if last is None or last.text or edit.span.start >= last.span.end:
                made.append(edit)
            elif not edit.text:
                made[-1] = Edit(Span(last.span.start, max(last.span.end, edit.span.end)), "")
            elif edit.span.start == edit.span.end:
                at = edit.span.start
                made[-1:] = [
                    *self.delete(last.span.start, at), edit, *self.delete(at, last.span.end)
                ]  # fmt: skip
            else:
                made.append(edit)
        return tuple(made)
