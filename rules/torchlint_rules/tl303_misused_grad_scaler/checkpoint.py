"""Checkpoints that keep the state of an optimizer but not that of its scaler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Kind, Script, receiver_of
from torchlint_rules.tl303_misused_grad_scaler.scaler import Misuse

_OPTIMIZERS: Final = frozenset(("optimizer", "optimiser", "optim"))
_NETWORKS: Final = frozenset(("model", "net", "network"))


def left_out(script: Script) -> Iterator[Misuse]:
    """Yield the first checkpoint that leaves a scaler out, with the others beside it."""
    scaling = script.optimizers.scaling
    always = any(map(scaling.is_always_on, scaling.makers))
    if not (always and scaling.of("scale", "step")) or scaling.escapes:
        return
    if scaling.of("state_dict") or any(
        script.code(site.receiver).endswith("scaler")
        for site in script.calls.of_methods("state_dict")
    ):
        return
    scaler = script.code(scaling.of("scale", "step")[0].scaler)
    found = [
        checkpoint
        for site in script.calls.of_methods("state_dict")
        if _is(script, site.receiver, Kind.OPTIMIZER, _OPTIMIZERS)
        and not script.program.purpose.is_test(site.node)
        and (checkpoint := _checkpoint(script, site.node)) is not None
    ]
    message = (
        f"this checkpoint keeps the optimizer but not `{scaler}`, so a resumed run "
        f"starts at the first scale again: add `{scaler}.state_dict()`"
    )
    for first in found[:1]:
        yield Misuse(first, message, impact="low", beside=tuple(found[1:]))


def _checkpoint(script: Script, call: cst.Call) -> cst.CSTNode | None:
    """Return the dictionary or call that holds the state of an optimizer and of a network."""
    ends = (cst.Dict, cst.Call, cst.Tuple, cst.List, cst.BaseSmallStatement)
    holder = next((each for each in script.tree.ancestors(call) if isinstance(each, ends)), None)
    if holder is None or isinstance(holder, cst.BaseSmallStatement):
        return None
    keeps = any(
        (owner := receiver_of(other, "state_dict")) is not None
        and _is(script, owner, Kind.MODULE, _NETWORKS)
        for other in script.tree.within(holder, cst.Call)
    )
    named = isinstance(holder, cst.Dict) and any(
        isinstance(element, cst.DictElement)
        and isinstance(element.key, cst.SimpleString)
        and _NETWORKS & set(script.names.words(element.key.value))
        for element in holder.elements
    )
    return holder if keeps or named else None


def _is(script: Script, node: cst.BaseExpression, wanted: Kind, names: frozenset[str]) -> bool:
    """Return whether a value is of a kind, judged by its name if that is unknown."""
    kind = script.kind(node)
    named = names & set(script.names.words(script.code(node)))
    return kind is wanted or (kind is Kind.UNKNOWN and bool(named))
