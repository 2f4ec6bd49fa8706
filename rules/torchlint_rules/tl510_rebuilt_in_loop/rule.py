"""TL510: an optimizer, scheduler or loss module that a loop rebuilds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Script
from torchlint_rules.shared.rebuilding import (
    Rebuilt,
    hoisted,
    loss_loops,
    rebuilt,
    training_loops,
)

_OPTIMIZER: Final = re.compile(r"torch\.optim\.[A-Z]\w*")
_SCHEDULER: Final = re.compile(r"torch\.optim\.lr_scheduler\.[A-Z]\w*")
_LOSS: Final = re.compile(r"torch\.nn\.(?!AdaptiveLogSoftmaxWithLoss)\w*Loss")
_METRIC: Final = re.compile(r"torchmetrics\.(?!functional)(?:[a-z]\w*\.)*[A-Z]\w*")
_LOOPS: Final = {
    "loss": loss_loops,
    "metric": loss_loops,
    "optimizer": training_loops,
    "scheduler": training_loops,
}
_KEEPS_STATE: Final = "what was thrown away with each {} is kept: the updates are others"


class RebuiltInLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag objects that the iterations of training loops rebuild."""
        for site in script.calls.of(*filter(_noun, script.calls.called)):
            noun = _noun(site.name or "")
            found = rebuilt(script, site.node, script.once(_LOOPS[noun]))
            if found is None or (noun == "loss" and found.runs):
                continue
            if script.loops.measuring.is_measured(site.node):
                continue
            if noun == "metric" and found.often is not script.loops.batch_loop(site.node):
                continue
            edits = hoisted(script, found)
            title = f"Make the {noun} once, before the loop"
            fix = None
            if edits and noun == "loss":
                fix = _fix_of_loss(script, found, title, edits)
            elif edits and noun != "metric" and script.loops.owner(site.node) == "none":
                fix = Fix.unsafe(title, edits, because=_KEEPS_STATE.format(found.unit))
            yield Finding(self.code, script.span(site.node), _message(script, found, noun), fix)


def _fix_of_loss(script: Script, found: Rebuilt, title: str, edits: Edits) -> Fix:
    """Return the fix of a loss module: exact if nothing in the loop can change its arguments."""
    parts = [arg.value for arg in found.call.args]
    read = [each for part in parts for each in script.tree.within(part, cst.Attribute)]
    read = [each for each in read if not script.values.visibility.is_of_library(each)]
    if read and script.values.visibility.unseen_call(found.loop.node.body) is not None:
        because = f"code that is not visible here might set `{script.code(read[0])}` in the loop"
        return Fix.unsafe(title, edits, because=because)
    return Fix.exact(title, edits)


def _noun(name: str) -> str:
    if _METRIC.fullmatch(name):
        return "metric"
    if not name.startswith(("torch.nn.", "torch.optim.")):
        return ""
    if _LOSS.fullmatch(name):
        return "loss"
    if _SCHEDULER.fullmatch(name):
        return "scheduler"
    return "optimizer" if _OPTIMIZER.fullmatch(name) else ""


def _message(script: Script, found: Rebuilt, noun: str) -> str:
    kind = (script.name(found.call.func) or "").rpartition(".")[2]
    where = ""
    function = script.scopes.function(found.call)
    if found.runs and function is not None:
        where = f" in `{function.name.value}()`"
    cost = {
        "optimizer": "its momentum and averages start from nothing each time",
        "scheduler": "its schedule starts from the beginning, and the rate never falls",
        "loss": "it is the same module each time",
        "metric": "a module is built, and moved to the device, only to be thrown away",
    }[noun]
    return f"each {found.unit} rebuilds this `{kind}`{where}: {cost}; make it once before the loop"
