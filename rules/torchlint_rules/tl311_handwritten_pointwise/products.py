"""Products: expressions as a number, factors and divisors, however they are spelled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import libcst as cst

from torchlint.api import ASSIGNED, Script, receiver_of, word_of


class Product(NamedTuple):
    """A product: a constant, the factors and the divisors."""

    number: float = 1.0
    tops: Sequence[cst.BaseExpression] = ()
    bottoms: Sequence[cst.BaseExpression] = ()

    def times(self, other: Product) -> Product:
        """Return the product of two products."""
        return Product(
            self.number * other.number,
            [*self.tops, *other.tops],
            [*self.bottoms, *other.bottoms],
        )

    def over(self, other: Product) -> Product:
        """Return the quotient of two products, with NaN as its number if the second is zero."""
        if not other.number:
            return Product(math.nan)
        number = self.number / other.number
        return Product(number, [*self.tops, *other.bottoms], [*self.bottoms, *other.tops])


def product_of(script: Script, node: cst.BaseExpression) -> Product:
    """Return the factors of an expression; it is itself the only one if it is no product."""
    number = script.values.numbers.value(node)
    if number is not None:
        return Product(number)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        return Product(-1.0).times(product_of(script, node.expression))
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Multiply):
            return product_of(script, node.left).times(product_of(script, node.right))
        if isinstance(node.operator, cst.Divide):
            return product_of(script, node.left).over(product_of(script, node.right))
        if isinstance(node.operator, cst.Power):
            return _power(script, node, node.left, node.right)
    return _of_call(script, node) if isinstance(node, cst.Call) else Product(1.0, [node])


def _of_call(script: Script, node: cst.Call) -> Product:
    plain = [arg.value for arg in node.args]
    owner = receiver_of(node)
    if owner is not None and script.name(node.func) is None:
        plain.insert(0, owner)
    word = word_of(node)
    if word == "mul" and len(plain) == 2:
        return product_of(script, plain[0]).times(product_of(script, plain[1]))
    if word == "pow" and len(plain) == 2:
        return _power(script, node, plain[0], plain[1])
    if word == "square" and len(plain) == 1:
        return Product(1.0, [plain[0], plain[0]])
    return Product(1.0, [node])


def _power(
    script: Script, node: cst.BaseExpression, base: cst.BaseExpression, exponent: cst.BaseExpression
) -> Product:
    times = script.values.numbers.value(exponent)
    return Product(1.0, [base] * int(times)) if times in (2, 3) else Product(1.0, [node])


def products_around(script: Script, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the products that have an expression among their factors, the innermost first."""
    at: cst.CSTNode = node
    for _ in range(ASSIGNED):
        outer = script.tree.parent(at)
        if isinstance(outer, cst.BinaryOperation):
            if not isinstance(outer.operator, (cst.Multiply, cst.Divide)):
                return
            yield outer
        elif isinstance(outer, cst.Call) and word_of(outer) == "mul":
            yield outer
        elif not isinstance(outer, (cst.Arg, cst.Attribute)):
            return
        at = outer
