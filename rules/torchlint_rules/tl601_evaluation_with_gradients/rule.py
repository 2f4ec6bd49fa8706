"""TL601: an evaluation that records an autograd graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import libcst as cst

from torchlint.api import (
    Edit,
    Evaluation,
    Finding,
    Fix,
    FlaggedEvaluation,
    Grad,
    GraphUse,
    Impact,
    Kind,
    Rule,
    Script,
    Span,
)
from torchlint_rules.shared.nograd import ENTRIES, evaluation_fix, place_of, without_graph
from torchlint_rules.shared.wording import quoted
from torchlint_rules.tl601_evaluation_with_gradients.generations import generations
from torchlint_rules.tl601_evaluation_with_gradients.metricforwards import asides
from torchlint_rules.tl601_evaluation_with_gradients.predictions import actions, predictions

_REASON: Final = re.compile(r"#+\s*(?!with\b|@|if\b|torch\b).*\bno_grad\b")
"""A comment about the context that is missing, not one that holds it."""
_OTHERS: Final = "what it computes beside the network no longer records a graph either"


class EvaluationWithGradients(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every evaluation, and every metric of a training step, that records a graph."""
        for evaluation in script.evaluations.all:
            function, calls = evaluation.function, [each.call for each in evaluation.forwards]
            lacking = script.values.gradients.lacking(function, calls) if function else []
            if not any(map(script.tree.is_own, (evaluation.start, *lacking))):
                continue
            recording = [
                each
                for each in evaluation.forwards
                if (each.records is Grad.ON or lacking) and _learns(script, each.network)
            ]
            unknown = any(each.records is Grad.UNKNOWN for each in evaluation.forwards)
            if not recording or (unknown and not lacking):
                continue
            region = evaluation.body
            if _is_wanted(script, evaluation.node) or script.evaluations.needs_gradients(region):
                continue
            use = script.evaluations.graph_use(evaluation)
            if use is GraphUse.TRAINED:
                continue
            if use is GraphUse.ESCAPED and isinstance(evaluation.node, cst.FunctionDef):
                continue
            if lacking:
                purpose = "its result alone, as other calls under `no_grad` are"
                for call in lacking if use is GraphUse.DROPPED else ():
                    yield self._aside(script, call, purpose)
                continue
            names = list(dict.fromkeys(script.code(each.network) for each in recording))
            message = (
                f"{_subject(evaluation)} runs {quoted(names)} with gradients on: autograd keeps "
                f"every activation for a backward pass that never comes; "
            )
            fix = evaluation_fix(script, evaluation, use)
            both = _left_out(script, recording[0].call)
            if both is not None:
                taken = script.tree.brief(both.right)
                message += f"`and` enters `{taken}` alone: write a comma"
                fix = _entering_both(script, both, evaluation, fix)
            else:
                message += "use `torch.no_grad()`"
            if script.values.gradients.is_volatile(region):
                message += " (`volatile=True` has done nothing since torch 0.4)"
            place = place_of(script, evaluation) if both is None else script.span(both)
            yield Finding(self.code, place, message, fix)
        for each in script.evaluations.flagged.all:
            if script.tree.is_own(each.place) and script.evaluations.flagged.records(each):
                yield self._by_flag(script, each)
        covered: list[cst.CSTNode] = [each.node for each in script.evaluations.in_file]
        for loop, call in generations(script):
            covered.append(loop)
            yield from self._generation(script, loop, call)
        for call, purpose in asides(script):
            if call not in covered:
                covered.append(call)
                yield self._aside(script, call, purpose)
        for function, call in predictions(script, covered):
            yield from self._prediction(script, function, call)
        for call in actions(script, covered):
            yield self._aside(script, call, "an action only", "medium")

    def _by_flag(self, script: Script, found: FlaggedEvaluation) -> Finding:
        asked = script.code(found.branch.test)
        trains = asked if found.branch.outcome else f"not ({asked})"
        if found.function is None or not isinstance(found.place, cst.Call):
            message = (
                f"passes without `{trains}` evaluate with gradients on: autograd keeps every "
                f"activation for a backward pass that never comes; put the forward pass under "
                f"`torch.set_grad_enabled({trains})`"
            )
            assert isinstance(found.place, (cst.For, cst.While))
            place = script.tree.header(found.place)
        else:
            cure = f"set_grad_enabled({trains})" if found.also_trains else "no_grad()"
            message = (
                f"this call of `{found.function.name.value}` evaluates (`{asked}` is "
                f"{str(not found.branch.outcome).lower()}) with gradients on: autograd keeps "
                f"every activation for a backward pass that never comes; call it under "
                f"`torch.{cure}`"
            )
            place = script.span(found.place)
        return Finding(self.code, place, message)

    def _generation(
        self, script: Script, loop: cst.For | cst.While, call: cst.Call
    ) -> Iterator[Finding]:
        network = script.loops.module_call(call)
        if network is None or not _learns(script, network) or _is_wanted(script, loop):
            return
        message = (
            f"each pass runs `{script.code(network)}` with gradients on and uses no graph of its "
            "output; use `torch.no_grad()`"
        )
        function = script.scopes.function(loop)
        yields = function is not None and script.functions.is_generator(function)
        place = function if function is not None and yields else loop
        fix = without_graph(script, "Generate under `torch.no_grad()`", place, _OTHERS)
        yield Finding(self.code, script.tree.header(loop), message, fix, impact="medium")

    def _prediction(
        self, script: Script, function: cst.FunctionDef, call: cst.Call
    ) -> Iterator[Finding]:
        network = script.loops.module_call(call)
        if network is None or not _learns(script, network) or _is_wanted(script, call):
            return
        message = (
            f"`{function.name.value}` runs `{script.tree.brief(call.func)}` with gradients on, and "
            "nothing goes back through its graph; use `torch.no_grad()`"
        )
        fix = without_graph(script, "Decorate with `torch.no_grad()`", function, _OTHERS)
        yield Finding(self.code, script.span(call), message, fix, impact="medium")

    def _aside(
        self, script: Script, call: cst.Call, purpose: str, impact: Impact | None = None
    ) -> Finding:
        message = (
            f"`{script.code(call)}` is run for {purpose}, yet records a graph: put it "
            "under `torch.no_grad()`"
        )
        line, title = script.tree.statement(call), "Run it without gradients"
        alone = isinstance(line, cst.SimpleStatementLine)
        fix = without_graph(script, title, line) if alone else None
        return Finding(self.code, script.span(call), message, fix, impact=impact)


