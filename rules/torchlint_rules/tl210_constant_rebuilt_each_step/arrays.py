"""Arrays of NumPy that hold the same numbers each time they are made."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Kind, Script, receiver_of

_MAKING: Final = frozenset(
    f"numpy.{word}" for word in "array asarray zeros ones full eye identity arange linspace".split()
)
_STARTS: Final = ("__init__", "setup")
_CHANGING: Final = ("reshape", "astype", "transpose", "repeat")


def is_array(script: Script, node: cst.BaseExpression, made: cst.BaseExpression) -> bool:
    """Return whether data is an array of literals, filled with others of these at most.

    `made` is what the data is when it is read, behind a name.
    """
    if not _is_made(script, made):
        return False
    home = script.scopes.home(node)
    bindings = script.scopes.reaching(node)
    changed = (
        (each.target.value, line.value)
        for line in script.tree.within(home, cst.Assign)
        for each in line.targets
        if isinstance(each.target, cst.Subscript)
    )
    filled = [value for array, value in changed if _is_one_of(script, array, bindings)]
    added = (each.target for each in script.tree.within(home, cst.AugAssign))
    return not any(
        _is_one_of(script, each.value if isinstance(each, cst.Subscript) else each, bindings)
        for each in added
    ) and all(_is_fixed(script, each) for each in filled)


def is_table(script: Script, data: cst.BaseExpression) -> bool:
    """Return whether data is an array that only the start of its object sets, for all callers."""
    parameter = script.scopes.only(data).parameter
    tables = [data] if parameter is None else script.functions.given(parameter)
    return bool(tables) and all(
        script.kind(each) is Kind.NDARRAY and is_set_at_start(script, each) for each in tables
    )


def is_set_at_start(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a node is an attribute that only the start of its object sets."""
    if not isinstance(node, cst.Attribute):
        return False
    makers = [script.scopes.function(each.node) for each in script.functions.attribute(node)]
    return bool(makers) and all(each and each.name.value in _STARTS for each in makers)


def _is_one_of(script: Script, node: cst.BaseExpression, bindings: tuple[object, ...]) -> bool:
    return any(each in bindings for each in script.scopes.reaching(node))


def _is_made(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether NumPy makes an array of literals, also in another shape or dtype."""
    source = receiver_of(value, *_CHANGING)
    if source is not None:
        return _is_made(script, source)
    return (
        isinstance(value, cst.Call)
        and script.name(value.func) in _MAKING
        and bool(value.args)
        and all(arg.keyword is not None or _is_fixed(script, arg.value) for arg in value.args)
    )


def _is_fixed(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value is a literal, a list of such, or an array of such."""
    value = script.values.value_of(node)
    if value.is_literal or value.node is None:
        return value.is_literal
    if isinstance(value.node, (cst.List, cst.Tuple)):
        elements = value.node.elements
        return bool(elements) and all(_is_fixed(script, each.value) for each in elements)
    return _is_made(script, value.node)
