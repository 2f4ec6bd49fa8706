"""Masks: indices that are certainly boolean tensors."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import How, Script

_MASKING: Final = frozenset("eq ne gt ge lt le bool isnan isfinite isinf logical_not".split())


def is_mask(script: Script, node: cst.BaseExpression, trail: frozenset[int] = frozenset()) -> bool:
    """Return whether a tensor certainly is boolean; `trail` are the bindings that led to it."""
    if isinstance(node, cst.Comparison):
        return True
    if isinstance(node, cst.UnaryOperation):
        return is_mask(script, node.expression, trail)
    if isinstance(node, cst.BinaryOperation):
        bitwise = isinstance(node.operator, (cst.BitAnd, cst.BitOr))
        return bitwise and is_mask(script, node.left, trail)
    if isinstance(node, cst.Call):
        return script.calls.at(node).method in _MASKING
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        return bool(bindings) and all(
            id(binding) in trail
            or (
                binding.how is How.ASSIGN
                and binding.value is not None
                and not isinstance(binding.value, cst.Name)
                and is_mask(script, binding.value, trail | {id(binding)})
            )
            for binding in bindings
        )
    return False
