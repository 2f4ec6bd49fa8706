"""Outside: the lines that have nothing to do with some definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.bindings import Binding, How
from torchlint.semantic.scope.scopes import Scopes
from torchlint.semantic.syntax.methods import last_word

_HEADS: Final[dict[type[cst.CSTNode], tuple[str, ...]]] = {
    cst.If: ("test",),
    cst.While: ("test",),
    cst.For: ("target", "iter"),
    cst.FunctionDef: ("params",),
}
_DEFINED: Final = (How.IMPORT, How.FUNCTION, How.CLASS)
_PLAIN: Final = (
    cst.SimpleString,
    cst.ConcatenatedString,
    cst.Integer,
    cst.Float,
    cst.UnaryOperation,
)
_PLAIN_CALLS: Final = frozenset("parse_args parse_known_args device is_available".split())
"""The last words of calls that return no network, no optimizer and no data."""


class Outside:
    """The lines of the functions and of the executed code around a step.

    Each group holds statements that share their variables: one function, or what runs at import.
    """

    def __init__(self, scopes: Scopes, groups: Iterable[Sequence[cst.CSTNode]]) -> None:
        self.scopes = scopes
        self.tree = scopes.tree
        self.groups = [_Lines(scopes, group) for group in groups]

    def lines(self, names: frozenset[str]) -> list[cst.CSTNode]:
        """Return the lines left without those that name some definitions.

        What only these lines use goes with them.
        """
        return [line for group in self.groups for line in group.without(names)[0]]

    def is_run_apart(self, function: cst.FunctionDef) -> bool:
        """Return whether calls hand a function things of their own and leave its results."""
        word = function.name.value
        for group in self.groups:
            if word in group.count:
                dropped = group.without(frozenset({word}))[1]
                calls = (line for line in dropped if word in group.words[line])
                if not all(self._only_calls(line, word) for line in calls):
                    return False
                if not self._are_own(dropped):
                    return False
        return True

    def _only_calls(self, line: cst.CSTNode, word: str) -> bool:
        """Return whether a line calls a function and gives nothing back to what runs the line."""
        if not isinstance(line, cst.SimpleStatementLine) or not all(
            isinstance(each, (cst.Expr, cst.Assign)) for each in line.body
        ):
            return False
        named = [name for name in self.tree.within(line, cst.Name) if name.value == word]
        holders = [(name, self.tree.parent(name)) for name in named]
        return all(isinstance(call, cst.Call) and call.func is name for name, call in holders)

    def _are_own(self, lines: Sequence[cst.CSTNode]) -> bool:
        """Return whether no other line uses the variables of some lines, but for plain values."""
        inside = {name for line in lines for name in self.tree.within(line, cst.Name)}
        for name in inside:
            scope = self.scopes.lookup(name.value, self.scopes.scope(name))
            bindings = scope.bindings[name.value] if scope is not None else ()
            if all(each.how in _DEFINED or self._is_plain(each) for each in bindings):
                continue
            for other in self.tree.spelled(name.value):
                if other in inside:
                    continue
                if self.scopes.lookup(other.value, self.scopes.scope(other)) is scope:
                    return False
        return True

    def _is_plain(self, binding: Binding) -> bool:
        value = binding.value
        if binding.how is not How.ASSIGN or value is None:
            return False
        if isinstance(value, cst.Call):
            return last_word(value.func) in _PLAIN_CALLS
        return isinstance(value, _PLAIN)


class _Lines:
    """The lines of a group of statements, with the heads of compound ones."""

    def __init__(self, scopes: Scopes, wholes: Sequence[cst.CSTNode]) -> None:
        self.tree = scopes.tree
        self._managers: list[tuple[list[cst.CSTNode], list[cst.CSTNode]]] = []
        self.all = [line for whole in wholes for line in self._lines(whole)]
        self.words = {
            line: frozenset(name.value for name in self.tree.within(line, cst.Name))
            for line in self.all
        }
        self.count = Counter(word for words in self.words.values() for word in words)

    def without(self, names: frozenset[str]) -> tuple[list[cst.CSTNode], list[cst.CSTNode]]:
        """Return the lines left without those that name some things, and what is left out."""
        dropped = {line for line in self.all if not names.isdisjoint(self.words[line])}
        for items, body in self._managers:
            if dropped.issuperset(body):
                dropped.update(items)
        count = self.count.copy()
        fresh = dropped
        while fresh:
            for line in fresh:
                count.subtract(self.words[line])
            fresh = {
                line
                for line, bound in self._bound.items()
                if line not in dropped
                and all(count[word] == 1 for word in bound)
                and any(self.count[word] > 1 for word in bound)
            }
            dropped |= fresh
        return [line for line in self.all if line not in dropped], list(dropped)

    @cached_property
    def _bound(self) -> dict[cst.CSTNode, frozenset[str]]:
        """The lines that only give values to names, with these names."""
        found = {}
        for line in self.all:
            small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
            if small and all(isinstance(each, cst.Assign) for each in small):
                targets = self.tree.within(line, cst.AssignTarget)
                names = (self.tree.within(target, cst.Name) for target in targets)
                found[line] = frozenset(name.value for each in names for name in each)
        return found

    def _lines(self, whole: cst.CSTNode) -> Iterator[cst.CSTNode]:
        if isinstance(whole, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            yield whole
            return
        if isinstance(whole, cst.With):
            self._managers.append(([*whole.items], [*self._lines(whole.body)]))
            yield from whole.items
        for head in _HEADS.get(type(whole), ()):
            yield getattr(whole, head)
        yield from getattr(whole, "decorators", ())
        for child in self.tree.children(whole):
            if isinstance(child, (cst.BaseStatement, cst.BaseSuite, cst.Else, cst.Finally)):
                yield from self._lines(child)
            elif isinstance(child, cst.ExceptHandler):
                yield from self._lines(child.body)
