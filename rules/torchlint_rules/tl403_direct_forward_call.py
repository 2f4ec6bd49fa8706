"""TL403: a call of a network that bypasses its hooks, or the wrapper that averages gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Grad, How, Kind, Rule, Script
from torchlint_rules.shared.directforwards import direct_forward

_WHAT: Final = "the network's hooks"
_BECAUSE: Final = "hooks that were skipped until now run"
_METHODS: Final = frozenset(
    "parameters named_parameters state_dict load_state_dict eval train zero_grad "
    "requires_grad_ apply modules children named_modules".split()
)
_LISTS: Final = ("torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential")
_PARALLEL: Final = "torch.nn.parallel.DistributedDataParallel"
_FORWARDS: Final = ("forward", "__call__")


class DirectForwardCall(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Report calls of the forward of networks with hooks, and of what a wrapper holds."""
        for site in script.calls.of_methods("forward"):
            call = site.node
            network = site.receiver
            if site.name is not None or not _is_network(script, network):
                continue
            if _is_own(script, call, network) or not script.values.call_extras.has(network):
                continue
            yield direct_forward(script, self.code, call, _WHAT, _BECAUSE)
        for call, wrapper in _past_wrappers(script):
            message = (
                f"this pass goes around `{wrapper}`, whose processes then never average its "
                f"gradients and train apart: call `{wrapper}` itself"
            )
            yield Finding(self.code, script.span(call), message, impact="high")


def _past_wrappers(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield calls that train a network inside DistributedDataParallel, and what holds it.

    The wrapper averages the gradients of a backward pass if one of its own calls comes before.
    """
    averaged = (site.node for site in script.calls.of("torch.distributed.all_reduce"))
    if any("grad" in script.code(call) for call in averaged):
        return
    for step in script.loops.steps.all:
        called = {script.code(call.func) for call in step.forwards}
        for call in step.forwards:
            if script.values.gradients.grad(call) is Grad.OFF:
                continue
            wrapper = _wrapper(script, call.func)
            if wrapper is not None and script.code(wrapper) not in called:
                yield call, script.code(wrapper)


def _wrapper(script: Script, network: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the DistributedDataParallel whose `module` a network is, None for others."""
    chosen = script.scopes.only(network).assigned or network
    if isinstance(chosen, cst.IfExp):
        inner = (each for each in (chosen.body, chosen.orelse) if _held_by(each) is not None)
        taken = next(inner, None)
        asks = isinstance(chosen.test, cst.Call) and any(
            script.name(arg.value) == _PARALLEL for arg in chosen.test.args[1:]
        )
        return _held_by(taken) if asks and taken is not None else None
    wrapper = _held_by(chosen)
    made = script.values.origins.of(wrapper).values if wrapper is not None else ()
    wraps = (isinstance(each, cst.Call) and script.name(each.func) == _PARALLEL for each in made)
    return wrapper if any(wraps) else None


def _held_by(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the `wrapper` of `wrapper.module`, None for anything else."""
    if isinstance(node, cst.Attribute) and node.attr.value == "module":
        return node.value
    return None


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
