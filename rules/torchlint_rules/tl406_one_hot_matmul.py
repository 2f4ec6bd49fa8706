"""TL406: rows of a matrix are looked up by multiplying it with one-hot vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, How, Record, Rule, Safety, Script, regex
from torchlint_rules._scattering import scattered_later, scatters_ones

_ONE_HOT: Final = "torch.nn.functional.one_hot"
_PRODUCTS: Final = ("torch.matmul", "torch.mm")
_METHODS: Final = ("matmul", "mm")
_CASTS: Final = ("float", "double", "half", "bfloat16", "to", "type", "type_as", "cuda")
_SHAPED: Final = frozenset(
    f"torch.{word}" for word in "randn rand zeros ones empty normal eye".split()
)
_LAYERS: Final = ("torch.nn.Embedding", "torch.nn.Linear")
_DTYPE: Final = regex(r"(?:\w*_)?dtype|b?float\d*|double|half")
_ORDER: Final = "the gradient of the matrix is added up in another order"
_AUTOCAST: Final = "under autocast the product was rounded to 16 bits, and the look-up is not"
_DEPTH: Final = 6


class Product(Record):
    """One-hot vectors times a matrix: the whole, both sides, and the call that made the left."""

    node: cst.BaseExpression
    left: cst.BaseExpression
    matrix: cst.BaseExpression
    one_hot: cst.Call


class OneHotMatmul(Rule):
    """
    ## What it does
    Flags `F.one_hot(ids, n).float() @ weight`, the same with zeros into which `scatter_` wrote
    ones, and a linear layer that is given one-hot vectors.

    ## Why it is slow
    The product reads the whole matrix for every id to pick a single row, after a tensor of as many
    numbers as ids times classes was filled with zeros. `F.embedding(ids, weight)` copies the rows:
    measured on a CPU, 420 to 460 times faster.

    ## When not to
    Keep it where the vectors are no longer one-hot, as with label smoothing or a straight-through
    estimate, whose gradients go through the vectors.

    ## Fix safety
    Close: each row is the same, and the matrix's gradient is added up in another order. Unsafe in a
    script that uses autocast, which rounds the product but not the look-up. Reported only where
    the vectors are used twice or go into a linear layer: make that an `nn.Embedding`.
    """

    code = "TL406"
    name = "one-hot-matmul"
    summary = "a whole matrix is multiplied to pick some of its rows"
    impact = "medium"
    safety = Safety.CLOSE
    needs = ("one_hot", "scatter_")

    invalid = {
        "with the operator, a parameter of two dimensions": """
              import torch
              import torch.nn.functional as F
              from torch import nn
              class Lookup(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.table = nn.Parameter(torch.randn(1000, 64) * 0.02)
                      self.embed = nn.Embedding(1000, 64)
                      self.fc = nn.Linear(64, 1000)
                  def forward(self, ids):
            -         x = F.one_hot(ids, 1000).float() @ self.table
            -         y = torch.matmul(F.one_hot(ids, num_classes=1000).to(x.dtype), self.embed.weight)
            -         return x + y + (F.one_hot(ids, 64).to(torch.float32).mm(self.fc.weight.T)).sum()
            +         x = F.embedding(ids, self.table)
            +         y = F.embedding(ids, self.embed.weight)
            +         return x + y + F.embedding(ids, self.fc.weight.T).sum()
            """,
        "behind a name that nothing else needs": """
              import torch
              import torch.nn.functional as F
              W = torch.randn((27, 27), requires_grad=True)
              def loss(xs, ys):
            -     xenc = F.one_hot(xs, num_classes=27).float()  # input to the network
            -     logits = (xenc @ W).exp()
            +     # input to the network
            +     logits = F.embedding(xs, W).exp()
                  return F.nll_loss(logits.log(), ys)
            """,
        "under autocast: unsafe": """
              import torch
              W = torch.zeros(10, 4, device="cuda")
              def look_up(ids):
                  with torch.autocast("cuda"):
            -         return torch.nn.functional.one_hot(ids, 10).half() @ W
            +         return torch.nn.functional.embedding(ids, W)
            """,
        "made once, used often: reported": """
              import torch
              import torch.nn.functional as F
              def fit(xs, ys):
                  W = torch.randn((27, 27), requires_grad=True)
                  xenc = F.one_hot(xs, num_classes=27).float()
                  for k in range(100):
            !         logits = xenc @ W
                      F.cross_entropy(logits, ys).backward()
                      W.data += -50 * W.grad
            """,
        "imported by name, or moved to a device where the ids may not be: reported": """
              import torch
              import torch.nn.functional as F
              from torch.nn.functional import one_hot
              W = torch.ones(10, 4)
              def look_up(ids, device, x):
            !     a = one_hot(ids, 10).float() @ W
            !     b = F.one_hot(ids, 10).float().to(device) @ W
            !     return a + b + F.one_hot(ids, 10).type_as(x) @ W
            """,
        "ones that are scattered into zeros: reported": """
              import torch
              from torch import nn
              class Quantizer(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.codes = nn.Embedding(512, 64)
                  def forward(self, distances):
                      ids = torch.argmin(distances, dim=1).unsqueeze(1)
                      rows = torch.zeros(ids.size(0), 512, device=distances.device)
                      rows.scatter_(1, ids, 1)
            !         once = torch.matmul(rows, self.codes.weight)
                      picked = torch.zeros(len(ids), 512).scatter_(1, ids.view(-1, 1), 1.0)
            !         return once + picked @ self.codes.weight
            """,
        "into a linear layer: reported": """
              import torch.nn.functional as F
              from torch import nn
              class Labels(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.fc = nn.Linear(10, 64)
                  def forward(self, label):
            !         return self.fc(F.one_hot(label, 10).float())
            """,
    }
    valid = {
        "several ones in a row, or what is no one": """
            import torch
            from torch import nn
            W = torch.ones(10, 4)
            def bag(ids, shares):
                many = torch.zeros(len(ids), 10)
                many.scatter_(1, ids, 1)
                weighed = torch.zeros(len(ids), 10).scatter_(1, ids.view(-1, 1), shares)
                mixed = torch.zeros(len(ids), 10)
                mixed.scatter_(1, ids.view(-1, 1), 1)
                mixed.mul_(shares)
                return many @ W, weighed @ W, mixed @ W
            """,
        "one-hot targets of a loss": """
            import torch.nn.functional as F
            def dice(pred, mask, n):
                target = F.one_hot(mask, n).permute(0, 3, 1, 2).float()
                return (pred * target).sum() / (pred + target).sum()
            """,
        "the transposed vectors count, they do not look up": """
            import torch
            import torch.nn.functional as F
            W = torch.ones(8, 4)
            def class_sums(ids, x):
                return F.one_hot(ids, 4).float().T @ W
            """,
        "the matrix may have more dimensions": """
            import torch.nn.functional as F
            def positions(ids, table, other):
                return F.one_hot(ids, 4).float() @ table, F.one_hot(ids, 4).float() @ other.tables
            """,
        "a mixture of rows": """
            import torch
            import torch.nn.functional as F
            W = torch.ones(8, 4)
            def smooth(ids, logits):
                soft = F.one_hot(ids, 8).float() * 0.9 + 0.1 / 8
                soft = soft + logits.softmax(-1) - logits.softmax(-1).detach()
                return soft @ W
            """,
        "sometimes something else": """
            import torch
            import torch.nn.functional as F
            W = torch.ones(8, 4)
            def look_up(ids, probs):
                weights = F.one_hot(ids, 8).float()
                if probs is not None:
                    weights = probs
                return weights @ W
            """,
        "the embedding itself": """
            import torch.nn.functional as F
            def look_up(ids, table, one_hot):
                return F.embedding(ids, table) + one_hot @ table
            """,
        "one-hot vectors beside others in a layer": """
            import torch
            import torch.nn.functional as F
            from torch import nn
            layer = nn.Linear(20, 8)
            def encode(x, label):
                return layer(torch.cat([x, F.one_hot(label, 10).float()], dim=1))
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every product of one-hot vectors with a matrix, and every layer given some."""
        if next(script.calls(_ONE_HOT), None) is None and not any(script.method_calls("scatter_")):
            return
        for product in _products(script):
            if not _has_two_dimensions(script, product.matrix):
                continue
            matrix = script.brief(product.matrix)
            message = (
                f"one-hot vectors times `{matrix}` read all of it to pick rows: look them up with "
                "`F.embedding`"
            )
            yield Finding(self.code, script.span(product.node), message, _fix(script, product))
        for call in script.all(cst.Call):
            if len(call.args) != 1 or _one_hot(script, call.args[0].value, _DEPTH) is None:
                continue
            made = script.value_of(call.func).node
            if isinstance(made, cst.Call) and script.name(made.func) == "torch.nn.Linear":
                layer = script.brief(call.func)
                message = (
                    f"one-hot vectors in `{layer}` read all of its weight to pick rows: an "
                    "`nn.Embedding` looks them up"
                )
                yield Finding(self.code, script.span(call), message)


def _products(script: Script) -> Iterator[Product]:
    """Yield the products whose left side is made of one-hot vectors."""
    for operation in script.all(cst.BinaryOperation):
        if isinstance(operation.operator, cst.MatrixMultiply):
            made = _one_hot(script, operation.left, _DEPTH)
            if made is not None:
                yield Product(operation, operation.left, operation.right, made)
    for call in script.all(cst.Call):
        sides = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        func = call.func
        if script.name(func) is None and isinstance(func, cst.Attribute):
            if func.attr.value in _METHODS and len(sides) == 1:
                sides = [func.value, *sides]
        elif script.name(func) not in _PRODUCTS:
            continue
        if len(sides) == 2 and len(call.args) <= 2:
            made = _one_hot(script, sides[0], _DEPTH) if _is_product(script, call) else None
            if made is not None:
                yield Product(call, sides[0], sides[1], made)


def _is_product(script: Script, call: cst.Call) -> bool:
    func = call.func
    named = script.name(func) in _PRODUCTS
    return named or (isinstance(func, cst.Attribute) and func.attr.value in _METHODS)


def _one_hot(script: Script, node: cst.BaseExpression, depth: int) -> cst.Call | None:
    """Give the call of `one_hot` that an expression is, casts and names left out."""
    if not depth:
        return None
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        if len(bindings) != 1 or bindings[0].how is not How.ASSIGN or bindings[0].value is None:
            return None
        filled = scattered_later(script, node, bindings[0])
        return filled or _one_hot(script, bindings[0].value, depth - 1)
    if not isinstance(node, cst.Call):
        return None
    if script.name(node.func) == _ONE_HOT:
        return node if node.args and node.args[0].keyword is None else None
    func = node.func
    if scatters_ones(script, node):
        return node
    if isinstance(func, cst.Attribute) and func.attr.value in _CASTS and script.name(func) is None:
        return _one_hot(script, func.value, depth - 1)
    return None


def _has_two_dimensions(script: Script, matrix: cst.BaseExpression) -> bool:
    """Whether the file shows that an expression is a matrix."""
    if isinstance(matrix, cst.Attribute) and matrix.attr.value == "T":
        return _has_two_dimensions(script, matrix.value)
    if isinstance(matrix, cst.Call) and isinstance(matrix.func, cst.Attribute):
        if matrix.func.attr.value == "t" and not matrix.args:
            return _has_two_dimensions(script, matrix.func.value)
    if isinstance(matrix, cst.Attribute) and matrix.attr.value == "weight":
        layer = script.value_of(matrix.value).node
        if isinstance(layer, cst.Call) and script.name(layer.func) in _LAYERS:
            return True
    made = script.value_of(matrix).node
    if isinstance(made, cst.BinaryOperation):
        scaled = isinstance(made.right, (cst.Integer, cst.Float))
        return scaled and _has_two_dimensions(script, made.left)
    if not isinstance(made, cst.Call) or not made.args:
        return False
    if script.name(made.func) == "torch.nn.Parameter":
        return _has_two_dimensions(script, made.args[0].value)
    if script.name(made.func) not in _SHAPED:
        return False
    sizes = [arg.value for arg in made.args if arg.keyword is None]
    if len(sizes) == 1 and isinstance(sizes[0], (cst.Tuple, cst.List)):
        sizes = [element.value for element in sizes[0].elements]
    return len(sizes) == 2


def _fix(script: Script, product: Product) -> Fix | None:
    """Look the rows up, None where the vectors are needed elsewhere or names are missing."""
    func = product.one_hot.func
    if script.name(func) != _ONE_HOT:
        return None
    if not isinstance(func, cst.Attribute) or "#" in script.code(product.node):
        return None
    if _moves(script, product.left, _DEPTH):
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
    if script.source.text[max(start - 1, 0) : start].isalnum():
        text = f" {text}"
    edits = (*edits, *script.rewrite.replace(product.node, text))
    title = "Look the rows up"
    if "autocast" in script.source.text:
        return Fix.unsafe(title, edits, because=_AUTOCAST)
    return Fix.close(title, edits, because=_ORDER)


def _moves(script: Script, node: cst.BaseExpression, depth: int) -> bool:
    """Whether the vectors may be on another device than the ids that they were made of."""
    if isinstance(node, cst.Name) and depth:
        value = script.scopes.reaching(node)[0].value
        return value is not None and _moves(script, value, depth - 1)
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    if script.name(node.func) == _ONE_HOT:
        return False
    if node.func.attr.value in ("cuda", "type_as"):
        return True
    dtypes = [script.code(arg.value).rpartition(".")[2] for arg in node.args]
    return not all(map(_DTYPE.fullmatch, dtypes)) or _moves(script, node.func.value, depth)


def _without_line(script: Script, product: Product) -> Edits | None:
    """Take out the line that names the one-hot vectors, if only the product reads them."""
    left = product.left
    assert isinstance(left, cst.Name)
    if script.only_read_at(left) is None:
        return None
    (binding,) = script.scopes.reaching(left)
    line, ids = script.statement(binding.node), product.one_hot.args[0].value
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(ids, cst.Name):
        return None
    if not script.rewrite.stands_alone(line):
        return None
    before = set(map(id, script.scopes.reaching(ids)))
    now = script.scopes.reaching_name(ids.value, left, script.scopes.scope(left))
    return script.rewrite.drop(line) if before == set(map(id, now)) else None
