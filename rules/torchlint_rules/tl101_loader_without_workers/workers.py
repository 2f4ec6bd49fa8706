"""Loaders without workers: which have a reason, and what workers would change."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.api import Loader, Script, Trait, Traits
from torchlint_rules.shared.reasons import says_why

_MAPPING: Final = ("numpy.memmap", "numpy.lib.format.open_memmap")
_OF_WORKERS: Final = re.compile(r"worker|multi-?process|paralleli", re.IGNORECASE)
GUARD: Final = '`if __name__ == "__main__":`'


def keeps_on_device(script: Script, loader: Loader, traits: Traits) -> bool:
    """Return whether a dataset has its tensors on the device: no loop moves a batch there.

    The dataset gets the device, or is made out of sight and trains a network on an accelerator.
    """
    if loader.dataset is None or script.loaders.batches.are_sent(loader):
        return False
    if script.loaders.datasets.is_told_device(loader.dataset):
        return True
    return (
        Trait.UNSEEN in traits
        and script.program.devices.can_use_accelerator
        and bool(loader.passes)
        and all(script.loops.owner(place) == "none" for place in loader.passes)
    )


def doubt(
    script: Script, made: cst.Call, dataset: cst.BaseExpression | None, traits: Traits
) -> str:
    """Return why workers may change what the script computes, empty if they do not."""
    if Trait.RANDOM in traits:
        word = traits[Trait.RANDOM]
        return f"`{word}` draws random numbers, and workers have random streams of their own"
    if Trait.ONCE in traits:
        return f"each worker would make its own `{traits[Trait.ONCE]}` when it reads an item"
    if Trait.ITERABLE in traits:
        return "workers hand out the shards of an iterable dataset in turns: another order"
    if Trait.LOCAL in traits:
        word = traits[Trait.LOCAL]
        return f"{word} cannot be pickled for workers on Windows, macOS and Python 3.14"
    unseen = _unseen(script, dataset, traits)
    if unseen:
        return (
            f"{unseen} is not visible here: it may draw random numbers, or hold an open file, "
            "which workers do not share"
        )
    if script.source.is_notebook:
        return "on Windows and macOS workers cannot import the classes that a notebook defines"
    if not script.loops.guard.protects(made):
        return f"the script that uses this needs {GUARD} around its training"
    return ""


def _unseen(script: Script, dataset: cst.BaseExpression | None, traits: Traits) -> str:
    """Return the name of an unknown part of a loader's dataset."""
    found = script.loaders.provenance.unseen_source(dataset) if dataset is not None else ""
    if not found and Trait.UNSEEN in traits:
        found = f"`{' '.join(traits[Trait.UNSEEN].split())}`"
    return found


def in_shell(script: Script) -> bool:
    """Return whether a file uses the IPython shell that it runs in."""
    return bool(script.tree.spelled("get_ipython"))


def runs_unguarded(script: Script, loader: Loader) -> bool:
    """Return whether importing the file would start a loop over a loader."""
    places = [*loader.passes, *loader.receivers]
    if not places:
        return script.loops.guard.at_import(loader.node) and not script.loops.guard.guards()
    return any(script.loops.guard.at_import(place) for place in places)


def is_explained(script: Script, loader: Loader) -> bool:
    """Return whether a comment says why there are no workers, or 0 is written for mapped files.

    It stands in the statement of `num_workers=0`, or of the name given for it, or is about workers
    there or right above.
    """
    given = loader.given("num_workers")
    named = given.value if given is not None else None
    if isinstance(named, cst.Integer) and loader.dataset is not None:
        owners = script.loaders.datasets.classes(loader.dataset)
        calls = [call for owner in owners for call in script.tree.within(owner, cst.Call)]
        if any(script.name(call.func) in _MAPPING for call in calls):
            return True
    bound = script.scopes.reaching(named)
    return says_why(script, loader.node, _OF_WORKERS, stated=given is not None) or any(
        says_why(script, each.node, _OF_WORKERS) for each in bound
    )
