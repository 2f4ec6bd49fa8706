"""Classes that step parameter by parameter as an optimizer of torch does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Script, method_of

_NAMES: Final = "SGD Adam AdamW Adagrad Adadelta Adamax RMSprop NAdam RAdam".split()
_SINCE: Final = (1, 10)
"""The first version of torch that has all of these optimizers."""
_BASES: Final = frozenset({"torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"})
_OWN: Final = frozenset("my own custom simple basic naive plain vanilla manual optimizer".split())
"""Words of a name that say nothing about the rule of the update."""


def own_optimizers(script: Script) -> Iterator[tuple[cst.ClassDef, cst.For, str]]:
    """Yield the optimizers that torch has, too, each with its loop and what torch calls it."""
    for owner in script.tree.all(cst.ClassDef):
        known = not _BASES.isdisjoint(script.functions.bases(owner))
        name = _torch_name(script, owner.name.value) if known else None
        if name is None or not script.program.target.has(_SINCE):
            continue
        loops = script.tree.within(owner.body, cst.For)
        loop = next((each for each in loops if script.values.key(each.iter) == "params"), None)
        if loop is None or updates_lists(script, owner):
            continue
        words = (method_of(call) or "" for call in script.tree.within(loop.body, cst.Call))
        changed = any(True for _ in script.tree.within(loop.body, cst.AugAssign))
        if changed or any(word.endswith("_") for word in words):
            yield owner, loop, name


def _torch_name(script: Script, name: str) -> str | None:
    """Return what torch calls the update that the name of a class says."""
    rest = name.lower()
    for word in _OWN.intersection(script.names.words(name)):
        rest = rest.replace(word, "", 1)
    return next((each for each in _NAMES if each.lower() == rest.strip("_")), None)


def updates_lists(script: Script, owner: cst.ClassDef) -> bool:
    """Return whether a class changes all tensors of a list in one call: `torch._foreach_add_`."""
    called = (script.name(call.func) or "" for call in script.tree.within(owner, cst.Call))
    return any(name.startswith("torch._foreach_") for name in called)
