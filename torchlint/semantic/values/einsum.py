"""Einsum: a product of two tensors, told by the labels of their dimensions."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from torchlint.semantic.values.values import Values


class Einsum(NamedTuple):
    """The labels of two operands and of their product, and the operands."""

    left: str
    right: str
    out: str
    operands: list[cst.BaseExpression]

    @property
    def summed(self) -> str:
        """The only label of a pairing of all rows of both operands over which it sums, or none."""
        left, right, out = self.left, self.right, self.out
        if len(out) < 3 or len(left) != len(out) or len(right) != len(out):
            return ""
        (summed, *others) = sorted(set(left + right) - set(out)) or [""]
        i, j, batch = out[-2], out[-1], set(out[:-2])
        if others or set(left) != {*batch, i, summed} or set(right) != {*batch, j, summed}:
            return ""
        return summed

    @property
    def pairs_last(self) -> bool:
        """Whether a pairing sums over the last dimension of both operands."""
        out, summed = self.out, self.summed
        return self.left == out[:-1] + summed and self.right == out[:-2] + out[-1] + summed

    @property
    def weights(self) -> bool:
        """Whether the last dimension of the left operand weights rows of the right one."""
        left, right, out = self.left, self.right, self.out
        if len(left) < 3 or left[-2] in right or left[-1] not in right:
            return False
        return set(out) == set(left + right) - {left[-1]}

    @property
    def weights_last(self) -> bool:
        """Whether the rows that a product weights are the second to last dimension."""
        left, right, out = self.left, self.right, self.out
        return right[:-1] == left[:-2] + left[-1] and out == left[:-1] + right[-1]


def einsum_of(values: Values, call: cst.Call) -> Einsum | None:
    """Return the product of two tensors that a call of `torch.einsum` computes."""
    if values.names.name(call.func) != "torch.einsum" or len(call.args) not in (2, 3):
        return None
    text = values.value_of(call.args[0].value).literal
    given = [arg.value for arg in call.args[1:]]
    if len(given) == 1 and isinstance(given[0], (cst.List, cst.Tuple)):
        given = [element.value for element in given[0].elements]
    if not isinstance(text, str):
        return None
    operands, arrow, out = text.replace(" ", "").partition("->")
    left, _, right = operands.partition(",")
    if not arrow or "," in right or "." in text or not right or len(given) != 2:
        return None
    return Einsum(left, right, out, given)
