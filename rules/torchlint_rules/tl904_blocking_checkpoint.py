"""TL904: a step that waits until a checkpoint is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CALLERS, CallSite, Finding, Kind, Role, Rule, Script

_TORCH: Final = "torch.save"
_SHARDED: Final = (
    "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.save_state_dict",
    "torch.distributed.checkpoint.state_dict_saver.save",
)
_OFTEN: Final = 500
"""The number of steps up to which the wait for a whole checkpoint is worth a thread."""


class BlockingCheckpoint(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every checkpoint that is written while the training waits, again and again."""
        for site in script.calls.of(_TORCH, *_SHARDED):
            sharded = site.name != _TORCH
            if not sharded and not _holds_both(script, site):
                continue
            steps = _interval(script, site.node, CALLERS)
            if steps is None or (not sharded and not 1 < steps <= _OFTEN):
                continue
            often = f"every {steps} steps" if steps else "again and again"
            what = (
                "every process writes its shard"
                if sharded
                else ("the network and the optimizer's state are written")
            )
            message = (
                f"{often} the training waits while {what}: "
                "`torch.distributed.checkpoint.async_save` copies them and writes while the next "
                "steps run"
            )
            notes = script.loops.repetition.notes_on_callers(site.node)
            yield Finding(self.code, script.span(site.node), message, None, notes)


def _holds_both(script: Script, site: CallSite) -> bool:
    """Return whether a checkpoint has the states of a network and of its optimizer."""
    given = site.given("obj", 0)
    if given is None:
        return False
    value = script.values.value_of(given.value).node or given.value
    kinds = {
        script.kind(each.value)
        for each in script.tree.within(value, cst.Attribute)
        if each.attr.value == "state_dict"
    }
    return {Kind.MODULE, Kind.OPTIMIZER} <= kinds


def _interval(
    script: Script, node: cst.CSTNode, depth: int, count: int | None = None
) -> int | None:
    """Return after how many steps of a training a node runs again, 0 for an unknown number.

    None if it does not run under a count of steps; `count` is that of what the node calls.
    """
    counts = (_count(script, test) for test in script.tree.tests_around(node))
    count = next((each for each in counts if each is not None), count)
    loop = script.loops.batch_loop(node)
    if loop is not None:
        return count if loop.role is Role.TRAIN_BATCH else None
    function = script.scopes.function(node)
    callers = script.functions.callers(function) if function is not None and depth else ()
    found = (_interval(script, caller, depth - 1, count) for caller in callers)
    return next((each for each in found if each is not None), None)


def _count(script: Script, test: cst.BaseExpression) -> int | None:
    """Return the number in a test like `step % 200 == 0`, 0 if it is not known."""
    for division in script.tree.within(test, cst.BinaryOperation):
        if isinstance(division.operator, cst.Modulo):
            found = script.values.value_of(division.right).literal
            return found if type(found) is int else 0
    return None
