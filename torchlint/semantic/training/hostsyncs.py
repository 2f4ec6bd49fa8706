"""Host syncs: expressions for which the host waits until the device knows a tensor's values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from itertools import chain
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.syntax.methods import operands_of, receiver_of
from torchlint.semantic.training.readings import Readings
from torchlint.semantic.values.calls import Calls, CallSite
from torchlint.semantic.values.facts import ValueFacts
from torchlint.semantic.values.kind import TENSORS, Kind
from torchlint.semantic.values.known import ValueAnalysis
from torchlint.semantic.values.values import State

Holder = cst.If | cst.While | cst.Assert | cst.IfExp


class Cause(Enum):
    """What the host needs the values for."""

    READ = auto()
    """A copy of them: `loss.item()`, `out.cpu()`."""
    TESTED = auto()
    """A decision: `if loss > 3:`, `math.isnan(loss)`, `max(loss, 0)`."""
    SIZED = auto()
    """The size of a result: `mask.nonzero()`, `out[mask]`, `range(length)`."""
    CHECKED = auto()
    """A check of torch's own: `validate_args`, `error_if_nonfinite`."""
    ORDERED = auto()
    """Nothing, the host only waits: `torch.cuda.synchronize()`."""


class HostSync(NamedTuple):
    """An expression that waits for the device."""

    node: cst.BaseExpression
    cause: Cause
    word: str = ""
    """The last word of what is called, or `test`, `elements`, `mask` or `bounds`."""


_OPERATIONS: Final = {
    **dict.fromkeys("nonzero argwhere unique unique_consecutive".split(), Cause.SIZED),
    **dict.fromkeys("masked_select bincount repeat_interleave".split(), Cause.SIZED),
    **dict.fromkeys(("equal", "allclose"), Cause.TESTED),
}
"""The operations, as functions of torch and as methods, whose result the host must know."""
_FUNCTIONS: Final = {
    **{f"torch.{word}": cause for word, cause in _OPERATIONS.items()},
    **dict.fromkeys(("math.isnan", "math.isinf", "math.isfinite"), Cause.TESTED),
    **dict.fromkeys(("builtins.any", "builtins.all", "builtins.sorted"), Cause.TESTED),
    **dict.fromkeys(("builtins.max", "builtins.min", "builtins.bool"), Cause.TESTED),
    **dict.fromkeys(("builtins.range", "torch.arange", "torch.where"), Cause.SIZED),
    "torch.nn.functional.one_hot": Cause.SIZED,
    "torch.nn.utils.rnn.pack_padded_sequence": Cause.SIZED,
    "torch.nn.utils.clip_grad_norm_": Cause.CHECKED,
    "torch.cuda.synchronize": Cause.ORDERED,
}
_TELLING: Final = {
    "bincount": "minlength",
    "one_hot": "num_classes",
    "repeat_interleave": "output_size",
}
"""The parameters that tell the size of a result, so that the host need not ask."""
_COUNTING: Final = ("range", "arange", "pack_padded_sequence")
"""The functions that usually get numbers."""
_ITERATING: Final = ("any", "all", "sorted")
"""The functions that usually get lists."""
_ASKED: Final = {"pack_padded_sequence": "lengths", "repeat_interleave": "repeats"}
"""The parameters whose values are needed, where it is not the first."""
_DISTRIBUTION: Final = re.compile(r"torch\.distributions\.[A-Z]\w*")


