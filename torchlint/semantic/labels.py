"""Labels: what the user calls the thing that an expression makes."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.scopes import Scopes
from torchlint.semantic.tree import Tree

__all__ = ["label"]


def label(tree: Tree, scopes: Scopes, made: cst.BaseExpression, noun: str) -> str:
    """Give the user's word for what an expression makes: `` `train_loader` ``, "this loader"."""
    for outer in tree.ancestors(made):
        if isinstance(outer, cst.Assign):
            return f"`{tree.text(_target(tree, outer, made))}`"
        if isinstance(outer, cst.AnnAssign):
            return f"`{tree.text(outer.target)}`"
        if isinstance(outer, cst.Arg) and outer.keyword is not None:
            return f"`{outer.keyword.value}`"
        if isinstance(outer, cst.DictElement):
            return f"the {noun} {tree.text(outer.key)}"
        if isinstance(outer, cst.Return):
            function = scopes.function(outer)
            return f"the {noun} of `{function.name.value}()`" if function else f"this {noun}"
        if isinstance(outer, (cst.BaseStatement, cst.BaseSmallStatement)):
            break
    return f"this {noun}"


def _target(tree: Tree, line: cst.Assign, made: cst.BaseExpression) -> cst.BaseExpression:
    """Give the target that gets the value, of `a, b = Make(x), Make(y)` too."""
    target = line.targets[0].target
    if isinstance(target, cst.Tuple) and isinstance(line.value, cst.Tuple):
        for place, element in zip(target.elements, line.value.elements, strict=False):
            if tree.inside(made, element):
                return place.value
    return target
