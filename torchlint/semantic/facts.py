"""Facts: the collections through which rules ask about a file or a section of it.

Each is the class that finds its things, together with the classes that know more about them.
"""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.data.batches import Batches
from torchlint.semantic.data.batching import Batching
from torchlint.semantic.data.datasets import Datasets
from torchlint.semantic.data.items import Items
from torchlint.semantic.data.itemwork import ItemWork
from torchlint.semantic.data.lastpass import LastPass
from torchlint.semantic.data.loaders import Loaders
from torchlint.semantic.data.parts import Parts, PartsOfSomeCallers
from torchlint.semantic.data.provenance import Provenance
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.generation import Generation
from torchlint.semantic.loops.gradientaccumulation import GradientAccumulations
from torchlint.semantic.loops.guard import Guard
from torchlint.semantic.loops.loops import Loops, Role
from torchlint.semantic.loops.modes import Modes
from torchlint.semantic.loops.ownership import BY_HAND, Duty, Ownership
from torchlint.semantic.loops.repetition import Repetition
from torchlint.semantic.loops.stepfunctions import StepFunctions
from torchlint.semantic.loops.stuckmodes import StuckModes
from torchlint.semantic.scope.target import Target
from torchlint.semantic.scope.vocabulary import Vocabulary
from torchlint.semantic.training.accumulators import Accumulation, Accumulators
from torchlint.semantic.training.arguments import Trainings
from torchlint.semantic.training.branches import Branches
from torchlint.semantic.training.compiled import Compiled
from torchlint.semantic.training.conditions import Conditions
from torchlint.semantic.training.determinism import Determinism
from torchlint.semantic.training.escapes import Escapes, GraphUse
from torchlint.semantic.training.evaluations import Evaluation, Evaluations
from torchlint.semantic.training.flaggedevaluations import FlaggedEvaluations
from torchlint.semantic.training.freezing import Freezing
from torchlint.semantic.training.gradientwork import GradientWork
from torchlint.semantic.training.graphs import Graphs
from torchlint.semantic.training.hostsyncs import HostSyncs
from torchlint.semantic.training.invariance import Invariances
from torchlint.semantic.training.layers import Layers
from torchlint.semantic.training.lineage import Lineage
from torchlint.semantic.training.making import Making
from torchlint.semantic.training.moves import Moves
from torchlint.semantic.training.networks import Networks
from torchlint.semantic.training.optimizers import Optimizers
from torchlint.semantic.training.passinglayers import PassingLayers
from torchlint.semantic.training.processes import Processes
from torchlint.semantic.training.program import Program
from torchlint.semantic.training.purpose import Purpose
from torchlint.semantic.training.reach import Reach
from torchlint.semantic.training.readings import Readings, Region
from torchlint.semantic.training.recorded import Recorded
from torchlint.semantic.training.savedweights import SavedWeights
from torchlint.semantic.training.scaling import Scaling
from torchlint.semantic.training.schedulers import Schedulers
from torchlint.semantic.training.sizes import Sizes
from torchlint.semantic.training.steps import Steps
from torchlint.semantic.training.submodules import Submodules
from torchlint.semantic.training.updates import Updates
from torchlint.semantic.training.waits import Waits
from torchlint.semantic.training.widths import Widths
from torchlint.semantic.values.calls import Calls
from torchlint.semantic.values.devices import Devices
from torchlint.semantic.values.facts import ValueFacts

_HOOK: Final = "register_forward_hook"
_HOOK_OF_ALL: Final = "register_module_forward_hook"


class LoopFacts(Loops):
    """The loops, how often the code in them runs, and who runs them."""

    def __init__(self, values: ValueFacts, devices: Devices) -> None:
        super().__init__(values)
        self.devices = devices
        self.ownership = Ownership(values)
        self.step_functions = StepFunctions(self, self.ownership)
        self.frequencies = Frequencies(self, self.ownership, self.step_functions)
        self.rate = self.frequencies.rate
        """Return how often a framework runs a function: itself, or through what it calls."""
        self.generation = Generation(self, self.frequencies)
        self.repetition = Repetition(self, self.frequencies, self.generation)
        self.each_step = self.repetition.each_step
        """Return whether a node runs in every step of a loop or of a network."""
        self.lineage = Lineage(self)
        self.steps = Steps(self, self.frequencies, self.lineage)
        self.gradient_accumulations = GradientAccumulations(self, self.step_functions)
        self.conditions = Conditions(self)
        self.invariances = Invariances(ItemWork(values), values.writes)
        self.guard = Guard(values)

    def frequency(self, node: cst.CSTNode, within: Region | None = None) -> Frequency:
        """Return the execution frequency of a node in its batch loop, or in a given region."""
        if within is None:
            return self.frequencies.frequency(node)
        return self.frequencies.below(node, within)

    def owner(self, node: cst.CSTNode) -> str:
        """Return the framework that runs the loop or method around a node, `none` if none does.

        Where no loop and no method around it tells, it is that of the file.
        """
        return self.ownership.owner(node) or self.devices.framework

    def is_done(self, node: cst.CSTNode, duty: Duty) -> bool:
        """Return whether a framework does a duty of the loop or method around a node."""
        if duty in BY_HAND and self.ownership.steps_by_hand(node):
            return False
        return self.ownership.does(self.owner(node), duty)