class HostSyncs(ValueAnalysis):
    """Finds everything that waits for the device."""

    values: ValueFacts

    def __init__(self, values: ValueFacts, calls: Calls, readings: Readings) -> None:
        super().__init__(values)
        self.calls = calls
        self.on_device = values.placement.may_be_on_device
        self.readings = readings

    def within(self, region: cst.CSTNode) -> Iterator[HostSync]:
        """Yield what waits inside a node, however often it runs, in source order."""
        found = self._found(self.tree.module_of(region))
        for node in self.tree.among(list(found), region):
            yield from found[node]

    def of(self, *causes: Cause) -> Iterator[HostSync]:
        """Yield what waits in the file itself for one of some causes."""
        waits = chain.from_iterable(self._found(self.tree.module).values())
        return (each for each in waits if each.cause in causes)

    def tested(self, test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """Yield the parts of a test for which the host must know a tensor of the device."""
        for part in operands_of(test):
            if not _compares_text(part) and self.on_device(part):
                yield part
            else:
                held = self.readings.held_by(part)
                found = self.readings.within(part) if held is None else (held,)
                yield from (each.node for each in found)

    def sizes(self, node: cst.CSTNode) -> bool:
        """Return whether a value tells how large a part or a result of its expression is."""
        line = self.tree.smallest_statement(node)
        found = self._found(self.tree.module_of(node))
        return any(
            each.cause is Cause.SIZED
            for outer in self.tree.ancestors(node)
            if isinstance(outer, cst.BaseExpression) and self.tree.inside(outer, line)
            for each in found.get(outer, ())
        )

    @cached_method
    def _found(self, module: cst.Module) -> dict[cst.BaseExpression, list[HostSync]]:
        """Return what waits in a module, by its nodes, in source order."""
        found: dict[cst.BaseExpression, list[HostSync]] = {}
        parts = (self._reads, self._tests, self._selections, self._calls)
        for each in chain.from_iterable(part(module) for part in parts):
            found.setdefault(each.node, []).append(each)
        return dict(sorted(found.items(), key=lambda item: self.tree.order(item[0])))

    def _counts(self, node: cst.BaseExpression) -> bool:
        """Return whether a number is read from the device, or is a tensor there."""
        return any(True for _ in self.readings.within(node)) or self._is_surely_on_device(node)

    def _is_surely_on_device(self, node: cst.BaseExpression) -> bool:
        """Return whether a value certainly is a tensor, not only by convention."""
        return self.on_device(node) and not any(
            binding.how in (How.PARAMETER, How.UNPACKED)
            for name in self.tree.within(node, cst.Name)
            for binding in self.scopes.reaching(name)
        )

    # -- reads and tests -----------------------------------------------------------

    def _reads(self, module: cst.Module) -> Iterator[HostSync]:
        for reading in self.readings.within(module):
            yield HostSync(reading.node, Cause.READ)
        for site in self._in(module, self.calls.of_methods("item")):
            # what nothing in sight shows to be a tensor may be one
            if self.kinds.kind(site.receiver) is Kind.UNKNOWN:
                yield HostSync(site.node, Cause.READ)

    def _in(self, module: cst.Module, sites: Iterable[CallSite]) -> Iterator[CallSite]:
        return (site for site in sites if self.tree.inside(site.node, module))

    def _tests(self, module: cst.Module) -> Iterator[HostSync]:
        holders: list[Holder] = [
            *self.tree.within(module, cst.If),
            *self.tree.within(module, cst.While),
            *self.tree.within(module, cst.Assert),
            *self.tree.within(module, cst.IfExp),
        ]
        tests = [each.test for each in holders]
        tests += (each.left for each in self.tree.within(module, cst.BooleanOperation))
        parts = dict.fromkeys(part for test in tests for part in self.tested(test))
        yield from (HostSync(part, Cause.TESTED, "test") for part in parts)

    # -- subscripts ------------------------------------------------------------------

    def _selections(self, module: cst.Module) -> Iterator[HostSync]:
        """Yield the subscripts by a mask, and those whose bounds are tensors."""
        for item in self.tree.within(module, cst.Subscript):
            indices = [each.slice for each in item.slice]
            if not any(map(self._may_select, indices)):
                continue
            if isinstance(self.tree.parent(item), (cst.AssignTarget, cst.AugAssign, cst.Del)):
                continue
            if self.kinds.kind(item.value) in TENSORS:
                words = (word for index in indices if (word := self._selects(index)))
                yield from (HostSync(item, Cause.SIZED, word) for word in words)

    def _may_select(self, index: cst.BaseSlice) -> bool:
        """Return whether an index is a mask, or a range without literal bounds."""
        if isinstance(index, cst.Index):
            return self.values.dtypes.is_mask(index.value)
        return any(not isinstance(each, cst.Integer) for each in _bounds(index))

    def _selects(self, index: cst.BaseSlice) -> str:
        """Return how an index depends on values of the device, "" if it does not."""
        if isinstance(index, cst.Index):
            selects = self.values.dtypes.is_mask(index.value) and self.on_device(index.value)
            return "mask" if selects else ""
        return "bounds" if any(map(self._counts, _bounds(index))) else ""

    # -- calls ---------------------------------------------------------------------------

    def _calls(self, module: cst.Module) -> Iterator[HostSync]:
        for site in self._in(module, self.calls.of_methods(*_OPERATIONS)):
            if site.name is None and self._waits_as_method(site):
                yield HostSync(site.node, _OPERATIONS[site.method], site.method)
        for site in self._in(module, self.calls.of(*_FUNCTIONS)):
            name = site.name or ""
            word = name.rpartition(".")[2]
            if self._waits(site, word):
                yield HostSync(site.node, _FUNCTIONS[name], word)
            elif word in _ITERATING and site.node.args and self._waits_often(site.node.args[0]):
                yield HostSync(site.node, _FUNCTIONS[name], "elements")
        made = self.calls.of(*filter(_DISTRIBUTION.fullmatch, self.calls.called))
        for site in self._in(module, made):
            if site.node.args and site.argument("validate_args").state is State.ABSENT:
                yield HostSync(site.node, Cause.CHECKED, "validate_args")

    def _waits_often(self, arg: cst.Arg) -> bool:
        """Return whether a comprehension tests a tensor of the device in each of its passes."""
        value = arg.value
        return isinstance(value, (cst.GeneratorExp, cst.ListComp)) and any(
            True for _ in self.tested(value.elt)
        )

    def _waits_as_method(self, site: CallSite) -> bool:
        """Return whether a method of a tensor asks the device."""
        if site.method in _ASKED:
            return self._waits(site, site.method)
        return not self._is_told(site, site.method) and self.on_device(site.receiver)

    def _is_told(self, site: CallSite, word: str) -> bool:
        """Return whether a call may say how large its result is."""
        return word in _TELLING and site.argument(_TELLING[word]).state is not State.ABSENT

    def _waits(self, site: CallSite, word: str) -> bool:
        """Return whether a function asks the device for a tensor among its arguments."""
        if word == "synchronize":
            return True
        if word == "clip_grad_norm_":
            return site.argument("error_if_nonfinite").equals(True)
        if self._is_told(site, word):
            return False
        args = [arg.value for arg in site.node.args]
        if word in _ASKED:
            given = site.given(_ASKED[word])
            args = [] if given is None or site.has_splat else [given.value]
        elif word not in ("max", "min"):
            args = args[:1] if word != "where" or len(args) == 1 else []
        asks = self._counts if word in _COUNTING else self.on_device
        asks = self._is_surely_on_device if word in _ITERATING else asks
        return any(receiver_of(each, "values") is None and asks(each) for each in args)


def _bounds(index: cst.BaseSlice) -> list[cst.BaseExpression]:
    """Return the bounds of a range."""
    bounds = (index.lower, index.upper) if isinstance(index, cst.Slice) else ()
    return [each for each in bounds if each is not None]


def _compares_text(part: cst.BaseExpression) -> bool:
    return isinstance(part, cst.Comparison) and any(
        isinstance(each.comparator, cst.SimpleString) for each in part.comparisons
    )
