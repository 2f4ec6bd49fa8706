"""Accumulators: what a batch loop sums or collects, and when that can wait for its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.hooks import Rate
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import Loop, LoopNode, Loops
from torchlint.semantic.scope.scopes import Binding, How, Scope, dotted
from torchlint.semantic.syntax.methods import container_of
from torchlint.semantic.training.additions import (
    ADDING_METHODS,
    Adding,
    Addition,
    Additions,
)
from torchlint.semantic.training.readings import Readings
from torchlint.semantic.values.kind import TENSORS, Kind

AccumulationNode = cst.AugAssign | cst.Assign | cst.Call


class Accumulation(NamedTuple):
    """A place in a batch loop that adds `values` to `target` in every pass."""

    node: AccumulationNode
    adding: Adding
    target: cst.BaseExpression
    values: tuple[cst.BaseExpression, ...]
    loop: Loop


class Accumulator(NamedTuple):
    """A name that a loop only adds to, so that its value can wait until `loop` has ended.

    `starts` is its value before the loop (`0`, `0.0` or `[]`), `reads` are the rare reads of it in
    the loop, and `is_read_outside` tells whether other code may read it.
    """

    name: str
    starts: tuple[int | float | list[object], ...]
    loop: LoopNode
    additions: tuple[Accumulation, ...]
    reads: tuple[cst.Name, ...]
    is_read_outside: bool


_EMPTYING: Final = ("clear", "reset")
_UNSPLIT: Final = (Adding.METER, Adding.MIX, Adding.ENTRY)


class Accumulators(LoopAnalysis):
    """Finds additions in batch loops and the names that they accumulate into."""

    def __init__(self, loops: Loops, frequencies: Frequencies, readings: Readings) -> None:
        super().__init__(loops)
        self.frequencies = frequencies
        self.readings = readings
        self.additions = Additions(self.values)
        self._all: list[Accumulation] | None = None
        self._nodes: dict[cst.CSTNode, Accumulation] = {}

    # -- additions ------------------------------------------------------------

    def all(self) -> list[Accumulation]:
        """Return every addition that runs in each pass of a batch loop, in source order."""
        if self._all is None:
            batches = any(loop.is_batch for loop in self.loops.all())
            found = [*self._among(self._adding_nodes())] if batches else []
            self._nodes = {each.node: each for each in found}
            self._all = sorted(found, key=self._rank)
        return self._all

    def adds(self, node: cst.CSTNode) -> bool:
        """Return whether a number is part of a value that each pass of a batch loop adds."""
        around = takewhile(lambda each: not self._takes_tensors(each), self.tree.ancestors(node))
        return any(each in self._added for each in (node, *around))

    def _takes_tensors(self, node: cst.CSTNode) -> bool:
        """Return whether a node computes with tensors, where a number is but a setting."""
        given = [arg.value for arg in node.args] if isinstance(node, cst.Call) else []
        return any(self.kinds.kind(each) in TENSORS for each in given)

    @cached_property
    def _added(self) -> set[cst.CSTNode]:
        return {value for each in self.all() for value in each.values}

    def in_file(self) -> Iterator[Accumulation]:
        """Yield the additions of the file itself that run in each pass of a batch loop."""
        return self._among(filter(self.tree.is_own, self._adding_nodes()))

    def _among(self, nodes: Iterable[AccumulationNode]) -> Iterator[Accumulation]:
        return (each for each in map(self._accumulation, nodes) if each is not None)

    def _adding_nodes(self) -> Iterator[AccumulationNode]:
        yield from self.tree.all(cst.AugAssign)
        yield from self.tree.all(cst.Assign)
        yield from self._adding_calls()

    @cached_property
    def of_steps(self) -> list[Addition]:
        """What methods that make one training step add to an object, and never empty."""
        return list(self._find_of_steps())

    def _find_of_steps(self) -> Iterator[Addition]:
        for function in self.tree.all(cst.FunctionDef):
            rated = self.frequencies.rate(function) is Rate.STEP
            if not rated and not self.frequencies.step_functions.is_pass(function):
                continue
            for node in self._nodes_within(function.body):
                parts = self.additions.parts(node)
                if (
                    parts is not None
                    and dotted(container_of(parts.target)).startswith("self.")
                    and self.frequencies.frequency(node) is Frequency.EVERY_PASS
                    and not any(
                        self.tree.inside(each, function)
                        or not (rated or self.frequencies.frequency(each) is Frequency.UNKNOWN)
                        for each in self._emptying(self.tree.module, parts.target)
                    )
                ):
                    yield parts

    def _nodes_within(self, body: cst.BaseSuite) -> Iterator[AccumulationNode]:
        yield from self.tree.within(body, cst.AugAssign)
        yield from self.tree.within(body, cst.Assign)
        yield from self.tree.within(body, cst.Call)

    def _adding_calls(self) -> Iterator[cst.Call]:
        for method in ADDING_METHODS:
            for func in self.loops.functions.attributes(method):
                call = self.tree.parent(func)
                if isinstance(call, cst.Call) and call.func is func:
                    yield call

    def within(self, region: cst.CSTNode) -> list[Accumulation]:
        """Return the accumulations inside a node."""
        first = bisect_left(self.all(), self.tree.order(region), key=self._rank)
        return self.all()[first : bisect_left(self.all(), self.tree.end(region), key=self._rank)]

    def _rank(self, accumulation: Accumulation) -> int:
        return self.tree.order(accumulation.node)

    def at(self, node: cst.CSTNode) -> Accumulation | None:
        """Return the accumulation at a node, running means and those of helpers included."""
        self.all()
        found = self._nodes.get(node)
        if found is None and isinstance(node, (cst.Assign, cst.Call)):
            found = self._hot(node, self.additions.parts(node))
        return found

    def _accumulation(self, node: AccumulationNode) -> Accumulation | None:
        parts = (
            self.additions.of_call(node)
            if isinstance(node, cst.Call)
            else self.additions.of_assign(node)
        )
        return self._hot(node, parts)

    def _hot(self, node: AccumulationNode, parts: Addition | None) -> Accumulation | None:
        if parts is None:
            return None
        loop = self.frequencies.loops.batch_loop(node)
        if loop is None or not self.frequencies.each_pass(node, loop.node):
            return None
        adding, target, values = parts
        return Accumulation(node, adding, target, values, loop)

    # -- uses in the same pass ------------------------------------------------

    def used_each_pass(
        self, accumulation: Accumulation, besides: Iterable[cst.CSTNode] = ()
    ) -> bool:
        """Return whether every pass of the loop needs the running total on the host.

        `besides` are statements whose uses do not count.
        """
        path, node = self._path(accumulation.target), accumulation.node
        own = self._adding.get(path, frozenset()) | {id(node)} | set(map(id, besides))
        loops = [each.node for each in self.loops.around(node) if not self._walks_a_read(each.node)]
        return bool(loops) and self._is_looked_at(path, own, loops[0], node)

    def _walks_a_read(self, loop: LoopNode) -> bool:
        """Return whether a loop runs over what was read before it: `for each in x.tolist()`."""
        return isinstance(loop, cst.For) and any(True for _ in self.readings.within(loop.iter))

    @cached_method
    def _is_looked_at(
        self, path: str, adding: frozenset[int], loop: LoopNode, node: cst.CSTNode
    ) -> bool:
        """Return whether every pass of a loop uses a path, apart from adding to it as a node does.

        What a constant rules out beside the node is no use.
        """
        return any(
            not self._only_computed(place, loop)
            and not self.additions.stands_apart(place, node)
            and not self.functions.switches.is_off(place, beside=node)
            for place in self._hot_reads(path, adding, loop)
        )

    def is_read_around(self, taken: cst.Name, region: LoopNode | cst.FunctionDef) -> bool:
        """Return whether passes may read an object besides handing it to a function."""
        if not isinstance(region, cst.FunctionDef):
            return True
        for call in self.functions.callers(region):
            given = self.functions.passed(call, region, taken.value)
            path, loop = dotted(given) if given else "", self.loops.batch_loop(call)
            if path and loop and self._is_looked_at(path, frozenset({id(call)}), loop.node, call):
                return True
        return False

    @cached_property
    def _by_target(self) -> dict[int, Accumulation]:
        return {id(each.target): each for each in self.all()}

    @cached_property
    def _adding(self) -> dict[str, frozenset[int]]:
        """The accumulations by the path they add to, and by every prefix of that path."""
        found: dict[str, set[int]] = {}
        for each in self.all():
            words = self._path(each.target).split(".")
            for count in range(1, len(words) + 1):
                found.setdefault(".".join(words[:count]), set()).add(id(each.node))
        return {path: frozenset(nodes) for path, nodes in found.items()}

    def _places(self, path: str) -> Sequence[cst.Name | cst.Attribute]:
        """Return the names or attributes with a path, in source order."""
        _, dot, word = path.rpartition(".")
        if path and not dot:
            return self.tree.spelled(path)
        return self._by_path(word, bool(dot)).get(path, ())

    @cached_method
    def _by_path(self, word: str, is_last: bool) -> dict[str, list[cst.Attribute]]:
        """Return the attributes with this last word by their path, or all attributes."""
        found: dict[str, list[cst.Attribute]] = {}
        for each in self.functions.attributes(word) if is_last else self.tree.all(cst.Attribute):
            found.setdefault(dotted(each), []).append(each)
        return found

    def _hot_reads(
        self, path: str, adding: frozenset[int], loop: LoopNode
    ) -> Iterator[cst.BaseExpression]:
        """Yield the reads in every pass of what additions add to, except the additions."""
        for place in self.tree.among(self._places(path), loop):
            if not self.scopes.reads(place):
                continue
            if any(id(each) in adding for each in self.tree.ancestors(place)):
                continue
            if self._only_counted(place) or self._grows_by(place, path):
                continue
            tested = isinstance(loop, cst.While) and self.tree.inside(place, loop.test)
            if tested or (
                self.tree.inside(place, loop.body)
                and self.frequencies.frequency(place) is Frequency.EVERY_PASS
            ):
                yield place

    def _only_counted(self, place: cst.BaseExpression) -> bool:
        """Return whether a read only takes the number of collected values, or their keys."""
        if self.additions.holds_entry(place):
            return True
        holder = self.tree.parent(place)
        if isinstance(holder, cst.For):
            return holder.iter is place and self.kinds.kind(place) is Kind.MAPPING
        call = self.tree.taker(place)
        return isinstance(call, cst.Call) and self.kinds.names.name(call.func) == "builtins.len"

    def _grows_by(self, place: cst.BaseExpression, path: str) -> bool:
        """Return whether a read is in a line that adds to its target (`a[0] = cat(a[0], b)`)."""
        line = next((o for o in self.tree.ancestors(place) if isinstance(o, cst.Assign)), None)
        found = self.at(line) if line is not None else None
        return found is not None and f"{self._path(found.target)}.".startswith(f"{path}.")

    def _path(self, target: cst.BaseExpression) -> str:
        return dotted(container_of(target))

    def _only_computed(self, place: cst.BaseExpression, loop: LoopNode) -> bool:
        """Return whether a read only computes a name that no pass uses further."""
        assign = self.tree.smallest_statement(place)
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            return False
        target = assign.targets[0].target
        return (
            isinstance(target, cst.Name)
            and self.readings.packs(assign.value)
            and not self.readings.hot_uses(target, loop, [])
        )

    def is_emptied(self, accumulation: Accumulation) -> bool:
        """Return whether the loop sets a sum, or a list, back to its start now and then."""
        return any(
            not self._is_alternative(place, accumulation)
            for place in self._emptying(accumulation.loop.node.body, accumulation.target)
        )

    def _emptying(
        self, body: cst.CSTNode, target: cst.BaseExpression
    ) -> Iterator[cst.BaseExpression]:
        """Yield the places in code that set a sum, or a list, back to its start."""
        path = dotted(target)
        for place in self.tree.among(self._places(path), body) if path else ():
            holder = self.tree.parent(place)
            bound = self.scopes.stored(place)
            if (
                bound is not None
                and bound.how is How.ASSIGN
                and not self.additions.parts(bound.node)
            ) or (isinstance(holder, cst.Attribute) and holder.attr.value in _EMPTYING):
                yield place

    def _is_alternative(self, place: cst.CSTNode, accumulation: Accumulation) -> bool:
        """Return whether a place stands where no pass of the loop adds (`else: total = 0`)."""
        choice, loop = self.tree.choice(accumulation.node, place), accumulation.loop.node
        names = self.tree.within(choice.test, cst.Name) if choice is not None else ()
        bound = (each.node for name in names for each in self.scopes.reaching(name))
        return choice is not None and not any(self.tree.inside(each, loop) for each in bound)

    # -- deferral to the end of the loop --------------------------------------------------------

    def accumulator(
        self, accumulation: Accumulation, rare: Iterable[cst.CSTNode] = ()
    ) -> Accumulator | None:
        """Return the accumulator of an addition if its value can wait for the loop's end.

        `rare` are statements that a fix is about to put behind a test for every n-th pass.
        """
        target = accumulation.target
        if not isinstance(target, cst.Name) or accumulation.adding in _UNSPLIT:
            return None
        scope = self.scopes.scope(target)
        if scope.is_class or target.value not in scope.bindings:
            return None
        if self.is_shared(target.value, scope):
            return None
        for loop in reversed(self._loops_without_start(accumulation, scope)):
            found = self._accumulator_of(accumulation, scope, loop, frozenset(map(id, rare)))
            if found is not None:
                return found
        return None

    def _accumulator_of(
        self, accumulation: Accumulation, scope: Scope, loop: LoopNode, rare: frozenset[int]
    ) -> Accumulator | None:
        """Return the accumulator if its value can wait for the end of this loop."""
        assert isinstance(accumulation.target, cst.Name)
        name = accumulation.target.value
        starts = self._starts(accumulation, loop)
        if starts is None:
            return None
        additions, reads = self._built(name, scope, loop, rare)
        if reads is None:
            return None
        outside = self._is_read_outside(name, scope, loop)
        return Accumulator(name, starts, loop, additions, reads, outside)

    @cached_method
    def _built(
        self, name: str, scope: Scope, loop: LoopNode, rare: frozenset[int]
    ) -> tuple[tuple[Accumulation, ...], tuple[cst.Name, ...] | None]:
        """Return what adds to a name in a loop, and its reads, None if one cannot wait."""
        additions = tuple(self._additions(name, scope, loop))
        return additions, self._reads(name, scope, loop, additions, rare)

    @cached_method
    def _uses(self, name: str, scope: Scope) -> Sequence[cst.Name]:
        """Return the places that read or bind a name of a scope, in source order."""
        return [
            each
            for each in self.tree.among(self.tree.spelled(name), scope.node)
            if self.scopes.lookup(name, self.scopes.scope(each)) is scope
        ]

    @cached_method
    def is_shared(self, name: str, scope: Scope) -> bool:
        """Return whether nested functions, `global` or `nonlocal` let other code use a name."""
        if name in scope.outward:
            return True
        for use in self._uses(name, scope):
            inner: Scope | None = self.scopes.scope(use)
            while inner is not None and inner is not scope:
                if inner.is_function or inner.is_class:
                    return True
                inner = inner.parent
        return False

    def _loops_without_start(self, accumulation: Accumulation, scope: Scope) -> list[LoopNode]:
        """Return the loops, innermost first, that do not initialise an accumulator.

        A sum waits at most for the batches of an epoch; a list may be created only once.
        """
        assert isinstance(accumulation.target, cst.Name)
        others = self._other_bindings(accumulation.target.value, scope)
        sums = accumulation.adding is Adding.SUM
        found: list[LoopNode] = []
        for loop in self.loops.around(accumulation.node):
            if sums and accumulation.loop.node in found and not loop.is_batch:
                break
            near = self.scopes.among(others, loop.node)
            inside = [b for b in near if self.tree.inside(b.node, loop.node)]
            if any(not (sums and self._resets(binding)) for binding in inside):
                break
            found.append(loop.node)
        return found

    @cached_method
    def _other_bindings(self, name: str, scope: Scope) -> list[Binding]:
        """Return the bindings of a name that do not add to it."""
        return [b for b in scope.bindings[name] if b.node not in self._nodes]

    def _resets(self, binding: Binding) -> bool:
        """Return whether a binding only occasionally resets a sum."""
        return (
            _number(binding) is not None
            and self.frequencies.frequency(binding.node) is Frequency.RARE
        )

    def _starts(
        self, accumulation: Accumulation, loop: LoopNode
    ) -> tuple[int | float | list[object], ...] | None:
        """Return the values that the name can start with, None unless all are known."""
        assert isinstance(accumulation.target, cst.Name)
        reaching = [
            binding
            for binding in self.scopes.reaching(accumulation.target)
            if not (binding.node in self._nodes and self.tree.inside(binding.node, loop))
        ]
        if not any(self._always_before(binding, loop) for binding in reaching):
            return None
        if accumulation.adding is Adding.SUM:
            numbers = [_number(binding) for binding in reaching]
            return None if None in numbers else tuple(n for n in numbers if n is not None)
        return ([],) if len(reaching) == 1 and self._fresh(reaching[0], loop) else None

    def _always_before(self, binding: Binding, loop: LoopNode) -> bool:
        """Return whether a binding above a loop is always made before the loop runs."""
        blocks = self.scopes.blocks(binding.node)
        return (
            bool(blocks)
            and blocks[0] in self.scopes.blocks(loop)
            and binding.at < self.tree.order(loop)
        )

    def _fresh(self, binding: Binding, loop: LoopNode) -> bool:
        """Return whether a list is empty and has no other reference when the loop begins."""
        node, value = binding.node, binding.value
        if binding.how is not How.ASSIGN or not isinstance(value, cst.List) or value.elements:
            return False
        if not isinstance(node, cst.Assign) or len(node.targets) != 1:
            return False
        blocks = self.scopes.blocks(node)
        if not blocks or blocks[0] not in self.scopes.blocks(loop):
            return False
        if next(self.loops.around(node), None) is not next(self.loops.around(loop), None):
            return False
        scope = self.scopes.scope(node)
        between = range(binding.at, self.tree.order(loop))
        return not any(
            self.tree.order(use) in between and self.scopes.reads(use)
            for use in self._uses(binding.name, scope)
        )

    def _additions(self, name: str, scope: Scope, loop: LoopNode) -> Iterator[Accumulation]:
        for target in self.tree.among(self.tree.spelled(name), loop):
            each = self._by_target.get(id(target))
            if each is not None and self.scopes.scope(target) is scope:
                yield each

    def _reads(
        self,
        name: str,
        scope: Scope,
        loop: LoopNode,
        additions: Iterable[Accumulation],
        rare: frozenset[int],
    ) -> tuple[cst.Name, ...] | None:
        """Return the rare reads of a sum in its loop, None if another use prevents deferral."""
        if self._read_after_error(name, scope, loop):
            return None
        found: list[cst.Name] = []
        own = {id(each.node) for each in additions}
        lists = any(each.adding is not Adding.SUM for each in additions)
        for use in self.tree.among(self._uses(name, scope), loop):
            outer = set(map(id, self.tree.ancestors(use)))
            if not own.isdisjoint(outer):
                continue
            binding = self.scopes.stored(use)
            if binding is not None and binding.how is How.ASSIGN:
                continue
            seldom = self.tree.inside(use, loop.body) and (
                self.frequencies.frequency(use) is Frequency.RARE or not rare.isdisjoint(outer)
            )
            after = loop.orelse is not None and self.tree.inside(use, loop.orelse)
            moved = isinstance(self.tree.parent(use), (cst.Del, cst.NamedExpr))
            if lists or binding is not None or not (seldom or after) or moved:
                return None
            found.append(use)
        return tuple(found)

    def _is_read_outside(self, name: str, scope: Scope, loop: LoopNode) -> bool:
        """Return whether code outside a loop may look at a name; others may at a module's."""
        return not scope.is_function or any(
            not self.tree.inside(use, loop) and not self._is_set(use)
            for use in self._uses(name, scope)
        )

    def _is_set(self, use: cst.Name) -> bool:
        """Return whether a place gives a name another value, whatever it was."""
        binding = self.scopes.stored(use)
        return binding is not None and binding.how is How.ASSIGN

    def _read_after_error(self, name: str, scope: Scope, loop: LoopNode) -> bool:
        """Return whether an exception can lead from the loop to a later use of a name."""
        for child, outer in self.tree.outward(loop):
            if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
                return False
            if isinstance(outer, cst.Try) and child is outer.body:
                uses = self._uses(name, scope)
                return bool(uses) and self.tree.order(uses[-1]) >= self.tree.end(outer.body)
        return False


def _number(binding: Binding) -> int | float | None:
    """Return the literal number that a binding assigns."""
    if binding.how is not How.ASSIGN:
        return None
    if isinstance(binding.value, cst.Integer):
        return int(binding.value.value, 0)
    return float(binding.value.value) if isinstance(binding.value, cst.Float) else None
