"""The one door for rules: everything that a rule may use."""

from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.record import Record
from torchlint.regex import regex
from torchlint.rule import Rule
from torchlint.semantic.accumulators import Accumulation, Accumulator, Adding
from torchlint.semantic.arrays import Array
from torchlint.semantic.attention import Attention, ScoreMask
from torchlint.semantic.batching import Layout
from torchlint.semantic.datasets import Trait, Traits
from torchlint.semantic.evaluations import Evaluation
from torchlint.semantic.gradient import Grad
from torchlint.semantic.heat import Heat
from torchlint.semantic.items import ItemCode, Per
from torchlint.semantic.kind import Kind
from torchlint.semantic.layers import Layer, LayerPair
from torchlint.semantic.loops import Loop, Role
from torchlint.semantic.modes import Mode
from torchlint.semantic.moves import Move
from torchlint.semantic.outflow import Fate
from torchlint.semantic.parts import Part
from torchlint.semantic.processes import Wrapped
from torchlint.semantic.program import Start, Total
from torchlint.semantic.readings import Form, Reading
from torchlint.semantic.rewrite import Edits
from torchlint.semantic.rounds import Stuck
from torchlint.semantic.sameness import Sameness
from torchlint.semantic.scaling import ScalerCall
from torchlint.semantic.schedulers import Schedule, SchedulerStep
from torchlint.semantic.scopes import Binding, How
from torchlint.semantic.script import CallSite, Script
from torchlint.semantic.steps import Step
from torchlint.semantic.updates import Act, Update
from torchlint.semantic.values import State, Value
from torchlint.semantic.waits import End, Wait
from torchlint.semantic.windows import Window

__all__ = [
    "Accumulation",
    "Accumulator",
    "Act",
    "Adding",
    "Array",
    "Attention",
    "Binding",
    "CallSite",
    "Edit",
    "Edits",
    "End",
    "Evaluation",
    "Fate",
    "Finding",
    "Fix",
    "Form",
    "Grad",
    "Heat",
    "How",
    "ItemCode",
    "Kind",
    "Layer",
    "LayerPair",
    "Layout",
    "Loop",
    "Mode",
    "Move",
    "Note",
    "Part",
    "Per",
    "Reading",
    "Record",
    "Role",
    "Rule",
    "Safety",
    "Sameness",
    "ScalerCall",
    "Schedule",
    "SchedulerStep",
    "ScoreMask",
    "Script",
    "Span",
    "Start",
    "State",
    "Step",
    "Stuck",
    "Total",
    "Trait",
    "Traits",
    "Update",
    "Value",
    "Wait",
    "Window",
    "Wrapped",
    "regex",
]
