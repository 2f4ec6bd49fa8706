"""Losses whose graph is cut before they go backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import ASSIGNED, Edits, Grad, Script, method_of

_COPIES: Final = frozenset({"torch.autograd.Variable", "torch.tensor"})
_ASKS: Final = ("requires_grad", "requires_grad_")


class CutLoss(NamedTuple):
    """Where a loss without a graph is made to ask for a gradient, and what goes backward."""

    node: cst.CSTNode
    backward: cst.BaseExpression
    message: str
    edits: Edits


def cut_losses(script: Script) -> Iterator[CutLoss]:
    """Yield the losses that ask for a gradient themselves, so that no network gets one."""
    seen: set[cst.CSTNode] = set()
    for loss in script.values.losses.values:
        if script.values.gradients.grad(loss) is Grad.OFF:
            continue
        asking = _asking(script, loss) if script.tree.is_own(loss) else ()
        for cut in (*_copies(script, loss), *asking):
            if cut.node not in seen:
                seen.add(cut.node)
                yield cut


def _network(script: Script, value: cst.BaseExpression) -> str | None:
    """Return the code of a network that a value was computed by, with a graph or without."""
    calls = script.modules.lineage.of(value, recorded=False).calls
    return script.code(calls[0][1]) if calls else None


def _copies(script: Script, loss: cst.BaseExpression) -> Iterator[CutLoss]:
    """Yield `Variable(loss, requires_grad=True)` and its like where nothing else goes backward."""
    for copy in _made(script, loss, ASSIGNED):
        if script.name(copy.func) not in _COPIES or not script.tree.is_own(copy):
            continue
        if not copy.args or not script.calls.at(copy).argument("requires_grad").equals(True):
            continue
        value = copy.args[0].value
        network = _network(script, value)
        if network is not None:
            has_graph = bool(script.modules.lineage.of(value).calls)
            edits = _unwrapped(script, copy, value) if has_graph else ()
            message = (
                f"`{script.tree.brief(copy)}` has no graph, so the backward pass ends at it and "
                f"`{network}` never learns: go backward from what the network returns"
            )
            yield CutLoss(copy, loss, message, edits)


def _made(script: Script, loss: cst.BaseExpression, depth: int) -> Iterator[cst.Call]:
    """Yield the calls that make a loss, also in the functions that return it."""
    for made in [each.value for each in script.scopes.reaching(loss)] or [loss]:
        if isinstance(made, cst.Call):
            yield made
            for callee in script.functions.callees(made) if depth else ():
                for value in script.functions.returns(callee):
                    yield from _made(script, value, depth - 1)


def _unwrapped(script: Script, copy: cst.Call, value: cst.BaseExpression) -> Edits:
    """Replace a copy by what it copies, without a line that gives a name to itself.

    Nothing is replaced where a comment would be lost.
    """
    line = script.tree.parent(copy)
    statement = script.tree.statement(copy)
    if script.tree.comments(copy):
        return ()
    if isinstance(line, cst.Assign) and script.edits.stands_alone(statement):
        if [script.code(each.target) for each in line.targets] == [script.code(value)]:
            return script.edits.drop(statement)
    return script.edits.replace(copy, script.tree.operand(value))


def _asking(script: Script, loss: cst.BaseExpression) -> Iterator[CutLoss]:
    """Yield what makes a loss of a network ask for a gradient, which it does if it has a graph."""
    if not isinstance(loss, cst.Name):
        return
    reaching = script.scopes.reaching(loss)
    for word in _ASKS:
        for asked in script.functions.attributes(word):
            if not isinstance(asked.value, cst.Name) or asked.value.value != loss.value:
                continue
            if script.scopes.reaching(asked.value) != reaching or not _sets(script, asked):
                continue
            network = _network(script, loss)
            if network is None or (word == "requires_grad_" and not _is_cut(script, loss)):
                continue
            what = script.code(script.tree.statement(asked)).strip()
            message = (
                f"torch allows `{what}` only for a loss that has no graph, so the backward pass "
                f"ends at it and `{network}` never learns: compute it from what the network returns"
            )
            yield CutLoss(asked, loss, message, ())


def _sets(script: Script, asked: cst.Attribute) -> bool:
    """Return whether an attribute asks for gradients, whatever the loss does by itself."""
    holder = script.tree.parent(asked)
    if isinstance(holder, cst.AssignTarget):
        line = script.tree.parent(holder)
        sets = script.values.value_of(cst.ensure_type(line, cst.Assign).value).equals(True)
    else:
        given = holder.args if isinstance(holder, cst.Call) else ()
        sets = method_of(holder) == "requires_grad_" and all(
            script.values.value_of(arg.value).equals(True) for arg in given
        )
    return sets and not any(
        isinstance(each, cst.If) and "requires_grad" in script.tree.words(each.test)
        for each in script.tree.ancestors(asked)
    )


def _is_cut(script: Script, loss: cst.Name) -> bool:
    """Return whether everything that a loss is made of was followed to a cut."""
    made = [each.value for each in script.scopes.reaching(loss)]
    found = [script.modules.lineage.of(each) for each in made if each is not None]
    return len(found) == len(made) and all(
        each.complete and not (each.calls or each.given or each.asks) for each in found
    )
