"""Labels: how messages name the objects of a script."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.scope.scopes import Scopes
from torchlint.semantic.syntax.tree import Tree

__all__ = ["brief", "label"]

_LONG: Final = 60


def brief(tree: Tree, node: cst.CSTNode) -> str:
    """Return the code of a node on one line, leaving out the arguments of a long call."""
    code = " ".join(tree.code(node).split())
    if len(code) <= _LONG:
        return code
    if not isinstance(node, cst.Call):
        return f"{code[: _LONG - 3]}..."
    called = _called(tree, node)
    if len(called) > _LONG and isinstance(node.func, cst.Attribute):
        return f".{node.func.attr.value}({'...' if node.args else ''})"
    return called


def _called(tree: Tree, node: cst.BaseExpression) -> str:
    """Return the callee of a chain of calls and attributes, without any arguments."""
    if isinstance(node, cst.Call):
        return f"{_called(tree, node.func)}({'...' if node.args else ''})"
    if isinstance(node, cst.Attribute):
        return f"{_called(tree, node.value)}.{node.attr.value}"
    return tree.code(node)


def label(tree: Tree, scopes: Scopes, made: cst.BaseExpression, noun: str) -> str:
    """Return the user's name for what an expression makes: `` `train_loader` ``, "this loader"."""
    for outer in tree.ancestors(made):
        if isinstance(outer, cst.Assign):
            return f"`{tree.code(_target(tree, outer, made))}`"
        if isinstance(outer, cst.AnnAssign):
            return f"`{tree.code(outer.target)}`"
        if isinstance(outer, cst.Arg) and outer.keyword is not None:
            return f"`{outer.keyword.value}`"
        if isinstance(outer, cst.DictElement):
            return f"the {noun} {tree.code(outer.key)}"
        if isinstance(outer, cst.Return):
            function = scopes.function(outer)
            return f"the {noun} of `{function.name.value}()`" if function else f"this {noun}"
        if isinstance(outer, (cst.BaseStatement, cst.BaseSmallStatement)):
            break
    return f"this {noun}"


def _target(tree: Tree, line: cst.Assign, made: cst.BaseExpression) -> cst.BaseExpression:
    """Return the assignment target of a value, also in `a, b = Make(x), Make(y)`."""
    target = line.targets[0].target
    if isinstance(target, cst.Tuple) and isinstance(line.value, cst.Tuple):
        for place, element in zip(target.elements, line.value.elements, strict=False):
            if tree.inside(made, element):
                return place.value
    return target
