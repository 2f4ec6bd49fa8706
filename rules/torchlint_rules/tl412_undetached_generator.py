"""TL412: a discriminator's step that computes gradients for the generator."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Act, Finding, Rule, Script


class UndetachedGenerator(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what a backward pass sends into a network that its optimizer does not hold."""
        if script.mentions("autograd.grad", "create_graph"):
            return
        passes = list(script.lineage.backward_passes())
        for backward in passes:
            optimizer = _stepped(script, backward)
            if optimizer is None:
                continue
            behind = script.lineage.of(backward.func).calls
            others = {
                call
                for each in passes
                if each is not backward
                for call, _ in script.lineage.of(each.func).calls
            }
            for call, judge in behind:
                if call in others or optimizer not in script.networks.holders(judge):
                    continue
                yield from self._sent(script, call, judge, optimizer)

    def _sent(
        self, script: Script, call: cst.Call, judge: cst.BaseExpression, optimizer: cst.Call
    ) -> Iterator[Finding]:
        for arg in call.args:
            for _, maker in script.lineage.of(arg.value).calls:
                held = script.networks.holders(maker)
                apart = script.networks.held_alone(optimizer, maker)
                if not held or not apart or script.networks.may_be_frozen(maker):
                    continue
                message = (
                    f"the backward pass runs on through `{script.brief(maker)}`, whose parameters "
                    f"this step does not change: give `{script.brief(judge)}` "
                    f"`{script.brief(arg.value)}.detach()`"
                )
                yield Finding(self.code, script.span(arg.value), message)
                break


def _stepped(script: Script, backward: cst.Call) -> cst.Call | None:
    """Return the one optimizer that steps after a backward pass and before the next one."""
    loop = script.batch_loop(backward)
    region = loop.node.body if loop is not None else script.region(backward)
    acts = [each for each in script.updates.within(region) if each.at is each.call]
    later = [
        each
        for each in acts
        if script.tree.order(each.call) > script.tree.order(backward)
        and each.act in (Act.STEP, Act.BACKWARD)
    ]
    while later and later[0].act is Act.BACKWARD:
        later.pop(0)
    stepped: set[cst.BaseExpression] = set()
    for each in later:
        if each.act is Act.BACKWARD or each.optimizer is None:
            break
        stepped.update(script.origins.of(each.optimizer).values)
    made = next(iter(stepped), None)
    return made if isinstance(made, cst.Call) and len(stepped) == 1 else None
