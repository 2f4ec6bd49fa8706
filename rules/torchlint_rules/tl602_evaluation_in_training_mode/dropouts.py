"""Dropout and batch norm that no mode of a network switches, since each call makes new ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Edits, Script, State, last_word

_ATTENTION: Final = "torch.nn.functional.scaled_dot_product_attention"
FUNCTIONAL: Final = {
    "Dropout": "dropout", "Dropout1d": "dropout1d", "Dropout2d": "dropout2d",
    "Dropout3d": "dropout3d", "AlphaDropout": "alpha_dropout",
    "FeatureAlphaDropout": "feature_alpha_dropout",
}  # fmt: skip
_NORMS: Final = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
_FUNCTIONS: Final = tuple(f"torch.nn.functional.{name}" for name in FUNCTIONAL.values())
_LAYERS: Final = tuple(f"torch.nn.{name}" for name in (*FUNCTIONAL, *_NORMS))
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
        owner = _network(script, site)
        method = script.scopes.function(site.node)
        if owner is not None and method is not None:
            found = _dropout(script, site, owner, method.params.params[0].name.value)
            if found is not None:
                yield found


def passing(script: Script) -> Iterator[tuple[cst.ClassDef, CallSite]]:
    """Yield the layers in training mode that networks make in each call, with their classes."""
    for site in script.tree.in_file(script.calls.of(*_LAYERS)):
        owner = _network(script, site)
        if owner is None or script.modules.passing.applied_to(site.node) is None:
            continue
        rate = site.given("p", 0) if last_word(site.node.func) in FUNCTIONAL else None
        if rate is None or not (
            site.argument("p", 0).literal == 0 or _is_chosen(script, rate.value)
        ):
            yield owner, site


def functional(script: Script, site: CallSite) -> Edits | None:
    """Replace a layer that is made and called by the function that asks for the mode."""
    call = script.tree.parent(site.node)
    method = script.scopes.function(site.node)
    if not isinstance(call, cst.Call) or call.func is not site.node or len(call.args) != 1:
        return None
    by_place = [arg for arg in site.node.args if arg.keyword is None]
    if call.args[0].keyword is not None or call.args[0].star or len(by_place) > 1:
        return None  # the second parameter of the function is another one
    found = script.edits.importing("torch.nn.functional", alias="F", at=site.node)
    if found is None or method is None or site.has_splat or script.tree.comments(call):
        return None
    name = FUNCTIONAL[last_word(site.node.func)]
    given = ", ".join(script.code(arg).rstrip(", ") for arg in (*call.args, *site.node.args))
    mode = f"{method.params.params[0].name.value}.training"
    return (*found[1], *script.edits.replace(call, f"{found[0]}.{name}({given}, training={mode})"))


def _network(script: Script, site: CallSite) -> cst.ClassDef | None:
    """Return the class of the network that makes a call and does not ask whether it trains."""
    method = script.scopes.function(site.node)
    owner = script.modules.passing.network(site.node)
    if owner is None or method is None or script.modules.passing.runs_once(site.node):
        return None
    if _asks_for_mode(script, method):
        return None
    return owner if _ALWAYS.isdisjoint(script.names.words(owner.name.value)) else None


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
