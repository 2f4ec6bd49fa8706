"""TL412: a discriminator's step that computes gradients for the generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Act, CallSite, Finding, Fix, Kind, Rule, Script, State, Update

_HOOKS: Final = (
    "retain_grad",
    "register_hook",
    "register_backward_hook",
    "register_full_backward_hook",
)


class UndetachedGenerator(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what a backward pass sends into a network that its optimizer does not hold."""
        passes = list(script.modules.lineage.backward_passes())
        for backward in passes:
            calls = script.modules.lineage.of_loss(backward).calls
            behind = [each for each in calls if script.tree.is_own(each[0])]
            made = _stepped(script, backward) if behind else frozenset()
            if not made or _is_differentiated(script, backward):
                continue
            others = {
                call
                for each in passes
                if each is not backward
                for call, _ in script.modules.lineage.of_loss(each).calls
            }
            for call, judge in behind:
                held = script.modules.holders(judge)
                apart = (script.modules.held_alone(each, judge) for each in made.difference(held))
                if call in others or made.isdisjoint(held) or not all(apart):
                    continue
                yield from self._sent(script, backward, call, judge, made)

    def _sent(
        self,
        script: Script,
        backward: cst.Call,
        call: cst.Call,
        judge: cst.BaseExpression,
        made: frozenset[cst.Call],
    ) -> Iterator[Finding]:
        slopes = list(script.calls.of("torch.autograd.grad"))
        for arg in call.args:
            if any(_may_be_one_of(script, arg.value, slope.given("inputs")) for slope in slopes):
                continue
            behind = script.modules.lineage.of(arg.value)
            holders = (script.modules.holders(each) for _, each in behind.calls)
            if behind.asks or not all(map(made.isdisjoint, holders)):
                continue
            for _, maker in behind.calls:
                held = script.modules.holders(maker)
                apart = all(script.modules.held_alone(each, maker) for each in made)
                if not held or not apart or script.modules.may_be_frozen(maker):
                    continue
                message = (
                    f"the backward pass runs on through `{script.tree.brief(maker)}`, whose "
                    "parameters this step does not change: pass "
                    f"`{script.tree.brief(arg.value)}.detach()` to `{script.tree.brief(judge)}`"
                )
                fix = None
                if (
                    not any(_computes(script, call, each) for each in slopes)
                    and script.kind(arg.value) is Kind.TENSOR
                ):
                    fix = _fix(script, arg.value, _doubt(script, backward, judge, maker))
                yield Finding(self.code, script.span(arg.value), message, fix)
                break


def _is_differentiated(script: Script, backward: cst.Call) -> bool:
    """Return whether a backward pass records its own graph, to be differentiated in turn."""
    kept = script.calls.at(backward).argument("create_graph")
    return kept.state is not State.ABSENT and not kept.equals(False)


def _may_be_one_of(script: Script, value: cst.BaseExpression, given: cst.Arg | None) -> bool:
    """Return whether a value may be an argument of `autograd.grad`, or in its list."""
    if given is None:
        return True
    listed = given.value
    parts = (
        [each.value for each in listed.elements]
        if isinstance(listed, (cst.List, cst.Tuple))
        else [listed]
    )
    mine = script.values.origins.of(value)
    for part in parts:
        if isinstance(part, cst.Attribute) and script.kind(part.value) is Kind.MODULE:
            continue
        theirs = script.values.origins.of(part)
        if not theirs.complete or not mine.complete:
            return True
        if any(one is other for one in mine.values for other in theirs.values):
            return True
    return False


def _computes(script: Script, call: cst.Call, slope: CallSite) -> bool:
    """Return whether `autograd.grad` differentiates what a call computed."""
    given = slope.given("outputs")
    return given is None or any(
        each is call for each, _ in script.modules.lineage.of(given.value).calls
    )


def _fix(script: Script, value: cst.BaseExpression, doubt: str) -> Fix:
    span, title = script.span(value), "Detach what the other network made"
    plain = script.tree.is_closed(value)
    edits = script.edits.insert(span.end, ".detach()" if plain else ").detach()")
    if not plain:
        edits = (*script.edits.insert(span.start, "("), *edits)
    return Fix.unsafe(title, edits, because=doubt) if doubt else Fix.exact(title, edits)


def _doubt(
    script: Script, backward: cst.Call, judge: cst.BaseExpression, maker: cst.BaseExpression
) -> str:
    """Return what may change if a backward pass no longer reaches a network; empty if nothing."""
    named = script.tree.brief(maker)
    for network in (maker, judge):
        if not script.values.visibility.shows(network):
            return f"what `{script.tree.brief(network)}` computes is not visible here"
    if next(script.calls.of_methods(*_HOOKS), None) is not None:
        return "a hook looks at gradients as they are computed"
    loop = script.loops.batch_loop(backward)
    region = loop.node.body if loop is not None else script.scopes.region(backward)
    read = (each for each in script.tree.within(region, cst.Attribute) if each.attr.value == "grad")
    if any(script.name(each) is None for each in read):
        return "this code reads gradients itself"
    acts = script.optimizers.updates.within(region)
    at = next(index for index, each in enumerate(acts) if each.call is backward)
    cleared: list[Update] = []
    for each in (*acts[at + 1 :], *acts[:at]):
        if each.optimizer is None or not _is_about(script, each.optimizer, maker):
            continue
        if each.act is Act.CLEAR:
            cleared.append(each)
        elif any(_runs_before(script, clear, each) for clear in cleared):
            return ""
        elif each.act is Act.STEP:
            return f"today the step of `{named}` adds these gradients to its own"
    return f"nothing shows that these gradients of `{named}` are cleared before its own step"


def _is_about(script: Script, holder: cst.BaseExpression, network: cst.BaseExpression) -> bool:
    """Return whether an optimizer holds a network, or is that network itself."""
    if script.kind(holder) is Kind.MODULE:
        return script.modules.same(holder, network)
    held = script.modules.holders(network)
    return any(each in held for each in script.values.origins.of(holder).values)


def _runs_before(script: Script, clear: Update, step: Update) -> bool:
    """Return whether every pass that steps has cleared before."""
    around = script.scopes.blocks(step.at)
    return all(each in around for each in script.scopes.blocks(clear.at))


def _stepped(script: Script, backward: cst.Call) -> frozenset[cst.Call]:
    """Return what makes the optimizers that step after a backward pass, before the next one."""
    loop = script.loops.batch_loop(backward)
    region = loop.node.body if loop is not None else script.scopes.region(backward)
    acts = [each for each in script.optimizers.updates.within(region) if each.at is each.call]
    later = [
        each
        for each in acts
        if script.tree.order(each.call) > script.tree.order(backward)
        and each.act in (Act.STEP, Act.BACKWARD)
    ]
    while later and later[0].act is Act.BACKWARD:
        later.pop(0)
    found: set[cst.CSTNode] = set()
    for each in later:
        if each.act is Act.BACKWARD or each.optimizer is None:
            break
        found.update(script.values.origins.of(each.optimizer).values)
    calls = frozenset(each for each in found if isinstance(each, cst.Call))
    return calls if len(calls) == len(found) else frozenset()
