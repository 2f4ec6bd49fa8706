"""Script: the facade through which rules ask what a file means."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.calls.functions import Definition
from torchlint.semantic.data.items import ItemCode, Items
from torchlint.semantic.data.lastpass import LastPass
from torchlint.semantic.facts import Facts
from torchlint.semantic.loops.frequency import Frequency
from torchlint.semantic.loops.gradientaccumulation import (
    GradientAccumulation,
    GradientAccumulations,
)
from torchlint.semantic.loops.loops import Loop, LoopNode, Role
from torchlint.semantic.loops.ownership import Duty
from torchlint.semantic.scope.labels import brief
from torchlint.semantic.scope.libraries import Factory, factory
from torchlint.semantic.scope.memo import Memo
from torchlint.semantic.scope.target import Target
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax import read
from torchlint.semantic.syntax.linked import joined
from torchlint.semantic.syntax.tree import Tree
from torchlint.semantic.training.accumulators import Accumulation, Accumulator
from torchlint.semantic.training.conditions import Conditions
from torchlint.semantic.training.escapes import GraphUse
from torchlint.semantic.training.evaluations import Evaluation
from torchlint.semantic.training.invariance import Invariance, Invariances, Runs
from torchlint.semantic.training.layers import LayerPair, Layers
from torchlint.semantic.training.readings import Reading, Region
from torchlint.semantic.training.steps import Step
from torchlint.semantic.training.waits import Wait
from torchlint.semantic.values.arrays import Array
from torchlint.semantic.values.attention import Attention
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.values import Value
from torchlint.semantic.view import ALONE, Place, View
from torchlint.source import Source

__all__ = ["CallSite", "Script"]

_MOST_STEPS: Final = 16
NodeT = TypeVar("NodeT", bound=cst.CSTNode)
S = TypeVar("S")
T = TypeVar("T")


class CallSite:
    """One call and its arguments, as rules query them."""

    def __init__(self, script: Script, node: cst.Call) -> None:
        self.script = script
        self.node = node

    @property
    def name(self) -> str | None:
        """The canonical qualified name of the called function."""
        return self.script.name(self.node.func)

    def argument(self, name: str, position: int | None = None) -> Value:
        """Return the value of a parameter, searching `**` dictionaries too."""
        return self.script.values.argument(self.node, name, position)

    def given(self, name: str, position: int | None = None) -> cst.Arg | None:
        """Return the argument node if the call spells it out."""
        return self.script.values.argument_node(self.node, name, position)

    @property
    def has_splat(self) -> bool:
        """Whether the call passes on `*args` or `**kwargs`."""
        return any(arg.star for arg in self.node.args)


class Script(Facts):
    """A parsed file and everything that rules may ask about it.

    Nodes of linked modules follow those of the file: rules meet them like any others, and what is
    found at one of them is not reported.
    """

    def __init__(
        self,
        source: Source,
        tree: Tree,
        target: Target,
        whole: Script | None = None,
        running: Script | None = None,
    ) -> None:
        super().__init__(source, tree, target, whole, running)
        self.running: Script = running or self
        """What of the file runs at import."""
        self.whole: Script = whole or self
        """The whole file."""
        self._found: dict[Callable[[Script], Any], Any] = {}
        self._memos: dict[Callable[[Script, Any], Any], Memo[Any, Any]] = {}

    @classmethod
    def parse(
        cls,
        source: Source,
        target: Target | None = None,
        tree: ast.Module | None = None,
        view: View = ALONE,
    ) -> Script:
        """Parse a file, reusing CPython's tree if given; raises `ParserSyntaxError`.

        `view` are the definitions of other modules with which the file is analyzed.
        """
        whole = joined(source, read(source, tree), view.modules)
        linked = Tree(whole.source, whole.syntax, whole.texts, view)
        return cls(source, linked, target or Target())

    def sections(self) -> tuple[Script, ...]:
        """Return the parts of the file that have nothing to do with each other.

        The first is what runs at import. What is true of one does not depend on the others.
        """
        first, *others = self._sections.all()
        if not others:
            return (self,)
        running = Script(self.source, first, self.target, self)
        return (
            running,
            *(Script(self.source, tree, self.target, self, running) for tree in others),
        )

    def around(self, step: Step) -> Script:
        """Return what has to do with a step: not the functions that train something else.

        All of a file with many steps has to do with each, which bounds the time.
        """
        apart = [each.backward for each in self.steps.all if each is not step]
        asked = 0 < len(apart) < _MOST_STEPS
        tree = self.whole._sections.around(step.backward, apart) if asked else None
        return (
            self
            if tree is None
            else Script(self.source, tree, self.target, self.whole, self.running)
        )

    def mentions(self, *words: str) -> bool:
        """Return whether the text in view has one of some words in it."""
        return any(word in self.tree.own_text for word in words)

    @property
    def is_notebook(self) -> bool:
        """Whether this is a notebook, which launchers cannot run and workers cannot import."""
        return self.source.is_notebook

    def once(self, find: Callable[[Script], T]) -> T:
        """Return what a function computes for the whole file, computed only once."""
        try:
            found: T = self._found[find]
        except KeyError:
            found = self._found[find] = find(self)
        return found

    def answer(self, question: Callable[[Script, S], T], subject: S, circular: T) -> T:
        """Return a rule's own answer about a subject, computed only once.

        `circular` is the answer if the question leads back to itself, as it can when following
        values: `x = f(x)`.
        """
        memo = self._memos.get(question)
        if memo is None:
            memo = Memo(circular, self.names.trail, partial(question, self))
            self._memos[question] = memo
        found: T = memo.answer(subject)
        return found

    # -- nodes ----------------------------------------------------------------

    def all(self, kind: type[NodeT]) -> list[NodeT]:
        """Return every node of exactly this type, in source order."""
        return self.tree.all(kind)

    def within(self, outer: cst.CSTNode, kind: type[NodeT]) -> Iterator[NodeT]:
        """Yield the nodes of exactly this type inside another, in source order."""
        return self.tree.within(outer, kind)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the node around a node."""
        return self.tree.parent(node)

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the statement around a node."""
        return self.tree.statement(node)

    @property
    def modules(self) -> tuple[cst.Module, ...]:
        """The file, then the modules that are linked to it."""
        return self.tree.modules

    @property
    def text(self) -> str:
        """The text of the file and, behind it, that of the linked modules."""
        return self.tree.source.text

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the function that contains a node."""
        return self.scopes.function(node)

    def home(self, node: cst.CSTNode) -> cst.FunctionDef | cst.Module:
        """Return the function that contains a node, else its module."""
        return self.scopes.home(node)

    def region(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the body of the function that contains a node, else its module."""
        return self.scopes.region(node)

    def is_own(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in the file itself, not in a linked module."""
        return self.tree.is_own(node)

    def place(self, node: cst.CSTNode) -> Place:
        """Return the path and the row of a node in its own file, printed as `data.py:12`."""
        return self.tree.place(node)

    def place_at(self, offset: int) -> Place:
        """Return the path and the row of an offset that a span has."""
        return self.tree.place_at(offset)

    def smallest_statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the small statement around `node`, or the compound one with it in its header."""
        return self.tree.smallest_statement(node)

    def beside(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the statements of the block around `node`, splitting lines that hold several."""
        return self.tree.beside(node)

    def span(self, node: cst.CSTNode) -> Span:
        """Return the characters of a node, an expression with its own parentheses."""
        return self.tree.span(node)

    def code(self, node: cst.CSTNode) -> str:
        """Return the code of a node for messages, comparison and reuse elsewhere.

        Code without comments is joined into one line; an expression loses its own parentheses where
        they make no difference.
        """
        return self.tree.code(node)

    def argument(self, node: cst.BaseExpression) -> str:
        """Return the code of an expression like `code`, without any parentheses around it."""
        return self.tree.argument(node)

    def brief(self, node: cst.CSTNode) -> str:
        """Return the code of a node for a message, leaving out the arguments of a long call."""
        return brief(self.tree, node)

    def code_of(self, node: cst.BaseExpression) -> str:
        """Return the code of the one expression that a node can be, else of the node."""
        value = self.values.value_of(node)
        return self.tree.code(value.node if value.node is not None else node)

    def tests_around(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yield the tests of the `if`s in the same function whose body contains a node."""
        child = node
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.FunctionDef):
                return
            if isinstance(outer, cst.If) and child is outer.body:
                yield outer.test
            child = outer

    # -- meaning --------------------------------------------------------------

    def words(self, text: str) -> list[str]:
        """Split identifiers in any style into lower-case words."""
        return list(words(text))

    def name(self, node: cst.CSTNode) -> str | None:
        """Return the canonical qualified name of an expression, None if there is not one."""
        return self.names.name(node)

    def calls(self, *names: str) -> Iterator[CallSite]:
        """Yield the calls of any of these qualified names."""
        return (CallSite(self, call) for call in self._calls.of(names))

    def call(self, node: cst.Call) -> CallSite:
        """Return the `CallSite` of a call."""
        return CallSite(self, node)

    @property
    def called(self) -> tuple[str, ...]:
        """The qualified names of everything the file calls, each once."""
        return self._calls.called

    def method_calls(self, *methods: str) -> Iterator[cst.Call]:
        """Yield the calls of attributes with any of these names, on whatever object."""
        return iter(self._calls.of_methods(methods))

    def imports(self, *modules: str) -> bool:
        """Return whether the file imports one of these modules, or anything from one."""
        found = (*self.functions.imported, *self.scopes.star_imports)
        wanted = tuple(f"{module}." for module in modules)
        return any(f"{name}.".startswith(wanted) for name in found)

    def factory(self, call: cst.Call) -> Factory | None:
        """Return the function of torch by which a call creates a tensor."""
        return factory(self.name(call.func))

    def definition(self, node: cst.CSTNode) -> Definition | None:
        """Return the function or class of this file that an expression names."""
        return self.functions.definition(node)

    def kind(self, node: cst.CSTNode) -> Kind:
        """Return the kind of an expression."""
        return self.kinds.kind(node)

    def array(self, node: cst.BaseExpression) -> Array | None:
        """Return the facts about an expression that is known to be a NumPy array."""
        return self._arrays.array(node)

    def value_of(self, node: cst.BaseExpression) -> Value:
        """Return the one expression that an expression can be."""
        return self.values.value_of(node)

    def layer_pairs(self) -> Iterator[LayerPair]:
        """Yield pairs of layers where the first feeds the second and nothing else."""
        return Layers(self.functions, self.values).pairs()

    def attentions(self) -> Iterator[Attention]:
        """Yield hand-written attention whose weights are used for nothing else."""
        return self._attentions.all()

    def is_number(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is known to be a plain Python number, not a tensor."""
        return self._numbers.is_number(node)

    def dropout_layer(self, node: cst.BaseExpression) -> cst.Call | None:
        """Return the call that creates the dropout layer that an expression is."""
        return self._attentions.dropout_layer(node)

    def is_conditional(self, node: cst.CSTNode, *purposes: str) -> bool:
        """Return whether a condition, an error or a test decides whether a node runs.

        `purposes` are parts of the names of functions that are called on demand.
        """
        return Conditions(self.functions).is_conditional(node, purposes)

    def loops(self, *roles: Role) -> list[Loop]:
        """Return the loops with one of these roles, or all loops if none is given."""
        found = self._loops.all()
        return [loop for loop in found if loop.role in roles] if roles else found

    def loops_around(self, node: cst.CSTNode) -> Iterator[Loop]:
        """Yield the loops of the same function around a node, innermost first."""
        return self._loops.around(node)

    def gradient_accumulations(self) -> Iterator[GradientAccumulation]:
        """Yield the loops that sum gradients over several passes before a step."""
        return GradientAccumulations(self.functions, self.values, self._loops).all()

    def last_pass(self, loop: Loop) -> str | None:
        """Return the test for the last pass of a loop that is counted (`i == len(loader)`)."""
        return LastPass(self.functions, self.values, self.origins, self.datasets).test(loop)

    def items(self) -> list[ItemCode]:
        """Return the functions that run when a loader reads an item or collates a batch."""
        return Items(self.functions, self.values, self.origins).all()

    def invariance(self, node: cst.BaseExpression, loop: LoopNode, runs: Runs = ()) -> Invariance:
        """Return whether an expression is loop-invariant.

        `runs` are the calls through which the loop reaches it.
        """
        return Invariances(self.functions, self.datasets.work).of(node, loop, runs)

    def is_round(self, loop: Loop) -> bool:
        """Return whether a loop without a loader is over epochs, or over a short list."""
        return self._loops.is_round(loop)

    def each_step(self, node: cst.CSTNode) -> bool:
        """Return whether a node runs in every step of a loop or of a network."""
        return self.repetition.each_step(node)

    def batch_loop(self, node: cst.CSTNode) -> Loop | None:
        """Return the innermost batch loop of the same function around a node."""
        return self._frequencies.batch_loop(node)

    def is_repeated(self, function: cst.FunctionDef) -> bool:
        """Return whether loops call a function repeatedly, or its names mention an epoch."""
        return self._loops.is_repeated(function)

    def is_step(self, call: cst.Call) -> bool:
        """Return whether a call runs a backward pass or steps an optimizer."""
        return self._loops.is_step(call)

    def module_call(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the network that a call runs."""
        return self._loops.module_call(call)

    def runs_module(self, region: cst.CSTNode) -> bool:
        """Return whether code runs a network, directly or through functions of this file."""
        return self._loops.runs_module(region)

    def frequency(self, node: cst.CSTNode, within: Region | None = None) -> Frequency:
        """Return the execution frequency of a node in its batch loop, or in a given region."""
        return (
            self._frequencies.frequency(node)
            if within is None
            else self._frequencies.below(node, within)
        )

    def runs_each_pass_in_one_process(self, node: cst.CSTNode, loop: Loop) -> bool:
        """Return whether only a test of the process rank keeps a node out of some passes."""
        return self._frequencies.of_one_process(node, loop.node)

    def accumulations(self, role: Role, region: cst.CSTNode | None = None) -> list[Accumulation]:
        """Return the additions that run in every pass of batch loops with a role."""
        found = self._accumulators.all()
        if region is not None:
            found = self._accumulators.within(region)
        return [each for each in found if each.loop.role is role]

    def accumulator(self, accumulation: Accumulation) -> Accumulator | None:
        """Return the accumulator of an addition if its value can wait for the loop's end."""
        return self._accumulators.accumulator(accumulation)

    def is_emptied(self, accumulation: Accumulation) -> bool:
        """Return whether the loop sets a sum, or a list, back to its start now and then."""
        return self._accumulators.is_emptied(accumulation)

    def used_each_pass(self, accumulation: Accumulation) -> bool:
        """Return whether every pass of the loop needs the running total on the host."""
        return self._accumulators.used_each_pass(accumulation)

    def waits(self, loop: Loop) -> Iterator[Wait]:
        """Yield the host syncs of a batch loop whose value no pass needs."""
        return self._waits.of(loop)

    def code_of_pass(self, loop: Loop) -> Iterator[Region]:
        """Yield a batch loop, then the functions of the file that every pass of it calls."""
        return (region for region, _ in self._waits.regions(loop))

    def on_host(self, node: cst.BaseExpression) -> bool:
        """Return whether a tensor is known to be in host memory."""
        return self._readings.placement.on_host(node)

    def counter(self, loop: LoopNode) -> str | None:
        """Return the name that counts the passes of a loop."""
        return self._frequencies.counter(loop)

    def readings(self, region: cst.CSTNode) -> Iterator[Reading]:
        """Yield the places inside a node where the host syncs to read a tensor."""
        return self._readings.within(region)

    def named_readings(
        self, region: cst.CSTNode, loop: LoopNode, besides: list[cst.CSTNode]
    ) -> Iterator[Reading]:
        """Yield the readings behind names in a node that only `besides` use in each pass."""
        return self._readings.named(region, loop, besides)

    def only_read_at(self, use: cst.Name) -> cst.BaseExpression | None:
        """Return the value assigned to a name in the same block and used only here."""
        bindings = self.scopes.reaching(use)
        node = bindings[0].node if len(bindings) == 1 else None
        if not isinstance(node, cst.Assign) or not isinstance(node.targets[0].target, cst.Name):
            return None
        if len(node.targets) != 1 or self.scopes.blocks(node) != self.scopes.blocks(use):
            return None
        scope = self.scopes.scope(use)
        mentions = [
            name
            for name in self.tree.spelled(use.value)
            if self.scopes.lookup(name.value, self.scopes.scope(name)) is scope
        ]
        return node.value if len(mentions) == 2 and use.value not in scope.outward else None

    def is_arithmetic(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is only arithmetic, also on values read by the host."""
        return self._readings.is_arithmetic(node)

    def needed_in(self, loop: LoopNode, reading: Reading, besides: list[cst.CSTNode]) -> bool:
        """Return whether each pass of a loop needs a value on the host, ignoring some nodes."""
        return self._readings.needed_in(loop, reading, besides)

    def is_logged(self, node: cst.CSTNode) -> bool:
        """Return whether a statement only shows or records the value of an expression."""
        return self._readings.is_logged(node)

    def works_between(
        self, one: cst.CSTNode, other: cst.CSTNode, loop: LoopNode | cst.FunctionDef
    ) -> bool:
        """Return whether the device gets work between two places, so that a read at each waits."""
        return self._readings.works_between(one, other, loop)

    def is_integral(self, node: cst.CSTNode) -> bool | None:
        """Return whether a tensor holds integers; None if unknown."""
        return self._dtypes.is_integral(node)

    def sent_backward(self, name: cst.Name) -> bool:
        """Return whether `backward` is called on the value of a name."""
        return self.kinds.losses.sent_backward(self.scopes.reaching(name))

    def feeds_backward(self, name: cst.Name) -> bool:
        """Return whether a name's value becomes part of a value that `backward` is called on."""
        return self.kinds.losses.feeds(name)

    def holds_sent(self, attribute: cst.Attribute) -> bool:
        """Return whether `backward` is called on what an attribute holds."""
        return self.kinds.losses.holds(attribute)

    def grad(self, node: cst.CSTNode) -> Grad:
        """Return whether autograd records at a node."""
        return self._gradients.grad(node)

    def is_recorded(self, node: cst.BaseExpression) -> bool:
        """Return whether a tensor is known to be the result of a recorded computation."""
        return self._recorded.of(node)

    def grad_mode(self, manager: cst.BaseExpression) -> Grad | None:
        """Return the gradient mode that a context manager or decorator sets."""
        return self._gradients.mode(manager)

    def evaluations(self) -> tuple[Evaluation, ...]:
        """Return the places that run networks to evaluate them."""
        return self._evaluations.all

    def contains_word(self, evaluation: Evaluation, wanted: frozenset[str]) -> bool:
        """Return whether an evaluation, or its function's name, contains one of some words."""
        return self._evaluations.contains_word(evaluation, wanted)

    def only_measures(self, region: cst.CSTNode) -> bool:
        """Return whether nothing in a region trains."""
        return self._evaluations.only_measures(region)

    def needs_gradients(self, region: cst.CSTNode) -> bool:
        """Return whether a region, or code that it runs, asks for gradients."""
        return self._evaluations.needs_gradients(region)

    def graph_use(self, evaluation: Evaluation) -> GraphUse:
        """Return what happens to the autograd graphs that an evaluation records."""
        return self._escapes.use(evaluation.body, [each.call for each in evaluation.forwards])

    def graph_use_of(self, region: cst.CSTNode, calls: list[cst.Call]) -> GraphUse:
        """Return what happens to the autograd graphs of calls, and of a region's networks."""
        return self._escapes.use(region, calls)

    def is_cut_off(self, call: cst.Call) -> bool:
        """Return whether the graph of a call ends within the same expression."""
        return self._escapes.is_cut_off(call)

    @property
    def can_use_accelerator(self) -> bool:
        """Whether some run of the script can use a GPU or another accelerator."""
        return self._devices.can_use_accelerator

    @property
    def framework(self) -> str:
        """The framework that owns the training loop, `none` if the script does."""
        return self._devices.framework

    def owner(self, node: cst.CSTNode) -> str:
        """Return the framework that runs the loop or method around a node, `none` if none does.

        Where no loop and no method around it tells, it is that of the file.
        """
        return self.ownership.owner(node) or self.framework

    def is_done(self, node: cst.CSTNode, duty: Duty) -> bool:
        """Return whether a framework does a duty of the loop or method around a node."""
        return self.ownership.does(self.owner(node), duty)


def forget(script: Script) -> None:
    """Drop all facts of a script that is no longer needed.

    They form reference cycles, which would otherwise stay until the garbage collector runs.
    """
    for name, fact in vars(script).items():
        if isinstance(fact, dict):
            fact.clear()
        elif name not in ("source", "target", "view", "whole", "running"):
            vars(fact).clear()
