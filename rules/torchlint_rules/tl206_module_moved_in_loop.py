"""TL206: every step moves a network or sets its mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Finding, Fix, Frequency, Kind, Loop, Rule, Script
from torchlint_rules.shared.grouping import joined

_MOVING: Final = ("to", "cuda")
_MODES: Final = ("train", "eval")
_LEAVING: Final = frozenset("to cuda cpu xpu half float double bfloat16 to_empty".split())
_KINDS: Final = (Kind.MODULE, Kind.CRITERION)


class _Call(NamedTuple):
    """A statement that calls `method` of a network: `net = net.to(device)`, `net.train()`."""

    line: cst.SimpleStatementLine
    call: cst.Call
    network: cst.BaseExpression
    method: str
    loop: Loop


class ModuleMovedInLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the calls on networks that a loop repeats and could make once."""
        yield from joined(script, self._found(script), ("call", "calls"))

    def _found(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        for site in script.calls.of_methods(*_MOVING, *_MODES):
            call = site.node
            found = _repeated(script, site)
            if found is None or _is_undone(script, found):
                continue
            what = "moves" if found.method in _MOVING else "goes through"
            message = (
                f"`{script.code(call)}` {what} every part of the network in each step; call it "
                f"once, before the loop"
            )
            finding = Finding(self.code, script.span(call), message, _fix(script, found))
            yield found.loop.node, finding


def _repeated(script: Script, site: CallSite) -> _Call | None:
    """Return the statement of a call that runs in every iteration of a batch loop."""
    call, network, method = site.node, site.receiver, site.method
    small = script.tree.parent(call)
    if not isinstance(network, (cst.Name, cst.Attribute)):
        return None
    if not isinstance(small, cst.Expr) and not _keeps_name(script, small, network):
        return None
    line = script.tree.statement(call)
    loop = script.loops.batch_loop(call)
    if loop is None or script.loops.is_round(loop) or not isinstance(line, cst.SimpleStatementLine):
        return None
    if method in _MODES and call.args and script.code(call.args[0].value) != "True":
        return None
    if script.kind(network) not in _KINDS or script.functions.definition(call.func) is not None:
        return None
    often = script.loops.frequency(call) is Frequency.EVERY_PASS
    if not (often or script.loops.frequencies.of_one_process(call, loop.node)):
        return None
    if _bound_within(script, network, loop, small):
        return None
    return _Call(line, call, network, method, loop)


def _keeps_name(script: Script, small: cst.CSTNode | None, network: cst.BaseExpression) -> bool:
    """Return whether a statement assigns the result of a call, the network, to its own name."""
    return (
        isinstance(small, cst.Assign)
        and len(small.targets) == 1
        and script.code(small.targets[0].target) == script.code(network)
    )


def _bound_within(
    script: Script, node: cst.CSTNode, loop: Loop, besides: cst.CSTNode | None = None
) -> bool:
    """Return whether a loop assigns a name in an expression."""
    return any(
        script.tree.inside(binding.node, loop.node) and binding.node is not besides
        for name in script.tree.within(node, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _is_undone(script: Script, found: _Call) -> bool:
    """Return whether code in the loop may undo the call, or loads weights, which costs far more."""
    bodies = script.functions.reached(found.loop.node.body)
    root = script.code(found.network)
    for body in bodies:
        for call in script.functions.own(body, cst.Call):
            if call is found.call or not isinstance(call.func, cst.Attribute):
                continue
            far = body is not found.loop.node.body or _bound_within(
                script, call.func, found.loop, script.tree.parent(call)
            )
            mine = far or _is_part(script, call.func.value, root)
            if mine and _undoes(script, call, call.func, found):
                return True
            if mine and call.func.attr.value == "load_state_dict":
                return True
    return any(
        script.code(arg.value) == root and _is_out_of_sight(script, call)
        for call in script.tree.within(found.loop.node.body, cst.Call)
        for arg in call.args
    )


def _is_part(script: Script, node: cst.BaseExpression, root: str) -> bool:
    """Return whether an expression is a network, a part of it, or the whole that it is part of."""
    here, there = f"{script.code(node)}.", f"{root}."
    return here.startswith(there) or there.startswith(here)


def _undoes(script: Script, call: cst.Call, func: cst.Attribute, found: _Call) -> bool:
    method = func.attr.value
    if script.code(call) == script.code(found.call):
        return False
    if found.method in _MODES:
        return method in _MODES and (method != found.method or bool(call.args))
    return method in _LEAVING and script.kind(func.value) in _KINDS


def _is_out_of_sight(script: Script, call: cst.Call) -> bool:
    """Return whether a call may change a network that is passed to it."""
    if script.functions.callee(call) is not None or script.loops.module_call(call) is not None:
        return False
    name = script.name(call.func) or ""
    return not name.startswith(("builtins.", "torch."))


def _fix(script: Script, found: _Call) -> Fix | None:
    loop = found.loop.node
    alone = script.edits.stands_alone(found.line) and script.edits.stands_alone(loop)
    if not alone or script.tree.parent(found.line) is not loop.body:
        return None
    if any(_bound_within(script, arg.value, found.loop) for arg in found.call.args):
        return None
    text = script.code(found.line)
    dropped = script.edits.drop(found.line)
    title = f"Call {script.code(found.call.func)} before the loop"
    before = () if _comes_before(script, found, text) else script.edits.before(loop, text)
    unseen = script.loaders.provenance.unseen_class(found.network)
    if unseen:
        because = f"{unseen} is not visible here: a `{found.method}` of its own may do more"
        return Fix.unsafe(title, before, dropped, because=because)
    return Fix.exact(title, before, dropped)


def _comes_before(script: Script, found: _Call, text: str) -> bool:
    """Return whether the same statement precedes the loop, with only simple ones in between."""
    block = script.tree.parent(found.loop.node)
    if not isinstance(block, (cst.IndentedBlock, cst.Module)):
        return False
    earlier = [
        line for line in block.body if script.tree.order(line) < script.tree.order(found.loop.node)
    ]
    for line in reversed(earlier):
        if not isinstance(line, cst.SimpleStatementLine):
            return False
        if script.code(line) == text:
            return True
        if any(
            script.code(name) in ("eval", "train", "cpu", "to")
            for name in script.tree.within(line, cst.Name)
        ):
            return False
    return False
