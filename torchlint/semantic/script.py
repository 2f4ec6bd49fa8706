"""Script: the facade through which a rule asks what a file means."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.accumulators import Accumulation, Accumulator, Accumulators
from torchlint.semantic.arrays import Array, Arrays
from torchlint.semantic.attention import Attention, Attentions
from torchlint.semantic.batches import Batches
from torchlint.semantic.batching import Batching
from torchlint.semantic.calls import Calls
from torchlint.semantic.datasets import Datasets
from torchlint.semantic.determinism import Determinism
from torchlint.semantic.devices import Devices
from torchlint.semantic.dtypes import Dtypes
from torchlint.semantic.evaluations import Evaluation, Evaluations
from torchlint.semantic.freezing import Freezing
from torchlint.semantic.functions import Definition, Functions
from torchlint.semantic.gradient import Grad, Gradients
from torchlint.semantic.guard import Guard
from torchlint.semantic.heat import Heat, Heats
from torchlint.semantic.items import ItemCode, Items
from torchlint.semantic.iteration import Iteration
from torchlint.semantic.kind import Kind
from torchlint.semantic.kinds import Kinds
from torchlint.semantic.labels import brief
from torchlint.semantic.layers import LayerPair, Layers
from torchlint.semantic.loaders import Loaders
from torchlint.semantic.loops import Loop, LoopNode, Loops, Role
from torchlint.semantic.modes import Modes
from torchlint.semantic.moves import Moves
from torchlint.semantic.names import Names
from torchlint.semantic.optimizers import Optimizers
from torchlint.semantic.origins import Origins
from torchlint.semantic.outflow import Fate, Outflow
from torchlint.semantic.parts import Parts
from torchlint.semantic.placement import Placement
from torchlint.semantic.plain_numbers import PlainNumbers
from torchlint.semantic.precision import Precision
from torchlint.semantic.processes import Processes
from torchlint.semantic.program import Program
from torchlint.semantic.readings import Reading, Readings
from torchlint.semantic.repetition import Repetition
from torchlint.semantic.rewrite import Rewrite
from torchlint.semantic.rounds import Rounds
from torchlint.semantic.sameness import Runs, Sameness, Samenesses
from torchlint.semantic.scaling import Scaling
from torchlint.semantic.schedulers import Schedulers
from torchlint.semantic.scopes import How, Scopes
from torchlint.semantic.scores import Scores
from torchlint.semantic.steps import Steps
from torchlint.semantic.switches import Switches
from torchlint.semantic.syntax import Syntax, read
from torchlint.semantic.target import Target
from torchlint.semantic.tree import Tree
from torchlint.semantic.updates import Updates
from torchlint.semantic.usage import Usage
from torchlint.semantic.values import Value, Values
from torchlint.semantic.vocabulary import Vocabulary
from torchlint.semantic.waits import Wait, Waits
from torchlint.semantic.windows import Window, Windows
from torchlint.semantic.words import words
from torchlint.source import Source

__all__ = ["CallSite", "Script"]

NodeT = TypeVar("NodeT", bound=cst.CSTNode)
T = TypeVar("T")


class CallSite:
    """One call with its arguments, as a rule asks for them."""

    def __init__(self, script: Script, node: cst.Call) -> None:
        self.script = script
        self.node = node

    @property
    def name(self) -> str | None:
        """The canonical qualified name of what is called."""
        return self.script.name(self.node.func)

    def argument(self, name: str, position: int | None = None) -> Value:
        """Give what a parameter gets, looked for in `**` dictionaries too."""
        return self.script.values.argument(self.node, name, position)

    def given(self, name: str, position: int | None = None) -> cst.Arg | None:
        """Give the argument itself where the call spells it out."""
        return self.script.values.argument_node(self.node, name, position)

    @property
    def has_splat(self) -> bool:
        """Whether the call passes on `*args` or `**kwargs`."""
        return any(arg.star for arg in self.node.args)


class Script:
    """A parsed file and everything that rules may ask about it."""

    def __init__(self, source: Source, syntax: Syntax, target: Target) -> None:
        self.source = source
        self.target = target
        self.tree = Tree(source, syntax)
        self.scopes = Scopes(self.tree)
        self.names = Names(self.scopes)
        self._calls = Calls(self.tree, self.names)
        self.functions = Functions(self.tree, self.scopes, self.names)
        self.values = Values(self.functions)
        self.iteration = Iteration(self.names, self.scopes)
        self.kinds = Kinds(self.functions, self.iteration)
        self._gradients = Gradients(self.functions, self.values)
        self._loops = Loops(self.functions, self.kinds, self.iteration, self._gradients)
        self._heats = Heats(self.functions, self.kinds, self._loops)
        self._repetition = Repetition(self.functions, self._heats, self._loops)
        self._readings = Readings(
            self.kinds, self._heats, Placement(self.functions, self.kinds, self.iteration)
        )
        self._accumulators = Accumulators(self._loops, self._heats, self._readings)
        self._waits = Waits(
            self.functions, self.kinds, self._heats, self._readings, self._accumulators
        )
        self._dtypes = Dtypes(self.kinds)
        self._devices = Devices(self.functions, self.kinds, self.values, target)
        self.modes = Modes(self.functions, self.kinds, self.values, self._loops)
        self._evaluations = Evaluations(
            self.functions, self.kinds, self._loops, self._gradients, self.modes
        )
        self.rounds = Rounds(self.functions, self._loops, self._gradients, self.modes)
        self._outflow = Outflow(self.functions, self.kinds, self._loops)
        self.program = Program(self.functions, self.kinds, self.values, self._loops)
        self.guard = Guard(self.functions, self.values)
        self.steps = Steps(self.functions, self.kinds, self._loops, self._heats)
        self.vocabulary = Vocabulary(source.text)
        self.precision = Precision(self.functions, self.kinds, self.vocabulary)
        self.scaling = Scaling(self.functions, self.kinds, self.values, self._heats)
        self.origins = Origins(self.functions, self.values, self.iteration)
        self.determinism = Determinism(self.tree, self.names, self.values, self._calls)
        self.processes = Processes(self.functions, self.origins, self._calls)
        self.schedulers = Schedulers(self.functions, self.kinds, self.values, self.origins)
        self.updates = Updates(self.functions, self.kinds, self._loops, self.origins)
        self.loaders = Loaders(self.functions, self.origins, self.iteration, self._loops)
        self.usage = Usage(self.functions, self.values)
        self.optimizers = Optimizers(self.functions, self.kinds, self.origins, self._loops)
        self.freezing = Freezing(self.functions, self.kinds, self.values)
        self.batches = Batches(self.functions, self.kinds, self.loaders)
        self.parts = Parts(self.functions, self.iteration, self.origins, self.loaders)
        self.moves = Moves(self.functions, self.kinds, self.values, self.origins, target)
        self.datasets = Datasets(self.functions, self.kinds, self.values, self.origins)
        self.batching = Batching(self.functions, self.kinds, self.origins, self.datasets.work)
        self._numbers = PlainNumbers(self.functions, self.kinds, self.values)
        self._attentions = Attentions(self.functions, self.values, self._numbers)
        self.scores = Scores(self.functions, self.values)
        self._arrays = Arrays(self.kinds, self.values, self.iteration)
        self.rewrite = Rewrite(source, self.tree, self.scopes)
        self._found: dict[Callable[[Script], Any], Any] = {}

    @classmethod
    def parse(
        cls, source: Source, target: Target | None = None, tree: ast.Module | None = None
    ) -> Script:
        """Parse a file, of which CPython's tree may be at hand; raises `ParserSyntaxError`."""
        return cls(source, read(source, tree), target or Target())

    @property
    def is_notebook(self) -> bool:
        """Whether this is a notebook, which no launcher runs and no worker process can import."""
        return self.source.is_notebook

    def once(self, find: Callable[[Script], T]) -> T:
        """Give what a function finds of the whole file; it is found but once."""
        try:
            found: T = self._found[find]
        except KeyError:
            found = self._found[find] = find(self)
        return found

    # -- nodes ----------------------------------------------------------------

    def all(self, kind: type[NodeT]) -> list[NodeT]:
        """Give every node of exactly this type, in the order of the source."""
        return self.tree.all(kind)

    def within(self, outer: cst.CSTNode, kind: type[NodeT]) -> Iterator[NodeT]:
        """Yield the nodes of exactly this type inside another, in the order of the source."""
        return self.tree.within(outer, kind)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Give the node around a node."""
        return self.tree.parent(node)

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Give the statement around a node."""
        return self.tree.statement(node)

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Give the function in which a node stands."""
        return self.scopes.function(node)

    def smallest_statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Give the small statement around `node`, or the compound one whose header holds it."""
        return self.tree.smallest_statement(node)

    def beside(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the statements of the block around `node`, those that share a line one by one."""
        return self.tree.beside(node)

    def span(self, node: cst.CSTNode) -> Span:
        """Give the characters of a node, an expression with its own parentheses."""
        return self.tree.span(node)

    def code(self, node: cst.CSTNode) -> str:
        """Give the code of a node, to tell, to compare and to write it elsewhere.

        What holds no comment is given as one line and an expression, where it means the same
        anywhere without them, without the parentheses around it.
        """
        return self.tree.code(node)

    def argument(self, node: cst.BaseExpression) -> str:
        """Give the code of an expression as `code` does, without any parentheses around it."""
        return self.tree.argument(node)

    def brief(self, node: cst.CSTNode) -> str:
        """Give the code of a node for a message, of a long call who is called alone."""
        return brief(self.tree, node)

    def code_of(self, node: cst.BaseExpression) -> str:
        """Give the code of the one expression that a node can be, of the node otherwise."""
        value = self.values.value_of(node)
        return self.tree.code(value.node if value.node is not None else node)

    def tests_around(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yield the tests of the `if`s of the same function in whose body a node stands."""
        child = node
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.FunctionDef):
                return
            if isinstance(outer, cst.If) and child is outer.body:
                yield outer.test
            child = outer

    # -- meaning --------------------------------------------------------------

    def words(self, text: str) -> list[str]:
        """Split identifiers, however they are written, into lower-case words."""
        return list(words(text))

    def name(self, node: cst.CSTNode) -> str | None:
        """Give the canonical qualified name of an expression, None when there is not one."""
        return self.names.name(node)

    def calls(self, *names: str) -> Iterator[CallSite]:
        """Yield the calls of any of these qualified names."""
        return (CallSite(self, call) for call in self._calls.of(names))

    def call(self, node: cst.Call) -> CallSite:
        """Give a call as rules ask for it."""
        return CallSite(self, node)

    @property
    def called(self) -> tuple[str, ...]:
        """The qualified names of all that the file calls, each once."""
        return self._calls.called

    def method_calls(self, *methods: str) -> Iterator[cst.Call]:
        """Yield the calls of attributes with any of these names, whatever they belong to."""
        return iter(self._calls.of_methods(methods))

    def imports(self, *modules: str) -> bool:
        """Whether the file imports one of these modules, or something of one."""
        found = [
            binding.qualified
            for bindings in self.scopes.module.bindings.values()
            for binding in bindings
            if binding.how is How.IMPORT
        ]
        found += self.scopes.star_imports
        wanted = tuple(f"{module}." for module in modules)
        return any(f"{name}.".startswith(wanted) for name in found)

    def definition(self, node: cst.CSTNode) -> Definition | None:
        """Give the function or class of this file that an expression names."""
        return self.functions.definition(node)

    def kind(self, node: cst.CSTNode) -> Kind:
        """Give the kind of an expression."""
        return self.kinds.kind(node)

    def array(self, node: cst.BaseExpression) -> Array | None:
        """Give what is known of an expression that is surely an array of NumPy."""
        return self._arrays.array(node)

    def value_of(self, node: cst.BaseExpression) -> Value:
        """Give the one expression that an expression can be."""
        return self.values.value_of(node)

    def layer_pairs(self) -> Iterator[LayerPair]:
        """Yield the pairs of layers of which the first feeds the second and nothing else."""
        return Layers(self.functions, self.values).pairs()

    def attentions(self) -> Iterator[Attention]:
        """Yield the attention that is written out and whose weights serve nothing else."""
        return self._attentions.all()

    def is_number(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is surely a number of Python: no tensor, nothing learned."""
        return self._numbers.is_number(node)

    def dropout_layer(self, node: cst.BaseExpression) -> cst.Call | None:
        """Give the call that makes the dropout layer that an expression is."""
        return self._attentions.dropout_layer(node)

    def switched(self, node: cst.CSTNode, *purposes: str) -> bool:
        """Whether a condition, an error or a test decides that a node runs at all.

        `purposes` are parts of the names of functions that are there to be called when needed.
        """
        return Switches(self.functions).switched(node, purposes)

    def loops(self, *roles: Role) -> list[Loop]:
        """Give the loops with one of these roles, all without any."""
        found = self._loops.all()
        return [loop for loop in found if loop.role in roles] if roles else found

    def loops_around(self, node: cst.CSTNode) -> Iterator[Loop]:
        """Yield the loops of the same function around a node, the nearest first."""
        return self._loops.around(node)

    def windows(self) -> Iterator[Window]:
        """Yield the loops whose gradients add up over several passes before an optimizer steps."""
        return Windows(self.functions, self.values, self._loops).all()

    def last_pass(self, loop: Loop) -> str | None:
        """Give the test for the last pass over a loader that is counted (`i == len(loader)`)."""
        return Windows(self.functions, self.values, self._loops).last_pass(loop)

    def items(self) -> list[ItemCode]:
        """Give the functions that run whenever a loader reads an item or makes a batch."""
        return Items(self.functions, self.values, self.origins).all()

    def sameness(self, node: cst.BaseExpression, loop: LoopNode, runs: Runs = ()) -> Sameness:
        """Say whether an expression comes out the same in every pass of a loop.

        `runs` are the calls through which the passes come to it.
        """
        return Samenesses(self.functions, self.datasets.work).of(node, loop, runs)

    def is_round(self, loop: Loop) -> bool:
        """Whether a loop without a loader makes one step an epoch, or for each of a few things."""
        return self._loops.is_round(loop)

    def each_step(self, node: cst.CSTNode) -> bool:
        """Whether a node runs in every step of a loop or of a network."""
        return self._repetition.each_step(node)

    def batch_loop(self, node: cst.CSTNode) -> Loop | None:
        """Give the innermost batch loop of the same function around a node."""
        return self._heats.batch_loop(node)

    def is_repeated(self, function: cst.FunctionDef) -> bool:
        """Whether loops run a function again and again, or its name speaks of an epoch."""
        return self._loops.is_repeated(function)

    def is_step(self, call: cst.Call) -> bool:
        """Whether a call sends a loss backward or steps an optimizer."""
        return self._loops.is_step(call)

    def module_call(self, call: cst.Call) -> cst.BaseExpression | None:
        """Give the network that a call runs."""
        return self._loops.module_call(call)

    def runs_module(self, region: cst.CSTNode) -> bool:
        """Whether code runs a network, itself or through functions of this file."""
        return self._loops.runs_module(region)

    def heat(self, node: cst.CSTNode, within: LoopNode | None = None) -> Heat:
        """Say whether a node runs in every pass of its batch loop, or of a loop around it."""
        return self._heats.heat(node) if within is None else self._heats.below(node, within)

    def is_hot_in_one_process(self, node: cst.CSTNode, loop: Loop) -> bool:
        """Whether nothing but a test of the process's rank keeps a node out of every pass."""
        return self._heats.of_one_process(node, loop.node)

    def accumulations(self, role: Role, region: cst.CSTNode | None = None) -> list[Accumulation]:
        """Give the hot additions of the batch loops with a role, in a region or anywhere."""
        found = self._accumulators.within(region or self.tree.module)
        return [each for each in found if each.loop.role is role]

    def accumulator(self, accumulation: Accumulation) -> Accumulator | None:
        """Give the name that an addition builds up if its value can wait for the loop's end."""
        return self._accumulators.accumulator(accumulation)

    def used_each_pass(self, accumulation: Accumulation) -> bool:
        """Whether hot code of the loop needs what was added up so far on the host."""
        return self._accumulators.used_each_pass(accumulation)

    def waits(self, loop: Loop) -> Iterator[Wait]:
        """Yield the readings of a batch loop, and of what it runs, that no pass needs."""
        return self._waits.of(loop)

    def on_host(self, node: cst.BaseExpression) -> bool:
        """Whether a tensor surely lies in the host's memory."""
        return self._readings.placement.on_host(node)

    def counter(self, loop: LoopNode) -> str | None:
        """Give the name that counts the passes of a loop."""
        return self._heats.counter(loop)

    def readings(self, region: cst.CSTNode) -> Iterator[Reading]:
        """Yield the places inside a node where the host waits for a tensor's value."""
        return self._readings.within(region)

    def named_readings(
        self, region: cst.CSTNode, loop: LoopNode, besides: list[cst.CSTNode]
    ) -> Iterator[Reading]:
        """Yield the readings behind names in a node that only `besides` look at in each pass."""
        return self._readings.named(region, loop, besides)

    def only_read_at(self, use: cst.Name) -> cst.BaseExpression | None:
        """Give the value of a name that a line of the same block gave it for this use alone."""
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
        """Whether an expression only computes with numbers and with what the host reads."""
        return self._readings.is_arithmetic(node)

    def needed_in(self, loop: LoopNode, reading: Reading, besides: list[cst.CSTNode]) -> bool:
        """Whether each pass of a loop needs a value on the host, leaving some nodes out."""
        return self._readings.needed_in(loop, reading, besides)

    def is_integral(self, node: cst.CSTNode) -> bool | None:
        """Whether a tensor holds integers; None where nothing shows it."""
        return self._dtypes.is_integral(node)

    def sent_backward(self, name: cst.Name) -> bool:
        """Whether the value of a name is itself sent backward."""
        return self.kinds.losses.sent_backward(self.scopes.reaching(name))

    def feeds_backward(self, name: cst.Name) -> bool:
        """Whether what a name holds becomes part of a value that is sent backward."""
        return self.kinds.losses.feeds(name)

    def grad(self, node: cst.CSTNode) -> Grad:
        """Say whether autograd records at a node."""
        return self._gradients.grad(node)

    def grad_mode(self, manager: cst.BaseExpression) -> Grad | None:
        """Give the gradient mode that a context manager or decorator sets."""
        return self._gradients.mode(manager)

    def evaluations(self) -> tuple[Evaluation, ...]:
        """Give the places where networks run to be measured."""
        return self._evaluations.all

    def speaks_of(self, evaluation: Evaluation, spoken: frozenset[str]) -> bool:
        """Whether a name in an evaluation, or that of its function, holds one of some words."""
        return self._evaluations.speaks_of(evaluation, spoken)

    def only_measures(self, region: cst.CSTNode) -> bool:
        """Whether a region runs nothing that trains."""
        return self._evaluations.only_measures(region)

    def needs_gradients(self, region: cst.CSTNode) -> bool:
        """Whether a region, or what it runs, speaks of gradients."""
        return self._evaluations.needs_gradients(region)

    def fate(self, evaluation: Evaluation) -> Fate:
        """Say what becomes of the graphs that the networks run in an evaluation make."""
        return self._outflow.fate(evaluation.body, [each.call for each in evaluation.forwards])

    def outcome(self, region: cst.CSTNode, calls: list[cst.Call]) -> Fate:
        """Say what becomes of the graphs that calls, and what else a region runs, make."""
        return self._outflow.fate(region, calls)

    def is_cut_off(self, call: cst.Call) -> bool:
        """Whether the graph that a call makes ends in the very expression."""
        return self._outflow.is_cut_off(call)

    @property
    def can_use_accelerator(self) -> bool:
        """Whether some run of the script can use a GPU or its like."""
        return self._devices.can_use_accelerator

    @property
    def may_be_mps(self) -> bool:
        """Whether the device can be Apple's, which lacks float64."""
        return self._devices.may_be_mps

    @property
    def framework(self) -> str:
        """The framework that owns the training loop, `none` where the script does."""
        return self._devices.framework


def forget(script: Script) -> None:
    """Let go of all facts of a script, of which nothing can be asked any more.

    They refer to each other in circles: else they would stay until Python looks for such.
    """
    for name, fact in vars(script).items():
        if name not in ("source", "target", "_found"):
            vars(fact).clear()
    script._found.clear()