def _left_out(script: Script, forward: cst.Call) -> cst.BooleanOperation | None:
    """Return `no_grad() and other()` around a forward pass, of which `with` enters the other."""
    home = script.scopes.home(forward)
    outers = (each for each in script.tree.ancestors(forward) if isinstance(each, cst.With))
    managers = (item.item for each in outers for item in each.items)
    both = (each for each in managers if isinstance(each, cst.BooleanOperation))
    here = (each for each in both if script.scopes.home(each) is home)
    return next((each for each in here if _skips_no_grad(script, each)), None)


def _skips_no_grad(script: Script, both: cst.BooleanOperation) -> bool:
    joins = isinstance(both.operator, cst.And)
    return joins and script.values.gradients.mode(both.left) is Grad.OFF


def _entering_both(
    script: Script, both: cst.BooleanOperation, evaluation: Evaluation, fix: Fix | None
) -> Fix | None:
    """Return a fix that enters both context managers of `with one and other`, for another fix.

    It is as safe as that one if the block holds the evaluation alone.
    """
    between = Span(script.span(both.left).end, script.span(both.right).start)
    plain = script.tree.source.text[between.start : between.end].strip() == "and"
    if fix is None or both.lpar or not plain:
        return None
    edits, title = (Edit(between, ", "),), "Enter both"
    block = script.tree.nearest(both, (cst.With,))
    alone = isinstance(block, cst.With) and [*block.body.body] == [evaluation.node]
    return (
        replace(fix, title=title, edits=edits)
        if alone
        else Fix.unsafe(title, edits, because=_OTHERS)
    )


def _learns(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a network may have weights that ask for gradients."""
    modules = script.modules
    if script.kind(network) is Kind.CRITERION:
        return False
    frozen = modules.is_frozen(network) or modules.freezing.is_frozen_at(network)
    return not (modules.sizes.is_weightless(network) or frozen)


def _is_wanted(script: Script, node: cst.CSTNode) -> bool:
    """Return whether gradients are turned on around an evaluation, or a comment gives a reason."""
    return any(map(_REASON.match, script.tree.comments(node))) or any(
        script.values.gradients.mode(item.item) is Grad.ON
        for outer in script.tree.ancestors(node)
        if isinstance(outer, cst.With)
        for item in outer.items
    )


def _subject(evaluation: Evaluation) -> str:
    if evaluation.function is not None and evaluation.function.name.value not in ENTRIES:
        return f"`{evaluation.function.name.value}`"
    return "this evaluation"
