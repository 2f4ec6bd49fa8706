"""Facts: the nouns that answer questions about a file or a section of it."""

from __future__ import annotations

from torchlint.semantic.calls.calls import Calls
from torchlint.semantic.calls.functions import Functions
from torchlint.semantic.data.batches import Batches
from torchlint.semantic.data.batching import Batching
from torchlint.semantic.data.datasets import Datasets
from torchlint.semantic.data.loaders import Loaders
from torchlint.semantic.data.parts import Parts
from torchlint.semantic.data.provenance import Provenance
from torchlint.semantic.edits.rewrite import Rewrite
from torchlint.semantic.loops.frequency import Frequencies
from torchlint.semantic.loops.guard import Guard
from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.loops.modes import Modes
from torchlint.semantic.loops.ownership import Ownership
from torchlint.semantic.loops.repetition import Repetition
from torchlint.semantic.loops.stuckmodes import StuckModes
from torchlint.semantic.scope.links import Links
from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.scopes import Scopes
from torchlint.semantic.scope.sections import Sections
from torchlint.semantic.scope.target import Target
from torchlint.semantic.scope.vocabulary import Vocabulary
from torchlint.semantic.syntax.tree import Tree
from torchlint.semantic.training.accumulators import Accumulators
from torchlint.semantic.training.arguments import Trainings
from torchlint.semantic.training.autocasting import Autocasting
from torchlint.semantic.training.callextras import CallExtras
from torchlint.semantic.training.compiled import Compiled
from torchlint.semantic.training.determinism import Determinism
from torchlint.semantic.training.escapes import Escapes
from torchlint.semantic.training.evaluations import Evaluations
from torchlint.semantic.training.flaggedevaluations import FlaggedEvaluations
from torchlint.semantic.training.freezing import Freezing
from torchlint.semantic.training.gradientwork import GradientWork
from torchlint.semantic.training.lineage import Lineage
from torchlint.semantic.training.moves import Moves
from torchlint.semantic.training.networks import Networks
from torchlint.semantic.training.optimizers import Optimizers
from torchlint.semantic.training.processes import Processes
from torchlint.semantic.training.program import Program
from torchlint.semantic.training.reach import Reach
from torchlint.semantic.training.readings import Readings
from torchlint.semantic.training.recorded import Recorded
from torchlint.semantic.training.scaling import Scaling
from torchlint.semantic.training.schedulers import Schedulers
from torchlint.semantic.training.steps import Steps
from torchlint.semantic.training.submodules import Submodules
from torchlint.semantic.training.updates import Updates
from torchlint.semantic.training.usage import Usage
from torchlint.semantic.training.waits import Waits
from torchlint.semantic.values.arrays import Arrays
from torchlint.semantic.values.attention import Attentions
from torchlint.semantic.values.devices import Devices
from torchlint.semantic.values.dtypes import Dtypes
from torchlint.semantic.values.gradient import Gradients
from torchlint.semantic.values.iteration import Iteration
from torchlint.semantic.values.kinds import Kinds
from torchlint.semantic.values.options import Options
from torchlint.semantic.values.origins import Origins
from torchlint.semantic.values.placement import Placement
from torchlint.semantic.values.plain_numbers import PlainNumbers
from torchlint.semantic.values.precision import Precision
from torchlint.semantic.values.scores import Scores
from torchlint.semantic.values.values import Values
from torchlint.semantic.values.visibility import Visibility
from torchlint.semantic.view import ALONE
from torchlint.source import Source

__all__ = ["Facts"]


