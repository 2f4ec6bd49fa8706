"""Removal of imports that a fix left without a use."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.edits.rewrite import Edits, Rewrite
from torchlint.semantic.scope.scopes import Binding, How, Scopes
from torchlint.semantic.syntax import read
from torchlint.semantic.syntax.tree import Tree
from torchlint.source import Source

_Meaning = tuple[str, str]
"""A bound name and the qualified name that it imports."""


def spare_imports(before: Source, after: Source, needed: frozenset[str] = frozenset()) -> Edits:
    """Remove the imports of `after` that it no longer uses but that `before` used.

    Imports that other modules need, that share their line with other code or that stand in a
    `try` stay. Raises `libcst.ParserSyntaxError`.
    """
    had, has = _Imports(before), _Imports(after)
    used = had.used
    lines: dict[cst.CSTNode, list[Binding]] = {}
    for binding in has.spare():
        if binding.name not in needed and _meaning(binding) in used:
            lines.setdefault(binding.node, []).append(binding)
    cuts = (has.rewrite.without_import(unused) for unused in lines.values())
    return has.rewrite.united(*(cut for cut in cuts if cut))


class _Imports:
    """The imports of a text, and which of them are used."""

    def __init__(self, source: Source) -> None:
        tree = Tree(source, read(source))
        self.scopes = Scopes(tree)
        self.rewrite = Rewrite(source, tree, self.scopes)
        self.all = [each for each in self.scopes.bindings() if each.how is How.IMPORT]

    def spare(self) -> list[Binding]:
        """Return the unused imports."""
        return [each for each in self.all if not self.scopes.used_outside(each, frozenset())]

    @property
    def used(self) -> frozenset[_Meaning]:
        """The names that are imported and used in each place that imports them."""
        return frozenset(map(_meaning, self.all)) - frozenset(map(_meaning, self.spare()))


def _meaning(binding: Binding) -> _Meaning:
    return binding.name, binding.qualified
