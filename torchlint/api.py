"""The one door for rules: everything that a rule may use."""

from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.rule import Rule
from torchlint.semantic.accumulators import Accumulation, Accumulator, Adding
from torchlint.semantic.arrays import Array
from torchlint.semantic.datasets import Trait, Traits
from torchlint.semantic.evaluations import Evaluation
from torchlint.semantic.gradient import Grad
from torchlint.semantic.heat import Heat
from torchlint.semantic.kind import Kind
from torchlint.semantic.layers import Layer, LayerPair
from torchlint.semantic.loops import Loop, Role
from torchlint.semantic.modes import Mode
from torchlint.semantic.outflow import Fate
from torchlint.semantic.program import Start, Total
from torchlint.semantic.readings import Form, Reading
from torchlint.semantic.rewrite import Edits
from torchlint.semantic.scopes import Binding, How
from torchlint.semantic.script import CallSite, Script
from torchlint.semantic.values import State, Value

__all__ = [
    "Accumulation",
    "Accumulator",
    "Adding",
    "Array",
    "Binding",
    "CallSite",
    "Edit",
    "Edits",
    "Evaluation",
    "Fate",
    "Finding",
    "Fix",
    "Form",
    "Grad",
    "Heat",
    "How",
    "Kind",
    "Layer",
    "LayerPair",
    "Loop",
    "Mode",
    "Note",
    "Reading",
    "Role",
    "Rule",
    "Safety",
    "Script",
    "Span",
    "Start",
    "State",
    "Total",
    "Trait",
    "Traits",
    "Value",
]
