"""Shares: how the values that a batch loop computes combine over several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loop, Loops
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import method_of, root_of
from torchlint.semantic.syntax.tree import NodeT
from torchlint.semantic.training.share import (
    COUNTS,
    EQUAL,
    LINEAR,
    TENSORS,
    Share,
    computed,
    joined,
)
from torchlint.semantic.values.kind import Kind

_KEEPS_NUMBER: Final = frozenset(
    "item detach cpu float double data clone cuda to numpy tolist squeeze sum mean long int".split()
)
_SCALES: Final[dict[str, type[cst.Multiply | cst.Divide]]] = {
    "mul": cst.Multiply, "mul_": cst.Multiply, "div": cst.Divide, "div_": cst.Divide,
}  # fmt: skip
_KEEPS_ROWS: Final = frozenset(
    "float double half long int bool byte type type_as cpu cuda to detach data clone numpy "
    "contiguous view_as expand_as squeeze unsqueeze eq ne gt ge lt le abs pow exp log sqrt "
    "sigmoid tanh relu softmax log_softmax topk sort argmax argmin mul add sub div masked_fill "
    "clamp round logical_and requires_grad_ items keys values copy permute transpose repeat "
    "flatten view reshape max min gather".split()
)
_RESHAPES: Final = frozenset("view reshape flatten".split())
_REDUCES_ALL: Final = frozenset("max min argmax argmin".split())
_ROW_FUNCTIONS: Final = frozenset({
    "torch.max", "torch.min", "torch.argmax", "torch.argmin", "torch.eq", "torch.ne", "torch.abs",
    "torch.softmax", "torch.sigmoid", "torch.exp", "torch.log", "torch.round", "torch.gt",
    "torch.log_softmax", "torch.topk", "torch.squeeze", "torch.unsqueeze", "torch.square",
    "torch.nn.functional.softmax", "torch.nn.functional.log_softmax", "torch.autograd.Variable",
    "torch.nn.functional.sigmoid", "torch.nn.functional.one_hot", "numpy.argmax", "numpy.array",
    "numpy.asarray", "torch.from_numpy", "torch.as_tensor", "torch.flatten", "torch.clamp",
})  # fmt: skip
_EMPTY: Final = frozenset({"torch.zeros", "builtins.list", "builtins.dict", "numpy.zeros"})
_FILLS: Final = frozenset("append extend update add insert put appendleft".split())


class _Frame:
    """One call of a function with the shares of its arguments; or the loop's own code."""

    def __init__(self, region: cst.CSTNode, depth: int) -> None:
        self.region = region
        self.depth = depth
        self.given: dict[cst.CSTNode, Share] = {}
        self.known: dict[cst.CSTNode, Share] = {}
        self.open: set[cst.CSTNode] = set()


