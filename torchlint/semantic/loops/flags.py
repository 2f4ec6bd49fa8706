"""Flags: what a branch tests and then sets, so that it runs once."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.syntax.tree import Tree


def is_spent(
    tree: Tree, test: cst.BaseExpression, blocks: Sequence[cst.IndentedBlock], outer: cst.CSTNode
) -> bool:
    """Return whether one of the blocks below a test makes it fail from then on.

    `outer` is the loop or function around it, in which no other line may set the flag.
    """
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return any(is_spent(tree, each, blocks, outer) for each in (test.left, test.right))
    wanted = True
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, wanted = test.expression, False
    flag = dotted(test)
    if not flag:
        return False
    lines = (line for block in blocks for line in block.body)
    if not any(_is_set(line, flag, to=not wanted) for line in lines):
        return False
    given = [line for line in tree.within(outer, cst.Assign) if _names(line, flag)]
    return bool(given) and all(_literal(line.value) is (not wanted) for line in given)


def _is_set(line: cst.CSTNode, flag: str, to: bool) -> bool:
    """Return whether a line sets a flag to True or False."""
    return isinstance(line, cst.SimpleStatementLine) and any(
        _names(small, flag) and _literal(small.value) is to
        for small in line.body
        if isinstance(small, cst.Assign)
    )


def _names(line: cst.Assign, flag: str) -> bool:
    return any(dotted(each.target) == flag for each in line.targets)


def _literal(node: cst.BaseExpression) -> bool | None:
    """Return the truth value of True, False and None, None for other expressions."""
    named = node.value if isinstance(node, cst.Name) else ""
    return {"True": True, "False": False, "None": False}.get(named)
