"""TL406: rows of a matrix selected by a matmul with one-hot vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Edits, Finding, Fix, How, Rule, Script, method_of, receiver_of
from torchlint_rules.tl406_one_hot_matmul.scatteredonehot import scattered_later, scatters_ones

_ONE_HOT: Final = "torch.nn.functional.one_hot"
_PRODUCTS: Final = ("torch.matmul", "torch.mm")
_METHODS: Final = ("matmul", "mm")
_CASTS: Final = ("float", "double", "half", "bfloat16", "to", "type", "type_as", "cuda")
_SHAPED: Final = frozenset(
    f"torch.{word}" for word in "randn rand zeros ones empty normal eye".split()
)
_LAYERS: Final = ("torch.nn.Embedding", "torch.nn.Linear")
_DTYPE: Final = re.compile(r"(?:\w*_)?dtype|b?float\d*|double|half")
_ORDER: Final = "the gradient of the matrix is added up in another order"
_AUTOCAST: Final = "under autocast the product was rounded to 16 bits, and the look-up is not"


class Product(NamedTuple):
    """One-hot vectors times a matrix: the product, both operands, and the call for the left one."""

    node: cst.BaseExpression
    left: cst.BaseExpression
    matrix: cst.BaseExpression
    one_hot: cst.Call


class OneHotMatmul(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every matmul of one-hot vectors with a matrix, and every layer that gets some."""
        if next(script.calls.of(_ONE_HOT), None) is None and not any(
            script.calls.of_methods("scatter_")
        ):
            return
        for product in _products(script):
            if not _has_two_dimensions(script, product.matrix):
                continue
            matrix = script.tree.brief(product.matrix)
            message = (
                f"one-hot vectors times `{matrix}` read all of it to pick rows: look them up with "
                "`F.embedding`"
            )
            yield Finding(self.code, script.span(product.node), message, _fix(script, product))
        for call in script.tree.all(cst.Call):
            if len(call.args) != 1 or _one_hot(script, call.args[0].value) is None:
                continue
            made = script.values.value_of(call.func).node
            if isinstance(made, cst.Call) and script.name(made.func) == "torch.nn.Linear":
                layer = script.tree.brief(call.func)
                message = (
                    f"one-hot vectors in `{layer}` read all of its weight to pick rows: an "
                    "`nn.Embedding` looks them up"
                )
                yield Finding(self.code, script.span(call), message)


def _products(script: Script) -> Iterator[Product]:
    """Yield the matmuls whose left operand is one-hot vectors."""
    for operation in script.tree.all(cst.BinaryOperation):
        if isinstance(operation.operator, cst.MatrixMultiply):
            made = _one_hot(script, operation.left)
            if made is not None:
                yield Product(operation, operation.left, operation.right, made)
    for call in script.tree.all(cst.Call):
        sides = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        name, owner = script.name(call.func), receiver_of(call, *_METHODS)
        if name is None and owner is not None and len(sides) == 1:
            sides = [owner, *sides]
        elif name is not None and name not in _PRODUCTS:
            continue
        if len(sides) == 2 and len(call.args) <= 2:
            multiplies = script.name(call.func) in _PRODUCTS or method_of(call) in _METHODS
            made = _one_hot(script, sides[0]) if multiplies else None
            if made is not None:
                yield Product(call, sides[0], sides[1], made)


def _one_hot(script: Script, node: cst.BaseExpression) -> cst.Call | None:
    """Return the call of `one_hot` behind an expression, through casts and names."""
    if isinstance(node, cst.Name):
        binding = script.scopes.only(node)
        if binding.how is not How.ASSIGN or binding.value is None:
            return None
        filled = scattered_later(script, node, binding)
        return filled or script.answer(_one_hot, binding.value, None)
    if not isinstance(node, cst.Call):
        return None
    if script.name(node.func) == _ONE_HOT:
        return node if node.args and node.args[0].keyword is None else None
    if scatters_ones(script, node):
        return node
    cast = receiver_of(node, *_CASTS) if script.name(node.func) is None else None
    return script.answer(_one_hot, cast, None) if cast is not None else None


