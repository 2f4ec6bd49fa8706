"""The shape of a training program: where it starts, its epoch loop, its loaders, its sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.record import Record
from torchlint.semantic.functions import Functions
from torchlint.semantic.kind import Kind
from torchlint.semantic.kinds import Kinds
from torchlint.semantic.loops import Loop, Loops, Role
from torchlint.semantic.scopes import Binding, How
from torchlint.semantic.values import State, Values

__all__ = ["Program", "Start", "Total"]

_LOADERS: Final = frozenset({"torch.utils.data.DataLoader"})
_DEPTH: Final = 4


class Start(Record):
    """The statements with which a script starts: the module's own or those of its main guard."""

    block: cst.Module | cst.BaseSuite
    statement: cst.CSTNode
    """The statement of the block that runs what was asked about."""


class Total(Record):
    """A number that a batch loop adds up; `mean` when what is added is the mean of a batch."""

    name: str
    mean: bool
    read_after: bool


class Program:
    """Answers how the parts of a training script hang together."""

    def __init__(self, functions: Functions, kinds: Kinds, values: Values, loops: Loops) -> None:
        self.functions = functions
        self.kinds = kinds
        self.values = values
        self.loops = loops
        self.tree = functions.tree
        self.scopes = functions.scopes
        self.names = functions.names

    # -- where it starts ------------------------------------------------------

    def entry(self, node: cst.CSTNode) -> Start | None:
        """Give the start of the script that runs a node, None unless there is exactly one."""
        return self._entry(node, _DEPTH)

    def _entry(self, node: cst.CSTNode, depth: int) -> Start | None:
        function = self.scopes.function(node)
        if function is None:
            return self._top_level(node)
        if not depth or function.decorators or self.functions.escapes(function):
            return None
        if self.scopes.class_of(function) is not None:
            return None
        found = [self._entry(call, depth - 1) for call in self.functions.callers(function)]
        entries = [entry for entry in found if entry is not None]
        if not entries or len(entries) != len(found):
            return None
        same = all(entry.statement is entries[0].statement for entry in entries)
        return entries[0] if same else None

    def _top_level(self, node: cst.CSTNode) -> Start | None:
        if self.scopes.class_of(node) is not None:
            return None
        line = [node, *self.tree.ancestors(node)]
        guard = line[-2]
        if isinstance(guard, cst.If) and self._is_guard(guard):
            if guard.body not in line:
                return None
            return Start(guard.body, line[line.index(guard.body) - 1])
        return Start(self.tree.module, guard)

    def _is_guard(self, line: cst.If) -> bool:
        return any(name.value == "__name__" for name in self.tree.within(line.test, cst.Name))

    # -- loops and loaders ----------------------------------------------------

    def training_loops(self) -> list[Loop]:
        """Give the batch loops in which networks are trained."""
        return [loop for loop in self.loops.all() if loop.role is Role.TRAIN_BATCH]

    def epoch_loop(self, batches: Loop) -> Loop | None:
        """Give the loop whose passes run a batch loop, in the same function or in its callers."""
        return self._loop_around(batches.node, _DEPTH)

    def _loop_around(self, node: cst.CSTNode, depth: int) -> Loop | None:
        near = next(self.loops.around(node), None)
        function = self.scopes.function(node)
        if near is not None or function is None or not depth:
            return near
        found = {self._loop_around(call, depth - 1) for call in self.functions.callers(function)}
        return found.pop() if len(found) == 1 else None

    def loader_call(self, loader: cst.BaseExpression) -> cst.Call | None:
        """Give the one `DataLoader(...)` that an expression can be."""
        value = self.values.value_of(loader)
        if value.state is State.KNOWN and isinstance(value.node, cst.Call):
            if self.names.name(value.node.func) in _LOADERS:
                return value.node
            function = self.functions.definition(value.node.func)
            if isinstance(function, cst.FunctionDef):
                return self._returned(function, ())
        if isinstance(loader, cst.Name):
            return self._unpacked(self.scopes.reaching(loader))
        return None

    def _unpacked(self, bindings: tuple[Binding, ...]) -> cst.Call | None:
        if len(bindings) != 1:
            return None
        binding = bindings[0]
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            found = {self.loader_call(given) for given in self.functions.given(binding.node)}
            return found.pop() if len(found) == 1 else None
        if binding.how is How.UNPACKED and isinstance(binding.value, cst.Call):
            function = self.functions.definition(binding.value.func)
            if isinstance(function, cst.FunctionDef) and not binding.starred:
                return self._returned(function, binding.path)
        return None

    def _returned(self, function: cst.FunctionDef, path: tuple[int, ...]) -> cst.Call | None:
        returned = self.functions.returns(function)
        if len(returned) != 1:
            return None
        value = returned[0]
        for index in path:
            if not isinstance(value, cst.Tuple) or index >= len(value.elements):
                return None
            value = value.elements[index].value
        return self.loader_call(value)

    def draws(self, loader: cst.Call) -> list[Loop]:
        """Give the loops that draw from the loader that a call makes."""
        return [
            loop
            for loop in self.loops.all()
            if loop.loader is not None and self.loader_call(loop.loader) is loader
        ]

    # -- sums -----------------------------------------------------------------

    def totals(self, loop: Loop) -> list[Total]:
        """Give the names that a batch loop adds numbers up in, begun anew for each run of it."""
        found: dict[str, list[cst.AugAssign]] = {}
        for augmented in self.functions.own(loop.node.body, cst.AugAssign):
            if isinstance(augmented.target, cst.Name):
                found.setdefault(augmented.target.value, []).append(augmented)
        totals = []
        for name, additions in found.items():
            means = {self._is_mean(each, loop) for each in additions}
            if len(means) == 1 and None not in means and self._begun_before(name, loop):
                mean = means.pop() is True
                totals.append(Total(name, mean, self.read_after(name, loop.node)))
        return totals

    def _begun_before(self, name: str, loop: Loop) -> bool:
        """Whether a name is bound once, to a number, in the same pass as the loop runs."""
        scope = self.scopes.scope(loop.node)
        bindings = scope.bindings.get(name, [])
        begun = [binding for binding in bindings if binding.how is not How.AUGMENTED]
        if len(begun) != 1 or begun[0].how is not How.ASSIGN or begun[0].value is None:
            return False
        if begun[0].at > self.tree.order(loop.node):
            return False
        if any(not self.tree.inside(b.node, loop.node) for b in bindings if b is not begun[0]):
            return False
        if self.kinds.kind(begun[0].value) not in (Kind.NUMBER, Kind.TENSOR):
            return False
        return next(self.loops.around(begun[0].node), None) is next(
            self.loops.around(loop.node), None
        )

    def read_after(self, name: str, node: cst.CSTNode) -> bool:
        """Whether a name is read behind a statement, in the same scope."""
        scope = self.scopes.scope(node)
        return any(
            use.value == name
            and self.tree.order(use) >= self.tree.end(node)
            and self.scopes.reads(use)
            for use in self.tree.within(scope.node, cst.Name)
        )

    def _is_mean(self, addition: cst.AugAssign, loop: Loop) -> bool | None:
        """Whether a batch's mean is added (True) or its sum (False); None for anything else."""
        if not isinstance(addition.operator, cst.AddAssign):
            return None
        value = bare(addition.value)
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply):
            sides = (bare(value.left), bare(value.right))
            losses = [self.kinds.kind(side) is Kind.LOSS for side in sides]
            sizes = [self.is_batch_size(side) for side in sides]
            return False if (losses[0] and sizes[1]) or (losses[1] and sizes[0]) else None
        if self.is_batch_size(value) or self._counts_hits(value, loop):
            return False
        return True if self.kinds.kind(value) is Kind.LOSS else None

    def is_batch_size(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is the length of a batch: `len(x)`, `x.size(0)`, `x.shape[0]`."""
        if isinstance(node, cst.Call):
            if self.names.name(node.func) == "builtins.len":
                return True
            return (
                isinstance(node.func, cst.Attribute)
                and node.func.attr.value == "size"
                and len(node.args) == 1
                and isinstance(node.args[0].value, cst.Integer)
                and node.args[0].value.value == "0"
            )
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
            index = node.slice[0].slice
            return (
                node.value.attr.value == "shape"
                and isinstance(index, cst.Index)
                and isinstance(index.value, cst.Integer)
                and index.value.value == "0"
            )
        if isinstance(node, cst.Name):
            value = self.values.value_of(node)
            return (
                value.state is State.KNOWN
                and value.node is not None
                and not isinstance(value.node, cst.Name)
                and self.is_batch_size(value.node)
            )
        return False

    def _counts_hits(self, node: cst.BaseExpression, loop: Loop) -> bool:
        """Whether an expression counts where a comparison holds: `(a == b).sum()`."""
        if isinstance(node, cst.Name):
            inner = self.scopes.reaching(node)
            value = inner[0].value if len(inner) == 1 and inner[0].how is How.ASSIGN else None
            return value is not None and self._counts_hits(bare(value), loop)
        if not isinstance(node, cst.Call):
            return False
        if self.names.name(node.func) == "torch.sum" and node.args:
            return self._compares(node.args[0].value)
        func = node.func
        return (
            isinstance(func, cst.Attribute)
            and func.attr.value == "sum"
            and not node.args
            and self._compares(func.value)
        )

    def _compares(self, node: cst.BaseExpression) -> bool:
        node = bare(node)
        if isinstance(node, cst.Comparison):
            return True
        if not isinstance(node, cst.Call):
            return False
        if self.names.name(node.func) == "torch.eq":
            return True
        return isinstance(node.func, cst.Attribute) and node.func.attr.value == "eq"

    def own_calls(self, region: cst.CSTNode) -> Iterator[cst.Call]:
        """Yield the calls that run with a region, those of the functions it runs included."""
        for body in self.functions.reached(region):
            yield from self.functions.own(body, cst.Call)


_SAME_NUMBER: Final = frozenset(
    "item detach cpu double float data long int cuda type_as clone squeeze".split()
)


def bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Look through what keeps a number as it is: `float(x)`, `x.detach().item()`, `x.data[0]`."""
    while True:
        inner: cst.BaseExpression | None = None
        if isinstance(node, cst.Call):
            func = node.func
            if isinstance(func, cst.Attribute) and func.attr.value in _SAME_NUMBER:
                inner = func.value
            elif isinstance(func, cst.Name) and func.value in ("float", "int") and node.args:
                inner = node.args[0].value
        elif isinstance(node, cst.Attribute) and node.attr.value == "data":
            inner = node.value
        elif isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
            inner = node.value.value if node.value.attr.value == "data" else None
        if inner is None:
            return node
        node = inner
