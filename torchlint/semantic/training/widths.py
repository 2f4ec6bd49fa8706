"""Widths: the whole numbers that the layers of a network are made with, as far as code tells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.values.facts import ValueFacts
from torchlint.semantic.values.known import ValueAnalysis

_PRODUCTS: Final = frozenset({"numpy.prod", "math.prod"})
_ROUNDED: Final = frozenset({"builtins.int", "math.floor", "math.ceil", "builtins.round"})
_NAMESPACES: Final = frozenset({"types.SimpleNamespace", "argparse.Namespace"})
_IMAGE: Final = 512
"""Numbers of a flattened image: a digit has 784, a picture of 32 x 32 in colour 3072."""


class Widths(ValueAnalysis):
    """Computes widths out of literals, options, defaults of parameters, and sums of these."""

    values: ValueFacts

    @memoized(None)
    def number(self, node: cst.BaseExpression) -> int | None:
        """Return the largest whole number that an expression is known to be, None without one."""
        option = self.values.options.of(node)
        if option is not None:
            return option.default if type(option.default) is int else None
        found = [self._of_value(made) for made in self._origins(node)]
        known = [each for each in found if each is not None]
        return max(known or self._assigned(node) or self._passed(node), default=None)

    @memoized(False)
    def is_flattened(self, node: cst.BaseExpression) -> bool:
        """Return whether a width is that of a flattened image: the product of its sides."""
        for made in self._origins(node):
            if isinstance(made, cst.Call) and self.names.name(made.func) in _ROUNDED:
                return bool(made.args) and self.is_flattened(made.args[0].value)
            if isinstance(made, cst.Call) and self.names.name(made.func) in _PRODUCTS:
                return True
            if isinstance(made, cst.BinaryOperation):
                if isinstance(made.operator, (cst.Add, cst.Subtract)):
                    return self.is_flattened(made.left) or self.is_flattened(made.right)
                multiplies = isinstance(made.operator, cst.Multiply)
                return multiplies and (self.number(made) or 0) >= _IMAGE
        return False

    def _origins(self, node: cst.BaseExpression) -> tuple[cst.BaseExpression, ...]:
        return self.origins.of(node).values or (node,)

    def _assigned(self, node: cst.BaseExpression) -> list[int]:
        """Return the numbers that lines write to an attribute of a plain namespace."""
        if not isinstance(node, cst.Attribute):
            return []
        made = self.origins.of(node.value).values
        names = {self.names.name(each.func) if isinstance(each, cst.Call) else "" for each in made}
        if not names or not names <= _NAMESPACES:
            return []
        targets = map(self.tree.parent, self.functions.attributes(node.attr.value))
        lines = (self.tree.parent(each) for each in targets if isinstance(each, cst.AssignTarget))
        found = (self.number(each.value) for each in lines if isinstance(each, cst.Assign))
        return [each for each in found if each is not None]

    def _passed(self, node: cst.BaseExpression) -> Iterator[int]:
        """Yield what calls pass for a parameter, else its default."""
        for parameter in (each.node for each in self.scopes.reaching(node)):
            if isinstance(parameter, cst.Param):
                given = [self.number(each) for each in self.functions.given(parameter)]
                known = [each for each in given if each is not None]
                default = self.number(parameter.default) if parameter.default is not None else None
                yield from known or (() if default is None else (default,))

    def _of_value(self, made: cst.BaseExpression) -> int | None:
        if isinstance(made, cst.Integer):
            return made.evaluated_value
        if isinstance(made, cst.BinaryOperation):
            return self._of_sum(made)
        if isinstance(made, cst.Call) and made.args:
            name, first = self.names.name(made.func), made.args[0].value
            if name in _ROUNDED:
                return self.number(first)
            if name in _PRODUCTS:
                sides = list(self._sides(first))
                return None if not sides or None in sides else math.prod(filter(None, sides))
        return None

    def _of_sum(self, made: cst.BinaryOperation) -> int | None:
        one, other = self.number(made.left), self.number(made.right)
        if one is None or other is None:
            return None
        if isinstance(made.operator, cst.Multiply):
            return one * other
        if isinstance(made.operator, cst.Add):
            return one + other
        if isinstance(made.operator, cst.Subtract):
            return one - other
        divides = isinstance(made.operator, (cst.Divide, cst.FloorDivide))
        return one // other if divides and other else None

    def _sides(self, node: cst.BaseExpression) -> Iterator[int | None]:
        for made in self._origins(node):
            if isinstance(made, (cst.Tuple, cst.List)):
                yield from (self.number(each.value) for each in made.elements)
