"""Waits of a pass: everything in a batch loop that forces a sync in each of its passes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from torchlint.api import Frequency, Loop, Script
from torchlint_rules.shared.loglines import log_lines


def staying(script: Script, loop: Loop, gone: Collection[cst.CSTNode]) -> list[cst.CSTNode]:
    """Return what still forces a sync in each pass of a loop when some nodes are gone from it.

    A fix that leaves one of these gains nothing: the pass waits there instead.
    """
    found = {id(each): each for each in _waits(script, loop)}
    return sorted(
        (
            each
            for each in found.values()
            if not any(script.tree.inside(each, node) for node in gone)
        ),
        key=script.tree.order,
    )


def _waits(script: Script, loop: Loop) -> Iterator[cst.CSTNode]:
    """Yield what waits in each pass of a loop, and what its log lines show."""
    for region in script.readings.waits.code_of_pass(loop.node):
        for sync in script.readings.syncs.within(region.body):
            if region is loop.node and script.loops.batch_loop(sync.node) is not loop:
                continue
            if script.loops.frequency(sync.node, within=region) is Frequency.EVERY_PASS:
                yield sync.node
    yield from (each.shown.place for each in script.once(log_lines) if each.loop is loop)
