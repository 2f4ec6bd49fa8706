"""The public API for rules: everything that a rule may import."""

from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix, Impact, Note, Safety
from torchlint.rule import Rule
from torchlint.semantic.calls.hooks import Rate
from torchlint.semantic.data.batching import Layout
from torchlint.semantic.data.datasets import Trait, Traits
from torchlint.semantic.data.items import ItemCode, Per
from torchlint.semantic.data.loaders import Loader
from torchlint.semantic.data.parts import Part
from torchlint.semantic.edits.rewrite import Edits
from torchlint.semantic.loops.frequency import Frequency
from torchlint.semantic.loops.gradientaccumulation import GradientAccumulation, PassFunction
from torchlint.semantic.loops.loops import Loop, Role
from torchlint.semantic.loops.modes import Mode
from torchlint.semantic.loops.ownership import Duty
from torchlint.semantic.loops.stuckmodes import StuckMode
from torchlint.semantic.scope.libraries import COLLATORS, Factory
from torchlint.semantic.scope.limits import ASSIGNED, CALLERS
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.script import Script
from torchlint.semantic.syntax.methods import (
    container_of,
    index_of,
    is_none,
    last_line,
    last_word,
    lines_of,
    method_of,
    operands_of,
    receiver_of,
    root_of,
    word_of,
)
from torchlint.semantic.training.accumulators import Accumulation, Accumulator
from torchlint.semantic.training.additions import Adding, Addition
from torchlint.semantic.training.arguments import Setting, TrainerArguments, TrainerCall
from torchlint.semantic.training.compiled import Compilation, Frame
from torchlint.semantic.training.destination import End
from torchlint.semantic.training.escapes import GraphUse
from torchlint.semantic.training.evaluations import Evaluation
from torchlint.semantic.training.flaggedevaluations import FlaggedEvaluation
from torchlint.semantic.training.hostsyncs import Cause, HostSync
from torchlint.semantic.training.invariance import Invariance
from torchlint.semantic.training.layers import Layer, LayerPair
from torchlint.semantic.training.lineage import Ancestry
from torchlint.semantic.training.moves import Move
from torchlint.semantic.training.networks import Unheld
from torchlint.semantic.training.optimizers import Optimizer
from torchlint.semantic.training.processes import Wrapped
from torchlint.semantic.training.program import Start
from torchlint.semantic.training.readings import Form, Reading
from torchlint.semantic.training.scaling import ScalerCall
from torchlint.semantic.training.schedulers import Schedule, SchedulerStep
from torchlint.semantic.training.steps import Step
from torchlint.semantic.training.updates import Act, Update
from torchlint.semantic.training.waits import Kept, Wait
from torchlint.semantic.values.arrays import Array
from torchlint.semantic.values.attention import Attention, ScoreMask
from torchlint.semantic.values.calls import CallSite
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import TENSORS, Kind
from torchlint.semantic.values.options import Option
from torchlint.semantic.values.values import State, Value

__all__ = [
    "ASSIGNED",
    "CALLERS",
    "COLLATORS",
    "TENSORS",
    "Accumulation",
    "Accumulator",
    "Act",
    "Adding",
    "Addition",
    "Ancestry",
    "Array",
    "Attention",
    "Binding",
    "CallSite",
    "Cause",
    "Compilation",
    "Duty",
    "Edit",
    "Edits",
    "End",
    "Evaluation",
    "Factory",
    "Finding",
    "Fix",
    "FlaggedEvaluation",
    "Form",
    "Frame",
    "Frequency",
    "Grad",
    "GradientAccumulation",
    "GraphUse",
    "HostSync",
    "How",
    "Impact",
    "Invariance",
    "ItemCode",
    "Kept",
    "Kind",
    "Layer",
    "LayerPair",
    "Layout",
    "Loader",
    "Loop",
    "Mode",
    "Move",
    "Note",
    "Optimizer",
    "Option",
    "Part",
    "PassFunction",
    "Per",
    "Rate",
    "Reading",
    "Role",
    "Rule",
    "Safety",
    "ScalerCall",
    "Schedule",
    "SchedulerStep",
    "ScoreMask",
    "Script",
    "Setting",
    "Span",
    "Start",
    "State",
    "Step",
    "StuckMode",
    "TrainerArguments",
    "TrainerCall",
    "Trait",
    "Traits",
    "Unheld",
    "Update",
    "Value",
    "Wait",
    "Wrapped",
    "container_of",
    "index_of",
    "is_none",
    "last_line",
    "last_word",
    "lines_of",
    "method_of",
    "operands_of",
    "receiver_of",
    "root_of",
    "word_of",
]
