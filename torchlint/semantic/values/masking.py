"""Masking: masks that multiply attention scores, and names of queries and keys."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.scope.words import words

_QUERIES: Final = frozenset({"q", "query", "queries"})
_KEYS: Final = frozenset({"k", "key", "keys"})


def are_query_and_key(left: cst.BaseExpression, right: cst.BaseExpression) -> bool:
    """Return whether two names contain words for queries and keys."""
    if not isinstance(left, cst.Name) or not isinstance(right, cst.Name):
        return False
    query, key = set(words(left.value)), set(words(right.value))
    return bool(query & _QUERIES) and bool(key & _KEYS)


def masked_by_product(node: cst.BinaryOperation) -> cst.BaseExpression | None:
    """Return the scores of `scores * mask + lowest * (1 - mask)`."""
    kept, filled = node.left, node.right
    if not isinstance(kept, cst.BinaryOperation) or not isinstance(filled, cst.BinaryOperation):
        return None
    if not isinstance(kept.operator, cst.Multiply) or not isinstance(filled.operator, cst.Multiply):
        return None
    number, rest = filled.left, filled.right
    if isinstance(number, cst.BinaryOperation):
        number, rest = rest, number
    if not _is_low(number, subtracted=isinstance(node.operator, cst.Subtract)):
        return None
    if not isinstance(rest, cst.BinaryOperation) or not isinstance(rest.operator, cst.Subtract):
        return None
    whole = isinstance(rest.left, (cst.Integer, cst.Float)) and float(rest.left.value) == 1
    return kept.left if whole and rest.right.deep_equals(kept.right) else None


def _is_low(node: cst.BaseExpression, *, subtracted: bool) -> bool:
    """Return whether adding or subtracting a number reduces a score to zero after softmax."""
    negated = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus)
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    if not isinstance(node, (cst.Integer, cst.Float)) or negated == subtracted:
        return False
    return float(node.value) >= 1e3
