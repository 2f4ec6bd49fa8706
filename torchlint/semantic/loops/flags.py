"""Flags: what a branch tests and then sets or makes, so that it runs once."""

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


def missing(tree: Tree, test: cst.BaseExpression) -> tuple[str, ...]:
    """Return the paths that a test says hold nothing yet: `self.x is None`, `not self.x`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return (*missing(tree, test.left), *missing(tree, test.right))
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        other = test.comparisons[0]
        is_none = isinstance(other.operator, (cst.Is, cst.Equal))
        empty = is_none and tree.code(other.comparator) == "None"
        return (dotted(test.left),) if empty else ()
    if not isinstance(test, cst.UnaryOperation) or not isinstance(test.operator, cst.Not):
        return ()
    asked = test.expression
    if isinstance(asked, cst.Call) and dotted(asked.func) == "hasattr" and len(asked.args) == 2:
        owner, name = (each.value for each in asked.args)
        field = name.evaluated_value if isinstance(name, cst.SimpleString) else None
        return (f"{dotted(owner)}.{field}",) if isinstance(field, str) else ()
    return (dotted(asked),)


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
