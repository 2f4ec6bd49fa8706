"""TL407: a graph that is kept after its only backward pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Binding, Finding, Fix, How, Kind, Role, Rule, Script, receiver_of

_BECAUSE: Final = (
    "fails with an error where code that is not visible here goes backward a second time"
)
_NO_GRAPH: Final = (
    Kind.MODULE,
    Kind.OPTIMIZER,
    Kind.SCHEDULER,
    Kind.SCALER,
    Kind.LOADER,
    Kind.DATASET,
    Kind.SAMPLER,
    Kind.CRITERION,
    Kind.NUMBER,
    Kind.STRING,
    Kind.DEVICE,
    Kind.NDARRAY,
    Kind.NOTHING,
)
_STATE: Final = re.compile(r"(?:init_)?(?:hidden|state|memory|cell)s?")
_DATA: Final = frozenset("batch batches sample samples transition transitions rollout".split())
"""Words of what holds recorded data, whose states have no graph (`batch.state`)."""
_ASKING: Final = ("requires_grad", "requires_grad_")
_PARAMETER: Final = "Parameter"
_BACKWARDS: Final = ("backward", "manual_backward", "autograd")


class RetainedGraph(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every retained graph through which its loop runs backward once."""
        for site in script.calls.of_methods("backward"):
            call = site.node
            given = site.given("retain_graph")
            if given is None or not script.values.value_of(given.value).equals(True):
                continue
            if not script.loops.is_step(call) or not _is_used_once(script, call):
                continue
            loss = script.tree.brief(site.receiver)
            message = (
                f"the graph of `{loss}` stays in memory after the only backward pass through it: "
                "drop `retain_graph=True`"
            )
            fix = None
            if given.keyword is not None:
                edits = script.edits.without_argument(call, given)
                fix = Fix.unsafe("Drop retain_graph=True", edits, because=_BECAUSE)
            yield Finding(self.code, script.span(given), message, fix)


def _is_used_once(script: Script, call: cst.Call) -> bool:
    """Return whether each iteration around a backward pass certainly builds its own graph."""
    places = _places(script, call)
    if places is None or _keeps_state(script):
        return False
    loop, region = places
    others = (
        each
        for each in script.tree.within(loop, cst.Call)
        if each is not call and not _comes_after(script, call, each)
    )
    if any(_goes_backward(script, ran) for each in others for ran in _run(script, each, call)):
        return False
    if not script.loops.runs_module(region.body) or _networks_remember(script):
        return False
    inside = region if region is loop else region.body
    return all(
        _is_fresh(script, name, inside) for name in script.tree.within(region.body, cst.Name)
    ) and all(
        _is_fresh_attribute(script, each, inside)
        for each in script.tree.within(region.body, cst.Attribute)
    )


def _places(
    script: Script, call: cst.Call
) -> tuple[cst.For | cst.While, cst.For | cst.While | cst.FunctionDef] | None:
    """Return the loop that goes backward, and the function for it that builds the graph, if any."""
    around = next(script.loops.around(call), None)
    if around is not None:
        return around.node, around.node
    function = script.scopes.function(call)
    if function is None or _stores(script, function):
        return None
    for loop in script.loops.of(Role.TRAIN_BATCH):
        if function in script.readings.waits.code_of_pass(loop.node):
            return loop.node, function
    return None


