"""Arrays of random numbers that NumPy draws in every step, for the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Script, method_of, receiver_of
from torchlint_rules.shared.arraydraws import draws_array

_OLD: Final = frozenset(
    "FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ByteTensor".split()
)
"""The old constructors that both `torch` and `torch.cuda` have."""
TYPES: Final = _OLD | {"Tensor"}
"""The old constructors of torch."""
_TAKING: Final = TYPES | {"from_numpy", "tensor", "as_tensor"}
_DRAWS: Final = frozenset("normal uniform rand randn random randint standard_normal".split())
_SAME: Final = frozenset("astype reshape".split())


def drawn_array(script: Script, call: cst.Call) -> CallSite | None:
    """Return the call of NumPy that draws the numbers of which torch makes a tensor."""
    module, _, last = (script.name(call.func) or "").rpartition(".")
    takes = (module == "torch" and last in _TAKING) or is_chosen(script, call)
    return _draw(script, call.args[0].value) if takes and call.args else None


def chosen_constructors(script: Script) -> Iterator[CallSite]:
    """Yield the calls of what is `torch.cuda.FloatTensor` where there is a GPU."""
    for call in script.tree.all(cst.Call) if script.tree.mentions(*_OLD) else ():
        if is_chosen(script, call):
            yield script.calls.at(call)


def is_chosen(script: Script, call: cst.Call) -> bool:
    """Return whether a call makes a tensor on the GPU by an old constructor, if there is one."""
    if not isinstance(call.func, (cst.Name, cst.Attribute)) or not call.args:
        return False
    values = script.values.origins.of(call.func).values
    named = [(script.name(each) or "").rpartition(".") for each in values]
    return any(module == "torch.cuda" for module, _, _ in named) and all(
        module in ("torch", "torch.cuda") and last in TYPES for module, _, last in named
    )


def _draw(script: Script, node: cst.BaseExpression) -> CallSite | None:
    """Return the call of NumPy that draws an array, behind a cast."""
    if not isinstance(node, cst.Call):
        return None
    module, _, last = (script.name(node.func) or "").rpartition(".")
    if module == "numpy.random":
        site = script.calls.at(node)
        return site if last in _DRAWS and draws_array(site) else None
    inner = receiver_of(node) if method_of(node) in _SAME else None
    return _draw(script, inner) if inner is not None else None
