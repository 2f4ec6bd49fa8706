"""Outside: the lines of a function that have nothing to do with some definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.syntax.tree import Tree

_HEADS: Final[dict[type[cst.CSTNode], tuple[str, ...]]] = {
    cst.If: ("test",),
    cst.While: ("test",),
    cst.For: ("target", "iter"),
    cst.FunctionDef: ("params",),
}


class Outside:
    """Leaves out the lines that name some definitions, and what only these lines use."""

    def __init__(self, tree: Tree, definitions: Iterable[cst.CSTNode]) -> None:
        self.tree = tree
        self.names = {
            each.name.value
            for each in definitions
            if isinstance(each, (cst.FunctionDef, cst.ClassDef))
        }

    def lines(self, whole: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the remaining lines of a statement, with the heads of compound ones."""
        lines = list(self._lines(whole))
        left = [line for line in lines if not self._is_apart(line)]
        while True:
            used = [self._words(line) for line in left]
            dropped = {
                line
                for number, line in enumerate(left)
                if self._only_binds(line)
                and not any(
                    self._bound(line) & words for words in (*used[:number], *used[number + 1 :])
                )
                and self._is_used(line, lines)
            }
            if not dropped:
                return left
            left = [line for line in left if line not in dropped]

    def _lines(self, whole: cst.CSTNode) -> Iterator[cst.CSTNode]:
        if isinstance(whole, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            yield whole
            return
        if isinstance(whole, cst.With) and not all(map(self._is_apart, self._lines(whole.body))):
            yield from whole.items
        for head in _HEADS.get(type(whole), ()):
            yield getattr(whole, head)
        yield from getattr(whole, "decorators", ())
        for child in self.tree.children(whole):
            if isinstance(child, (cst.BaseStatement, cst.BaseSuite, cst.Else, cst.Finally)):
                yield from self._lines(child)
            elif isinstance(child, cst.ExceptHandler):
                yield from self._lines(child.body)

    def _is_apart(self, line: cst.CSTNode) -> bool:
        """Return whether a line names one of the definitions."""
        return not self.names.isdisjoint(self._words(line))

    def _words(self, line: cst.CSTNode) -> set[str]:
        return {name.value for name in self.tree.within(line, cst.Name)}

    def _only_binds(self, line: cst.CSTNode) -> bool:
        """Return whether a line only gives values to names."""
        small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        return bool(small) and all(isinstance(each, cst.Assign) for each in small)

    def _bound(self, line: cst.CSTNode) -> set[str]:
        return {
            name.value
            for target in self.tree.within(line, cst.AssignTarget)
            for name in self.tree.within(target, cst.Name)
        }

    def _is_used(self, line: cst.CSTNode, lines: list[cst.CSTNode]) -> bool:
        """Return whether any other line uses what a line binds."""
        bound = self._bound(line)
        return any(bound & self._words(each) for each in lines if each is not line)
