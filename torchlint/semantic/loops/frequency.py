"""Execution frequency: whether a statement runs in every pass of its batch loop."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.hooks import Rate
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.earlyexits import EarlyExits, ends_with_result
from torchlint.semantic.loops.keeping import Keeping
from torchlint.semantic.loops.loops import Loop, LoopNode, Loops
from torchlint.semantic.loops.measuring import CLOCKS
from torchlint.semantic.loops.ownership import Ownership
from torchlint.semantic.loops.stepfunctions import StepFunctions
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.syntax.methods import last_line, word_of
from torchlint.semantic.values.iteration import COUNTER
from torchlint.semantic.values.kind import Kind


class Frequency(Enum):
    """How often a statement runs, relative to the passes of its batch loop."""

    EVERY_PASS = auto()
    RARE = auto()
    UNKNOWN = auto()


_RANK: Final = (
    "rank|rank_?0|rank_?zero|global_zero|get_rank|is_main_process|is_master|is_main|main_process|"
    "master_process|master"
)
_RARE: Final = re.compile(
    r"(?:\w*_)?(?:debug|debug_\w+|verbose|log|logs|logging|log_\w+|print|print_\w+|"
    rf"vis|viz|visuali[sz]e|plot|plots|profil(?:e|er|ing)|{_RANK}|save|"
    r"save_\w+|dry_run|is_logging|should_log|do_log|display\w*|sample_interval|\w+_interval|"
    r"\w+_freq|\w+_every|every_\w+|done|terminated|truncated|last|(?:is_)?last_(?:step|batch|iter\w*))",
    re.IGNORECASE,
)
_ACCUMULATES: Final = re.compile(
    r"(?:\w*_)?(?:grad_?)?(?:acc|accum|accumulate|accumulation)(?:_\w+)?|\w*accumulation\w*",
    re.IGNORECASE,
)
_RANKS: Final = re.compile(rf"(?:\w*_)?(?:{_RANK})", re.IGNORECASE)
_COUNTERS: Final = re.compile(
    r"(?:\w*_)?(?:step|steps|iter|iters|iteration|iterations|batch_idx|batch_index|epoch|counter)"
    r"|num_batches_tracked"
)
_ABOVE: Final = (cst.GreaterThan, cst.GreaterThanEqual)
_FEW: Final = (cst.LessThan, cst.LessThanEqual, cst.In)
"""What a counter is asked that holds for few passes: `step < 3`, `step in (10, 100)`."""
_TEST_RUNNERS: Final = ("pytest", "unittest", "torch.testing")
"""What files of tests import, whose loops are short and whose syncs are deliberate."""
_MEMOS: Final = frozenset({"functools.cache", "functools.lru_cache"})
_BROKEN: Final = frozenset({"isnan", "isinf"})
_LOOKUPS: Final = ("getattr", "get")
_SIZES: Final = frozenset({"len", "numel", "size"})


class Frequencies(LoopAnalysis):
    """Tells how often statements run."""

    def __init__(self, loops: Loops, ownership: Ownership, step_functions: StepFunctions) -> None:
        super().__init__(loops)
        self.ownership = ownership
        self.step_functions = step_functions
        self.keeping = Keeping(loops.functions)
        self.early_exits = EarlyExits(loops, self.rare)

    def counter(self, loop: LoopNode) -> str | None:
        """Return the name that counts the passes of a loop: a target or an incremented name.

        A target that is only underscores says that nothing uses it.
        """
        if isinstance(loop, cst.For):
            for name in self.tree.within(loop.target, cst.Name):
                bound = self.scopes.stored(name) if name.value.strip("_") else None
                if bound is not None and bound.value is not None:
                    source, path = self.loops.iteration.source(bound.value, bound.path)
                    if source is None and path == (COUNTER,):
                        return name.value
        for line in self.tree.within(loop.body, cst.AugAssign):
            holder = self.tree.parent(self.tree.parent(line))
            adds_one = isinstance(line.value, cst.Integer) and line.value.value == "1"
            counts = holder is loop.body and adds_one and isinstance(line.operator, cst.AddAssign)
            if counts and not self._restarts(line.target, loop):
                return dotted(line.target) or None
        return None

    def _restarts(self, counter: cst.BaseExpression, loop: LoopNode) -> bool:
        """Return whether a loop assigns its counter again, as that of the next step."""
        return any(
            dotted(each.target) == dotted(counter)
            for each in self.tree.within(loop.body, cst.AssignTarget)
        )

    def frequency(self, node: cst.CSTNode) -> Frequency:
        """Return how often a node runs; UNKNOWN outside batch loops and what they call."""
        if self.functions.imports_beside(node, *_TEST_RUNNERS):
            return Frequency.RARE
        function = self.scopes.function(node)
        if (
            self.loops.measuring.is_named(node)
            or self.loops.measuring.times(node)
            or (function is not None and not _MEMOS.isdisjoint(self.names.marks(function)))
        ):
            return Frequency.RARE
        loop = self.loops.batch_loop(node)
        if loop is not None:
            return self.below(node, loop.node)
        body = Frequency.UNKNOWN if function is None else self._of_body(function)
        if function is None or body is not Frequency.EVERY_PASS:
            return body
        return self.below(node, function)

    @memoized(Frequency.UNKNOWN)
    def _of_body(self, function: cst.FunctionDef) -> Frequency:
        """Return how often the body of a function runs that no batch loop holds."""
        rate = self.ownership.rate(function)
        if rate in (Rate.STEP, Rate.EVALUATION_STEP):
            return Frequency.EVERY_PASS
        if rate is not None:
            return Frequency.RARE
        if self.step_functions.makes(function):
            return Frequency.EVERY_PASS
        calls = self.functions.callers(function) or self._handed_in_loop(function)
        found = set(map(self.frequency, calls))
        if Frequency.EVERY_PASS in found:
            return Frequency.EVERY_PASS
        return Frequency.RARE if found == {Frequency.RARE} else Frequency.UNKNOWN

    @memoized(None)
    def rate(self, function: cst.FunctionDef) -> Rate | None:
        """Return how often a framework runs a function: itself, or through what it calls."""
        called = self.ownership.rate(function)
        if called is not None or not self._any_rated:
            return called
        found: set[Rate] = set()
        for call in self.functions.callers(function):
            caller = self.scopes.function(call)
            if self.loops.batch_loop(call) is not None:
                return None
            rate = self.rate(caller) if caller is not None else None
            if caller is not None and rate is not None:
                if self.below(call, caller) is Frequency.EVERY_PASS:
                    found.add(rate)
        return max(found, key=lambda each: each.value, default=None)

    @cached_property
    def _any_rated(self) -> bool:
        """Whether a framework runs any function in view."""
        rates = map(self.ownership.rate, self.tree.all(cst.FunctionDef))
        return any(rate is not None for rate in rates)

    def _handed_in_loop(self, function: cst.FunctionDef) -> list[cst.Call]:
        """Return the calls that get a function which each pass of a batch loop defines."""
        if self.loops.batch_loop(function) is None:
            return []
        mentions = self.functions.mentions(function.name.value)
        args = [self.tree.parent(each) for each in mentions]
        outer = [self.tree.parent(arg) for arg in args if isinstance(arg, cst.Arg)]
        return [
            call
            for call in outer
            if isinstance(call, cst.Call)
            and not isinstance(call.func, cst.Attribute)
            and self.scopes.function(call) is self.scopes.function(function)
        ]

    def below(self, node: cst.CSTNode, outer: cst.CSTNode) -> Frequency:
        """Return the execution frequency of a node relative to an enclosing loop or function."""
        in_loop = False
        for child, at in self.tree.outward(node):
            if type(at) is cst.IndentedBlock:
                answers = (
                    isinstance(outer, cst.FunctionDef) and not in_loop and ends_with_result(at)
                )
                if self.early_exits.cut_off(at, child, answers or at is _body(outer)):
                    return Frequency.RARE
            if at is outer:
                rare = self._runs_once(outer) or self.keeping.makes_once(node, outer)
                return Frequency.RARE if rare else Frequency.EVERY_PASS
            if type(at) is cst.If and child is not at.test and self._rare_branch(at, child):
                return Frequency.RARE
            if type(at) is cst.ExceptHandler or type(at) is cst.Finally:
                return Frequency.RARE
            if type(at) is cst.Else and isinstance(self.tree.parent(at), (cst.For, cst.While)):
                return Frequency.RARE
            in_loop = in_loop or type(at) is cst.For or type(at) is cst.While
        return Frequency.EVERY_PASS

    def _runs_once(self, outer: cst.CSTNode) -> bool:
        """Return whether every path through the body of a `for` ends the loop in its first pass."""
        if not isinstance(outer, cst.For):
            return False
        ends = isinstance(last_line(outer.body), (cst.Break, cst.Return))
        return ends and not any(True for _ in self.tree.within(outer.body, cst.Continue))

    def each_pass(self, node: cst.CSTNode, region: LoopNode | cst.FunctionDef) -> bool:
        """Return whether one process at least runs a node in every pass of a loop, or function."""
        is_function = isinstance(region, cst.FunctionDef)
        found = self.below(node, region) if is_function else self.frequency(node)
        return found is Frequency.EVERY_PASS or self.of_one_process(node, region)

    def of_one_process(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Return whether only a test of the process rank keeps a node out of some passes."""
        ranked = False
        for child, at in self.tree.outward(node):
            if isinstance(at, cst.IndentedBlock) and self.early_exits.cut_off(
                at, child, at is _body(outer)
            ):
                return False
            if at is outer:
                return ranked and not self.keeping.makes_once(node, outer)
            if isinstance(at, cst.If) and child is not at.test and self._rare_branch(at, child):
                if not self._asks_rank(at.test):
                    return False
                ranked = True
            if isinstance(at, (cst.ExceptHandler, cst.Finally)):
                return False
        return False

    def _asks_rank(self, test: cst.BaseExpression) -> bool:
        """Return whether a test checks the rank and no other rare condition."""
        is_named = isinstance(test, cst.Name) and _RANKS.fullmatch(test.value) is not None
        test = self._assigned(test)
        if isinstance(test, cst.BooleanOperation):
            sides = [side for side in (test.left, test.right) if self.rare(side)]
            return bool(sides) and all(map(self._asks_rank, sides))
        if any(True for _ in self.tree.within(test, cst.BinaryOperation)):
            return False
        rare = [name for name in self._identifiers(test) if _RARE.fullmatch(name)]
        return is_named or (bool(rare) and all(map(_RANKS.fullmatch, rare)))

    # -- guards ---------------------------------------------------------------

    def _rare_branch(self, guard: cst.If, child: cst.CSTNode) -> bool:
        """Return whether the branch of an `if` that holds `child` runs rarely."""
        in_body = child is guard.body
        if not self.rare(guard.test, wanted=in_body) and not (in_body and self._is_change(guard)):
            return False
        return not in_body or not (
            self.loops.has_update((guard.body,)) or self._asks_for_step(guard)
        )

    def _is_change(self, guard: cst.If) -> bool:
        """Return whether a test asks for a new value, as of the epoch, which its body keeps."""
        test = guard.test
        if not isinstance(test, cst.Comparison):
            return False
        asked, counted = test.comparisons[0], map(_COUNTERS.fullmatch, self._identifiers(test))
        sides = {*map(self._spelling, (test.left, asked.comparator))}
        return (isinstance(asked.operator, cst.NotEqual) or all(counted)) and sides in (
            {*map(self._spelling, (each.targets[0].target, each.value))}
            for each in self.tree.within(guard.body, cst.Assign)
        )

    def _spelling(self, node: cst.BaseExpression) -> str:
        """Return the path or the code of an expression, without comments in its parentheses."""
        return dotted(node) or self.tree.code(node)

    def _asks_for_step(self, guard: cst.If) -> bool:
        """Return whether a test is that of an optimizer step, which stands elsewhere in its block.

        A test that counts accumulated passes and nothing else is one, whatever follows it.
        """
        test = self._assigned(guard.test)
        if not isinstance(test, cst.Comparison) or not self._periodic(test.left):
            return False
        period = cst.ensure_type(test.left, cst.BinaryOperation).right
        several = isinstance(period, cst.BinaryOperation)  # `step % (accumulation * every)`
        if not several and any(map(_ACCUMULATES.fullmatch, self._identifiers(test.left))):
            return True
        block = self.tree.parent(guard)
        others = block.body if isinstance(block, cst.IndentedBlock) else ()
        text = self.tree.code(guard.test)
        return any(
            isinstance(other, cst.If)
            and self.tree.code(other.test) == text
            and self.loops.has_update((other.body,))
            for other in others
            if other is not guard
        )

    def _assigned(self, test: cst.BaseExpression) -> cst.BaseExpression:
        """Return the test that a name holds, or the test itself."""
        return self.scopes.only(test).assigned or test

    def rare(self, test: cst.BaseExpression, wanted: bool = True) -> bool:
        """Return whether a test comes out as `wanted` in only a few passes of a loop."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self.rare(test.expression, not wanted)
        if isinstance(test, cst.BooleanOperation):
            both = isinstance(test.operator, cst.And) == wanted
            sides = (
                self.rare(test.left, wanted)
                or (wanted and (self._is_unset(test) or self._is_optional_bound(test))),
                self.rare(test.right, wanted),
            )
            if wanted and sum(sides) == 1:
                rare, other = (test.left, test.right)[:: 1 if sides[0] else -1]
                ends = self._asks_for_end(other) or self._is_signal(other)
                sides = (True, ends or self._is_of_count(other, rare))
            return any(sides) if both else all(sides)
        if isinstance(test, cst.NamedExpr):
            return self.rare(test.value, wanted)
        if isinstance(test, cst.BinaryOperation):
            return self._rare_operation(test, wanted)
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            return self._rare_comparison(test, wanted)
        if self.tests_for_non_finite(test, wanted):
            return True
        if isinstance(test, (cst.Name, cst.Attribute)) and self._is_named_rare((test, wanted)):
            return True
        return wanted and self._mentions_rarity(test)

    def _rare_operation(self, test: cst.BinaryOperation, wanted: bool) -> bool:
        """Return whether `step % n`, or a test of two parts in brackets, is rarely `wanted`."""
        if isinstance(test.operator, (cst.BitAnd, cst.BitOr)):
            both = isinstance(test.operator, cst.BitAnd) == wanted
            sides = [self.rare(each, wanted) for each in (test.left, test.right)]
            return any(sides) if both else all(sides)
        modulo = isinstance(test.operator, cst.Modulo)
        return not wanted if modulo else wanted and self._mentions_rarity(test)

    def _is_of_count(self, test: cst.BaseExpression, periodic: cst.BaseExpression) -> bool:
        """Return whether a test asks for one value of what another one divides: `n == 1`."""
        counts = (each.left for each in self.tree.within(periodic, cst.BinaryOperation))
        return (
            isinstance(test, cst.Comparison)
            and isinstance(test.comparisons[0].operator, cst.Equal)
            and self.tree.code(test.left) in map(self.tree.code, counts)
        )

    @staticmethod
    def _is_signal(test: cst.BaseExpression) -> bool:
        """Return whether a test, beside a rare one, asks for what something else sets."""
        if isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].operator, cst.Is):
            test = test.left
        return isinstance(test, (cst.Subscript, cst.Call))

    def _is_unset(self, test: cst.BooleanOperation) -> bool:
        """Return whether the left side asks if what the right side reads is still None."""
        left = test.left
        if not isinstance(left, cst.Comparison) or not isinstance(left.left, cst.Name):
            return False
        asks = self.tree.code(left) == f"{left.left.value} is None"
        is_given = all(each.how is How.PARAMETER for each in self.scopes.reaching(left.left))
        return asks and not is_given and left.left.value in self._identifiers(test.right)

    def _is_optional_bound(self, test: cst.BooleanOperation) -> bool:
        """Return whether the sides ask if a bound is set at all, and if a size has reached it."""
        asked, size = test.left, test.right
        if not isinstance(asked, cst.Comparison) or not isinstance(size, cst.Comparison):
            return False
        bound = self.tree.code(asked.left)
        if self.tree.code(asked) != f"{bound} is not None" or len(size.comparisons) != 1:
            return False
        reached = size.comparisons[0]
        above = isinstance(reached.operator, _ABOVE) and not self._counts(size.left)
        return above and self.tree.code(reached.comparator) == bound

    @memoized(False)
    def _is_named_rare(self, asked: tuple[cst.BaseExpression, bool]) -> bool:
        """Return whether a name holds the result of a rare test, or only rare code sets it."""
        (name, wanted), loop = asked, self.loops.batch_loop(asked[0])
        bindings = self.functions.bindings(name)
        return bool(bindings) and all(
            bool(values := self.functions.held(each))
            and all(
                self.rare(value, wanted) or self._sets_rarely(each, value, wanted, loop)
                for value in values
            )
            for each in bindings
        )

    def _sets_rarely(
        self, bound: Binding, value: cst.BaseExpression, wanted: bool, loop: Loop | None
    ) -> bool:
        """Return whether a line of a loop resets a flag, or stands where few passes set a name."""
        resets = self._spelling(value) == str(not wanted)
        rare = resets or ("." not in bound.name and self.frequency(bound.node) is Frequency.RARE)
        return rare and loop is self.loops.batch_loop(bound.node)

    def tests_for_non_finite(self, test: cst.BaseExpression, wanted: bool = True) -> bool:
        """Return whether a test comes out as `wanted` only when values are infinite or NaN."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self.tests_for_non_finite(test.expression, not wanted)
        if not isinstance(test, cst.Call):
            return False
        asked = {
            func.attr.value
            for call in self.tree.within(test, cst.Call)
            if isinstance(func := call.func, cst.Attribute)
        }
        return bool(asked & _BROKEN) if wanted else "isfinite" in asked

    def _rare_comparison(self, test: cst.Comparison, wanted: bool) -> bool:
        operator = test.comparisons[0].operator
        sides = (test.left, test.comparisons[0].comparator)
        equal = isinstance(operator, cst.Equal)
        if self._is_each(test.left):
            return equal != wanted
        if isinstance(operator, (cst.Is, cst.IsNot)):
            # `step % 100 is 0` means equality
            is_equal = isinstance(operator, cst.Is) == wanted
            if isinstance(sides[1], cst.Name) and sides[1].value == "None":
                return self._are_targets(sides[0]) if is_equal else self._mentions_rarity(test)
            return any(map(self._periodic, sides)) and is_equal
        if not equal and not isinstance(operator, cst.NotEqual):
            later = sides[0] if isinstance(operator, _ABOVE) else sides[1]
            if wanted and self._has_passed(later):
                return True
            periodic = any(self._periodic(side) for side in sides)
            few = isinstance(operator, _FEW) and self._counts(sides[0])
            return wanted and (self._mentions_rarity(test) or few) and not periodic
        counts = any(self._periodic(side) or self._counts(side) for side in sides)
        if counts or _compares_with_zero(*sides):
            return equal == wanted
        return wanted and self._mentions_rarity(test)

    def _are_targets(self, node: cst.BaseExpression) -> bool:
        """Return whether a parameter has the targets of a loss, which each training step passes."""
        function = self.scopes.function(node)
        if function is None or not isinstance(node, cst.Name):
            return False
        targets = (
            self.values.argument_node(call, "target", 1)
            for call in self.functions.own(function, cst.Call)
            if self.kinds.kind(call) is Kind.LOSS
        )
        names = (name for arg in targets if arg for name in self.tree.within(arg, cst.Name))
        asked = any(each.parameter for each in self.scopes.reaching(node))
        return asked and any(name.value == node.value for name in names)

    def _asks_for_end(self, test: cst.BaseExpression) -> bool:
        """Return whether a test, beside a rare one, asks if a counter has reached a bound."""
        if isinstance(test, cst.NamedExpr):
            return self._asks_for_end(test.value)
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
            return self._asks_for_end(test.left) or self._asks_for_end(test.right)
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return False
        reached = test.comparisons[0]
        over = isinstance(reached.operator, _ABOVE)
        return over and self._counts(test.left) and not isinstance(reached.comparator, cst.Integer)

    def _has_passed(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is the time since some moment."""
        value = self._assigned(node)
        return (
            isinstance(value, cst.BinaryOperation)
            and isinstance(value.operator, cst.Subtract)
            and isinstance(now := self._assigned(value.left), cst.Call)
            and self.functions.names.name(now.func) in CLOCKS
        )

    def _periodic(self, node: cst.BaseExpression) -> bool:
        return isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo)

    def _is_each(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is the place of a pass in a period of one pass."""
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Modulo):
            return False
        period = self._assigned(node.right)
        return isinstance(period, cst.Integer) and period.value == "1"

    @memoized(False)
    def _counts(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a loop counter or computed from one."""
        if isinstance(node, cst.BinaryOperation):
            return self._counts(node.left) or self._counts(node.right)
        if isinstance(node, cst.Attribute):
            return _COUNTERS.fullmatch(node.attr.value) is not None
        if not isinstance(node, cst.Name):
            return False
        bindings = self.scopes.reaching(node)
        named = _COUNTERS.fullmatch(node.value) is not None
        if any(_counts_on(each) or (named and each.how is How.AUGMENTED) for each in bindings):
            return True
        if isinstance(value := self.scopes.only(node).assigned, cst.BinaryOperation):
            return self._counts(value)
        given = [one for each in bindings if each.parameter for one in self.functions.held(each)]
        if any(map(self._counts, given)):
            return True
        return self.kinds.kind(node) is Kind.NUMBER and any(
            binding.how in (How.LOOP, How.AUGMENTED) for binding in bindings
        )

    def _mentions_rarity(self, test: cst.BaseExpression) -> bool:
        return any(map(_RARE.fullmatch, self._identifiers(test)))

    def _identifiers(self, test: cst.BaseExpression) -> list[str]:
        """Return the names in a test, with those that it looks up: `cfg.get("debug")`."""
        names = [name.value for name in self.tree.within(test, cst.Name)]
        names += [node.attr.value for node in self.tree.within(test, cst.Attribute)]
        return names + [
            str(arg.value.evaluated_value)
            for call in self.tree.within(test, cst.Call)
            for arg in (call.args[:2] if word_of(call) in _LOOKUPS else ())
            if isinstance(arg.value, cst.SimpleString)
        ]


def _counts_on(binding: Binding) -> bool:
    """Return whether an assignment adds a number to what a name holds (`step = step + 1`)."""
    value = binding.value
    if binding.how is How.ASSIGN and isinstance(value, cst.BinaryOperation):
        is_same = isinstance(value.left, cst.Name) and value.left.value == binding.name
        adds = isinstance(value.operator, cst.Add)
        return is_same and adds and isinstance(value.right, cst.Integer)
    return binding.how is How.AUGMENTED and isinstance(value, cst.Integer)


def _body(node: cst.CSTNode) -> cst.CSTNode | None:
    return node.body if isinstance(node, (cst.For, cst.While, cst.FunctionDef)) else None


def _compares_with_zero(size: cst.BaseExpression, bound: cst.BaseExpression) -> bool:
    """Return whether a length or a size is compared with zero."""
    if not isinstance(bound, cst.Integer) or bound.value != "0":
        return False
    if isinstance(size, cst.Subscript):
        return isinstance(size.value, cst.Attribute) and size.value.attr.value == "shape"
    return isinstance(size, cst.Call) and word_of(size) in _SIZES
