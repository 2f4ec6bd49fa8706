"""Functional dropout in a network that goes on in evaluation, since nothing asks for the mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Edits, Script, State

_FUNCTIONS: Final = tuple(
    f"torch.nn.functional.{name}"
    for name in (
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
    )
)  # fmt: skip
_ATTENTION: Final = "torch.nn.functional.scaled_dot_product_attention"
_ALWAYS: Final = frozenset("mc monte carlo bayes bayesian prenet uncertainty random".split())
"""Words in the names of networks that drop in evaluation on purpose."""


class Dropout(NamedTuple):
    """A call that drops in evaluation as well, and what it has to be given."""

    owner: cst.ClassDef
    node: cst.CSTNode
    cure: str
    edits: Edits


def dropouts(script: Script) -> Iterator[Dropout]:
    """Yield the functional dropouts of networks that no training mode switches."""
    for site in script.tree.in_file(script.calls.of(*_FUNCTIONS, _ATTENTION)):
        method = script.scopes.function(site.node)
        own = method.params.params[0] if method is not None and method.params.params else None
        owner = script.functions.owner_of_self(own) if own is not None else None
        if method is None or own is None or owner is None:
            continue
        if not _is_network(script, owner) or _asks_for_mode(script, method):
            continue
        if _ALWAYS.isdisjoint(script.names.words(owner.name.value)):
            found = _dropout(script, site, owner, own.name.value)
            if found is not None:
                yield found


def _dropout(script: Script, site: CallSite, owner: cst.ClassDef, own: str) -> Dropout | None:
    """Return the dropout of a call, None if it drops nothing or is told when to."""
    fused = site.name == _ATTENTION
    name, at = ("dropout_p", 4) if fused else ("p", 1)
    given = site.given(name, at)
    if site.has_splat or (given is None and fused):
        return None
    if given is not None and (
        site.argument(name, at).literal == 0 or _is_chosen(script, given.value)
    ):
        return None
    if fused and given is not None:
        text = f"{script.tree.operand(given.value)} if {own}.training else 0.0"
        edits = script.edits.replace(given.value, text)
        return Dropout(owner, given.value, f"dropout_p={text}", edits)
    if site.argument("training", 2).state is not State.ABSENT:
        return None
    text = f"{own}.training"
    edits = script.edits.with_keyword(site.node, "training", text)
    return Dropout(owner, site.node, f"training={text}", edits)


def _is_chosen(script: Script, rate: cst.BaseExpression) -> bool:
    """Return whether callers of a method choose how much it drops."""
    return any(each.parameter is not None for each in script.scopes.reaching(rate))


def _is_network(script: Script, owner: cst.ClassDef) -> bool:
    bases = (base.rpartition(".")[2] for base in script.functions.bases(owner))
    return any(each in ("Module", "LightningModule") for each in bases)


def _asks_for_mode(script: Script, method: cst.FunctionDef) -> bool:
    """Return whether a method, or one of its class that calls it, asks whether it trains."""
    owner = script.scopes.class_of(method)
    calling = (script.scopes.function(call) for call in script.functions.callers(method))
    beside = (each for each in calling if each and script.scopes.class_of(each) is owner)
    return any(
        word.startswith("train")
        for each in {method, *beside}
        for name in script.tree.words(each)
        for word in script.names.words(name)
    )
