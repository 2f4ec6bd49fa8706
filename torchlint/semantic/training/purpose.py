"""Purpose: what the program in view is for, and which of its code runs at all."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.calls.functions import Definition
from torchlint.semantic.data.loaders import Loaders
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops, Role
from torchlint.semantic.scope.limits import CALLERS
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.target import Target
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.training.branches import Branches
from torchlint.semantic.training.deadends import DeadEnds
from torchlint.semantic.training.intent import Intent
from torchlint.semantic.values.kind import Kind, derived

_RUNNERS: Final = ("pytest", "unittest")
_DEFINITIONS: Final = (cst.FunctionDef, cst.ClassDef)
_CLOSED: Final = ("builtins.object", "torch.nn.Module", "torch.utils.data.", "abc.ABC")
_HOOKS: Final = frozenset("forward train state_dict load_state_dict extra_repr".split())
"""Methods of networks that torch calls."""
_WORK: Final = frozenset({Kind.MODULE, Kind.LOADER})
_LOOKING: Final = frozenset("builtins.getattr builtins.globals builtins.eval".split())


class Purpose(LoopAnalysis):
    """Tells training programs from scripts that apply networks or make data once.

    `running` is the purpose of what runs at import, where that is another section.
    """

    def __init__(
        self,
        loops: Loops,
        branches: Branches,
        loaders: Loaders,
        target: Target,
        running: Purpose | None,
    ) -> None:
        super().__init__(loops)
        self.loaders = loaders
        self.branches = branches
        self.dead_ends = DeadEnds(loops, target)
        self.intent: Intent = Intent(loops, running.intent if running else None)
        self.intent_alone: Intent = Intent(
            loops, running.intent_alone if running else None, alone=True
        )

    def is_one_off(self, span: Span) -> bool:
        """Return whether code runs in a script that does something other than train, or draws.

        The code of networks does not: other scripts train them, but for those of notebooks.
        """
        if self._is_part_of_network(span):
            return self.tree.source.is_notebook and not self.intent.trains
        outer = self._outermost(span)
        intent = self._intent(outer)
        if intent.serves:
            return False
        if not intent.trains and intent.applies and self._is_run(outer):
            return True
        return outer is not None and self._draws(outer)

    def is_applied_once(self, span: Span) -> bool:
        """Return whether code runs in a script that only applies or shows what was trained."""
        intent = self._intent(self._outermost(span))
        return intent.only_applies and self.is_one_off(span)

    @cached_property
    def may_be_applied_once(self) -> bool:
        """Whether any code in view may run in a script that only applies what was trained."""
        return self.intent.only_applies or self.intent_alone.only_applies

    def _intent(self, outer: cst.FunctionDef | None) -> Intent:
        """Return what the code that runs with a function does."""
        if outer is None or not self._is_started or self._is_run_outside(outer, CALLERS):
            return self.intent
        return self.intent_alone

    def _is_run_outside(self, function: cst.FunctionDef, depth: int) -> bool:
        """Return whether code of other files may run a function, or make an object that runs it."""
        if not depth or self.functions.escapes(function):
            return True
        callers = self._uses(function)
        homes = {self.scopes.function(call) for call in callers} - {function, None}
        return not all(map(self.tree.is_own, callers)) or any(
            self._is_run_outside(home, depth - 1) for home in homes if home is not None
        )

    def _uses(self, function: cst.FunctionDef) -> tuple[cst.Call, ...]:
        """Return the calls of a function, or those that make the object whose method it is."""
        callers, owner = self.functions.callers(function), self.scopes.class_of(function)
        return callers or (() if owner is None else tuple(self.functions.makings(owner)))

    def _is_part_of_network(self, span: Span) -> bool:
        return any(
            derived(self.functions.bases(owner)) in (Kind.MODULE, Kind.CRITERION)
            for owner in self.tree.holding(span, cst.ClassDef)
        )

    def _outermost(self, span: Span) -> cst.FunctionDef | None:
        """Return the function or method, itself in no other, in which code stands."""
        return next(iter(self.tree.holding(span, cst.FunctionDef)), None)

    def _is_run(self, outer: cst.FunctionDef | None) -> bool:
        """Return whether the file is started, or all that calls a function that evaluates is."""
        if self._is_started or outer is None:
            return self._is_started
        evaluates = any(
            self.tree.inside(loop.node, outer) for loop in self.loops.of(Role.EVAL_BATCH)
        )
        return evaluates and self._is_run_elsewhere(outer, CALLERS)

    def _is_run_elsewhere(self, function: cst.FunctionDef, depth: int) -> bool:
        callers = self.functions.callers(function)
        if not callers or not depth or self.functions.escapes(function):
            return False
        homes = {self.scopes.function(call) for call in callers}
        return all(home is None or self._is_run_elsewhere(home, depth - 1) for home in homes)

    def _draws(self, function: cst.FunctionDef) -> bool:
        """Return whether a function makes a figure, once as far as anybody knows."""
        owner = self.scopes.class_of(function)
        if function.decorators or (owner is not None and self.functions.bases(owner)):
            return False
        calls = list(self.tree.within(function, cst.Call))
        draws = any(self.intent.is_figure(call) and not self._is_gated(call) for call in calls)
        if not draws or any(map(self.intent.starts_training, calls)):
            return False
        bodies = self.functions.reached(function.body)
        if any(
            loop.role in (Role.TRAIN_BATCH, Role.EPOCH) and self.tree.inside(loop.node, body)
            for loop in self.loops.all()
            for body in bodies
        ):
            return False
        return not any(
            self._is_repeated(call, CALLERS) for call in self.functions.callers(function)
        )

    def _is_gated(self, call: cst.Call) -> bool:
        """Return whether a call in a loop stands behind a test, after which the loop goes on."""
        loops = [loop.node for loop in self.loops.around(call)]
        tests = self.tree.tests_around(call) if loops else ()
        gates = [
            gate
            for test in tests
            if (gate := self.tree.parent(test)) and self.tree.inside(gate, loops[-1])
        ]
        return bool(gates) and not any(
            True for gate in gates for _ in self.tree.within(gate, cst.Break)
        )

    def is_never_reached(self, span: Span) -> bool:
        """Return whether code runs in nothing but a file that always raises before it works.

        What the file defines and does not use itself is for others.
        """
        if self.tree.view.is_broken:
            return True
        if not self._is_started or self.tree.source.is_notebook:
            return False
        outer = self._outermost(span)
        if outer is not None and (not self._uses(outer) or self._is_run_outside(outer, CALLERS)):
            return False
        return self.dead_ends.is_start_stuck

    def is_unused(self, span: Span) -> bool:
        """Return whether code stands in a definition of a known program that nothing uses."""
        if not (self._is_started or self.tree.view.path):
            return False
        functions = self.tree.holding(span, cst.FunctionDef)
        return any(map(self._is_left_out, functions)) or any(
            map(self._is_left_out, self.tree.holding(span, cst.ClassDef))
        )

    def _is_left_out(self, definition: Definition) -> bool:
        """Return whether nothing in view names a definition, and nothing else may.

        The classes of a module that starts nothing are for its users.
        """
        name = definition.name.value
        owner = self.scopes.class_of(definition)
        view = self.tree.view
        if view.path and owner is None and self.scopes.function(definition) is None:
            if not self.tree.is_own(definition) or name in view.idle:
                return self.tree.is_own(definition)
            if not any(map(self.branches.is_behind_exit, self.tree.spelled(name))):
                return False
        if definition.decorators or self.functions.called_unseen(definition):
            return False
        if not self._is_started and (owner is not None or isinstance(definition, cst.ClassDef)):
            return False
        if isinstance(definition, cst.FunctionDef) and owner is not None:
            if name.startswith("__") or name in _HOOKS or not self._is_closed(owner):
                return False
        return (
            not self._is_named(definition)
            and not any(
                name in each.value and not self.branches.is_behind_exit(each)
                for each in self.tree.all(cst.SimpleString)
            )
            and not self._looks_names_up
        )

    def _is_named(self, definition: Definition) -> bool:
        """Return whether code may name a definition, and not a local that is spelled alike."""
        word, home = definition.name.value, self.scopes.scope(definition)
        names = [
            each
            for each in self.tree.spelled(word)
            if each is not definition.name and not self.branches.is_behind_exit(each)
        ]
        meant = (self.scopes.lookup(word, self.scopes.scope(each)) for each in names)
        return bool(self.functions.attributes(word)) or any(
            each is None or each is home or not isinstance(each.node, cst.FunctionDef)
            for each in meant
        )

    def _is_closed(self, owner: cst.ClassDef) -> bool:
        """Return whether no class out of view may call the methods of a class."""
        known = {each.name.value for each in self.functions.lineage(owner)}
        return all(
            base in known or base.startswith(_CLOSED) for base in self.functions.bases(owner)
        )

    @cached_property
    def _looks_names_up(self) -> bool:
        """Whether the code finds functions by names that it makes up: `getattr(self, name)`."""
        return any(
            self.functions.names.name(call.func) in _LOOKING
            and not any(isinstance(arg.value, cst.SimpleString) for arg in call.args)
            for call in self.tree.all(cst.Call)
        )

    @memoized(True)
    def is_test(self, node: cst.CSTNode) -> bool:
        """Return whether code stands in a test, a demonstration, or a function that these call."""
        around = [each for each in self.tree.ancestors(node) if isinstance(each, _DEFINITIONS)]
        if any(map(self._is_named_test, around)):
            return True
        function = self.scopes.function(node)
        if function is None:
            return self._is_shown(node)
        callers = self.functions.callers(function)
        if callers:
            return all(map(self.is_test, callers))
        return self.functions.imports_beside(node, *_RUNNERS)

    def _is_shown(self, node: cst.CSTNode) -> bool:
        """Return whether the main guard around code makes single steps, without any loop."""
        around = (each for each in self.tree.ancestors(node) if isinstance(each, cst.If))
        guard = next((each for each in around if "__name__" in self.tree.code(each.test)), None)
        calls = self.functions.own(guard.body, cst.Call) if guard is not None else ()
        steps = [call for call in calls if self.loops.is_update(call)]
        return bool(steps) and not any(self._is_repeated(step, 0) for step in steps)

    def is_in_test(self, span: Span) -> bool:
        """Return whether code stands in a test, or in a function of a file of tests."""
        outer = self._outermost(span)
        return outer is not None and self.is_test(outer.body)

    def _is_named_test(self, outer: cst.FunctionDef | cst.ClassDef) -> bool:
        """Return whether a definition is a test: by its name, base or decorator."""
        if any(mark.startswith("pytest.") for mark in self.names.marks(outer)):
            return True
        if isinstance(outer, cst.FunctionDef):
            name = outer.name.value
            if name.startswith("test_"):
                return not any(map(self._is_handed_work, self.functions.callers(outer)))
            return "smoke" in words(name)
        bases = self.functions.bases(outer)
        return any(base.startswith("unittest.") or base.endswith("TestCase") for base in bases)

    def _is_handed_work(self, call: cst.Call) -> bool:
        """Return whether the program itself, not a test, runs a function on a network or data.

        So do the methods of an object that trains, and the loop over the epochs.
        """
        given = {self.kinds.kind(arg.value) for arg in call.args}
        works = not given.isdisjoint(_WORK) or dotted(call.func).startswith("self.")
        repeated = any(loop.role is Role.EPOCH for loop in self.loops.around(call))
        return (works or repeated) and not self.is_test(call)

    def is_evaluated_once(self, span: Span) -> bool:
        """Return whether code runs in an evaluation that no loop repeats, or makes its loader.

        It stands after the training, in a function that does nothing else and is called once, or
        its loader is made for this one pass.
        """
        around = [
            loop.node for loop in self.loops.of(Role.EVAL_BATCH) if self.tree.holds(loop.node, span)
        ]
        inner = max(around, key=self.tree.order, default=None)
        if inner is not None and not self._is_repeated(inner, CALLERS):
            return True
        outer = self._outermost(span)
        if outer is not None and self._only_evaluates(outer):
            return True
        return any(
            each.is_for_one_evaluation
            for each in self.loaders
            if self.tree.span(each.node) == span
            or any(isinstance(at, cst.For) and self.tree.holds(at, span) for at in each.passes)
        )

    @memoized(False)
    def _only_evaluates(self, function: cst.FunctionDef) -> bool:
        """Return whether a function evaluates a network and trains none, and no loop repeats it."""
        callers, bodies = self.functions.callers(function), self.functions.reached(function)
        calls = [call for body in bodies for call in self.tree.within(body, cst.Call)]
        return (
            bool(callers)
            and not any(self._is_repeated(call, CALLERS) for call in callers)
            and not any(self.intent.has_trained(call) or self.loops.is_step(call) for call in calls)
            and any(self.kinds.kind(call) is Kind.LOADER for call in calls)
            and any(method_of(call) == "eval" for call in calls)
        )

    def _is_repeated(self, node: cst.CSTNode, depth: int) -> bool:
        """Return whether a loop may be around a node, in its function or around its callers."""
        if next(self.loops.around(node), None) is not None:
            return True
        function = self.scopes.function(node)
        if function is None:
            return False
        callers = self.functions.callers(function)
        if not callers or not depth or self.functions.escapes(function):
            return True
        return any(self._is_repeated(call, depth - 1) for call in callers)

    @cached_property
    def _is_started(self) -> bool:
        """Whether the file has a main guard, or loops when it is imported."""
        return any(
            isinstance(line, (cst.For, cst.While))
            or (isinstance(line, cst.With) and any(True for _ in self.tree.within(line, cst.For)))
            or (isinstance(line, cst.If) and "__name__" in self.tree.code(line.test))
            or self._calls_loop(line)
            for line in self.tree.module.body
        )

    def _calls_loop(self, line: cst.CSTNode) -> bool:
        """Return whether a line calls a function of the file that loops."""
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        call = small.value if isinstance(small, (cst.Expr, cst.Assign)) else None
        callee = self.functions.callee(call) if isinstance(call, cst.Call) else None
        if callee is None or not self.tree.is_own(callee):
            return False
        return any(self.tree.inside(loop.node, callee) for loop in self.loops.all())
