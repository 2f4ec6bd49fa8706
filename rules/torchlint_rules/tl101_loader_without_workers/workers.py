"""Loaders without workers: which have a reason, and what workers would change."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.api import Loader, Script, Trait, Traits

_REASON: Final = re.compile(
    r"\b(?:windows|mac(?:os)?|mps|jupyter|notebook|debug\w*|pdb|fork\w*|spawn\w*|pickl\w*|lmdb|h5py|hdf5|"
    r"hang\w*|hung|freez\w*|froze\w*|stuck|deadlock\w*|crash\w*|error\w*|bugs?|leaks?|shm|"
    r"shared memory|single|main process|"
    r"multi-?process\w*|in.memory|already|because|since|avoid\w*|must|cannot|can't|don't|not?|"
    r"determin\w*|reproduc\w*|faster|slower|overhead|safe\w*|needed|required|otherwise|paralleli\w*|"
    r"important|rlds|tfds|disabled?|set \S+ to (?:0|zero))\b",
    re.IGNORECASE,
)
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
    unseen = script.loaders.provenance.unseen_source(dataset) if dataset is not None else ""
    if not unseen and Trait.UNSEEN in traits:
        unseen = f"`{' '.join(traits[Trait.UNSEEN].split())}`"
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
    return _says_why(script, loader.node, given is not None) or any(
        _says_why(script, each.node, True) for each in bound
    )


def _says_why(script: Script, node: cst.CSTNode, numbered: bool) -> bool:
    if not script.tree.is_own(node):
        return False
    line = script.tree.statement(node)
    span = script.span(node if isinstance(line, cst.BaseCompoundStatement) else line)
    first, last = (script.source.position(at).row for at in (span.start, span.end))
    said = [script.source.line(row).partition("#")[2] for row in range(first, last + 1)]
    found = [each for each in said if numbered or _OF_WORKERS.search(each)]
    above = first - 1
    while above > 0 and script.source.line(above).lstrip()[:1] in ("#", ""):
        found += filter(_OF_WORKERS.search, [script.source.line(above)])
        above -= 1
    return any(map(_REASON.search, found))
