"""The one door for rules: everything that a rule may use."""

from torchlint.edit import Edit, Span
from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.rule import Rule
from torchlint.semantic.accumulators import Accumulation, Accumulator, Adding
from torchlint.semantic.datasets import Trait, Traits
from torchlint.semantic.gradient import Grad
from torchlint.semantic.heat import Heat
from torchlint.semantic.kind import Kind
from torchlint.semantic.layers import Layer, LayerPair
from torchlint.semantic.loops import Loop, Role
from torchlint.semantic.program import Entry, Total
from torchlint.semantic.readings import Form, Reading
from torchlint.semantic.rewrite import Edits
from torchlint.semantic.scopes import Binding, How
from torchlint.semantic.script import CallSite, Script
from torchlint.semantic.values import State, Value

__all__ = [
    "Accumulation",
    "Accumulator",
    "Adding",
    "Binding",
    "CallSite",
    "Edit",
    "Edits",
    "Entry",
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
    "Note",
    "Reading",
    "Role",
    "Rule",
    "Safety",
    "Script",
    "Span",
    "State",
    "Total",
    "Trait",
    "Traits",
    "Value",
]
