"""Constants that are made once on the host and copied to the device again in every step."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Invariance, Kind, Move, Script
from torchlint_rules.tl210_constant_rebuilt_each_step.arrays import is_set_at_start


def moved_constants(script: Script) -> Iterator[Move]:
    """Yield the copies of a tensor that no step changes, in a loop over batches."""
    for site in script.tree.in_file(script.calls.of_methods("to", "cuda")):
        move = script.program.moves.move(site.node)
        if move is None or not isinstance(_source(script, move), (cst.Name, cst.Attribute)):
            continue
        if _is_made_once(script, move) and script.loops.each_step(site.node):
            if not script.loops.is_in_round(site.node):
                yield move


def _is_made_once(script: Script, move: Move) -> bool:
    """Return whether all that a copy can be of are host tensors that no step makes or changes."""
    if script.kind(move.moved) is not Kind.TENSOR or not _is_kept(script, move):
        return False
    if any(each.is_registered for each in script.functions.bindings(move.moved)):
        return False
    if _source(script, move) is not move.moved:
        return True
    origin = script.values.origins.of(move.moved)
    return (
        origin.complete
        and bool(origin.values)
        and all(_is_host_tensor(script, each) for each in origin.values)
    )


def _is_kept(script: Script, move: Move) -> bool:
    """Return whether no pass changes a tensor, or only the start of its object sets it."""
    loop, source = script.loops.batch_loop(move.call), _source(script, move)
    if loop is not None:
        return script.loops.invariances.of(source, loop.node) is Invariance.INVARIANT
    return is_set_at_start(script, source)


def _source(script: Script, move: Move) -> cst.BaseExpression:
    """Return what a copy is of: a tensor, or the array whose memory that shares."""
    made = script.scopes.only(move.moved).assigned or move.moved
    if not isinstance(made, cst.Call) or script.name(made.func) != "torch.from_numpy":
        return move.moved
    return made.args[0].value if len(made.args) == 1 else move.moved


def _is_host_tensor(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a tensor is made on the host, outside of the steps."""
    return (
        script.kind(value) is Kind.TENSOR
        and (script.values.placement.on_host(value) or _is_for_host(script, value))
        and not script.loops.each_step(value)
    )


def _is_for_host(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a call names the host as the device of its tensor."""
    return isinstance(value, cst.Call) and script.calls.at(value).argument("device").equals("cpu")
