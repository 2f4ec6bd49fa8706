"""Waits of a pass: everything in a batch loop that forces a sync in each of its passes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import libcst as cst

from torchlint.api import TENSORS, Frequency, Kind, Loop, Script
from torchlint_rules.shared.graphbreaks import operands
from torchlint_rules.shared.loglines import log_lines

Holder = cst.If | cst.While | cst.Assert | cst.IfExp
_ASKS: Final = (
    "math.isnan", "math.isinf", "math.isfinite", "builtins.max", "builtins.min",
)  # fmt: skip
_SYNCS: Final = "torch.cuda.synchronize"


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


def tested_tensors(script: Script, holder: Holder) -> Iterator[cst.BaseExpression]:
    """Yield the parts of a test for which the host must know a tensor of the device."""
    for part in operands(holder.test):
        if not _compares_text(part) and script.kind(part) in TENSORS:
            if not script.values.placement.on_host(part):
                yield part


def _compares_text(part: cst.BaseExpression) -> bool:
    return isinstance(part, cst.Comparison) and any(
        isinstance(each.comparator, cst.SimpleString) for each in part.comparisons
    )


def _waits(script: Script, loop: Loop) -> Iterator[cst.CSTNode]:
    """Yield the reads, the tests, the log lines and the barriers of each pass of a loop."""
    for region in script.readings.waits.code_of_pass(loop):
        for node in _of_region(script, region.body):
            if region is loop.node and script.loops.batch_loop(node) is not loop:
                continue
            if script.loops.frequency(node, within=region) is Frequency.EVERY_PASS:
                yield node
    yield from (each.shown.place for each in script.once(log_lines) if each.loop is loop)


def _of_region(script: Script, body: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield what waits in a region, however often it runs."""
    for reading in script.readings.within(body):
        if not script.values.placement.on_host(reading.tensor):
            yield reading.node
    holders: list[Holder] = [
        *script.tree.within(body, cst.If),
        *script.tree.within(body, cst.While),
        *script.tree.within(body, cst.Assert),
        *script.tree.within(body, cst.IfExp),
    ]
    for holder in holders:
        yield from tested_tensors(script, holder)
    for site in script.calls.of(_SYNCS, *_ASKS):
        if script.tree.inside(site.node, body) and (
            site.name == _SYNCS or _asks_tensor(script, site.node)
        ):
            yield site.node
    for site in script.calls.of_methods("item"):
        # what nothing in sight shows to be a tensor may be one
        if script.tree.inside(site.node, body) and script.kind(site.receiver) is Kind.UNKNOWN:
            yield site.node


def _asks_tensor(script: Script, call: cst.Call) -> bool:
    """Return whether a function that compares or tests on the host gets a tensor of the device."""
    return any(
        script.kind(arg.value) in TENSORS and not script.values.placement.on_host(arg.value)
        for arg in call.args
    )
