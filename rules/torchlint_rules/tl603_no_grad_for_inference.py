"""TL603: `no_grad` where inference mode would do more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Evaluation,
    Finding,
    Fix,
    Grad,
    GraphUse,
    How,
    Kind,
    Rule,
    Script,
    method_of,
    receiver_of,
)

_PLAIN: Final = frozenset({Kind.NUMBER, Kind.STRING, Kind.NDARRAY, Kind.NOTHING, Kind.DEVICE})
_PURE: Final = frozenset(
    (
        "eval train to cpu cuda item detach format print write flush set_postfix set_description"
    ).split()
)
_CONVERSIONS: Final = frozenset("to cpu cuda xpu half bfloat16 float double type".split())
BECAUSE: Final = (
    "tensors made under inference mode can never again take part in what autograd records, nor be "
    "changed in place outside"
)


class NoGradForInference(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every `no_grad` around an evaluation that no tensor leaves."""
        told: set[int] = set()
        for evaluation in script.evaluations.all:
            found = _manager(script, evaluation)
            if found is None or id(found[0]) in told:
                continue
            manager, region = found
            told.add(id(manager))
            if not _may_infer(script, evaluation, region):
                continue
            names = ", ".join(f"`{script.code(each)}`" for each in evaluation.networks)
            message = (
                f"no tensor leaves this evaluation of {names}: `torch.inference_mode()` also "
                "skips the version counters and view tracking that `no_grad` keeps"
            )
            edits = _edits(script, manager)
            title = "Evaluate under `torch.inference_mode()`"
            fix = Fix.unsafe(title, edits, because=BECAUSE) if edits else None
            yield Finding(self.code, script.span(manager), message, fix)


def _manager(
    script: Script, evaluation: Evaluation
) -> tuple[cst.BaseExpression, cst.BaseSuite] | None:
    """Return the `no_grad` around all forward calls of an evaluation, and its region."""
    forwards = evaluation.forwards
    if any(each.records is not Grad.OFF for each in forwards):
        return None
    for at in script.tree.ancestors(forwards[0].call):
        if isinstance(at, cst.With):
            for item in at.items:
                if _is_no_grad(script, item.item):
                    inside = all(script.tree.inside(each.call, at) for each in forwards)
                    return (item.item, at.body) if inside else None
        elif isinstance(at, cst.FunctionDef):
            for decorator in at.decorators:
                if _is_no_grad(script, decorator.decorator):
                    return decorator.decorator, at.body
            return None
    return None


def _is_no_grad(script: Script, manager: cst.BaseExpression) -> bool:
    named = manager.func if isinstance(manager, cst.Call) else manager
    return script.name(named) == "torch.no_grad"


def _may_infer(script: Script, evaluation: Evaluation, region: cst.BaseSuite) -> bool:
    if any(map(script.modules.may_be_hooked, evaluation.networks)):
        return False
    if any(_keeps_tensors(script, network) for network in evaluation.networks):
        return False
    if any(_converts(script, call) for call in script.tree.within(region, cst.Call)):
        return False
    if (
        any(_escapes(script, region))
        or script.evaluations.graph_use(evaluation) is not GraphUse.DROPPED
    ):
        return False
    return script.evaluations.only_measures(region) and not script.evaluations.needs_gradients(
        region
    )


def _converts(script: Script, call: cst.Call) -> bool:
    """Return whether a call may replace a network's parameters: another device, another dtype."""
    network = receiver_of(call, *_CONVERSIONS)
    return network is not None and script.kind(network) is Kind.MODULE


