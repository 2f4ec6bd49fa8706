"""Waits: host syncs in each pass of a loop whose value the pass does not need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import Loop
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import container_of, receiver_of, word_of
from torchlint.semantic.training.accumulators import Accumulators
from torchlint.semantic.training.additions import Adding, Addition, has_fixed_keys, taken_part
from torchlint.semantic.training.computations import FILLS, PURE, Computations
from torchlint.semantic.training.conditions import Conditions
from torchlint.semantic.training.destination import (
    BACK,
    KEPT,
    LAST,
    NOTHING,
    RARE,
    WHOLE,
    Destination,
    End,
    Part,
)
from torchlint.semantic.training.readings import Form, Reading, Readings, Region
from torchlint.semantic.values.facts import ValueFacts
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis


class Wait(NamedTuple):
    """A reading in a loop, or in a function that its passes call, with its final uses."""

    reading: Reading
    loop: Loop
    ends: frozenset[End]
    target: cst.BaseExpression | None
    """The first object that the value is added to or stored in."""


class Kept(NamedTuple):
    """A reading in a function that only returns the value, or adds it to something.

    What is returned to calls in view is only added to something there as well.
    """

    reading: Reading
    is_returned: bool
    target: cst.BaseExpression | None


_LONG: Final = 12
_ARITHMETIC: Final = frozenset("mul div add sub true_divide multiply divide clamp pow".split())
_TRANSPARENT: Final = ("torch.", "builtins.staticmethod", "builtins.classmethod")
_PACKS: Final = (
    cst.Arg, cst.Element, cst.DictElement, cst.Tuple, cst.List, cst.Set, cst.Dict, cst.Index,
    cst.BinaryOperation, cst.UnaryOperation, cst.BooleanOperation, cst.Comparison,
    cst.ComparisonTarget, cst.FormattedString, cst.FormattedStringExpression,
    cst.ConcatenatedString, cst.SimpleStatementLine, cst.StarredElement, cst.SubscriptElement,
    cst.StarredDictElement,
)  # fmt: skip
_CARRIERS: Final = (cst.Element, cst.Arg, cst.Dict, cst.StarredDictElement)
"""What a value is still a part of where it stands inside."""
_Entry = cst.Subscript | cst.Call | None
_MADE: Final = (How.ASSIGN, How.UNPACKED, How.AUGMENTED)
_BOUND: Final = (How.ASSIGN, How.AUGMENTED, How.UNPACKED, How.LOOP)


class Waits(ValueAnalysis):
    """Follows values that every pass of a loop reads to their uses."""

    values: ValueFacts

    def __init__(
        self,
        values: ValueFacts,
        frequencies: Frequencies,
        readings: Readings,
        accumulators: Accumulators,
    ) -> None:
        super().__init__(values)
        self.on_device = values.placement.may_be_on_device
        self.frequencies = frequencies
        self.readings = readings
        self.accumulators = accumulators
        self.additions = accumulators.additions
        self.computations = Computations(self.functions)
        self.conditions = Conditions(frequencies.loops)

    def of(self, loop: Loop) -> Iterator[Wait]:
        """Yield the readings in a batch loop whose host sync no pass needs."""
        for region, calls in self._regions(loop.node):
            found = self._unneeded(region, calls)
            aside = [node for one, end in found for node in (one.node, *end.statements)]
            for reading, destination in found:
                if not self.readings.needed_in(region, reading, aside):
                    yield Wait(reading, loop, destination.ends, destination.target)

    def of_step(self, function: cst.FunctionDef) -> Iterator[Kept]:
        """Yield the readings that a function makes only to keep or return the value."""
        calls = self.functions.callers(function)
        found = list(self._destinations(function))
        aside = [node for one, end in found for node in (one.node, *end.statements)]
        for reading, end in found:
            last = self._handed_back(end, calls) if calls else end
            if last is not None and (last.returned or End.KEPT in last.ends):
                if not self.readings.needed_in(function, reading, aside):
                    yield Kept(reading, bool(end.returned), last.target)

    def statements(self, loop: Loop) -> list[cst.CSTNode]:
        """Return where a loop's own body reads or hands on what no pass needs."""
        found = self._unneeded(loop.node, ())
        return [node for one, end in found for node in (one.node, *end.statements)]

    @cached_method
    def _unneeded(
        self, region: Region, calls: tuple[cst.Call, ...]
    ) -> list[tuple[Reading, Destination]]:
        """Return the readings of a region whose values no pass needs, with where they go."""
        return list(self._find_unneeded(region, calls))

    def _find_unneeded(
        self, region: Region, calls: tuple[cst.Call, ...]
    ) -> Iterator[tuple[Reading, Destination]]:
        bodies = self.functions.reached(region) if calls else ()
        if calls and all(self.values.placement.hands_over(each, bodies) for each in calls):
            return
        for reading, inside in self._destinations(region):
            destination = self._handed_back(inside, calls)
            if destination is None or destination.returned or not destination.ends:
                continue
            if isinstance(region, cst.FunctionDef) and destination.ends == {End.LAST}:
                # callers that pass over a value say nothing of those that need it
                if self._handed_back(inside, self.functions.callers(region)) is None:
                    continue
            if End.BACK not in destination.ends or (
                reading.form is Form.NUMBER and End.KEPT not in destination.ends
            ):
                yield reading, destination

    def _destinations(self, region: Region) -> Iterator[tuple[Reading, Destination]]:
        """Yield the readings of each run of a region, with where it is known to take them."""
        for reading in self.readings.within(region.body):
            if not self._is_rare(reading.node, region):
                end = self._destination(reading.node, region, WHOLE, frozenset())
                if end is not None:
                    yield reading, end

    def code_of_pass(self, root: Region) -> Iterator[Region]:
        """Yield a batch loop, or the function of a step, then all functions that each run calls."""
        return (region for region, _ in self._regions(root))

    # -- code that a pass runs -----------------------------------------------------

    def _regions(self, root: Region) -> Iterator[tuple[Region, tuple[cst.Call, ...]]]:
        """Yield a loop or a function, and the functions that each run of it calls.

        However many calls lead there; each comes with those calls.
        """
        yield root, ()
        called: dict[cst.FunctionDef, list[cst.Call]] = {}
        edge: list[Region] = [root]
        for region in edge:
            for call in self.functions.own(region.body, cst.Call):
                for callee in self.functions.callees(call):
                    if callee is not root and not self._is_rare(call, region):
                        if callee not in called:
                            edge.append(callee)
                        called.setdefault(callee, []).append(call)
        for callee, calls in called.items():
            if self._returns_as_written(callee):
                yield callee, tuple(calls)

    def _returns_as_written(self, function: cst.FunctionDef) -> bool:
        """Return whether callers get what a function returns: no generator or decorator."""
        return not self.functions.is_generator(function) and all(
            mark.startswith(_TRANSPARENT) for mark in self.names.marks(function)
        )

    def _is_rare(self, node: cst.CSTNode, region: Region) -> bool:
        """Return whether a node does not run in every pass, or is in an inner batch loop."""
        nearest = self.frequencies.loops.batch_loop(node)
        own = None if isinstance(region, cst.FunctionDef) else region
        return own is not (nearest and nearest.node) or not self.frequencies.each_pass(node, region)

    def _handed_back(
        self, destination: Destination, calls: tuple[cst.Call, ...]
    ) -> Destination | None:
        """Return where values go that a function returns to calls, and those to their callers."""
        found = destination._replace(returned=frozenset())
        for call in calls:
            for part in destination.returned:
                outer = self._of_result((call, part))
                if outer is None:
                    return None
                found = found.joined(outer)
        return found

    @memoized(None)
    def _of_result(self, asked: tuple[cst.Call, Part]) -> Destination | None:
        """Return where what a call gives, or a part of it, goes."""
        call, part = asked
        loop = self.frequencies.loops.batch_loop(call)
        home = loop.node if loop is not None else self.scopes.function(call)
        found = None if home is None else self._destination(call, home, part, frozenset())
        if found is None or not found.returned:
            return found
        calls = self.functions.callers(home) if isinstance(home, cst.FunctionDef) else ()
        return self._handed_back(found, calls) if calls else found

    # -- destinations of a value ----------------------------------------------

    def _destination(
        self, node: cst.CSTNode, region: Region, part: Part, trail: frozenset[int]
    ) -> Destination | None:
        """Return where a value goes, None if a pass needs it or nothing shows it.

        `part` is where it is in the tuple or dictionary that the node evaluates to.
        """
        if id(node) in trail or len(trail) > _LONG:
            return None
        trail |= {id(node)}
        child: cst.CSTNode = node
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.Call):
                if self._adds(outer, child):
                    return self._added(outer, region, trail)
                if self._changes_tensor(outer, child):
                    return BACK
                if self.values.hooks.takes_log(outer, child):
                    return KEPT
                merged = self._merged(outer, child)
                if merged:
                    return self._destination_of_names(merged, region, trail, outer, part)
                if not self.computations.pass_on(outer, child):
                    return self._handed_in(outer, child, region, part, trail)
            elif isinstance(outer, cst.BaseSmallStatement):
                return self._destination_in_statement(outer, child, region, part, trail)
            elif isinstance(outer, cst.For):
                if child is not outer.iter:
                    return None
                target = _drawn(outer)
                return self._destination_of_names(self._targets(target, WHOLE), region, trail)
            elif isinstance(outer, cst.BinaryOperation):
                if self.on_device(outer.right if child is outer.left else outer.left):
                    return BACK
            elif isinstance(outer, cst.Attribute):
                if outer.attr.value not in PURE:
                    return None
            elif isinstance(outer, cst.Subscript):
                line = self.tree.parent(outer)
                if child is not outer.value:
                    if not isinstance(line, cst.AugAssign) or line.target is not outer:
                        return None
                    added = self._adds(line, line.value)
                    return self._added(line, region, trail) if added else None
                if WHOLE != part != taken_part(outer) is not None:
                    return NOTHING
            elif isinstance(outer, cst.IfExp):
                if child is outer.test:
                    return None
            elif isinstance(outer, (cst.ListComp, cst.GeneratorExp, cst.DictComp)):
                made = outer.value if isinstance(outer, cst.DictComp) else outer.elt
                if child is not made and not self._only_draws(outer, made):
                    return None
            elif isinstance(outer, cst.CompFor):
                if child is not outer.iter:
                    return None
            elif not isinstance(outer, _PACKS):
                return None
            if isinstance(outer, (cst.Tuple, cst.List)):
                part = next(i for i, each in enumerate(outer.elements) if each is child)
            elif isinstance(outer, cst.DictElement):
                part = outer.key.value if isinstance(outer.key, cst.SimpleString) else WHOLE
            elif not isinstance(outer, _CARRIERS):
                part = WHOLE
            child = outer
        return None

    def _handed_in(
        self, call: cst.Call, child: cst.CSTNode, region: Region, part: Part, trail: frozenset[int]
    ) -> Destination | None:
        """Return where a value goes that a call hands to a function in view, and what it gives."""
        callee = self.functions.callee(call)
        if callee is None or not isinstance(child, cst.Arg) or not self._returns_as_written(callee):
            return None
        taken = self.functions.taken(call, callee, child.value)
        if taken is None:
            return None
        if child.keyword is not None and taken.node is callee.params.star_kwarg:
            part = WHOLE
        found = NOTHING
        for use in self.scopes.uses(taken, callee.body):
            inside = self._destination_of_use(use, callee, trail, part)
            if inside is None:
                return None
            found = found.joined(inside)
        if found.returned:
            # what comes of this very call is a sum that the next pass hands in again
            again = id(call) in trail
            outside = KEPT if again else self._destination(call, region, WHOLE, trail)
            if outside is None:
                return None
            return found._replace(returned=frozenset()).joined(outside)
        return found if found.ends or part != WHOLE else None

    def _only_draws(self, node: cst.BaseComp, made: cst.BaseExpression) -> bool:
        """Return whether a comprehension only computes from what it draws."""
        return not node.for_in.ifs and all(
            self.computations.computes(call) for call in self.tree.within(made, cst.Call)
        )

    def _destination_in_statement(
        self,
        line: cst.BaseSmallStatement,
        value: cst.CSTNode,
        region: Region,
        part: Part,
        trail: frozenset[int],
    ) -> Destination | None:
        """Return where the value of a statement, or a part of it, goes."""
        if isinstance(line, cst.Return):
            return Destination(frozenset(), frozenset({part}), None, (line,))
        if isinstance(line, cst.Expr):
            return Destination(frozenset({End.LAST}), frozenset(), None, (line,))
        if not isinstance(line, (cst.Assign, cst.AnnAssign, cst.AugAssign)):
            return None
        if isinstance(line, cst.AugAssign) and self.on_device(line.target):
            return BACK
        if self._adds(line, value):
            return self._added(line, region, trail)
        target = line.targets[0].target if isinstance(line, cst.Assign) else line.target
        rebinds = isinstance(line, cst.AugAssign) and isinstance(target, cst.Name)
        if not rebinds and (value is not line.value or isinstance(line, cst.AugAssign)):
            return None
        if isinstance(line, cst.Assign) and len(line.targets) != 1:
            return None
        if isinstance(target, cst.Attribute) and self._only_sets(target, region):
            return LAST._replace(target=target, statements=(line,))
        if isinstance(target, cst.Subscript) and isinstance(region, cst.FunctionDef):
            held = container_of(target)
            if isinstance(held, cst.Attribute) and self._is_only_kept(held, region, line):
                return KEPT._replace(target=target, statements=(line,))
        names = self._entry(target) or self._targets(target, part)
        entry = target if isinstance(target, cst.Subscript) else None
        if not isinstance(target, cst.Name):
            key = taken_part(target) if entry is not None else None
            part = key if isinstance(key, str) else WHOLE
        destination = self._destination_of_names(names, region, trail, entry, part)
        return destination and destination._replace(statements=(line, *destination.statements))

    def _only_sets(self, target: cst.Attribute, region: Region) -> bool:
        """Return whether no pass reads an attribute that a loop, or a method of a pass, sets."""
        if not isinstance(owner := target.value, cst.Name):
            return False
        if not isinstance(region, cst.FunctionDef):
            return all(
                isinstance(part := self.tree.parent(use), cst.Attribute)
                and isinstance(self.tree.parent(part), cst.AssignTarget)
                for use in self.tree.among(self.tree.spelled(owner.value), region.body)
            )
        return self.functions.is_self(owner) and not any(
            self.frequencies.frequency(each) is Frequency.EVERY_PASS
            or getattr(self.scopes.function(each), "decorators", ())
            for each in self.functions.attributes(target.attr.value)
            if self.scopes.reads(each)
        )

    def _targets(self, target: cst.BaseExpression, part: Part) -> list[Binding]:
        """Return the bindings of a target; of a tuple, those of one element if known."""
        if isinstance(target, (cst.Tuple, cst.List)):
            if isinstance(part, str) or part >= len(target.elements):
                return []
            if part != WHOLE and not any(
                isinstance(each, cst.StarredElement) for each in target.elements
            ):
                return self._targets(target.elements[part].value, WHOLE)
            found = [self._targets(each.value, WHOLE) for each in target.elements]
            return [each for some in found for each in some] if all(found) else []
        bound = self.scopes.stored(target) if isinstance(target, cst.Name) else None
        return [bound] if bound is not None else []

    def _entry(self, target: cst.BaseExpression) -> list[Binding]:
        """Return the bindings of a dictionary that stores a value."""
        if not isinstance(target, cst.Subscript) or not isinstance(target.value, cst.Name):
            return []
        bindings = list(self.scopes.reaching(target.value))
        if all(isinstance(each.value, (cst.Dict, cst.Call)) for each in bindings):
            return bindings
        return []

    def _destination_of_names(
        self,
        bindings: list[Binding],
        region: Region,
        trail: frozenset[int],
        entry: _Entry = None,
        part: Part = WHOLE,
    ) -> Destination | None:
        """Return where the value of names, or an entry of one, goes that a region binds."""
        if not bindings:
            return None
        found = NOTHING
        for binding in bindings:
            outside = not self.tree.inside(binding.node, region)
            if binding.how not in _BOUND or (outside and not (entry and self._is_own(binding))):
                return None
            if binding.name in self.scopes.scope(binding.node).outward:
                return None
            if outside and entry is not None:
                # code after a loop finds the last value, or those of all keys
                fixed = has_fixed_keys(entry)
                target = entry if isinstance(entry, cst.Subscript) else receiver_of(entry)
                found = found.joined(LAST if fixed else KEPT._replace(target=target))
            uses = [
                use
                for use in self.scopes.uses(binding, region)
                if not (self._fills(use) or self._asks_for_presence(use))
                and not self.readings.asks_form(use)
                and not (entry and self._is_over(use, entry, binding))
            ]
            for use in uses:
                # what goes into itself is a running mean, or in one run of a function a longer text
                one_run = isinstance(region, cst.FunctionDef)
                destination: Destination | None = NOTHING if one_run else KEPT._replace(target=use)
                if id(use) not in trail:
                    destination = self._destination_of_use(use, region, trail, part)
                if destination is None:
                    return None
                found = found.joined(destination)
            if not uses:
                found = found.joined(LAST)
        return found if found.ends or found.returned else LAST

    def _is_over(self, use: cst.Name, entry: cst.CSTNode, binding: Binding) -> bool:
        """Return whether a use of a dictionary is over when an entry is set, in no common loop."""
        return self.tree.order(use) < self.tree.order(entry) and not any(
            self.tree.inside(entry, loop.node.body)
            and not self.tree.inside(binding.node, loop.node.body)
            for loop in self.frequencies.loops.around(use)
        )

    def _is_own(self, binding: Binding) -> bool:
        """Return whether a binding makes a dictionary that no other function uses."""
        scope = self.scopes.scope(binding.node)
        is_made = isinstance(binding.value, (cst.Dict, cst.Call))
        return is_made and not self.accumulators.is_shared(binding.name, scope)

    def _fills(self, use: cst.Name) -> bool:
        """Return whether a use of a name only adds to its container, or asks for a key."""
        holder = self.tree.parent(use)
        line = self.tree.parent(self.tree.parent(holder))
        fills = isinstance(holder, cst.Attribute) and holder.attr.value in FILLS
        return (fills and isinstance(line, cst.Expr)) or self.additions.holds_entry(use)

    def _asks_for_presence(self, use: cst.Name) -> bool:
        """Return whether a use only asks if a dictionary has entries."""
        holder = self.tree.parent(use)
        return isinstance(holder, cst.If) and self.kinds.kind(use) is Kind.MAPPING

    def _destination_of_use(
        self, use: cst.CSTNode, region: Region, trail: frozenset[int], part: Part = WHOLE
    ) -> Destination | None:
        if self.frequencies.of_one_process(use, region):
            return None
        rare = self._is_rare_use(use, region) or self.conditions.is_for_callback(use, region)
        return RARE if rare else self._destination(use, region, part, trail)

    def _is_rare_use(self, use: cst.CSTNode, region: Region) -> bool:
        if isinstance(region, cst.FunctionDef):
            return self.frequencies.below(use, region) is Frequency.RARE
        return (
            self.tree.inside(use, region.body) and self.frequencies.frequency(use) is Frequency.RARE
        )

    # -- tensors and dictionaries that take a value --------------------------------

    def _changes_tensor(self, call: cst.Call, child: cst.CSTNode) -> bool:
        """Return whether a call copies a part to the device, or computes with a tensor there."""
        func = call.func
        if self.kinds.kind(call) is Kind.TENSOR and self.values.placement.hosting.may_move(call):
            return self.computations.pass_on(call, child)
        if child is func or not isinstance(func, cst.Attribute):
            return False
        return func.attr.value.rstrip("_") in _ARITHMETIC and self.on_device(func.value)

    def _merged(self, call: cst.Call, child: cst.CSTNode) -> list[Binding]:
        """Return the bindings of a dictionary that gets the entries of a value."""
        func = call.func
        if child is func or not isinstance(func, cst.Attribute) or func.attr.value != "update":
            return []
        if not isinstance(func.value, cst.Name) or self.kinds.kind(func.value) is not Kind.MAPPING:
            return []
        return list(self.scopes.reaching(func.value))

    # -- sums, lists and meters ----------------------------------------------------

    def _adds(self, node: cst.Call | cst.BaseSmallStatement, child: cst.CSTNode) -> bool:
        """Return whether a statement adds the value of one of its parts to something."""
        parts = self.additions.parts(node)
        return parts is not None and any(self.tree.inside(value, child) for value in parts.values)

    def _added(
        self, node: cst.Call | cst.BaseSmallStatement, region: Region, trail: frozenset[int]
    ) -> Destination | None:
        """Return where a value goes that a statement adds to a sum, a list or a meter."""
        parts = self.additions.parts(node)
        assert parts is not None
        kept = KEPT._replace(target=parts.target, statements=(node,))
        if not isinstance(region, cst.FunctionDef):
            known = self.accumulators.at(node)
            if known is None or not self.accumulators.used_each_pass(known):
                return None if known is None else kept
        target = container_of(parts.target)
        if not isinstance(target, cst.Name):
            return kept if self._is_only_kept(target, region, node) else None
        bindings = list(self.scopes.reaching(target))
        outer = not all(
            each.how in _MADE and self.tree.inside(each.node, region.body) for each in bindings
        )
        if outer and self.accumulators.is_read_around(target, region):
            return None
        found = kept if outer else kept._replace(ends=frozenset())
        for use in self._reads(target, region):
            destination = self._destination_of_use(use, region, trail)
            if destination is None or (outer and self._records(use, target.value)):
                return None
            found = found.joined(destination)
        return found

    def _records(self, use: cst.CSTNode, path: str) -> bool:
        """Return whether a line keeps what a sum is so far, which later passes add to."""
        others = (each for each in self._added_around(use) if each.adding is not Adding.SUM)
        return any(dotted(container_of(each.target)) != path for each in others)

    def _added_around(self, use: cst.CSTNode) -> list[Addition]:
        """Return what the line of a use adds to something."""
        return [*filter(None, map(self.additions.parts, self.tree.ancestors(use)))]

    def _reads(self, target: cst.Name, region: Region) -> Iterator[cst.Name]:
        """Yield where a function, or a pass of a loop, reads a name, except additions to it."""
        for name in self.tree.within(region.body, cst.Name):
            if name.value != target.value or not self.scopes.reads(name) or self._fills(name):
                continue
            added = self._added_around(name)
            if target.value not in (self.tree.code(container_of(each.target)) for each in added):
                yield name

    def _is_only_kept(self, target: cst.BaseExpression, region: Region, node: cst.CSTNode) -> bool:
        """Return whether no pass needs an attribute to which a function adds at a node."""
        path = dotted(target) if isinstance(region, cst.FunctionDef) else ""
        return bool(path) and all(
            not self._records(each, path)
            and (
                self.additions.holds_entry(each)
                or bool(self._added_around(each))
                or self.additions.stands_apart(each, node)
                or self._is_passed_over((each, region))
            )
            for each in self._reads_of(path, region)
        )

    def _reads_of(self, path: str, region: Region) -> Iterator[cst.Attribute]:
        """Yield where a method, or another one of its class in every pass, reads an attribute."""
        owner = self.scopes.class_of(region)
        for each in self.functions.attributes(path.rpartition(".")[2]):
            if dotted(each) == path and self.scopes.reads(each):
                alike = owner is not None and owner is self.scopes.class_of(each)
                hot = alike and self.frequencies.frequency(each) is Frequency.EVERY_PASS
                if hot or self.tree.inside(each, region.body):
                    yield each

    @memoized(True)
    def _is_passed_over(self, asked: tuple[cst.Attribute, Region]) -> bool:
        """Return whether no run needs a value: it is rarely shown, or goes to the next value."""
        end = self._destination_of_use(*asked, frozenset())
        return end is not None and not end.returned and End.BACK not in end.ends


def _drawn(loop: cst.For) -> cst.BaseAssignTargetExpression:
    """Return the target of a loop that gets the values, without a key or a counter."""
    target, source = loop.target, loop.iter
    if isinstance(source, cst.Call) and isinstance(target, cst.Tuple) and len(target.elements) == 2:
        if word_of(source) in ("items", "enumerate"):
            value = target.elements[1].value
            assert isinstance(value, cst.BaseAssignTargetExpression)
            return value
    return target