class Shares(LoopAnalysis):
    """Finds the share of each value that a batch loop computes from its samples."""

    def __init__(self, loops: Loops, loop: Loop) -> None:
        super().__init__(loops)
        self.loop = loop
        self._main = _Frame(loop.node, CALLED)
        self._cycles = 0

    def share(self, node: cst.CSTNode) -> Share:
        """Return the share of an expression in the loop."""
        return self._share(node, self._main)

    def is_local(self, node: cst.CSTNode) -> bool:
        """Return whether an expression depends on the samples of one process."""
        return self.share(node) not in EQUAL

    def begins(self, value: cst.BaseExpression) -> bool:
        """Return whether a value is the start of a sum: zero, or empty."""
        return self._is_nothing(value)

    def chosen(self, node: cst.CSTNode) -> bool:
        """Return whether the samples decide if, or how often, a statement of the loop runs."""
        return self._chosen(node, self._main)

    def bound(self, binding: Binding) -> Share:
        """Return the share of the value that a binding of the loop assigns."""
        return self._bound(binding, self._main)

    def called(self, call: cst.Call, callee: cst.FunctionDef) -> Callable[[cst.CSTNode], Share]:
        """Return a function from expressions of a callee to their share in a call."""
        frame = self._entered(call, callee, self._main)
        return lambda node: self._share(node, frame)

    # -- expressions ----------------------------------------------------------

    def _share(self, node: cst.CSTNode, frame: _Frame) -> Share:
        known = frame.known.get(node)
        if known is not None:
            return known
        if node in frame.open:
            self._cycles += 1
            return Share.NOTHING
        frame.open.add(node)
        cycles = self._cycles
        found = self._look(node, frame)
        if found is Share.OWN and self.kinds.kind(node) is Kind.LOSS:
            if not isinstance(node, (cst.Name, cst.BinaryOperation, cst.Attribute)):
                found = Share.MEAN
        frame.open.discard(node)
        if cycles == self._cycles or not frame.open:
            frame.known[node] = found
        return found

    def _look(self, node: cst.CSTNode, frame: _Frame) -> Share:
        if isinstance(node, cst.Name):
            bindings = self.scopes.reaching(node)
            if self._is_fed(node, bindings):
                return Share.OWN
            found = joined(self._bound(binding, frame) for binding in bindings)
            return found if bindings else Share.SAME
        if isinstance(node, (cst.Integer, cst.Float)):
            return Share.NOTHING if float(node.evaluated_value) == 0 else Share.SAME
        if isinstance(node, cst.Attribute):
            return self._attribute(node, frame)
        if isinstance(node, cst.Subscript):
            return self._subscript(node, frame)
        if isinstance(node, cst.Call):
            return self._call(node, frame)
        if isinstance(node, cst.BinaryOperation):
            sides = self._share(node.left, frame), self._share(node.right, frame)
            return computed(node.operator, *sides)
        if isinstance(node, cst.UnaryOperation):
            inner = self._share(node.expression, frame)
            negative = isinstance(node.operator, (cst.Minus, cst.Plus))
            return inner if negative or inner in (*EQUAL, *TENSORS) else Share.OWN
        if isinstance(node, cst.Comparison):
            parts = [node.left, *(each.comparator for each in node.comparisons)]
            return self._elementwise(parts, frame)
        if isinstance(node, cst.IfExp):
            if self._share(node.test, frame) not in EQUAL:
                return Share.OWN
            return joined((self._share(node.body, frame), self._share(node.orelse, frame)))
        if isinstance(node, (cst.Tuple, cst.List)):
            return joined(self._share(each.value, frame) for each in node.elements)
        if isinstance(node, cst.ListComp):
            return self._share(node.elt, frame)
        if isinstance(node, cst.DictComp):
            return self._share(node.value, frame)
        parts = list(self.tree.within(node, cst.Name))
        return Share.SAME if self._all_equal(parts, frame) else Share.OWN

    def _is_fed(self, name: cst.Name, bindings: Sequence[Binding]) -> bool:
        """Return whether the loop stores values from its samples in the object of a name."""
        given = self._feeds.get(name.value, ())
        if not given or any(self.tree.inside(each.node, self.loop.node) for each in bindings):
            return False
        return any(self._share(value, self._main) not in EQUAL for value in given)

    @cached_property
    def _feeds(self) -> dict[str, list[cst.BaseExpression]]:
        """The values that the loop stores in lists, dictionaries and objects, by name."""
        found: dict[str, list[cst.BaseExpression]] = {}
        body = self.loop.node.body
        for line in self.functions.own(body, cst.Expr):
            call = line.value
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
                root = dotted(call.func.value).partition(".")[0]
                if call.func.attr.value in _FILLS and root:
                    found.setdefault(root, []).extend(arg.value for arg in call.args)
        stores = [
            *((each.target, line.value) for line in self._own(cst.Assign) for each in line.targets),
            *((line.target, line.value) for line in self._own(cst.AugAssign)),
        ]
        for target, value in stores:
            holder = root_of(target, items=True)
            if holder is not target and isinstance(holder, cst.Name):
                found.setdefault(holder.value, []).append(value)
        return found

    def _own(self, kind: type[NodeT]) -> Iterable[NodeT]:
        return self.functions.own(self.loop.node.body, kind)

    def _all_equal(self, nodes: Iterable[cst.CSTNode], frame: _Frame) -> bool:
        return all(self._share(node, frame) in EQUAL for node in nodes)

    def _elementwise(self, nodes: Sequence[cst.CSTNode], frame: _Frame) -> Share:
        """Return the share of a row-wise operation."""
        shares = {self._share(node, frame) for node in nodes}
        if shares <= set(EQUAL):
            return Share.SAME
        if not shares <= {*EQUAL, *TENSORS}:
            return Share.OWN
        return Share.COLUMNS if Share.COLUMNS in shares else Share.ROWS

    def _attribute(self, node: cst.Attribute, frame: _Frame) -> Share:
        name = dotted(node)
        bindings = self.scopes.reaching_name(name, node, self.scopes.scope(node)) if name else ()
        inside = [each for each in bindings if self.tree.inside(each.node, frame.region)]
        if inside:
            return joined(self._bound(each, frame) for each in inside)
        base = self._share(node.value, frame)
        word = node.attr.value
        if base in EQUAL:
            held = "loss" in word and self.kinds.kind(node.value) is Kind.MODULE
            return Share.OWN if held else Share.SAME
        if self.kinds.kind(node) is Kind.LOSS:
            return Share.MEAN
        if word == "data":
            return base
        if base in TENSORS:
            if word == "T":
                return Share.ROWS if base is Share.COLUMNS else Share.COLUMNS
            if word in ("device", "dtype", "is_cuda", "ndim"):
                return Share.SAME
            return Share.OWN if word == "shape" else base
        return Share.OWN

    def _subscript(self, node: cst.Subscript, frame: _Frame) -> Share:
        indices = [element.slice for element in node.slice]
        first = indices[0]
        literal = first.value if isinstance(first, cst.Index) else None
        if isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape":
            base = self._share(node.value.value, frame)
            if base is Share.ROWS and isinstance(literal, cst.Integer):
                return Share.SIZE if literal.value == "0" else Share.SAME
            return Share.SAME if base in EQUAL else Share.OWN
        base = self._share(node.value, frame)
        parts = [name for index in indices for name in self.tree.within(index, cst.Name)]
        if not self._all_equal(parts, frame):
            return Share.OWN
        if base in (Share.SAME, Share.MEAN, Share.SUM, Share.NOTHING):
            return base
        whole = isinstance(first, cst.Slice) and first.lower is None and first.upper is None
        if base is Share.ROWS:
            named = isinstance(literal, cst.SimpleString)
            keeps = whole or named or isinstance(literal, cst.Ellipsis)
            return base if keeps or self._is_batch(node.value) or _pairs(node.value) else Share.OWN
        if base is Share.COLUMNS and len(indices) == 1 and isinstance(first, cst.Slice):
            return base
        return Share.OWN

    def _is_batch(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is a batch from the loader, a tuple or a dictionary."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            named = node.func.attr.value in ("items", "values")
            return named and not node.args and self._is_batch(node.func.value)
        return isinstance(node, cst.Name) and any(
            binding.how is How.LOOP and binding.node is self.loop.node
            for binding in self.scopes.reaching(node)
        )

    # -- calls ----------------------------------------------------------------

    def _call(self, node: cst.Call, frame: _Frame) -> Share:
        name = self.names.name(node.func)
        values = [arg.value for arg in node.args]
        plain = [arg.value for arg in node.args if arg.keyword is None]
        if name in _EMPTY and self._all_equal(values, frame):
            return Share.NOTHING
        if self.loops.module_call(node) is not None:
            inputs = {self._share(value, frame) for value in values}
            return Share.SAME if inputs <= set(EQUAL) else Share.ROWS
        callee = self.functions.callee(node)
        if callee is not None:
            return self._run(node, callee, (), frame)
        if name is not None and name.partition(".")[0] not in ("self",):
            found = self._function(name, node, plain, frame)
            if found is not None:
                return found
        if isinstance(node.func, cst.Attribute):
            found = self._method(node, node.func, plain, frame)
            if found is not None:
                return found
        return Share.SAME if self._all_equal([node.func, *values], frame) else Share.OWN

    def _function(
        self, name: str, node: cst.Call, plain: Sequence[cst.BaseExpression], frame: _Frame
    ) -> Share | None:
        if not plain:
            return None
        first = self._share(plain[0], frame)
        if name in ("builtins.float", "builtins.int"):
            return Share.OWN if name.endswith("int") and first is Share.MEAN else first
        if name == "builtins.len" and self.kinds.kind(plain[0]) is Kind.SEQUENCE:
            return Share.SAME if self.functions.instance_of(plain[0]) is None else Share.OWN
        if name == "builtins.len" and first in TENSORS:
            return Share.SIZE if first is Share.ROWS else Share.OWN
        if name in ("torch.sum", "numpy.sum", "torch.mean", "numpy.mean"):
            return self._reduced(name.rpartition(".")[2], first, node, plain[1:])
        if name in _ROW_FUNCTIONS and first in TENSORS:
            if name.rpartition(".")[2] in _REDUCES_ALL and len(node.args) == 1:
                return Share.OWN
            return self._elementwise([arg.value for arg in node.args], frame)
        if name in ("torch.stack", "torch.cat"):
            return first if first not in COUNTS else Share.OWN
        return None

    def _method(
        self,
        node: cst.Call,
        func: cst.Attribute,
        plain: Sequence[cst.BaseExpression],
        frame: _Frame,
    ) -> Share | None:
        base = self._share(func.value, frame)
        word = func.attr.value
        given = [arg.value for arg in node.args]
        if base in LINEAR:
            if word in _KEEPS_NUMBER:
                return Share.OWN if word in ("int", "long") and base is Share.MEAN else base
            if word in _SCALES and len(plain) == 1:
                return computed(_SCALES[word](), base, self._share(plain[0], frame))
            return Share.OWN
        if base in TENSORS:
            return self._tensor_method(word, base, node, plain, frame)
        if base in EQUAL and word == "scale" and len(given) == 1:
            return self._share(given[0], frame)
        return None

    def _tensor_method(
        self,
        word: str,
        base: Share,
        node: cst.Call,
        plain: Sequence[cst.BaseExpression],
        frame: _Frame,
    ) -> Share:
        first = plain[0] if plain else None
        number = first.value if isinstance(first, cst.Integer) else None
        if word in ("sum", "mean"):
            return self._reduced(word, base, node, plain)
        if word == "size":
            if base is Share.ROWS and number is not None:
                return Share.SIZE if number == "0" else Share.SAME
            return Share.OWN
        if word in ("numel", "nelement"):
            return Share.SIZE
        if word == "t":
            return Share.ROWS if base is Share.COLUMNS else Share.COLUMNS
        if word in _RESHAPES and (not plain or self.tree.code(plain[0]) == "-1"):
            return Share.ROWS if len(plain) < 2 or base is Share.ROWS else base
        if word in ("permute", "transpose") and not (number and number != "0"):
            return Share.OWN
        if word in _REDUCES_ALL and not node.args:
            return Share.OWN
        if word not in _KEEPS_ROWS:
            return Share.OWN
        others = self._elementwise([arg.value for arg in node.args], frame)
        if others not in (*EQUAL, *TENSORS):
            sizes = word in _RESHAPES and self._share(plain[0], frame) is Share.SIZE
            return base if sizes else Share.OWN
        return Share.COLUMNS if Share.COLUMNS in (base, others) else base

    def _reduced(
        self, word: str, base: Share, node: cst.Call, dims: Sequence[cst.BaseExpression]
    ) -> Share:
        """Return the share of a sum or mean of a tensor over some dimensions."""
        if base in (*EQUAL, *LINEAR):
            return base
        if base not in TENSORS:
            return Share.OWN
        asked = [a.value for a in node.args if a.keyword and a.keyword.value in ("dim", "axis")]
        dim = (*dims, *asked)
        if not dim:
            return Share.SUM if word == "sum" else Share.MEAN
        if base is Share.COLUMNS or not isinstance(dim[0], (cst.Integer, cst.UnaryOperation)):
            return Share.OWN
        over_samples = isinstance(dim[0], cst.Integer) and dim[0].value == "0"
        if not over_samples:
            return Share.ROWS
        return Share.SUM if word == "sum" else Share.MEAN

    def _run(
        self, call: cst.Call, callee: cst.FunctionDef, path: tuple[int, ...], frame: _Frame
    ) -> Share:
        """Return the share of what a function of this file returns for a call."""
        inputs = {self._share(arg.value, frame) for arg in call.args}
        if inputs <= set(EQUAL):
            return Share.SAME
        if not frame.depth or self.functions.is_generator(callee):
            return Share.OWN
        inner = self._entered(call, callee, frame)
        returned = self.functions.returns(callee)
        return joined(self._item(value, path, inner) for value in returned)

    def _entered(self, call: cst.Call, callee: cst.FunctionDef, frame: _Frame) -> _Frame:
        """Return the frame of a call of a function."""
        inner = _Frame(callee, frame.depth - 1)
        every = (*callee.params.posonly_params, *callee.params.params, *callee.params.kwonly_params)
        for parameter in every:
            given = self.functions.passed(call, callee, parameter.name.value)
            if given is not None:
                inner.given[parameter] = self._share(given, frame)
        return inner

    def _item(self, value: cst.BaseExpression, path: tuple[int, ...], frame: _Frame) -> Share:
        """Return the share of the element at a path of an unpacked value."""
        if path and isinstance(value, cst.Tuple) and path[0] < len(value.elements):
            return self._item(value.elements[path[0]].value, path[1:], frame)
        if path and isinstance(value, cst.Call):
            callee = self.functions.callee(value)
            if callee is not None and self.loops.module_call(value) is None:
                return self._run(value, callee, path, frame)
        if isinstance(value, cst.Name):
            return joined((self._share(value, frame), *self._appended(value, frame)))
        return self._share(value, frame)

    def _appended(self, name: cst.Name, frame: _Frame) -> Iterable[Share]:
        """Yield the shares of the values that a function appends to a list."""
        for call in self.functions.own(frame.region, cst.Call):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "append" and call.args:
                if isinstance(func.value, cst.Name) and func.value.value == name.value:
                    yield self._share(call.args[0].value, frame)

    # -- bindings -------------------------------------------------------------

    def _bound(self, binding: Binding, frame: _Frame) -> Share:
        if binding.how is How.PARAMETER:
            return frame.given.get(binding.node, Share.SAME)
        if binding.how in (How.IMPORT, How.FUNCTION, How.CLASS):
            return Share.SAME
        if binding.node is self.loop.node:
            return Share.SAME if self._is_counter(binding) else Share.ROWS
        if not self.tree.inside(binding.node, frame.region):
            if self.tree.inside(binding.node, self.loop.node):
                return self._bound(binding, self._main)
            begun = binding.value is not None and binding.how is How.ASSIGN
            empty = begun and self._is_nothing(binding.value)
            return Share.NOTHING if empty else Share.SAME
        if binding.how is How.LOOP:
            return self._drawn(binding, frame)
        if binding.value is None or self._chosen(binding.node, frame):
            return Share.OWN
        if binding.how is How.AUGMENTED:
            return self._added(binding, frame)
        if binding.how is How.UNPACKED:
            found = self._item(binding.value, binding.path, frame)
        else:
            found = self._share(binding.value, frame)
        if binding.how is How.WITH:
            return Share.SAME if found in EQUAL else Share.OWN
        if found in (Share.OWN, Share.ROWS) and self.kinds.losses.sent_backward([binding]):
            return Share.OWN if self._bends(binding.value, frame) else Share.MEAN
        return found

    def _bends(self, value: cst.BaseExpression, frame: _Frame) -> bool:
        """Return whether a value uses a mean other than by adding and scaling."""
        names = self.tree.within(value, cst.Name)
        calls = (call for call in self.tree.within(value, cst.Call) if call is not value)
        return any(self._share(each, frame) is Share.MEAN for each in (*names, *calls))

    def _is_nothing(self, value: cst.BaseExpression | None) -> bool:
        if isinstance(value, (cst.Integer, cst.Float)):
            return float(value.evaluated_value) == 0
        if isinstance(value, (cst.List, cst.Dict)):
            return not value.elements
        if not isinstance(value, cst.Call):
            return False
        if isinstance(value.func, cst.Attribute) and value.func.attr.value in ("to", "cuda"):
            return self._is_nothing(value.func.value)
        if self.names.name(value.func) == "torch.tensor" and value.args:
            return self._is_nothing(value.args[0].value)
        return self.names.name(value.func) in _EMPTY

    def _added(self, binding: Binding, frame: _Frame) -> Share:
        assert isinstance(binding.node, cst.AugAssign)
        assert binding.value is not None
        share = self._share(binding.value, frame)
        if isinstance(binding.node.operator, (cst.AddAssign, cst.SubtractAssign)):
            if share in (*COUNTS, Share.MEAN, *EQUAL):
                return Share.SUM if share is Share.SIZE else share
            return Share.OWN
        # an equal factor does not change the share of the name
        return Share.NOTHING if share in EQUAL else Share.OWN

    def _is_counter(self, binding: Binding) -> bool:
        """Return whether a binding is the loop's pass counter."""
        drawn = self.loop.node.iter if isinstance(self.loop.node, cst.For) else None
        while isinstance(drawn, cst.Call) and drawn.args:
            if self.names.name(drawn.func) == "builtins.enumerate":
                return binding.path == (0,)
            drawn = drawn.args[0].value
        return False

    def _drawn(self, binding: Binding, frame: _Frame) -> Share:
        """Return the share of the target of an inner loop or comprehension."""
        drawn = binding.value
        if isinstance(drawn, cst.Call):
            name = self.names.name(drawn.func)
            if name == "builtins.enumerate" and binding.path[:1] == (0,):
                return Share.SAME
            if name == "builtins.zip" and binding.path and binding.path[0] < len(drawn.args):
                drawn = drawn.args[binding.path[0]].value
            elif name == "builtins.enumerate" and drawn.args:
                drawn = drawn.args[0].value
        if drawn is None:
            return Share.OWN
        found = self._share(drawn, frame)
        if found in (*EQUAL, Share.MEAN) or (found is Share.ROWS and self._is_batch(drawn)):
            return Share.SAME if found is Share.NOTHING else found
        return Share.OWN

    def _chosen(self, node: cst.CSTNode, frame: _Frame) -> bool:
        """Return whether the samples decide if, or how often, a statement runs."""
        for outer in self.tree.ancestors(node):
            if outer is frame.region or isinstance(outer, cst.FunctionDef):
                return False
            test: cst.CSTNode | None = None
            if isinstance(outer, (cst.If, cst.While)):
                test = outer.test
            elif isinstance(outer, cst.For) and not self._is_batch(outer.iter):
                test = outer.iter
            if test is not None and self._share(test, frame) not in EQUAL:
                return True
        return False


def _pairs(node: cst.CSTNode) -> bool:
    """Return whether a call returns values with indices: `torch.max(out, 1)[1]`."""
    return method_of(node) in ("max", "min", "topk", "sort")
