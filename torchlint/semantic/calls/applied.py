"""Applied: the `autograd.Function` in view that a call applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

if TYPE_CHECKING:
    from torchlint.semantic.calls.functions import Functions

STEPS: Final = ("forward", "setup_context", "backward")
"""The methods of an `autograd.Function` that a pass runs."""
_BASES: Final = frozenset({"torch.autograd.Function", "torch.autograd.function.Function"})


def is_applied(functions: Functions, owner: cst.ClassDef) -> bool:
    """Return whether a class is an `autograd.Function`."""
    return not _BASES.isdisjoint(functions.bases(owner))


def applied(functions: Functions, func: cst.BaseExpression) -> cst.ClassDef | None:
    """Return the class in view whose `autograd.Function` a call applies: `Round.apply(x)`."""
    made = functions.scopes.only(func).assigned or func
    if not isinstance(made, cst.Attribute) or made.attr.value != "apply":
        return None
    owner = functions.definition(made.value)
    return owner if isinstance(owner, cst.ClassDef) and is_applied(functions, owner) else None