def _stores(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a function stores something in an attribute, perhaps with its graph."""
    targets = script.tree.within(function.body, cst.AssignTarget)
    return any(isinstance(target.target, cst.Attribute) for target in targets)


def _keeps_state(script: Script) -> bool:
    """Return whether an object of this file may carry a state with its graph (`net.hidden`)."""
    return any(
        _STATE.fullmatch(each.attr.value) is not None
        and script.tree.is_own(each)
        and not (
            isinstance(each.value, cst.Name)
            and _DATA.intersection(script.names.words(each.value.value))
            and isinstance(script.tree.parent(each), cst.Arg)
        )
        for each in script.tree.all(cst.Attribute)
    )


def _comes_after(script: Script, call: cst.Call, other: cst.Call) -> bool:
    """Return whether each iteration of a loop makes a call after another one of the same loop."""
    loop = next(script.loops.around(call), None)
    return (
        loop is not None
        and next(script.loops.around(other), None) is loop
        and script.scopes.blocks(call)[0] is loop.node.body
        and script.tree.order(other) < script.tree.order(call)
    )


def _run(script: Script, call: cst.Call, besides: cst.Call) -> Iterator[cst.Call]:
    """Yield a call, and those in functions that it runs but for one."""
    yield call
    for callee in script.functions.callees(call):
        for body in script.functions.reached(callee):
            yield from (each for each in script.tree.within(body, cst.Call) if each is not besides)


def _goes_backward(script: Script, call: cst.Call) -> bool:
    """Return whether a call runs backward through a graph."""
    if (script.name(call.func) or "").startswith("torch.autograd."):
        return True
    return script.calls.at(call).method in _BACKWARDS


def _networks_remember(script: Script) -> bool:
    """Return whether a forward of this file stores a result in an attribute."""
    return any(
        isinstance(target.target, cst.Attribute)
        for function in script.tree.all(cst.FunctionDef)
        if function.name.value == "forward"
        for target in script.tree.within(function, cst.AssignTarget)
    )


def _is_fresh(script: Script, name: cst.Name, loop: cst.CSTNode) -> bool:
    """Return whether the value of a name in a loop has no graph of an earlier iteration."""
    if not script.scopes.reads(name) or _is_base(script, name) or _only_grows(script, name, loop):
        return True
    order = script.tree.order(name)
    return all(
        binding.at < order
        if script.tree.inside(binding.node, loop)
        else _has_no_graph(script, name, binding)
        for binding in script.scopes.reaching(name)
    ) or script.kind(name) in (Kind.NUMBER, Kind.NOTHING)


def _is_fresh_attribute(script: Script, read: cst.Attribute, loop: cst.CSTNode) -> bool:
    """Return whether what an object keeps has no graph of an earlier iteration."""
    if _is_base(script, read) or isinstance(script.tree.parent(read), cst.AssignTarget):
        return True
    kept = (each for each in script.functions.attribute(read) if each.value is not None)
    return all(
        script.tree.inside(each.node, loop) or _has_no_graph(script, read, each) for each in kept
    )


def _only_grows(script: Script, name: cst.Name, loop: cst.CSTNode) -> bool:
    """Return whether a loop only adds to a name (`total += loss.detach()`)."""
    return all(
        isinstance(script.tree.parent(each), cst.AugAssign)
        for each in script.tree.within(loop, cst.Name)
        if each.value == name.value
    )


def _is_base(script: Script, name: cst.Name | cst.Attribute) -> bool:
    """Return whether a name is only called or read for an attribute."""
    holder = script.tree.parent(name)
    if isinstance(holder, cst.Attribute):
        return True
    return isinstance(holder, cst.Call) and holder.func is name


def _has_no_graph(script: Script, name: cst.Name | cst.Attribute, binding: Binding) -> bool:
    """Return whether a value from before the loop has no graph."""
    if binding.how in (How.IMPORT, How.FUNCTION, How.CLASS):
        return True
    if binding.how is How.LOOP or script.kind(name) in _NO_GRAPH:
        return True
    if isinstance(binding.node, cst.Param):
        given = script.functions.given(binding.node)
        return bool(given) and all(_is_clean(script, each) for each in given)
    return binding.value is not None and _is_clean(script, binding.value)


def _may_be_leaf(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value may be made of a tensor that itself asks for gradients.

    Parameters of networks are read as attributes.
    """
    if any(map(script.functions.mentions, _ASKING)):
        return True
    made = script.functions.mentions(_PARAMETER)
    if any(script.scopes.class_of(each) is None for each in made):
        return True
    called = {call.func for call in script.tree.within(value, cst.Call)}
    return bool(made) and any(
        each not in called and script.name(each) is None
        for each in script.tree.within(value, cst.Attribute)
    )


def _is_clean(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value is certainly computed without a network or a leaf with gradients."""
    if script.kind(value) in _NO_GRAPH:
        return True
    if _may_be_leaf(script, value):
        return False
    for call in script.tree.within(value, cst.Call):
        callee = script.functions.callee(call)
        handed = [receiver_of(call), *(arg.value for arg in call.args)]
        if script.loops.module_call(call) is not None or any(
            each is not None and script.kind(each) is Kind.MODULE for each in handed
        ):
            return False
        if callee is not None and script.loops.runs_module(callee.body):
            return False
    return all(
        binding.how in (How.IMPORT, How.FUNCTION, How.CLASS, How.LOOP)
        or (binding.value is not None and script.answer(_is_clean, binding.value, False))
        for name in script.tree.within(value, cst.Name)
        if not _is_base(script, name)
        for binding in script.scopes.reaching(name)
    )
