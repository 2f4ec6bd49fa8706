"""Annotations: the class of a file that a parameter is declared to be an instance of."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.semantic.syntax.methods import index_of, is_none, last_word
from torchlint.semantic.syntax.tree import Tree


def named_types(annotation: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the types of which a declared one is a union, without None and `Optional`."""
    if isinstance(annotation, cst.BinaryOperation):
        yield from named_types(annotation.left)
        yield from named_types(annotation.right)
    elif isinstance(annotation, cst.Subscript):
        inner = index_of(annotation)
        if last_word(annotation.value) == "Optional" and inner is not None:
            yield from named_types(inner)
    elif not is_none(annotation):
        yield annotation


def acts(tree: Tree, owner: cst.ClassDef) -> bool:
    """Return whether a class has a method of its own, and does not only hold values."""
    return not owner.decorators and any(
        not function.name.value.startswith("__")
        for function in tree.within(owner.body, cst.FunctionDef)
        if not function.decorators
    )