class ReadingFacts(Readings):
    """The host syncs, and the sums and lists for which batch loops have them."""

    def __init__(self, values: ValueFacts, loops: LoopFacts, calls: Calls) -> None:
        super().__init__(values, loops.frequencies)
        self.syncs = HostSyncs(values, calls, self)
        self.accumulators = Accumulators(loops, loops.frequencies, self)
        self.waits = Waits(values, loops.frequencies, self, self.accumulators)

    def accumulations(self, role: Role, region: cst.CSTNode | None = None) -> list[Accumulation]:
        """Return the additions that run in every pass of batch loops with a role."""
        found = self.accumulators.all()
        if region is not None:
            found = self.accumulators.within(region)
        return [each for each in found if each.loop.role is role]

    def accumulations_in_file(self, role: Role) -> list[Accumulation]:
        """Return the additions of the file itself in every pass of batch loops with a role."""
        return [each for each in self.accumulators.in_file() if each.loop.role is role]


class OptimizerFacts(Optimizers):
    """The optimizers, and the schedulers, scalers and updates that go with them."""

    def __init__(self, values: ValueFacts, loops: LoopFacts) -> None:
        super().__init__(loops)
        self.schedulers = Schedulers(values)
        self.scaling = Scaling(values, loops.frequencies)
        self.updates = Updates(loops)
        self.gradient_work = GradientWork(loops, self.updates)


class ModuleFacts(Networks):
    """The networks: their layers, modes, frozen parts and compiled forms."""

    def __init__(self, values: ValueFacts, loops: LoopFacts, optimizers: OptimizerFacts) -> None:
        super().__init__(values, optimizers, Freezing(values))
        self.layers = Layers(values)
        self.submodules = Submodules(values)
        self.passing = PassingLayers(values.functions)
        self.compiled = Compiled(values, self.submodules)
        self.modes = Modes(loops, self.creators, self.same)
        self.stuck_modes = StuckModes(loops, self.modes)
        self.reach = Reach(loops)
        self.making = Making(values.functions, self, self.reach)
        self.saved_weights = SavedWeights(self.making)
        self.lineage = loops.lineage
        self.widths = Widths(values)
        self.sizes = Sizes(values, self.widths, self)
        self.graphs = Graphs(self, self.sizes, loops, loops.steps)

    def may_be_hooked(self, network: cst.BaseExpression) -> bool:
        """Return whether a hook may run in the forward pass of a network, or of a part of it."""
        return bool(self.functions.attributes(_HOOK_OF_ALL)) or any(
            self.may_touch(hook.value, network) for hook in self.functions.attributes(_HOOK)
        )

    def may_be_saved(self, network: cst.BaseExpression) -> bool:
        """Return whether code in view may read or set the state of a network."""
        return any(
            self.may_touch(state.value, network)
            for word in ("state_dict", "load_state_dict")
            for state in self.functions.attributes(word)
        )

    def may_be_compiled(self, network: cst.BaseExpression) -> bool:
        """Return whether a network, or a part of it, may be compiled."""
        return any(
            isinstance(each.subject, cst.FunctionDef) or self.may_touch(each.subject, network)
            for each in self.compiled.all
        )

    def overwrites_output(self, call: cst.Call) -> bool:
        """Return whether the next such call may overwrite what a call returns (CUDA graphs)."""
        callees, network = self.functions.callees(call), self.lineage.network(call)
        for subject in (each.subject for each in self.compiled.replayed):
            if isinstance(subject, cst.FunctionDef):
                found = subject in callees
            else:
                touches = network is not None and self.may_touch(subject, network)
                found = touches or self.functions.definition(subject) in callees
            if found:
                return True
        return False


class EvaluationFacts(Evaluations):
    """The evaluations, and the autograd graphs that they record."""

    def __init__(self, loops: LoopFacts, modes: Modes, updates: Updates, calls: Calls) -> None:
        super().__init__(loops, modes)
        self.flagged = FlaggedEvaluations(loops, modes, updates, calls)
        self.escapes = Escapes(loops)
        self.recorded = Recorded(loops)

    def graph_use(self, evaluation: Evaluation) -> GraphUse:
        """Return what happens to the autograd graphs that an evaluation records."""
        return self.escapes.use(evaluation.body, [each.call for each in evaluation.forwards])


class LoaderFacts(Loaders):
    """The loaders, and the datasets, items and batches behind them."""

    def __init__(self, values: ValueFacts, loops: LoopFacts) -> None:
        super().__init__(loops, Datasets(values), loops.frequencies)
        self.items = Items(values)
        self.batches = Batches(values, self)
        self.batching = Batching(values, self.datasets.work)
        self.parts = Parts(values, self)
        self.parts_of_some_callers = PartsOfSomeCallers(values, self)
        self.provenance = Provenance(self.datasets.work)
        self.last_pass = LastPass(values, self.datasets)


class ProgramFacts(Program):
    """The program: what it runs on, its processes, settings and trainers."""

    def __init__(
        self,
        values: ValueFacts,
        loops: LoopFacts,
        calls: Calls,
        loaders: LoaderFacts,
        target: Target,
        vocabulary: Vocabulary,
        running: Purpose | None,
    ) -> None:
        super().__init__(loops)
        self.target = target
        self.devices = loops.devices
        self.moves = Moves(values, loaders.datasets.work, target)
        self.processes = Processes(values, calls)
        self.branches = Branches(values)
        self.purpose = Purpose(loops, self.branches, loaders, target, running)
        self.determinism = Determinism(values, calls)
        self.trainings = Trainings(values, calls)
        self.vocabulary = vocabulary
