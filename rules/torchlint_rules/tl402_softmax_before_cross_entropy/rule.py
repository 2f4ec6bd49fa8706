"""TL402: a loss that expects logits but gets probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    ASSIGNED,
    Binding,
    Edit,
    Edits,
    Finding,
    Fix,
    Grad,
    Impact,
    Kind,
    Note,
    Rule,
    Script,
    Span,
    method_of,
    receiver_of,
)
from torchlint_rules.tl402_softmax_before_cross_entropy.activations import (
    METHODS,
    MOVES,
    PASSING,
    Activation,
    ends,
    maker,
)

_FUNCTIONS: Final = {
    "torch.nn.functional.cross_entropy": "ce", "torch.nn.functional.nll_loss": "nll",
    "torch.nn.functional.binary_cross_entropy": "bce",
    "torch.nn.functional.binary_cross_entropy_with_logits": "logits",
    "torch.nn.functional.kl_div": "kl",
}  # fmt: skip
_CRITERIA: Final = {
    "torch.nn.CrossEntropyLoss": "ce", "torch.nn.NLLLoss": "nll", "torch.nn.BCELoss": "bce",
    "torch.nn.BCEWithLogitsLoss": "logits", "torch.nn.KLDivLoss": "kl",
}  # fmt: skip
_TAKES: Final = {
    ("ce", "softmax"): "`{loss}` applies softmax itself: a second one, `{place}`, changes the loss "
    "and flattens its gradients; pass the logits",
    ("ce", "log_softmax"): "`{loss}` applies log_softmax itself: `{place}` is computed for "
    "nothing; pass the logits",
    ("logits", "sigmoid"): "`{loss}` applies sigmoid itself: a second one, `{place}`, changes the "
    "loss and flattens its gradients; pass the logits",
    ("bce", "sigmoid"): "`{place}` before `{loss}` saturates, and fails under autocast on CUDA: "
    "pass logits to `{better}`",
    **dict.fromkeys(
        (("nll", "softmax"), ("kl", "softmax")),
        "`{loss}` takes log-probabilities: use log_softmax instead of `{place}`",
    ),
    **dict.fromkeys(
        (("nll", "log(softmax)"), ("kl", "log(softmax)")),
        "`{place}` is infinite where the softmax rounds to zero: use log_softmax",
    ),
}
_LOGARITHMIC: Final = ("nll", "kl")
"""The losses that take log-probabilities."""
_WRONG: Final = "the loss changes: until now it was computed from probabilities"
_ROUNDS: Final = "the loss rounds differently, and no longer saturates"


class Loss(NamedTuple):
    """A call of a loss."""

    kind: str
    node: cst.Call
    given: cst.BaseExpression


class SoftmaxBeforeCrossEntropy(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every activation at the end of a loss's input that should not be there."""
        text = script.tree.source.text
        if "oftmax" not in text and "igmoid" not in text:
            return
        seen: set[int] = set()
        for loss in _losses(script):
            found = ends(script, loss.given, (), ASSIGNED)
            for each in found:
                template = _TAKES.get((loss.kind, each.kind))
                if template is None or id(each.node) in seen or _is_of_numbers(script, each.node):
                    continue
                seen.add(id(each.node))
                yield self._finding(script, loss, each, template)

    def _finding(
        self, script: Script, loss: Loss, activation: Activation, template: str
    ) -> Finding:
        name, func = script.code(loss.node.func), activation.node.func
        place = method_of(activation.node) if script.name(func) is None else ""
        functional = script.name(loss.node.func) is not None
        better = "binary_cross_entropy_with_logits" if functional else "BCEWithLogitsLoss"
        message = template.format(loss=name, place=place or script.code(func), better=better)
        fix: Fix | None = None
        notes: tuple[Note, ...] = ()
        if activation.node is loss.given:
            edits = _without(script, loss, activation)
            because = _WRONG if "changes" in template or loss.kind in _LOGARITHMIC else _ROUNDS
            fix = Fix.unsafe("Pass the logits", edits, because=because) if edits else None
        else:
            notes = (Note(script.span(loss.node), "the loss that gets it"),)
        off = script.values.gradients.grad(loss.node) is Grad.OFF
        inside = loss.kind == "bce" and activation.node is not loss.given
        mild = off or (inside and _is_generative(script, loss))
        impact: Impact | None = "low" if mild else None
        return Finding(self.code, script.span(activation.node), message, fix, notes, impact)


def _is_of_numbers(script: Script, activation: cst.Call) -> bool:
    """Return whether an activation gets numbers that are written out, as in a lesson."""
    made = script.values.value_of(activation.args[0].value).node if activation.args else None
    listed = isinstance(made, cst.Call) and script.name(made.func) == "torch.tensor"
    return listed and isinstance(cst.ensure_type(made, cst.Call).args[0].value, cst.List)


