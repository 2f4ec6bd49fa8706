"""TL221: a metric over all batches so far that each batch computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Frequency, Rate, Rule, Script, State, receiver_of

_CLASS: Final = re.compile(r"torchmetrics\.(?:\w+\.)*[A-Z]\w*")
_PLAIN: Final = re.compile(
    r"torchmetrics\.(?:\w+\.)*(?:Binary|Multiclass|Multilabel)?(?:Accuracy|Precision|Recall|"
    r"F1Score|FBetaScore|Specificity|StatScores|ConfusionMatrix|JaccardIndex|CohenKappa|"
    r"MatthewsCorrCoef|HammingDistance|AUROC|AveragePrecision|MeanSquaredError|"
    r"MeanAbsoluteError|R2Score|MeanMetric|SumMetric|MaxMetric|MinMetric)"
)
"""The metrics whose `update` and whose call add the same to their state, without random numbers."""
_GROWING: Final = re.compile(
    r"(?:Binary|Multiclass|Multilabel)?(?:AUROC|ROC|AveragePrecision|PrecisionRecallCurve)|"
    r"SpearmanCorrCoef|KendallRankCorrCoef|CatMetric|ROUGEScore|BERTScore|MeanAveragePrecision"
)
"""The metrics that keep what every batch gave them."""
_MOVES: Final = frozenset("to cuda cpu clone".split())
_PLACES: Final = (cst.Name, cst.Attribute, cst.Call)
_LOGS: Final = frozenset({"log", "log_dict"})


class MetricComputedEveryStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every metric whose value over all batches each batch computes."""
        for site in script.calls.of_methods("compute"):
            call = site.node
            name = _metric(script, site.receiver)
            if name and _each_batch(script, call) and not _is_reset(script, call):
                more = (
                    ": it goes over everything kept so far, so each batch takes longer"
                    if _GROWING.fullmatch(name.rpartition(".")[2])
                    else ""
                )
                message = (
                    f"`{script.tree.brief(call)}` computes the value over all batches so far in "
                    "every "
                    f"batch{more}; call `update` for each batch, and `compute` once after the last"
                )
                yield Finding(self.code, script.span(call), message)
        for line in script.tree.all(cst.Expr):
            metric = line.value.func if isinstance(line.value, cst.Call) else None
            if metric is None or not _PLAIN.fullmatch(_metric(script, metric)):
                continue
            if not _each_batch(script, line) or _takes_value(script, metric):
                continue
            message = (
                f"`{script.code(metric)}(…)` also computes the value of this batch, which is not "
                f"used: call `{script.code(metric)}.update(…)`"
            )
            edits = script.edits.replace(metric, f"{script.code(metric)}.update")
            fix = Fix.exact("Only update the metric", edits)
            yield Finding(self.code, script.span(line.value), message, fix)


def _metric(script: Script, node: cst.BaseExpression) -> str:
    """Return the class of torchmetrics that an object is of, empty for any other object."""
    if not isinstance(node, (cst.Name, cst.Attribute, cst.Call)):
        return ""
    origin = script.values.origins.of(node)
    names = set()
    for value in origin.values:
        made = value
        while (moved := receiver_of(made, *_MOVES)) is not None:
            made = moved
        names.add(script.name(made.func) or "" if isinstance(made, cst.Call) else "")
    name = names.pop() if len(names) == 1 and origin.complete else ""
    return name if _CLASS.fullmatch(name) else ""


def _each_batch(script: Script, node: cst.CSTNode) -> bool:
    """Return whether every batch of a loop, or of a framework's method, runs a node."""
    if script.loops.frequency(node) is not Frequency.EVERY_PASS:
        return False
    loop, function = script.loops.batch_loop(node), script.scopes.function(node)
    if loop is not None or function is None:
        return loop is not None and not script.loops.is_round(loop)
    rate = script.loops.rate(function)
    if rate is not None:
        return rate in (Rate.STEP, Rate.EVALUATION_STEP)
    callers = script.functions.callers(function)
    return bool(callers) and all(script.answer(_each_batch, call, False) for call in callers)


def _is_reset(script: Script, call: cst.Call) -> bool:
    """Return whether the code around a call starts the metric again for each batch."""
    metric, loop = script.code(script.calls.at(call).receiver), script.loops.batch_loop(call)
    return any(
        script.code(each.receiver) == metric
        and script.loops.batch_loop(each.node) is loop
        and script.scopes.function(each.node) is script.scopes.function(call)
        for each in script.calls.of_methods("reset")
    )


def _takes_value(script: Script, metric: cst.BaseExpression) -> bool:
    """Return whether a metric is, or may be, logged with the value of each batch."""
    made = _made(script, metric)
    for site in script.calls.of_methods(*_LOGS):
        call = site.node
        given = [arg for arg in call.args if _mentions(script, arg.value, made)]
        if not given:
            continue
        if site.has_splat:
            return True
        on_step = site.argument("on_step")
        if on_step.equals(False):
            continue
        function = script.scopes.function(call)
        rate = script.loops.rate(function) if function is not None else None
        if rate is not Rate.EVALUATION_STEP or on_step.state is not State.ABSENT:
            return True
    return False


def _mentions(script: Script, node: cst.BaseExpression, made: frozenset[int]) -> bool:
    """Return whether a part of an expression may be one of the metrics that some calls made."""
    nodes = (node, *(part for kind in _PLACES for part in script.tree.within(node, kind)))
    return not all(made.isdisjoint(_made(script, each)) for each in nodes)


def _made(script: Script, node: cst.BaseExpression) -> frozenset[int]:
    return frozenset(id(value) for value in script.values.origins.of(node).values)
