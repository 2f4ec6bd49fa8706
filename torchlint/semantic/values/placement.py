"""Placement: tensors known to be in host memory, so that reading them is no sync."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Final

import libcst as cst

from torchlint.semantic.calls.instances import PREPARING
from torchlint.semantic.scope.libraries import DRAWN, FILLED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.hosting import Hosting
from torchlint.semantic.values.kind import TENSORS, Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_MADE_ON_HOST: Final = (FILLED | DRAWN - {"normal"}) | frozenset(
    "from_numpy tensor as_tensor FloatTensor LongTensor Tensor".split()
)
_MOVED_ALONG: Final = ("Parameter", "Buffer", "ParameterList", "ParameterDict")
"""Tensors that a network takes along to a device, unlike its other attributes."""
_REDUCING: Final = frozenset("mean sum max min norm prod median std var item all any".split())
_MOVING: Final = frozenset("cpu to cuda xpu".split())
_MOVERS: Final = (
    "torch.nn.DataParallel", "torch.nn.parallel.", "accelerate.", "lightning", "pytorch_lightning",
    "fastai.", "deepspeed.", "ignite.", "torch.set_default",
)  # fmt: skip
"""What moves the inputs of networks, or makes all tensors on a device."""
_PLAIN: Final = (Kind.NUMBER, Kind.STRING, Kind.NOTHING)
_CHOOSING: Final = (cst.If, cst.IfExp, cst.Try)


def _is_type(name: str) -> bool:
    """Return whether a name is that of a type of numbers: `torch.float32`."""
    return name.startswith("torch.") and name.count(".") == 1


class Placement(ValueAnalysis):
    """Follows tensors from where they are created to where they are read."""

    def __init__(self, values: KnownValues, hosting: Hosting) -> None:
        super().__init__(values)
        self.hosting = hosting

    @memoized(True)
    def on_host(self, node: cst.BaseExpression) -> bool:
        """Return whether a tensor is known to be in host memory."""
        if isinstance(node, cst.Name):
            bindings = self.scopes.reaching(node)
            changed = [each for each in bindings if each.how is not How.AUGMENTED]
            made = [each for each in changed if not self._is_none(each)]
            if not made:
                return False
            return self._becomes_array(node) or all(map(self._bound, made))
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.Attribute):
            kept = self.functions.attribute(node)
            if any(each.is_registered for each in kept) and not self._is_being_made(node):
                return False
            return self.on_host(node.value) or (bool(kept) and all(map(self._bound, kept)))
        if isinstance(node, cst.Subscript):
            held = [each for each in self.hosting.origins.of(node).known if each is not node]
            return self.on_host(node.value) or (bool(held) and all(map(self.on_host, held)))
        if isinstance(node, cst.UnaryOperation):
            return self.on_host(node.expression)
        if isinstance(node, cst.Tuple):
            return all(self.on_host(each.value) for each in node.elements)
        if isinstance(node, cst.BinaryOperation):
            return self._all_on_host([node.left, node.right]) or self._is_weighted_on_host(node)
        if isinstance(node, cst.Comparison):
            return self._all_on_host([node.left, *(c.comparator for c in node.comparisons)])
        return False

    def may_be_on_device(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a tensor that is not known to be on the host."""
        return self.kinds.kind(node) in TENSORS and not self.on_host(node)

    def _becomes_array(self, node: cst.Name) -> bool:
        """Return whether `numpy()` is called on the same tensor, which fails on a device."""
        return any(
            isinstance(asked.value, cst.Name)
            and asked.value.value == node.value
            and self.scopes.reaching(asked.value) == self.scopes.reaching(node)
            and not any(type(o) in _CHOOSING for o in self.functions.tree.ancestors(asked))
            and not getattr(self.functions.tree.parent(asked), "args", ())
            for asked in self.functions.attributes("numpy")
        )

    def _all_on_host(self, operands: list[cst.BaseExpression]) -> bool:
        """Return whether tensors that meet are on the host.

        One that was copied there is enough: torch refuses to mix devices, but for single numbers.
        """
        found = [self.on_host(each) for each in operands if self.kinds.kind(each) not in _PLAIN]
        return (bool(found) and all(found)) or any(map(self._is_copied, operands))

    def _is_weighted_on_host(self, product: cst.BinaryOperation) -> bool:
        """Return whether a loss on the host is multiplied by something of an unknown kind."""
        kinds = {self.kinds.kind(each): each for each in (product.left, product.right)}
        scales = isinstance(product.operator, (cst.Multiply, cst.Divide))
        return scales and {*kinds} == {Kind.LOSS, Kind.UNKNOWN} and self.on_host(kinds[Kind.LOSS])

    @memoized(False)
    def _is_copied(self, node: cst.BaseExpression) -> bool:
        """Return whether a tensor was copied to the host, or is what a network on it gives."""
        if isinstance(node, cst.Name):
            made = [each.assigned for each in self.scopes.reaching(node)]
            return bool(made) and all(each and self._is_copied(each) for each in made)
        if isinstance(node, cst.BinaryOperation):
            return self._is_copied(node.left) or self._is_copied(node.right)
        if not isinstance(node, cst.Call):
            return False
        name, func = self.names.name(node.func), node.func
        if name is not None:
            last = name.rpartition(".")[2]
            computes = name.startswith("torch.") and last not in _REDUCING
            return computes and any(self._is_copied(arg.value) for arg in node.args)
        if self.kinds.kind(func) is Kind.MODULE:
            return self.runs_on_host(func, node)
        if not isinstance(func, cst.Attribute) or func.attr.value in _REDUCING:
            return False
        if func.attr.value in _MOVING:
            return self.hosting.goes_to_host(node)
        return self._is_copied(func.value)

    def runs_on_host(self, network: cst.BaseExpression, forward: cst.Call) -> bool:
        """Return whether a network that a call runs is on the host, and what it gets, too."""
        stays = self.hosting.stays(network) or self._is_only_copied(network)
        return stays and not any(map(self._is_on_device, forward.args))

    def _is_on_device(self, arg: cst.Arg) -> bool:
        """Return whether the file moves an argument to a device, or another network makes it."""
        values = (arg.value, *self.hosting.origins.of(arg.value).values)
        return any(map(self.hosting.moves, values)) or any(
            isinstance(each, cst.Call)
            and self.kinds.kind(each.func) is Kind.MODULE
            and not self.on_host(each)
            for each in values
        )

    def _is_only_copied(self, network: cst.BaseExpression) -> bool:
        """Return whether the file moves a network to the host, and nowhere else."""
        path = dotted(network)
        moves = [
            call
            for word in _MOVING
            for asked in self.functions.attributes(word)
            if isinstance(call := self.functions.tree.parent(asked), cst.Call)
            and call.func is asked
            and path
            and path in (dotted(asked.value), self._named(call))
        ]
        return bool(moves) and all(map(self.hosting.goes_to_host, moves))

    def _named(self, call: cst.Call) -> str:
        """Return the path that a call's result is assigned to."""
        assign = self.functions.tree.parent(call)
        if not isinstance(assign, cst.Assign) or assign.value is not call:
            return ""
        return dotted(assign.targets[0].target)

    def _call(self, node: cst.Call) -> bool:
        function = self.functions.callee(node)
        if function is not None:
            given = self.functions.returns(function)
            if given and all(map(self.on_host, given)):
                return True
            return self._is_fed_from_host(node, self.functions.reached(function))
        name = self.names.name(node.func)
        if name is not None and name.startswith("torch."):
            if name.rpartition(".")[2] in _MOVED_ALONG:
                return False
            if self.values.argument_node(node, "device") is not None:
                return False
            given = [arg.value for arg in node.args]
            tensors = [each for each in given if self.kinds.kind(each) in TENSORS]
            if tensors:
                return self._all_on_host(tensors)
            module, _, last = name.rpartition(".")
            if last in _MADE_ON_HOST:
                return module != "torch.cuda" and not self.hosting.has_default_device
            if self.kinds.kind(node) is Kind.DISTRIBUTION:
                return all(self.kinds.kind(each) is Kind.NUMBER for each in given)
            if given and self._holds_copies(given[0]):
                return True
            return any(map(self.on_host, given)) and self._all_on_host(given)
        if self.kinds.kind(node.func) is Kind.CRITERION:
            return self._all_on_host([arg.value for arg in node.args])
        if self.kinds.kind(node.func) is Kind.MODULE:
            if self.runs_on_host(node.func, node):
                return True
            lines = self._bodies(node.func)
            return bool(lines) and self._is_fed_from_host(node, lines)
        if not isinstance(node.func, cst.Attribute) or name is not None:
            return False
        method = node.func.attr.value
        if method == "numpy":
            return True
        if method in _MOVING:
            if self._only_casts(node):
                return self.on_host(node.func.value)
            return self.hosting.goes_to_host(node) or self._goes_along(node)
        if method == "type_as":
            return False
        tensors = [a.value for a in node.args if self.kinds.kind(a.value) in TENSORS]
        kinds = {self.kinds.kind(node.func.value), self.kinds.kind(node)}
        return not kinds.isdisjoint(TENSORS) and self._all_on_host([node.func.value, *tensors])

    def _only_casts(self, move: cst.Call) -> bool:
        """Return whether a call of `to` names nothing but a type: `x.to(torch.float32)`."""
        given = [
            arg.value for arg in move.args if arg.keyword is None or arg.keyword.value == "dtype"
        ]
        names = [self.names.name(each) or "" for each in given]
        return 0 < len(names) == len(move.args) and all(map(_is_type, names))

    def _holds_copies(self, sequence: cst.BaseExpression) -> bool:
        """Return whether all entries of a sequence of tensors are on the host."""
        members = self.hosting.origins.of(sequence, (None,)).known
        return bool(members) and all(map(self.on_host, members))

    def _goes_along(self, move: cst.Call) -> bool:
        """Return whether a call moves a tensor to where another one is, on the host."""
        target = move.args[0].value if move.args else None
        other = target.value if isinstance(target, cst.Attribute) else None
        return other is not None and self.kinds.kind(other) in TENSORS and self.on_host(other)

    def _is_fed_from_host(self, call: cst.Call, bodies: Sequence[cst.CSTNode]) -> bool:
        """Return whether the tensors that a call gets are on the host, and what it runs stays."""
        return (
            not self._is_spread and self._is_loaded_in_view(call) and self.hands_over(call, bodies)
        )

    def hands_over(self, call: cst.Call, bodies: Sequence[cst.CSTNode]) -> bool:
        """Return whether a call gives tensors of the host to code that leaves them there."""
        given = [arg.value for arg in call.args]
        return (
            any(map(self.on_host, given))
            and all(self.on_host(each) for each in given if self.kinds.kind(each) in TENSORS)
            and not any(map(self.hosting.moves, bodies))
        )

    def _is_loaded_in_view(self, call: cst.Call) -> bool:
        """Return whether a loop around a call gets its batches from a loader made in view."""
        for loop in self.tree.ancestors(call):
            if isinstance(loop, cst.For):
                source, _ = self.iteration.source(loop.iter)
                made = self.hosting.origins.of(source).values if source is not None else ()
                if made and all(isinstance(each, cst.Call) for each in made):
                    return True
        return False

    @cached_property
    def _is_spread(self) -> bool:
        """Whether something in view may move what networks get: a wrapper, or a framework."""
        called = (self.names.name(call.func) or "" for call in self.tree.all(cst.Call))
        return any(each.startswith(_MOVERS) for each in called)

    def _is_none(self, binding: Binding) -> bool:
        return binding.value is not None and self.kinds.kind(binding.value) is Kind.NOTHING

    def _bound(self, binding: Binding) -> bool:
        value = binding.value
        if binding.parameter is not None:
            given = self.functions.given(binding.parameter)
            return bool(given) and all(map(self.on_host, given))
        if value is None:
            return False
        if binding.how is How.LOOP:
            source, _ = self.iteration.source(value, binding.path)
            if source is None or self._is_refilled(binding):
                return False
            return self._is_plain_loader(source) or self.on_host(source)
        if binding.how not in (How.ASSIGN, How.UNPACKED):
            return False
        name = self.names.name(value.func) if isinstance(value, cst.Call) else None
        if not (name or "").startswith(("torch.", "numpy.")) and self._is_refilled(binding):
            return False
        made = self.hosting.origins.of(value, binding.path).known if binding.path else ()
        return self.on_host(value) or (bool(made) and all(map(self.on_host, made)))

    def _is_being_made(self, attribute: cst.Attribute) -> bool:
        """Return whether a line stands in a constructor: networks move after they are made."""
        function = self.scopes.function(attribute)
        return function is not None and function.name.value == "__init__"

    @memoized(False)
    def _is_refilled(self, batch: Binding) -> bool:
        """Return whether entries of a batch are replaced by moved ones, also in what it goes to."""
        return any(map(self._refills, self.scopes.uses(batch)))

    def _refills(self, use: cst.Name) -> bool:
        outer = self.tree.parent(use)
        above = self.tree.parent(outer)
        if isinstance(outer, cst.Subscript) and isinstance(above, cst.AssignTarget):
            return self.hosting.moves(self.tree.statement(use))
        if not isinstance(outer, cst.Arg) or not isinstance(above, cst.Call):
            return False
        taken = (self.functions.taken(above, each, use) for each in self.functions.callees(above))
        return any(each is not None and self._is_refilled(each) for each in taken)

    def _is_plain_loader(self, source: cst.BaseExpression) -> bool:
        """Return whether a loader's batches are used as it yields them, not moved first."""
        return (
            isinstance(source, (cst.Name, cst.Attribute, cst.Subscript))
            and self.kinds.kind(source) is Kind.LOADER
            and not self._is_prepared(source)
            and not self._is_filled_on_device(source)
        )

    @memoized(False)
    def _is_filled_on_device(self, loader: cst.BaseExpression) -> bool:
        """Return whether the dataset of a loader, or its collate function, may move items."""
        made = self.hosting.origins.of(loader).values
        given = (arg.value for call in made if isinstance(call, cst.Call) for arg in call.args)
        return any(map(self.hosting.moves, chain.from_iterable(map(self._bodies, given))))

    def _bodies(self, value: cst.BaseExpression) -> Sequence[cst.CSTNode]:
        """Return the classes of an object that are in view, or what calling it may run."""
        owner = self.functions.instance_of(value)
        return self.functions.lineage(owner) if owner else self.functions.runnable(value)

    @memoized(False)
    def _is_prepared(self, loader: cst.BaseExpression) -> bool:
        """Return whether a framework has prepared a loader, which then moves its batches."""
        if isinstance(loader, cst.Call):
            return method_of(loader) in PREPARING and self.names.name(loader.func) is None
        bindings = self.functions.bindings(loader)
        values = (each for one in bindings for each in (one.value, *self.functions.held(one)))
        return any(each is not None and self._is_prepared(each) for each in values)
