"""Formulas of activations and norms, recognized in many spellings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Kind, Script, method_of, receiver_of, word_of
from torchlint_rules.tl311_handwritten_pointwise.products import (
    Product,
    product_of,
    products_around,
)

_FUNCTIONAL: Final = "torch.nn.functional"
_NEAR: Final = 2e-5
_CUBIC: Final = 0.044715
_STARTS: Final = frozenset("erf tanh sigmoid exp rsqrt sqrt".split())
_TORCH: Final = ("torch.", "torch.nn.functional.", "torch.special.")


class Formula(NamedTuple):
    """One formula: the whole expression, the function that computes it, and its arguments.

    `fixed` is False if the call needs more than this expression shows.
    """

    node: cst.BaseExpression
    module: str
    function: str
    operand: cst.BaseExpression
    rest: tuple[str, ...] = ()
    since: tuple[int, int] = (1, 0)
    fixed: bool = True


def formulas(script: Script) -> Iterator[Formula]:
    """Yield every formula that one torch function computes."""
    reader = _Reader(script)
    for call in script.tree.own(cst.Call):
        if word_of(call) in _STARTS:
            found = reader.read(call)
            if found is not None:
                yield found


class _Reader:
    """Reads the formulas of one script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def read(self, call: cst.Call) -> Formula | None:
        """Return the formula around its characteristic call."""
        made = self._of(call)
        if made is None:
            return None
        word, operand = made
        if word in ("erf", "tanh"):
            return self._gelu(call, word, operand)
        if word == "sigmoid":
            return self._sigmoid(call, operand)
        if word == "exp":
            return self._exponential(call, operand)
        return self._norm(call, word, operand)

    def _of(self, node: cst.CSTNode | None) -> tuple[str, cst.BaseExpression] | None:
        """Return the name and the only operand of a tensor function or method."""
        if not isinstance(node, cst.Call) or any(arg.star or arg.keyword for arg in node.args):
            return None
        name = self.script.name(node.func)
        word = word_of(node)
        if name is not None:
            torch = any(name == f"{prefix}{word}" for prefix in _TORCH)
            return (word, node.args[0].value) if torch and len(node.args) == 1 else None
        owner = receiver_of(node) if not node.args else None
        if owner is None or self.script.kind(owner) is Kind.NDARRAY:
            return None
        return word, owner

    # -- formulas -------------------------------------------------------------

    def _gelu(self, call: cst.Call, word: str, operand: cst.BaseExpression) -> Formula | None:
        bracket = self._one_plus(call)
        if bracket is None:
            return self._mish(call, operand) if word == "tanh" else None
        for outer in products_around(self.script, bracket):
            product = product_of(self.script, outer)
            others = [top for top in product.tops if top is not bracket]
            if product.bottoms or len(product.tops) != 2 or len(others) != 1:
                continue
            x = others[0]
            if not _near(product.number, 0.5) or not self._is_plain(x):
                continue
            if word == "erf" and self._is_multiple(operand, x, math.sqrt(0.5)):
                return Formula(outer, _FUNCTIONAL, "gelu", x)
            if word == "tanh" and self._is_cubic(operand, x):
                rest = ('approximate="tanh"',)
                return Formula(outer, _FUNCTIONAL, "gelu", x, rest, (1, 12))
        return None

    def _mish(self, call: cst.Call, operand: cst.BaseExpression) -> Formula | None:
        """Return the formula of `x * tanh(softplus(x))`."""
        inner = self._of(operand)
        if inner is None or inner[0] != "softplus" or not self._is_plain(inner[1]):
            return None
        outer = self._times(call, inner[1])
        return Formula(outer, _FUNCTIONAL, "mish", inner[1], (), (1, 9)) if outer else None

    def _times(self, call: cst.Call, x: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the product of a call and an expression, and of nothing else."""
        for outer in products_around(self.script, call):
            product = product_of(self.script, outer)
            others = [top for top in product.tops if top is not call]
            if product.number == 1 and not product.bottoms and len(product.tops) == 2:
                if len(others) == 1 and self._same(others[0], x):
                    return outer
        return None

    def _sigmoid(self, call: cst.Call, x: cst.BaseExpression) -> Formula | None:
        if not self._is_plain(x):
            return None
        logarithm = self._applied(call, "log")
        if logarithm is not None:
            return Formula(logarithm, _FUNCTIONAL, "logsigmoid", x)
        named = self._logarithm_of_name(call)
        if named is not None:
            return Formula(named, _FUNCTIONAL, "logsigmoid", x, fixed=False)
        outer = self._times(call, x)
        return Formula(outer, _FUNCTIONAL, "silu", x, (), (1, 7)) if outer else None

    def _logarithm_of_name(self, call: cst.Call) -> cst.Call | None:
        """Return the logarithm of a sigmoid that a line of the same block named."""
        assign = self.script.tree.parent(call)
        if not isinstance(assign, cst.Assign):
            return None
        name = assign.targets[0].target
        if len(assign.targets) != 1 or not isinstance(name, cst.Name):
            return None
        binding = self.script.scopes.stored(name)
        home = self.script.scopes.home(call)
        uses = list(self.script.scopes.uses(binding, home)) if binding is not None else []
        applied = [self._applied(use, "log") for use in uses]
        return applied[0] if len(applied) == 1 else None

    def _exponential(self, call: cst.Call, x: cst.BaseExpression) -> Formula | None:
        if not self._is_plain(x):
            return None
        softplus = self._applied(call, "log1p")
        bracket = self._one_plus(call)
        if softplus is None and bracket is not None:
            softplus = self._applied(bracket, "log")
        if softplus is not None:
            return Formula(softplus, _FUNCTIONAL, "softplus", x)
        if bracket is not None:
            return self._logistic(bracket, x)
        return self._normalised(call, x)

    def _logistic(self, bracket: cst.BaseExpression, negated: cst.BaseExpression) -> Formula | None:
        """Return the formula of `1 / (1 + exp(-x))` and `x / (1 + exp(-x))`."""
        inner = product_of(self.script, negated)
        if inner.number != -1 or len(inner.tops) != 1 or inner.bottoms:
            return None
        x = inner.tops[0]
        for outer in products_around(self.script, bracket):
            product = product_of(self.script, outer)
            if product.bottoms != [bracket] or product.number != 1:
                continue
            if not product.tops:
                return Formula(outer, "torch", "sigmoid", x)
            if len(product.tops) == 1 and self._same(product.tops[0], x):
                return Formula(outer, _FUNCTIONAL, "silu", x, (), (1, 7))
        return None

    def _normalised(self, call: cst.Call, x: cst.BaseExpression) -> Formula | None:
        """Return `log(exp(x).sum(dim))` or `exp(x) / exp(x).sum(dim, keepdim=True)`."""
        total = self._summed(call)
        if total is None:
            return None
        node, dim, kept = total
        logarithm = self._applied(node, "log")
        if logarithm is not None:
            rest = (f"dim={dim}", "keepdim=True") if kept else (f"dim={dim}",)
            return Formula(logarithm, "torch", "logsumexp", x, rest)
        outer = self.script.tree.parent(node)
        if not kept or not isinstance(outer, cst.BinaryOperation) or outer.right is not node:
            return None
        if isinstance(outer.operator, cst.Divide) and self._same(outer.left, call):
            return Formula(outer, "torch", "softmax", x, (f"dim={dim}",))
        return None

    def _summed(self, value: cst.BaseExpression) -> tuple[cst.Call, str, bool] | None:
        """Return the sum of a tensor along one dimension, and whether the dimension is kept."""
        holder = self.script.tree.parent(value)
        call = self.script.tree.parent(holder)
        if not isinstance(call, cst.Call) or word_of(call) != "sum":
            return None
        if isinstance(holder, cst.Attribute) and call.func is holder:
            position = 0
        elif call.args and call.args[0] is holder and self.script.name(call.func) == "torch.sum":
            position = 1
        else:
            return None
        site = self.script.calls.at(call)
        dim = site.given("dim", position) or site.given("axis")
        kept = site.argument("keepdim", position + 1)
        if dim is None or site.has_splat or site.given("dtype") is not None:
            return None
        return call, self.script.code(dim.value), kept.equals(True)

    def _norm(self, call: cst.Call, word: str, operand: cst.BaseExpression) -> Formula | None:
        """Return norms over the last dimension, such as `x * rsqrt(mean(x ** 2) + eps)`."""
        if not isinstance(operand, cst.BinaryOperation):
            return None
        if not isinstance(operand.operator, cst.Add):
            return None
        spread = self._followed(operand.left)
        outer = next(products_around(self.script, call), None)
        if outer is None or not isinstance(spread, cst.Call):
            return None
        product = product_of(self.script, outer)
        tops = [top for top in product.tops if top is not call]
        divided = word == "sqrt" and product.bottoms == [call]
        multiplied = word == "rsqrt" and not product.bottoms and call in product.tops
        if product.number != 1 or not (divided or multiplied):
            return None
        if any(self._is_standardised(top, spread) for top in tops):
            return Formula(outer, _FUNCTIONAL, "layer_norm", tops[0], fixed=False)
        x = self._mean_square_of(spread)
        if x is None or not self._is_plain(x) or len(tops) != 1 or not self._same(tops[0], x):
            return None
        rest = (f"{self.script.code(x)}.shape[-1:]", f"eps={self.script.code(operand.right)}")
        is_number = self.script.values.numbers.is_number
        fixed = is_number(operand.right) and not isinstance(operand.left, cst.Name)
        return Formula(outer, _FUNCTIONAL, "rms_norm", x, rest, (2, 4), fixed)

    def _is_standardised(self, centred: cst.BaseExpression, spread: cst.Call) -> bool:
        """Return whether the variance of `x - mean` is the one that layer norm divides by."""
        centred = self._followed(centred)
        if not isinstance(centred, cst.BinaryOperation):
            return False
        if not isinstance(centred.operator, cst.Subtract):
            return False
        x, mean = centred.left, self._followed(centred.right)
        if not self._is_plain(x) or not self._along_last(mean, "mean", x):
            return False
        squares = self._mean_square_of(spread)
        if squares is not None:
            return self._same(self._followed(squares), centred)
        site = self.script.calls.at(spread)
        biased = site.argument("unbiased").equals(False) or site.argument("correction").equals(0)
        return biased and self._along_last(spread, "var", x)

    def _along_last(self, node: cst.BaseExpression, word: str, x: cst.BaseExpression) -> bool:
        """Return whether a node is `x.word(-1, keepdim=True)`, as a method or a function."""
        found = self._reduced(node, word)
        return found is not None and self._same(found, x)

    def _reduced(self, node: cst.BaseExpression, word: str) -> cst.BaseExpression | None:
        """Return the operand of a reduction over the last dimension with `keepdim=True`."""
        if not isinstance(node, cst.Call) or word_of(node) != word:
            return None
        whole = self.script.name(node.func) == f"torch.{word}"
        if not whole and not method_of(node):
            return None
        site, position = self.script.calls.at(node), 1 if whole else 0
        kept = site.argument("keepdim").equals(True) or site.argument(
            "keepdim", position + 1
        ).equals(True)
        dim = site.argument("dim", position).literal
        if dim not in (-1, (-1,)) or not kept:
            return None
        if whole:
            return node.args[0].value
        return receiver_of(node)

    def _mean_square_of(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        squares = self._reduced(node, "mean")
        product = product_of(self.script, squares) if squares is not None else Product()
        if len(product.tops) != 2 or product.bottoms or product.number != 1:
            return None
        return product.tops[0] if self._same(product.tops[0], product.tops[1]) else None

    def _followed(self, node: cst.BaseExpression) -> cst.BaseExpression:
        if not isinstance(node, cst.Name):
            return node
        return self.script.values.value_of(node).node or node

    # -- parts ----------------------------------------------------------------

    def _one_plus(self, node: cst.BaseExpression) -> cst.BinaryOperation | None:
        """Return the other operand of an addition of one."""
        outer = self.script.tree.parent(node)
        if not isinstance(outer, cst.BinaryOperation) or not isinstance(outer.operator, cst.Add):
            return None
        other = outer.right if outer.left is node else outer.left
        return outer if self.script.values.numbers.value(other) == 1 else None

    def _applied(self, node: cst.BaseExpression, word: str) -> cst.Call | None:
        """Return the call that applies a function or method to a node and nothing else."""
        holder = self.script.tree.parent(node)
        call = self.script.tree.parent(holder)
        made = self._of(call)
        if not isinstance(call, cst.Call) or made is None:
            return None
        return call if made[0] == word and made[1] is node else None

    def _is_multiple(self, node: cst.BaseExpression, x: cst.BaseExpression, by: float) -> bool:
        product = product_of(self.script, node)
        alone = len(product.tops) == 1 and not product.bottoms
        return alone and self._same(product.tops[0], x) and _near(product.number, by)

    def _is_cubic(self, node: cst.BaseExpression, x: cst.BaseExpression) -> bool:
        """Return whether a node is `sqrt(2 / pi) * (x + 0.044715 * x ** 3)` or equivalent."""
        product = product_of(self.script, node)
        if not _near(product.number, math.sqrt(2 / math.pi)) or product.bottoms:
            return False
        sums = [top for top in product.tops if isinstance(top, cst.BinaryOperation)]
        outside = [top for top in product.tops if top not in sums]
        if len(sums) != 1 or len(outside) > 1 or not all(self._same(top, x) for top in outside):
            return False
        total = sums[0]
        if not isinstance(total.operator, cst.Add):
            return False
        terms = sorted(
            (product_of(self.script, total.left), product_of(self.script, total.right)),
            key=lambda term: -term.number,
        )
        if any(not self._same(top, x) for term in terms for top in term.tops):
            return False
        degrees = [len(term.tops) + len(outside) for term in terms]
        return degrees == [1, 3] and terms[0].number == 1 and _near(terms[1].number, _CUBIC)

    def _same(self, first: cst.BaseExpression, second: cst.BaseExpression) -> bool:
        return self._code(first) == self._code(second)

    def _code(self, node: cst.BaseExpression) -> str:
        return "".join(self.script.tree.argument(node).split())

    def _is_plain(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression may be evaluated once instead of twice: it calls nothing."""
        called = next(self.script.tree.within(node, cst.Call), None)
        return called is None and self.script.values.numbers.value(node) is None


def _near(number: float, wanted: float) -> bool:
    return abs(number - wanted) <= _NEAR * wanted
