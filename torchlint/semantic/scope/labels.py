"""Labels: how messages name the objects of a script."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.scope.scopes import Scopes
from torchlint.semantic.syntax.tree import Tree


def label(tree: Tree, scopes: Scopes, made: cst.BaseExpression, noun: str) -> str:
    """Return the user's name for what an expression makes: `` `train_loader` ``, "this loader"."""
    for outer in tree.ancestors(made):
        if isinstance(outer, (cst.Assign, cst.AnnAssign)):
            is_one_of_many = isinstance(outer.value, (cst.List, cst.ListComp))
            target = _target(tree, outer, made) if isinstance(outer, cst.Assign) else outer.target
            return f"{f'the {noun} in ' if is_one_of_many else ''}`{tree.code(target)}`"
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
