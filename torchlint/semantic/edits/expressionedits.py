"""Edits within a line or an expression that keep its layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import libcst as cst

from torchlint.edit import Edit, Span
from torchlint.semantic.syntax.tree import Tree
from torchlint.source import Source

Edits = tuple[Edit, ...]

_WIDTH: Final = 100
_LINE_END: Final = re.compile(r"\r\n|\n|\r|\Z")
_JOINED: Final = re.compile(r"[^#]*\\")
"""A line that ends in a continuation backslash; behind `#` a backslash is a comment."""
_DIRECTIVE: Final = re.compile(r"#\s*(?:noqa|nosec|(?:type|mypy|pyright|pylint|fmt|pragma)\s*:)")
"""A comment that tells another tool what to do with its line."""


class ExpressionEdits:
    """Makes the edits that change expressions; all keep comments and layout."""

    def __init__(self, source: Source, tree: Tree) -> None:
        self.source = source
        self.text = source.text
        self.tree = tree
        self.newline = source.newline

    # -- places ---------------------------------------------------------------

    def line_start(self, offset: int) -> int:
        """Return the offset where the line of an offset begins, following backslashes back."""
        row = self.source.position(offset).row
        while row > 1 and _JOINED.fullmatch(self.source.line(row - 1)):
            row -= 1
        return self.source.line_starts[row - 1]

    def line_end(self, offset: int) -> int:
        """Return the offset where the logical line of an offset ends, before its line break."""
        return self._ending(offset).start()

    def after_line(self, offset: int) -> int:
        """Return the offset at which the next line begins."""
        return self._ending(offset).end()

    def _ending(self, offset: int) -> re.Match[str]:
        """Return the next line break that is not escaped by a backslash."""
        while True:
            match = _LINE_END.search(self.text, offset)
            assert match is not None
            row = self.source.position(match.start()).row
            if match.start() == match.end() or not _JOINED.fullmatch(self.source.line(row)):
                return match
            offset = match.end()

    def start_of(self, statement: cst.CSTNode) -> int:
        """Return the offset where a statement begins, its decorators included."""
        decorated = isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and statement.decorators
        return self.tree.span(decorated[0] if decorated else statement).start

    def indent_of(self, node: cst.CSTNode) -> str:
        """Return the white space before the line on which a node begins."""
        start = self.tree.span(node).start
        line = self.text[self.line_start(start) : start]
        return line[: len(line) - len(line.lstrip())]

    def above(self, statement: cst.CSTNode) -> int:
        """Return where the blank lines and comments directly above a statement begin."""
        indent = self.indent_of(statement)
        start = self.line_start(self.start_of(statement))
        row = self.source.position(start).row
        while row > 1:
            line = self.source.line(row - 1)
            if line.strip() and not line.startswith(f"{indent}#"):
                break
            row -= 1
        return self.source.line_starts[row - 1]

    def stands_alone(self, statement: cst.CSTNode) -> bool:
        """Return whether a statement shares no line with other code."""
        if not isinstance(self.tree.parent(statement), (cst.IndentedBlock, cst.Module)):
            return False
        return not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) == 1

    # -- expressions ----------------------------------------------------------

    def closing(self, call: cst.Call) -> int:
        """Return the offset of the parenthesis that closes the arguments of a call."""
        return self.tree.bare(call).end - 1

    def unlinked(self, call: cst.Call, text: str = "") -> Edits:
        """Remove a method call from its object, putting `text` in its place."""
        assert isinstance(call.func, cst.Attribute)
        whole, inner = self.tree.bare(call), self.tree.span(call.func.value)
        opening = self.delete(whole.start, inner.start) if call.func.lpar else ()
        return (*opening, Edit(Span(inner.end, whole.end), text))

    def renamed(self, call: cst.Call, word: str) -> Edits | None:
        """Rename the attribute that a call calls, None if it calls none."""
        func = call.func
        return self.replace(func.attr, word) if isinstance(func, cst.Attribute) else None

    def replace(self, node: cst.CSTNode, text: str) -> Edits:
        """Replace a node, its own parentheses included, by `text`."""
        return (Edit(self.tree.span(node), text),)

    def insert(self, offset: int, text: str) -> Edits:
        """Insert `text` at an offset."""
        return (Edit(Span(offset, offset), text),)

    def delete(self, start: int, end: int) -> Edits:
        """Delete a range of characters."""
        return (Edit(Span(start, end), ""),)

    def set_argument(self, call: cst.Call, given: cst.Arg | None, name: str, value: str) -> Edits:
        """Set the value of an argument, adding it as a keyword if it is missing."""
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
        """Return the separator before a new argument: a line break if the last line is full."""
        first, last = self.tree.span(call.args[0]), self.tree.span(call.args[-1])
        line = self.line_start(last.start)
        ending = self.line_end(last.end)
        width = ending - line + len(added) + 1
        told = _DIRECTIVE.search(self.text, last.end, ending) is not None
        if width <= _WIDTH or told or self.line_start(last.end) != line:
            return " "
        shared = line == self.line_start(self.tree.span(call).start)
        before = self.text[line : first.start] if shared else self.text[line : last.start]
        indent = " " * len(before) if shared else before[: len(before) - len(before.lstrip())]
        deep = len(indent) * 2 > _WIDTH
        return " " if deep or (shared and "\t" in before) else f"{self.newline}{indent}"

    def without_argument(self, call: cst.Call, arg: cst.Arg) -> Edits:
        """Remove an argument with its comma, and any line that held nothing else."""
        start, end = len(self.text[: self.tree.span(arg).start].rstrip()), self.closing(call)
        if len(call.args) == 1 and "#" not in self.text[self.line_start(start) : end]:
            return self.delete(start, end)
        return self._without(self._spans_of(call.args), list(call.args).index(arg))

    def without_arguments(self, call: cst.Call, gone: Sequence[cst.Arg]) -> Edits | None:
        """Remove several, but not all, arguments of a call; None if a comment would be lost."""
        indices = {list(call.args).index(arg) for arg in gone}
        return self._without_all(self._spans_of(call.args), indices)

    def _spans_of(self, args: Sequence[cst.Arg]) -> list[Span]:
        """Return the spans of arguments without their commas."""
        return [Span(self.tree.span(each).start, self.tree.span(each.value).end) for each in args]

    def without_item(self, statement: cst.With, item: cst.WithItem) -> Edits | None:
        """Remove one context manager from a `with`; None if it is the only one or has comments."""
        if len(statement.items) == 1 or "#" in self.tree.text(item.item):
            return None
        spans = []
        for each in statement.items:
            last = each.asname.name if each.asname is not None else each.item
            spans.append(Span(self.tree.span(each.item).start, self.tree.span(last).end))
        return self._without(spans, list(statement.items).index(item))

    def _without(self, members: Sequence[Span], index: int) -> Edits:
        """Remove one of several comma-separated items; a comment behind it stays."""
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

    def _without_all(self, members: Sequence[Span], gone: set[int]) -> Edits | None:
        """Remove several, but not all, of some comma-separated items."""
        last = len(members) - 1
        kept = max(set(range(len(members))) - gone)
        if kept == last or gone == {last}:
            return tuple(edit for index in gone for edit in self._without(members, index))
        if "#" in self.text[members[kept].end : members[last].end]:
            return None
        inner = (edit for index in gone if index < kept for edit in self._without(members, index))
        return (*inner, *self.delete(members[kept].end, members[last].end))

    def _behind_comma(self, offset: int) -> int:
        """Return the offset behind a comma at this offset, or the offset itself."""
        found = re.compile(r"[ \t]*,").match(self.text, offset)
        return found.end() if found else offset

    def united(self, *parts: Edits) -> Edits:
        """Combine edits: merge overlapping deletions, split a deletion around an insertion."""
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
