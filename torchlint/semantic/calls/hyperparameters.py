"""Hyperparameters: the parameters of `__init__` that `save_hyperparameters` keeps (Lightning)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import libcst as cst

from torchlint.semantic.scope.scopes import Binding, How, Scopes, dotted
from torchlint.semantic.syntax.tree import Tree

_KEPT: Final = "self.hparams"
_KEEPS: Final = "save_hyperparameters"


def kept_parameters(
    node: cst.Attribute,
    tree: Tree,
    scopes: Scopes,
    method: Callable[[cst.ClassDef, str], cst.FunctionDef | None],
) -> tuple[Binding, ...]:
    """Return the parameter that `self.hparams.name` holds, if the class keeps its parameters."""
    if dotted(node.value) != _KEPT:
        return ()
    function = scopes.function(node)
    owner = scopes.class_of(function) if function is not None else None
    start = method(owner, "__init__") if owner is not None else None
    if start is None or not any(
        each.attr.value == _KEEPS for each in tree.within(start, cst.Attribute)
    ):
        return ()
    found = scopes.scope_at(start).bindings.get(node.attr.value, [])
    return tuple(each for each in found if each.how is How.PARAMETER)
