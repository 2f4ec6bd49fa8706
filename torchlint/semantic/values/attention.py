"""Attention: hand-written attention, a softmax over scaled, masked products, times values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import last_word, receiver_of, word_of
from torchlint.semantic.values.einsum import Einsum, einsum_of
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.masking import are_query_and_key, masked_by_product
from torchlint.semantic.values.plain_numbers import PlainNumbers
from torchlint.semantic.values.unread import Unread

_SOFTMAX: Final = frozenset({"torch.softmax", "torch.nn.functional.softmax"})
_METADATA: Final = ("dtype", "device", "size", "shape", "dim")
_DROPOUT: Final = "torch.nn.functional.dropout"
_PRODUCTS: Final = frozenset({"torch.matmul", "torch.bmm"})
_LAST_TWO: Final = (frozenset({-2, -1}), frozenset({1, 2}), frozenset({2, 3}))
_PERMUTED: Final = ((0, 2, 1), (0, 1, 3, 2))
_TRANSPOSES: Final = ("transpose", "swapaxes", "swapdims")
_CONVERSIONS: Final = ("float", "half", "bfloat16", "to", "type", "type_as")
"""Methods that convert scores to float32, or weights back: fused kernels do so by themselves."""
_WIDER: Final = frozenset({"torch.float64", "torch.double"})

_Product = tuple[cst.BaseExpression, cst.BaseExpression]


class ScoreMask(NamedTuple):
    """A mask of the scores: filled where `condition` is true (kept there with `keeps`).

    `fill` is None for a mask that is added to the scores; `test` is the `if` around the line.
    """

    condition: cst.BaseExpression
    fill: cst.BaseExpression | None
    keeps: bool
    test: cst.BaseExpression | None


@dataclass(eq=False)
class Attention:
    """One attention: its operands, and the statements that only compute it.

    `factor` multiplies the products of queries and keys, or with `divides` divides them.
    `heads_apart`: the positions are the second to last dimension of all three. `plain`: no
    statement except `steps` takes part in it.
    """

    softmax: cst.Call
    product: cst.BaseExpression
    value: cst.BaseExpression
    query: cst.BaseExpression
    key: cst.BaseExpression
    factor: cst.BaseExpression | None = None
    divides: bool = False
    heads_apart: bool = True
    masks: list[ScoreMask] = field(default_factory=list)
    dropout: cst.Call | None = None
    steps: list[cst.BaseStatement] = field(default_factory=list)
    plain: bool = True


class Attentions(ValueAnalysis):
    """Finds attention that is written with products and a softmax."""

    def __init__(self, values: KnownValues, numbers: PlainNumbers) -> None:
        super().__init__(values)
        self.numbers = numbers
        self.unread = Unread(values.functions)

    def all(self) -> Iterator[Attention]:
        """Yield every attention whose weights are only multiplied by the values."""
        for call in self.tree.all(cst.Call):
            scores = self._normalised(call)
            if scores is not None:
                found = _Reader(self, call).read(scores[0], scores[1])
                if found is not None:
                    yield found

    def _normalised(self, call: cst.Call) -> tuple[cst.BaseExpression, int] | None:
        """Return the input and the dimension of a softmax."""
        func = call.func
        last = last_word(func.func if type(func) is cst.Call else func)
        if "softmax" not in last.lower() and last not in self._layers:
            return None
        dtype = self.dtype(call)
        args = [arg for arg in call.args if arg.value is not dtype]
        if any(arg.star for arg in args):
            return None
        if dtype is not None and self.names.name(dtype) in _WIDER:
            return None
        if self.names.name(func) in _SOFTMAX:
            dim = self.values.argument(call, "dim", 1)
            given = self.values.argument_node(call, "input", 0)
        elif type(func) is cst.Attribute and last == "softmax" and len(args) == 1:
            made = self._softmax_layer(func)
            dim = self.values.argument(made or call, "dim", 0)
            given = args[0] if made is not None else None
            if made is None:
                return (func.value, dim.literal) if isinstance(dim.literal, int) else None
        else:
            made = self._softmax_layer(func)
            if made is None or len(args) != 1:
                return None
            dim, given = self.values.argument(made, "dim", 0), args[0]
        if given is None or not isinstance(dim.literal, int):
            return None
        return given.value, dim.literal

    def dtype(self, softmax: cst.Call) -> cst.BaseExpression | None:
        """Return the type that a softmax is asked to compute in, if it is."""
        given = self.values.argument_node(softmax, "dtype")
        return given.value if given is not None else None

    @cached_property
    def _layers(self) -> frozenset[str]:
        """The names that softmax layers are assigned to."""
        made = [call for call in self.tree.all(cst.Call) if last_word(call.func) == "Softmax"]
        lines = [self.tree.parent(call) for call in made]
        targets = [line.targets[0].target for line in lines if isinstance(line, cst.Assign)]
        return frozenset(last_word(target) for target in targets) - {""}

    def _softmax_layer(self, func: cst.BaseExpression) -> cst.Call | None:
        made = self.values.value_of(func).node
        if isinstance(made, cst.Call) and self.names.name(made.func) == "torch.nn.Softmax":
            return made
        return None

    def is_dropout(self, call: cst.Call) -> bool:
        """Return whether a call applies dropout to its first argument."""
        return self.names.name(call.func) == _DROPOUT or self.dropout_layer(call.func) is not None

    def dropout_layer(self, func: cst.BaseExpression) -> cst.Call | None:
        """Return the call that creates a dropout layer."""
        made = self.values.value_of(func).node
        if isinstance(made, cst.Call) and self.names.name(made.func) == "torch.nn.Dropout":
            return made
        return None


class _Reader:
    """Reads one attention from its softmax, both backwards and forwards."""

    def __init__(self, attentions: Attentions, softmax: cst.Call) -> None:
        self.all = attentions
        self.tree = attentions.tree
        self.scopes = attentions.scopes
        self.names = attentions.names
        self.softmax = softmax
        self.masks: list[ScoreMask] = []
        self.steps: list[cst.BaseStatement] = []
        self.factors: list[tuple[cst.BaseExpression, bool]] = []
        self.dropout: cst.Call | None = None
        self.pair: tuple[cst.BaseExpression, cst.BaseExpression] | None = None
        self.rank = 0
        self.heads_apart = True
        self.plain = attentions.dtype(softmax) is None
        self.turned = False
        self.region = attentions.scopes.home(softmax)

    def read(self, scores: cst.BaseExpression, dim: int) -> Attention | None:
        """Return the attention, None if there is none or its weights have other uses."""
        product = self._weighted(self.softmax)
        if product is None or not self._scores(scores) or self.pair is None:
            return None
        if dim != -1 and dim != self.rank - 1:
            return None
        home = self.tree.parent(self.tree.statement(product[0]))
        if any(self.tree.parent(step) is not home for step in self.steps):
            return None
        if len(self.factors) > 1:
            return None
        factor, divides = self.factors[0] if self.factors else (None, False)
        return Attention(
            self.softmax,
            product[0],
            product[1],
            *self.pair,
            factor=factor,
            divides=divides,
            heads_apart=self.heads_apart,
            masks=self.masks,
            dropout=self.dropout,
            steps=sorted(self.steps, key=self.tree.order),
            plain=self.plain,
        )

    # -- from the weights to the product with the values ----------------------

    def _weighted(self, value: cst.BaseExpression) -> _Product | None:
        """Return the product with the weights, and the values that they weight."""
        for _ in range(ASSIGNED):
            holder = self.tree.parent(value)
            if isinstance(holder, cst.Assign):
                use = self.scopes.only_use(holder) or self._only_read(holder)
                if use is None:
                    return None
                self.steps.append(self.tree.statement(holder))
                value = use
            elif isinstance(holder, cst.BinaryOperation):
                if not isinstance(holder.operator, cst.MatrixMultiply):
                    return None
                return self._sides(holder, holder.left, holder.right, value)
            elif isinstance(holder, cst.Attribute):
                call = self.tree.parent(holder)
                if not isinstance(call, cst.Call) or call.func is not holder:
                    return None
                if not self.turned and self._untransposed(call) is value:
                    self.turned, self.heads_apart, value = True, False, call
                    continue
                if self._converted(call) is value:
                    value = call
                    continue
                if holder.attr.value not in ("matmul", "bmm") or len(call.args) != 1:
                    return None
                return self._sides(call, value, call.args[0].value, value)
            elif isinstance(holder, (cst.Arg, cst.Element)):
                call = self.tree.taker(value) or self.tree.taker(self.tree.parent(holder))
                if call is None or any(arg.star for arg in call.args):
                    return None
                if call.args[0] is holder and self.all.is_dropout(call) and self.dropout is None:
                    self.dropout = value = call
                    continue
                return self._product_of(call, value)
            else:
                return None
        return None

    def _only_read(self, line: cst.Assign) -> cst.Name | None:
        """Return the only read of weights that others keep or hand back, and that stays unread."""
        target, unread = line.targets[0].target, self.all.unread
        uses = unread.uses(line, target) if isinstance(target, cst.Name) else []
        left = [use for use in uses if not unread.is_idle(use)]
        self.plain = False
        return left[0] if len(left) == 1 and len(self.scopes.reaching(left[0])) == 1 else None

    def _sides(
        self,
        product: cst.BaseExpression,
        left: cst.BaseExpression,
        right: cst.BaseExpression,
        weights: cst.BaseExpression,
    ) -> _Product | None:
        """Return a product with the values: weights on the left, or transposed on the right."""
        side, values = (right, left) if self.turned else (left, right)
        return (product, values) if side is weights else None

    def _product_of(self, call: cst.Call, weights: cst.BaseExpression) -> _Product | None:
        if self.names.name(call.func) in _PRODUCTS and len(call.args) == 2:
            return self._sides(call, call.args[0].value, call.args[1].value, weights)
        einsum = einsum_of(self.all.values, call)
        if einsum is None or einsum.operands[0] is not weights or not einsum.weights:
            return None
        self.heads_apart &= einsum.weights_last
        return call, einsum.operands[1]

    # -- from the weights back to queries and keys ----------------------------

    def _scores(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Name):
            return self._named(node)
        if isinstance(node, cst.BinaryOperation):
            return self._operation(node)
        converted = self._converted(node)
        if converted is not None:
            return self._scores(converted)
        return isinstance(node, cst.Call) and self._call(node)

    def _converted(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return what a call gives another precision, one that fused kernels compute in."""
        base = receiver_of(node, *_CONVERSIONS)
        if base is not None:
            self.plain = False
        return base

    def _operation(self, node: cst.BinaryOperation) -> bool:
        left, right = node.left, node.right
        if isinstance(node.operator, cst.MatrixMultiply):
            return self._pair(left, right)
        if isinstance(node.operator, cst.Divide):
            self.factors.append((right, True))
            return self._scores(left)
        masked = masked_by_product(node)
        if masked is not None:
            self.plain = False
            return self._scores(masked)
        if not isinstance(node.operator, (cst.Multiply, cst.Add)):
            return False
        first_scales = isinstance(node.operator, cst.Multiply) and self.all.numbers.is_number(left)
        if first_scales or (self._is_product(right) and not self._is_product(left)):
            left, right = right, left
        if isinstance(node.operator, cst.Add):
            self.masks.append(ScoreMask(right, None, False, None))
        else:
            self.factors.append((right, False))
        return self._scores(left)

    def _is_product(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.BinaryOperation):
            return isinstance(node.operator, cst.MatrixMultiply)
        return isinstance(node, cst.Call) and (
            self.names.name(node.func) in _PRODUCTS or einsum_of(self.all.values, node) is not None
        )

    def _call(self, node: cst.Call) -> bool:
        if any(arg.star for arg in node.args):
            return False
        name = self.names.name(node.func)
        plain = [arg.value for arg in node.args]
        if name in _PRODUCTS and len(plain) == 2:
            self.rank = 3 if name == "torch.bmm" else 0
            return self._pair(*plain)
        einsum = einsum_of(self.all.values, node)
        if einsum is not None:
            return self._paired(einsum)
        if name == "torch.masked_fill" and len(plain) == 3:
            return self._filled(plain[0], plain[1], plain[2], keeps=False)
        if name == "torch.where" and len(plain) == 3:
            if self._is_product(plain[1]) or isinstance(plain[1], cst.Name):
                return self._filled(plain[1], plain[0], plain[2], keeps=True)
            return False
        if not isinstance(node.func, cst.Attribute):
            return False
        method, base = node.func.attr.value, node.func.value
        if method in ("masked_fill", "masked_fill_") and len(plain) == 2:
            return self._filled(base, plain[0], plain[1], keeps=False)
        if method in ("matmul", "bmm") and len(plain) == 1 and name is None:
            self.rank = 3 if method == "bmm" else 0
            return self._pair(base, plain[0])
        return False

    def _paired(self, einsum: Einsum) -> bool:
        if not einsum.summed:
            return False
        self.rank = len(einsum.out)
        self.heads_apart &= einsum.pairs_last
        self.pair = (self._unscaled(einsum.operands[0]), einsum.operands[1])
        return True

    def _filled(
        self,
        base: cst.BaseExpression,
        condition: cst.BaseExpression,
        fill: cst.BaseExpression,
        keeps: bool,
    ) -> bool:
        self.masks.append(ScoreMask(condition, fill, keeps, None))
        return self._scores(base)

    # -- names ----------------------------------------------------------------

    def _named(self, name: cst.Name) -> bool:
        bindings = sorted(self.scopes.reaching(name), key=lambda binding: binding.at)
        if len(bindings) == 1:
            return self._assigned(bindings[0], [name])
        first, *rest = bindings
        if all(isinstance(each.node, cst.AugAssign) for each in rest):
            return self._augmented(rest, first, name)
        reads = self._reads(rest[0], [name])
        if len(rest) != 1 or reads is None:
            return False
        return self._guarded(rest[0], first, reads) or self._branched(first, rest[0], [name])

    def _reads(self, binding: Binding, known: list[cst.Name]) -> list[cst.Name] | None:
        """Return the reads of a binding if those are the only ones, apart from in-place fills."""
        found = list(known)
        for use in self.scopes.uses(binding, self.region):
            if use in known:
                continue
            if self._asks_form(use) or self._is_masked_out_of_sight(use, known[0]):
                self.plain = False
            elif not self._fills_in_place(use, known[0]):
                return None
            found.append(use)
        return found

    def _asks_form(self, use: cst.Name) -> bool:
        """Return whether a read asks the shape, the type or the device of a tensor."""
        holder, call = self.tree.parent(use), self.tree.taker(use)
        if isinstance(holder, cst.Attribute):
            return holder.attr.value in _METADATA
        return call is not None and word_of(call).endswith("_like")

    def _assigned(self, binding: Binding, known: list[cst.Name]) -> bool:
        """Continue behind `name = …`."""
        node, value = binding.node, binding.value
        if not isinstance(node, cst.Assign) or binding.how is not How.ASSIGN or value is None:
            return False
        if len(node.targets) != 1 or self._reads(binding, known) is None:
            return False
        self.steps.append(self.tree.statement(node))
        return self._scores(value)

    def _augmented(self, rest: list[Binding], first: Binding, name: cst.Name) -> bool:
        """Read `scores /= scale`, `scores *= scale` and `scores += mask`, the last one first."""
        known = [name]
        for binding in reversed(rest):
            line, reads = binding.node, self._reads(binding, known)
            if not isinstance(line, cst.AugAssign) or not isinstance(line.target, cst.Name):
                return False
            if reads is None or not self._applied(line):
                return False
            known = [*reads, line.target]
        return self._assigned(first, known)

    def _applied(self, line: cst.AugAssign) -> bool:
        """Read what one line does to the scores."""
        if isinstance(line.operator, cst.AddAssign):
            self.plain &= not self.factors
            self._masked(line, ScoreMask(line.value, None, False, None))
            return True
        if not isinstance(line.operator, (cst.DivideAssign, cst.MultiplyAssign)):
            return False
        self.factors.append((line.value, isinstance(line.operator, cst.DivideAssign)))
        if self._is_branched(line):
            self.plain = False
        else:
            self.steps.append(self.tree.statement(line))
        return True

    def _guarded(self, last: Binding, first: Binding, reads: list[cst.Name]) -> bool:
        """Read `if mask is not None: scores = scores.masked_fill(…)`."""
        if last.value is None or not self._is_branched(last.node):
            return False
        inner = self._changed(last.value)
        if inner is None or self.scopes.reaching(inner[0]) != (first,):
            return False
        base, mask = inner
        self._masked(last.node, mask)
        return self._assigned(first, [*reads, base])

    def _branched(self, first: Binding, last: Binding, known: list[cst.Name]) -> bool:
        """Read `if causal: masked = scores + mask` with `else: masked = scores`."""
        for changed, same in ((first, last), (last, first)):
            found = self._changed(changed.value) if changed.value is not None else None
            if found is None or not isinstance(same.value, cst.Name):
                continue
            base, mask = found
            sources = self.scopes.reaching(base)
            if len(sources) != 1 or self.scopes.reaching(same.value) != sources:
                return False
            if any(self._reads(each, known) is None for each in (first, last)):
                return False
            self._masked(changed.node, mask)
            return self._assigned(sources[0], [base, same.value])
        return False

    def _masked(self, node: cst.CSTNode, mask: ScoreMask | None) -> None:
        """Record a line that changes the scores, possibly under its own `if`."""
        branch = self._sole_of_branch(node)
        if mask is not None:
            test = branch.test if branch is not None else None
            self.masks.append(ScoreMask(mask.condition, mask.fill, mask.keeps, test))
        if mask is not None and branch is not None:
            self.steps.append(branch)
        elif mask is not None and not self._is_branched(node):
            self.steps.append(self.tree.statement(node))
        else:
            self.plain = False

    def _is_branched(self, node: cst.CSTNode) -> bool:
        """Return whether a line is under an `if` that does not enclose the softmax."""
        around = self.scopes.blocks(node)
        return bool(around) and around[0] not in self.scopes.blocks(self.softmax)

    def _changed(self, value: cst.BaseExpression) -> tuple[cst.Name, ScoreMask | None] | None:
        """Split `scores.masked_fill(mask, fill)`, `scores + mask` or `scores * scale`."""
        if isinstance(value, cst.BinaryOperation) and isinstance(value.left, cst.Name):
            if isinstance(value.operator, cst.Add):
                return value.left, ScoreMask(value.right, None, False, None)
            scales = isinstance(value.operator, (cst.Multiply, cst.Divide))
            return (value.left, None) if scales else None
        if not isinstance(value, cst.Call) or any(arg.star for arg in value.args):
            return None
        plain = [arg.value for arg in value.args]
        if isinstance(value.func, cst.Attribute) and len(plain) == 2:
            base = value.func.value
            if value.func.attr.value in ("masked_fill", "masked_fill_") and isinstance(
                base, cst.Name
            ):
                return base, ScoreMask(plain[0], plain[1], False, None)
        if self.names.name(value.func) == "torch.masked_fill" and len(plain) == 3:
            if isinstance(plain[0], cst.Name):
                return plain[0], ScoreMask(plain[1], plain[2], False, None)
        return None

    def _fills_in_place(self, use: cst.Name, end: cst.Name) -> bool:
        """Read the statement `scores.masked_fill_(mask, fill)`, possibly under an `if`."""
        attribute = self.tree.parent(use)
        call = self.tree.parent(attribute) if isinstance(attribute, cst.Attribute) else None
        line = self.tree.parent(call) if isinstance(call, cst.Call) else None
        if not isinstance(line, cst.Expr) or not isinstance(call, cst.Call):
            return False
        if self.tree.order(use) > self.tree.order(end) or not isinstance(attribute, cst.Attribute):
            return False
        changed = self._changed(call)
        if changed is None or attribute.attr.value != "masked_fill_":
            return False
        self._masked(line, changed[1])
        return True

    def _is_masked_out_of_sight(self, use: cst.Name, end: cst.Name) -> bool:
        """Return whether an unseen function masks the scores, `mask_(scores)`."""
        holder = self.tree.parent(use)
        call = self.tree.taker(use)
        return (
            isinstance(call, cst.Call)
            and call.args[0] is holder
            and isinstance(self.tree.parent(call), cst.Expr)
            and "mask" in last_word(call.func).lower()
            and self.tree.order(use) < self.tree.order(end)
        )

    def _sole_of_branch(self, node: cst.CSTNode) -> cst.If | None:
        """Return the `if` without `else` whose whole body is a statement."""
        holder = self.tree.parent(node)
        small = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
        if not isinstance(holder, small) or len(holder.body) != 1:
            return None
        block = holder if isinstance(holder, cst.SimpleStatementSuite) else self.tree.parent(holder)
        branch = self.tree.parent(block)
        if not isinstance(branch, cst.If) or branch.body is not block or branch.orelse is not None:
            return None
        alone = not isinstance(block, cst.IndentedBlock) or len(block.body) == 1
        return branch if alone and not isinstance(self.tree.parent(branch), cst.If) else None

    # -- queries and keys -----------------------------------------------------

    def _pair(self, query: cst.BaseExpression, key: cst.BaseExpression) -> bool:
        plain = self._untransposed(key)
        if plain is None and not self.turned:
            treated = bool(self.factors or self.masks) or not self.plain
            if not treated or not are_query_and_key(query, key):
                return False
            self.plain = False
        self.pair = (self._unscaled(query), key if plain is None else plain)
        return True

    def _unscaled(self, query: cst.BaseExpression) -> cst.BaseExpression:
        """Remove a factor from the queries: `q * scale`, or a line `q = q * scale`."""
        line = self.scopes.line_for(query)
        value = line.value if line is not None else query
        if not isinstance(value, cst.BinaryOperation) or self.factors:
            return query
        if not isinstance(value.operator, (cst.Multiply, cst.Divide)):
            return query
        if not self.all.numbers.is_number(value.right):
            return query
        if line is not None and not (
            isinstance(value.left, cst.Name)
            and isinstance(query, cst.Name)
            and value.left.value == query.value
        ):
            return query
        self.factors.append((value.right, isinstance(value.operator, cst.Divide)))
        if line is not None:
            self.steps.append(self.tree.statement(line))
        return value.left

    def _untransposed(self, key: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the keys whose last two dimensions an expression transposes."""
        if isinstance(key, cst.Name):
            line = self.scopes.line_for(key)
            if line is None or isinstance(line.value, cst.Name):
                return None
            found = self._untransposed(line.value)
            if found is not None:
                self.steps.append(self.tree.statement(line))
            return found
        if isinstance(key, cst.Attribute):
            return key.value if key.attr.value == "mT" else None
        if not isinstance(key, cst.Call) or any(arg.star for arg in key.args):
            return None
        numbers, base = [arg.value for arg in key.args], None
        if isinstance(key.func, cst.Attribute) and self.names.name(key.func) is None:
            base = key.func.value
            if key.func.attr.value == "contiguous" and not numbers:
                return self._untransposed(base)
        elif numbers:
            base = numbers.pop(0)
        method = last_word(key.func)
        dims = tuple(self.all.values.value_of(each).literal for each in numbers)
        if method in _TRANSPOSES and len(dims) == 2 and frozenset(dims) in _LAST_TWO:
            positive = max(dims)
            self.rank = self.rank or (positive + 1 if positive > 0 else 0)
            return base
        if method == "permute" and dims in _PERMUTED:
            self.rank = len(dims)
            return base
        return None
