"""TL403: a direct call of a network's forward that bypasses its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, How, Kind, Rule, Script
from torchlint_rules.shared.directforwards import direct_forward

_WHAT: Final = "the network's hooks"
_BECAUSE: Final = "hooks that were skipped until now run"
_METHODS: Final = frozenset(
    "parameters named_parameters state_dict load_state_dict eval train zero_grad "
    "requires_grad_ apply modules children named_modules".split()
)
_LISTS: Final = ("torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential")
_FORWARDS: Final = ("forward", "__call__")


class DirectForwardCall(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Report calls of the forward of networks that have hooks."""
        for site in script.calls.of_methods("forward"):
            call = site.node
            network = site.receiver
            if site.name is not None or not _is_network(script, network):
                continue
            if _is_own(script, call, network) or not script.values.call_extras.has(network):
                continue
            yield direct_forward(script, self.code, call, _WHAT, _BECAUSE)


def _is_network(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether the file shows, not only by a name, that an expression is a network."""
    if isinstance(script.functions.definition(node), cst.ClassDef):
        return False
    if isinstance(node, cst.Call) and script.name(node.func) == "builtins.super":
        return False
    if script.functions.instance_of(node) is not None:
        return script.kind(node) is Kind.MODULE or _derives(script, node)
    made = script.values.value_of(node).node
    if isinstance(made, cst.Call) and script.name(made.func) is not None:
        if script.kind(made) is Kind.MODULE:
            return True
    if isinstance(node, (cst.Name, cst.Subscript)) and _is_member(script, node):
        return True
    return isinstance(node, (cst.Name, cst.Attribute)) and _is_treated_so(script, node)


def _is_member(script: Script, node: cst.Name | cst.Subscript) -> bool:
    """Return whether an expression is an item of a list of networks."""
    whole: cst.BaseExpression | None = node
    if isinstance(node, cst.Name):
        binding = script.scopes.only(node)
        if binding.how is not How.LOOP or binding.value is None:
            return False
        whole, _ = script.values.iteration.source(binding.value, binding.path)
    while isinstance(whole, cst.Subscript):
        whole = whole.value
    made = script.values.value_of(whole).node if whole is not None else None
    return isinstance(made, cst.Call) and script.name(made.func) in _LISTS


def _derives(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression is an instance of a class of modules."""
    owner = script.functions.instance_of(node)
    if owner is None:
        return False
    return any(
        base.rpartition(".")[2] in ("Module", "LightningModule")
        for base in script.functions.bases(owner)
    )


def _is_treated_so(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether the file reads an object's parameters, or similar."""
    text = script.code(node)
    return any(script.code(site.receiver) == text for site in script.calls.of_methods(*_METHODS))


def _is_own(script: Script, call: cst.Call, node: cst.BaseExpression) -> bool:
    """Return whether a class has its own `__call__`."""
    function = script.scopes.function(call)
    if function is None or not isinstance(node, cst.Name):
        return False
    if any((script.name(d.decorator) or "").startswith("torch.jit.") for d in function.decorators):
        return True
    return script.functions.is_self(node) and function.name.value in _FORWARDS
