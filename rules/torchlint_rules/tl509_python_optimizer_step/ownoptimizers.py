"""Classes that step parameter by parameter as an optimizer of torch does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Script, method_of

_SINCE: Final = {
    "sgd": ("SGD", (1, 0)), "adam": ("Adam", (1, 0)), "adamw": ("AdamW", (1, 2)),
    "adagrad": ("Adagrad", (1, 0)), "adadelta": ("Adadelta", (1, 0)), "adamax": ("Adamax", (1, 0)),
    "rmsprop": ("RMSprop", (1, 0)), "nadam": ("NAdam", (1, 10)), "radam": ("RAdam", (1, 10)),
}  # fmt: skip
"""The optimizers of torch by their names in lower case, with the first version of torch."""
_BASES: Final = frozenset({"torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"})
_OWN: Final = frozenset("my own custom simple basic naive plain vanilla manual optimizer".split())
"""Words of a name that say nothing about the rule of the update."""


def own_optimizers(script: Script) -> Iterator[tuple[cst.ClassDef, cst.For, str]]:
    """Yield the optimizers that torch has, too, each with its loop and what torch calls it."""
    for owner in script.tree.all(cst.ClassDef):
        if _BASES.isdisjoint(script.functions.bases(owner)):
            continue
        name, since = _SINCE.get(_rule_of(script, owner.name.value), ("", (0, 0)))
        if not name or not script.program.target.has(since) or "_foreach_" in script.code(owner):
            continue
        loop = next(filter(_over_group, script.tree.within(owner.body, cst.For)), None)
        if loop is not None and _changes_tensors(script, loop):
            yield owner, loop, name


def _rule_of(script: Script, name: str) -> str:
    """Return the rule of an update that the name of a class says, in lower case."""
    rest = name.lower()
    for word in script.names.words(name):
        rest = rest.replace(word, "", 1) if word in _OWN else rest
    return rest.strip("_")


def _over_group(loop: cst.For) -> bool:
    """Return whether a loop is over `group["params"]`."""
    iterated = loop.iter
    return (
        isinstance(iterated, cst.Subscript)
        and isinstance(index := iterated.slice[0].slice, cst.Index)
        and isinstance(index.value, cst.SimpleString)
        and index.value.evaluated_value == "params"
    )


def _changes_tensors(script: Script, loop: cst.For) -> bool:
    """Return whether a loop updates each parameter by itself."""
    called = (method_of(call) or "" for call in script.tree.within(loop.body, cst.Call))
    return any(word.endswith("_") for word in called) or any(
        isinstance(each.target, cst.Attribute) and each.target.attr.value == "data"
        for each in script.tree.within(loop.body, cst.AugAssign)
    )