def _losses(script: Script) -> Iterator[Loss]:
    """Yield the calls of losses that take logits or probabilities."""
    made = next(script.calls.of(*_CRITERIA), None) is not None
    named = [site.node for site in script.calls.of(*_FUNCTIONS)]
    for call in script.tree.all(cst.Call) if made else named:
        kind = _loss(script, call)
        given = script.calls.at(call).given("input", 0) if kind else None
        picks = kind == "nll" and script.values.reductions.word(call) == "none"
        if given is not None and not picks:
            yield Loss(kind, call, given.value)


def _loss(script: Script, call: cst.Call) -> str:
    """Return which loss a call computes, if any."""
    name = script.name(call.func)
    if name is not None:
        return _FUNCTIONS.get(name, "")
    if not isinstance(call.func, (cst.Name, cst.Attribute, cst.Call)):
        return ""
    made = maker(script, call.func) if call.args else None
    loss = _CRITERIA.get(script.name(made.func) or "", "") if made is not None else ""
    return loss if loss and script.kind(call.func) is Kind.CRITERION else ""


# -- what the sigmoid of a network is for -----------------------------------------


def _is_generative(script: Script, loss: Loss) -> bool:
    """Return whether a network has a rival in its step, or is to give back what it got."""
    calls = [call for call, _ in script.modules.lineage.of(loss.given).calls]
    steps = script.loops.steps
    own = (step for step in steps.all if any(call in step.forwards for call in calls))
    if not all(map(steps.is_alone, own)):
        return True
    target = script.calls.at(loss.node).given("target", 1)
    wanted = _sources(script, target.value) if target is not None else set()
    fed = (arg.value for call in calls for arg in call.args)
    return any(not wanted.isdisjoint(_sources(script, each)) for each in fed)


def _sources(script: Script, node: cst.BaseExpression) -> set[Binding]:
    """Return the assignments to the name that a value is a view of, also those of callers."""
    while (owner := receiver_of(node, *PASSING, *MOVES)) is not None:
        node = owner
    found = set(script.scopes.reaching(node)) if isinstance(node, cst.Name) else set()
    for parameter in [each.node for each in found if isinstance(each.node, cst.Param)]:
        for given in script.functions.given(parameter):
            found |= script.answer(_sources, given, set())
    return found


# -- the fix ---------------------------------------------------------------------


def _without(script: Script, loss: Loss, activation: Activation) -> Edits | None:
    """Remove or replace an activation in the call of a loss."""
    if loss.kind in _LOGARITHMIC:
        return _logarithmic(script, activation)
    if loss.kind == "bce" and script.name(loss.node.func) is None:
        return _of_criterion(script, loss)
    edits = _taken_out(script, activation.node)
    if loss.kind != "bce" or edits is None:
        return edits
    renamed = script.edits.renamed(loss.node, "binary_cross_entropy_with_logits")
    return (*renamed, *edits) if renamed is not None else None


def _of_criterion(script: Script, loss: Loss) -> Edits | None:
    """Make a criterion expect logits if its only inputs are sigmoids in its calls."""
    made = maker(script, loss.node.func)
    edits = script.edits.renamed(made, "BCEWithLogitsLoss") if made is not None else None
    if edits is None or made is loss.node.func:
        return None
    for each in _losses(script):
        if maker(script, each.node.func) is not made:
            continue
        ended = ends(script, each.given, (), ASSIGNED)
        own = len(ended) == 1 and ended[0].kind == "sigmoid" and ended[0].node is each.given
        taken = _taken_out(script, ended[0].node) if own else None
        if taken is None:
            return None
        edits = (*edits, *taken)
    return edits


def _taken_out(script: Script, call: cst.Call) -> Edits | None:
    """Keep only the operand of an activation."""
    operand = _operand(script, call)
    imports = script.edits.without_imports(call.func) if operand is not None else None
    if operand is None or imports is None:
        return None
    whole, inner = script.span(call), script.span(operand)
    text = script.tree.source.text
    if "#" in text[whole.start : inner.start] + text[inner.end : whole.end]:
        return None
    return (
        Edit(Span(whole.start, inner.start), ""),
        Edit(Span(inner.end, whole.end), ""),
        *imports,
    )


def _operand(script: Script, call: cst.Call) -> cst.BaseExpression | None:
    """Return the operand of an activation."""
    owner = receiver_of(call, *METHODS, "log")
    if owner is not None and script.name(call.func) is None and maker(script, call.func) is None:
        return owner
    given = script.calls.at(call).given("input", 0)
    return given.value if given is not None else None


def _logarithmic(script: Script, activation: Activation) -> Edits | None:
    """Replace a softmax, or the logarithm of one, by a log_softmax."""
    call = activation.node
    edits: Edits = ()
    if activation.kind == "log(softmax)":
        taken, inner = _taken_out(script, call), _operand(script, call)
        if taken is None or not isinstance(inner, cst.Call):
            return None
        call, edits = inner, taken
    renamed = script.edits.renamed(call, "log_softmax") if method_of(call) == "softmax" else None
    return (*edits, *renamed) if renamed is not None else None
