"""Imports that a text has no use for any more, though what it was made of had."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.rewrite import Edits, Rewrite
from torchlint.semantic.scopes import Binding, How, Scopes
from torchlint.semantic.syntax import read
from torchlint.semantic.tree import Tree
from torchlint.source import Source

__all__ = ["spare_imports"]

_Meaning = tuple[str, str]
"""A word, and what was imported under it."""


def spare_imports(before: Source, after: Source) -> Edits:
    """Take out of `after` the imports that nothing in it uses, if `before` used each of them.

    Those that share their line with other code, or stand in a `try`, are left. Raises
    `libcst.ParserSyntaxError`.
    """
    had, has = _Imports(before), _Imports(after)
    lines: dict[cst.CSTNode, list[Binding]] = {}
    for binding in has.spare():
        if _meaning(binding) in had.used:
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
        """Give the imports that nothing uses."""
        return [each for each in self.all if not self.scopes.used_outside(each, frozenset())]

    @property
    def used(self) -> frozenset[_Meaning]:
        """What is imported and used wherever it is imported."""
        return frozenset(map(_meaning, self.all)) - frozenset(map(_meaning, self.spare()))


def _meaning(binding: Binding) -> _Meaning:
    return binding.name, binding.qualified