def _keeps_tensors(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a network of this file sets its own attributes in the forward pass."""
    owner = script.functions.instance_of(network)
    if owner is None:
        return False
    return any(
        isinstance(assign.targets[0].target, cst.Attribute)
        and script.code(assign.targets[0].target).startswith("self.")
        and (function := script.scopes.function(assign)) is not None
        and function.name.value != "__init__"
        for assign in script.tree.within(owner, cst.Assign)
    )


# -- values that leave a region --------------------------------------------------------------


def _escapes(script: Script, region: cst.BaseSuite) -> Iterator[bool]:
    """Yield True for each value of a region that may be a tensor and is used outside."""
    home = script.scopes.function(region)
    whole = isinstance(script.tree.parent(region), cst.FunctionDef)
    targets = [
        each.target for line in script.tree.within(region, cst.Assign) for each in line.targets
    ]
    targets += [line.target for line in script.tree.within(region, cst.AugAssign)]
    for target in targets:
        if script.scopes.function(target) is home:
            yield from _leaves_by(script, target, region, whole)
    for call in script.tree.within(region, cst.Call):
        if script.scopes.function(call) is home:
            yield _keeps(script, call, region)
    if whole and home is not None:
        for value in script.functions.returns(home):
            yield not _is_plain(script, value)
    for line in script.tree.within(region, cst.Return):
        yield line.value is not None and not _is_plain(script, line.value)


def _leaves_by(
    script: Script, target: cst.BaseExpression, region: cst.BaseSuite, whole: bool
) -> Iterator[bool]:
    """Yield True for each assigned value that may be a tensor; plain values may leave."""
    if isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _leaves_by(script, element.value, region, whole)
    elif isinstance(target, cst.Name):
        binding = script.scopes.stored(target)
        if binding is None or whole or script.values.kinds.kind_of_binding(binding) in _PLAIN:
            return
        home = script.scopes.lookup(target.value, script.scopes.scope(target))
        yield home is None or any(
            not script.tree.inside(name, region) for name in script.scopes.uses(binding, home.node)
        )
    else:
        binding = script.scopes.stored(target)
        yield binding is None or script.values.kinds.kind_of_binding(binding) not in _PLAIN


def _keeps(script: Script, call: cst.Call, region: cst.BaseSuite) -> bool:
    """Return whether a call may store a tensor argument: a list, a meter, a memory bank."""
    func = call.func
    if isinstance(func, cst.Name) and _is_metric(script, func):
        return True
    owner = receiver_of(call)
    if owner is None or method_of(call) in _PURE or script.name(func) is not None:
        return False
    own = script.functions.callee(call)
    if own is not None:
        return _stores(script, own) and any(not _is_plain(script, arg.value) for arg in call.args)
    if script.kind(func) in (Kind.MODULE, Kind.CRITERION):
        return False
    if script.kind(owner) not in (Kind.UNKNOWN, Kind.SEQUENCE, Kind.MAPPING, Kind.DATASET):
        return False
    if isinstance(owner, cst.Name):
        bindings = script.scopes.reaching(owner)
        inside = [each for each in bindings if script.tree.inside(each.node, region)]
        if bindings and len(inside) == len(bindings):
            return False
        if any(each.how is How.IMPORT for each in bindings):
            return False
    return any(not _is_plain(script, arg.value) for arg in call.args)


def _is_metric(script: Script, name: cst.Name) -> bool:
    """Return whether a name is a torchmetrics metric, which accumulates its arguments."""
    made = script.values.value_of(name).node
    while isinstance(inner := receiver_of(made), cst.Call):
        made = inner
    maker = script.name(made.func) if isinstance(made, cst.Call) else None
    return maker is not None and maker.startswith("torchmetrics.")


def _stores(script: Script, method: cst.FunctionDef) -> bool:
    """Return whether a method sets attributes of its object."""
    targets = [
        each.target for line in script.tree.within(method, cst.Assign) for each in line.targets
    ]
    targets += [line.target for line in script.tree.within(method, cst.AugAssign)]
    return any(script.code(each).startswith("self.") for each in targets)


def _is_plain(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value certainly holds no tensor."""
    if isinstance(value, (cst.Tuple, cst.List)):
        return all(_is_plain(script, each.value) for each in value.elements)
    if isinstance(value, cst.Dict):
        return all(_is_plain(script, each.value) for each in value.elements)
    if isinstance(value, cst.BinaryOperation):
        return _is_plain(script, value.left) and _is_plain(script, value.right)
    plain = method_of(value) in ("item", "tolist", "numpy", "format")
    return plain or script.kind(value) in _PLAIN


# -- the fix --------------------------------------------------------------------------------


def _edits(script: Script, manager: cst.BaseExpression) -> Edits | None:
    named = manager.func if isinstance(manager, cst.Call) else manager
    if isinstance(named, cst.Attribute):
        base = script.code(named.value)
        return script.edits.replace(manager, f"{base}.inference_mode()")
    imported = script.edits.importing("torch", at=manager)
    gone = script.edits.without_imports(manager)
    if imported is None or gone is None:
        return None
    text = f"{imported[0]}.inference_mode()"
    return (*script.edits.replace(manager, text), *imported[1], *gone)