def _has_two_dimensions(script: Script, matrix: cst.BaseExpression) -> bool:
    """Return whether the file shows that an expression is a matrix."""
    if isinstance(matrix, cst.Attribute) and matrix.attr.value == "T":
        return _has_two_dimensions(script, matrix.value)
    turned = receiver_of(matrix, "t")
    if turned is not None and isinstance(matrix, cst.Call) and not matrix.args:
        return _has_two_dimensions(script, turned)
    if isinstance(matrix, cst.Attribute) and matrix.attr.value == "weight":
        layer = script.values.value_of(matrix.value).node
        if isinstance(layer, cst.Call) and script.name(layer.func) in _LAYERS:
            return True
    made = script.values.value_of(matrix).node
    if isinstance(made, cst.BinaryOperation):
        scaled = isinstance(made.right, (cst.Integer, cst.Float))
        return scaled and script.answer(_has_two_dimensions, made.left, False)
    if not isinstance(made, cst.Call) or not made.args:
        return False
    if script.name(made.func) == "torch.nn.Parameter":
        return script.answer(_has_two_dimensions, made.args[0].value, False)
    if script.name(made.func) not in _SHAPED:
        return False
    sizes = [arg.value for arg in made.args if arg.keyword is None]
    if len(sizes) == 1 and isinstance(sizes[0], (cst.Tuple, cst.List)):
        sizes = [element.value for element in sizes[0].elements]
    return len(sizes) == 2


def _fix(script: Script, product: Product) -> Fix | None:
    """Return the edits for a lookup, None if the vectors are needed elsewhere."""
    func = product.one_hot.func
    if script.name(func) != _ONE_HOT:
        return None
    if not isinstance(func, cst.Attribute) or "#" in script.code(product.node):
        return None
    if _moves(script, product.left):
        return None
    ids, matrix = script.code(product.one_hot.args[0].value), script.code(product.matrix)
    edits: Edits = ()
    if isinstance(product.left, cst.Name):
        dropped = _without_line(script, product)
        if dropped is None:
            return None
        edits = dropped
    text = f"{script.code(func.value)}.embedding({ids}, {matrix})"
    start = script.span(product.node).start
    if script.tree.source.text[max(start - 1, 0) : start].isalnum():
        text = f" {text}"
    edits = (*edits, *script.edits.replace(product.node, text))
    title = "Look the rows up"
    if script.values.autocasting.may_be_on(product.node):
        return Fix.unsafe(title, edits, because=_AUTOCAST)
    return Fix.close(title, edits, because=_ORDER)


def _moves(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether the vectors may be on another device than their ids."""
    if isinstance(node, cst.Name):
        value = script.scopes.reaching(node)[0].value
        return value is not None and script.answer(_moves, value, False)
    owner = receiver_of(node)
    if not isinstance(node, cst.Call) or owner is None or script.name(node.func) == _ONE_HOT:
        return False
    if method_of(node) in ("cuda", "type_as"):
        return True
    dtypes = [script.code(arg.value).rpartition(".")[2] for arg in node.args]
    return not all(map(_DTYPE.fullmatch, dtypes)) or script.answer(_moves, owner, False)


def _without_line(script: Script, product: Product) -> Edits | None:
    """Remove the line that names the one-hot vectors if only the product reads them."""
    left = product.left
    assert isinstance(left, cst.Name)
    if script.scopes.only_read_at(left) is None:
        return None
    (binding,) = script.scopes.reaching(left)
    line, ids = script.tree.statement(binding.node), product.one_hot.args[0].value
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(ids, cst.Name):
        return None
    if not script.edits.stands_alone(line):
        return None
    before = set(map(id, script.scopes.reaching(ids)))
    now = script.scopes.reaching_name(ids.value, left, script.scopes.scope(left))
    return script.edits.drop(line) if before == set(map(id, now)) else None