class Facts:
    """Builds the objects that know what a tree means.

    Those of a section share the scopes, the names and the edits of the whole file.
    """

    def __init__(
        self,
        source: Source,
        tree: Tree,
        target: Target,
        whole: Facts | None = None,
        running: Facts | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.view = tree.view
        self.tree = tree
        self.scopes: Scopes = whole.scopes if whole is not None else Scopes(tree)
        links = Links(self.scopes) if whole is None and tree.view is not ALONE else None
        self.names: Names = whole.names if whole is not None else Names(self.scopes, links)
        self._sections = Sections(tree, self.scopes)
        self._calls = Calls(self.tree, self.names)
        self.functions = Functions(self.tree, self.scopes, self.names)
        self.values = Values(self.functions)
        self.iteration = Iteration(self.names, self.scopes)
        self.origins = Origins(self.functions, self.values, self.iteration)
        self.kinds = Kinds(self.functions, self.iteration, self.origins)
        self._gradients = Gradients(self.functions, self.values)
        self._loops = Loops(self.functions, self.kinds, self.iteration, self._gradients)
        self._recorded = Recorded(self.functions, self.kinds, self._gradients, self._loops)
        self.ownership = Ownership(self.functions, self.values)
        self._frequencies = Frequencies(self.functions, self.kinds, self._loops, self.ownership)
        self.repetition = Repetition(self.functions, self._frequencies, self._loops)
        self._readings = Readings(
            self.kinds, self._frequencies, Placement(self.functions, self.kinds, self.iteration)
        )
        self._accumulators = Accumulators(self._loops, self._frequencies, self._readings)
        self._waits = Waits(
            self.functions, self.kinds, self._frequencies, self._readings, self._accumulators
        )
        self._dtypes = Dtypes(self.kinds)
        self._devices: Devices = Devices(
            self.functions,
            self.kinds,
            self.values,
            target,
            running._devices if running is not None else None,
        )
        self.modes = Modes(self.functions, self.kinds, self.values, self._loops)
        self._evaluations = Evaluations(
            self.functions, self.kinds, self._loops, self._gradients, self.modes
        )
        self.stuck_modes = StuckModes(self.functions, self._loops, self._gradients, self.modes)
        self._escapes = Escapes(self.functions, self.kinds, self._loops)
        self.program = Program(self.functions, self.kinds, self.values, self._loops)
        self.guard = Guard(self.functions, self.values)
        self.steps = Steps(self.functions, self.kinds, self._loops, self._frequencies)
        self.vocabulary = Vocabulary(tree)
        self.precision = Precision(self.functions, self.kinds, self.vocabulary)
        self.scaling = Scaling(self.functions, self.kinds, self.values, self._frequencies)
        self.autocasting = Autocasting(self.functions, self.values, self.precision, self.origins)
        self.reach = Reach(self.functions, self.kinds, self.origins, self._loops)
        self.submodules = Submodules(self.functions, self.origins)
        self.compiled = Compiled(self.functions, self.kinds, self.values, self.submodules)
        self.call_extras = CallExtras(self.functions, self.origins, self.iteration)
        self.determinism = Determinism(self.tree, self.names, self.values, self._calls)
        self.processes = Processes(self.functions, self.origins, self._calls)
        self.schedulers = Schedulers(self.functions, self.kinds, self.values, self.origins)
        self.updates = Updates(self.functions, self.kinds, self._loops, self.origins)
        self.flagged_evaluations = FlaggedEvaluations(
            self.functions, self.values, self._loops, self._gradients, self.updates, self._calls
        )
        self.gradient_work = GradientWork(self.functions, self.kinds, self._loops, self.updates)
        self.visibility = Visibility(self.functions, self.kinds, self.origins, self.iteration)
        self.loaders = Loaders(self.functions, self.origins, self.iteration, self._loops)
        self.usage = Usage(self.functions, self.values, self.origins)
        self.options = Options(self.functions, self.values, self.origins)
        self.trainings = Trainings(self.functions, self.values, self.origins, self._calls)
        self.optimizers = Optimizers(self.functions, self.kinds, self.origins, self._loops)
        self.freezing = Freezing(self.functions, self.kinds, self.values)
        self.networks = Networks(
            self.functions, self.kinds, self.origins, self.optimizers, self.freezing
        )
        self.lineage = Lineage(self.functions, self.kinds, self._loops, self._gradients)
        self.batches = Batches(self.functions, self.kinds, self.loaders)
        self.parts = Parts(self.functions, self.iteration, self.origins, self.loaders)
        self.datasets = Datasets(self.functions, self.kinds, self.values, self.origins)
        self.provenance = Provenance(self.datasets.work)
        self.moves = Moves(self.datasets.work, self.values, target)
        self.batching = Batching(self.functions, self.kinds, self.origins, self.datasets.work)
        self._numbers = PlainNumbers(self.functions, self.kinds, self.values)
        self._attentions = Attentions(self.functions, self.values, self._numbers)
        self.scores = Scores(self.functions, self.values)
        self._arrays = Arrays(self.kinds, self.values, self.iteration)
        self.rewrite: Rewrite = (
            whole.rewrite if whole is not None else Rewrite(tree.source, tree, self.scopes)
        )
