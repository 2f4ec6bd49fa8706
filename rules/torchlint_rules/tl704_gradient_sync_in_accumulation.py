"""TL704: gradients that are all-reduced in passes without a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Edits,
    Finding,
    Fix,
    Grad,
    GradientAccumulation,
    PassFunction,
    Rule,
    Script,
    Wrapped,
    receiver_of,
    word_of,
)
from torchlint_rules.shared.accumulators import accumulates_under

_MANAGED: Final = frozenset(
    "no_sync require_backward_grad_sync set_requires_gradient_sync has_no_sync".split()
)
_READING: Final = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "unscale_")
_CURES: Final = {
    "accelerate": "with {}.accumulate(model):",
    "fabric": "with {}.no_backward_sync(model, enabled=accumulating):",
}
_TITLE: Final = "Average the gradients in the last pass of each window only"
_BECAUSE: Final = "gradients are averaged once, after they were summed up, and round differently"
_HANDED: Final = (
    "code that is not visible here gets the network before the step and might read its gradients"
)
_LEFT_TO_US: Final = ("none", "ignite")
"""The owners of a pass that leave it to the script when gradients are averaged."""
_WORDS: Final = ("sync", "sync_now", "sync_gradients")


class GradientSyncInAccumulation(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loop that accumulates gradients of a wrapped network."""
        yield from self._of_frameworks(script)
        if not script.program.processes.has_wraps:
            return
        for window in script.loops.gradient_accumulations.all():
            if script.loops.owner(window.loop.node) != "none" or _is_managed(
                script, window.loop.node, window.test
            ):
                continue
            direct = _networks(script, window.loop.node.body, window.closing)
            networks = direct or _networks_of_callees(script, window)
            if networks:
                call = window.backwards[-1]
                edits = _edits(script, window, networks) if direct else None
                fix = _fix(script, window, edits) if edits else None
                message = _message(script, window, networks)
                yield Finding(self.code, script.span(call), message, fix)
        for window in script.loops.gradient_accumulations.through_helpers():
            if script.loops.owner(window.loop.node) == "none" and not _is_managed(
                script, window.loop.node, window.test
            ):
                yield from self._of_helper(script, window)
        for part in script.loops.gradient_accumulations.of_functions():
            networks = _networks(script, part.around.body, part.closing)
            if (
                networks
                and script.loops.owner(part.closing) in _LEFT_TO_US
                and not _is_managed(script, part.around, part.test)
            ):
                message = _message(script, part, networks)
                yield Finding(self.code, script.span(part.backwards[-1]), message)

    def _of_helper(self, script: Script, window: GradientAccumulation) -> Iterator[Finding]:
        """Flag the call of a function that runs a wrapped network backward in each pass."""
        call = window.backwards[-1]
        function = script.functions.callee(call)
        bodies = script.functions.reached(function.body) if function is not None else ()
        networks = [each for body in bodies for each in _networks(script, body, None)]
        networks += _networks(script, window.loop.node.body, window.closing)
        if networks:
            message = _message(script, window, networks)
            yield Finding(self.code, script.span(call), message)

    def _of_frameworks(self, script: Script) -> Iterator[Finding]:
        """Flag the windows in whose passes Accelerate or Fabric averages the gradients."""
        for window in script.loops.gradient_accumulations.windows():
            call = window.backwards[-1]
            owns, receiver = script.loops.owner(call), receiver_of(call)
            cure = _CURES.get(owns)
            if cure is None or receiver is None or not call.args:
                continue
            if _is_managed(script, window.around, window.test) or accumulates_under(script, owns):
                continue
            owner = script.code(receiver)
            message = (
                f"`{owner}.backward` averages the gradients over all processes in every pass, but "
                "only the sum of several is stepped with: put the pass under "
                f"`{cure.format(owner)}`"
            )
            yield Finding(self.code, script.span(call), message, impact="medium")


def _fix(script: Script, window: GradientAccumulation, edits: Edits) -> Fix:
    if script.optimizers.gradient_work.changes(window):
        return Fix.unsafe(_TITLE, edits, because=_HANDED)
    return Fix.close(_TITLE, edits, because=_BECAUSE)


def _message(
    script: Script,
    window: GradientAccumulation | PassFunction,
    networks: list[cst.BaseExpression],
) -> str:
    network = script.code(networks[0])
    last = "in the last part" if window.test is None else f"where `{script.code(window.test)}`"
    if isinstance(window, GradientAccumulation) and window.skipping is not None:
        last += " is false"
    return (
        f"`{network}` averages its gradients over all processes in every pass, but only the sum of "
        f"several is stepped with: use `{network}.no_sync()` except {last}"
    )


def _is_managed(script: Script, place: cst.CSTNode, test: cst.BaseExpression | None) -> bool:
    """Return whether every pass steps by default, or code around it says when to all-reduce."""
    if script.loops.gradient_accumulations.is_off(test):
        return True
    owner = script.scopes.class_of(place)
    regions = (*script.functions.run_with(place), *([] if owner is None else [owner]))
    return any(
        (isinstance(node, cst.Attribute) and node.attr.value in _MANAGED)
        or (isinstance(node, cst.SimpleString) and node.value.strip("'\"") == "no_sync")
        for region in regions
        for kind in (cst.Attribute, cst.SimpleString)
        for node in script.tree.within(region, kind)
    )


def _networks(
    script: Script, body: cst.CSTNode, closing: cst.If | None
) -> list[cst.BaseExpression]:
    """Return the wrapped networks that a pass trains, but for its last step, each once."""
    found: dict[str, cst.BaseExpression] = {}
    for node in script.program.processes.networks(body):
        closes = closing is not None and script.tree.inside(node, closing)
        if not closes and script.values.gradients.grad(node) is not Grad.OFF:
            found.setdefault(script.code(node), node)
    return list(found.values())


def _networks_of_callees(script: Script, window: GradientAccumulation) -> list[cst.BaseExpression]:
    """Return the wrapped networks that a pass trains in functions that it calls."""
    callees = [
        callee
        for call in script.functions.own(window.loop.node.body, cst.Call)
        if not _in_closing(script, window, call)
        and (callee := script.functions.callee(call)) is not None
    ]
    bodies = dict.fromkeys(body for each in callees for body in script.functions.reached(each.body))
    return [each for body in bodies for each in _networks(script, body, None)]


def _in_closing(script: Script, window: GradientAccumulation, node: cst.CSTNode) -> bool:
    return window.closing is not None and script.tree.inside(node, window.closing)


class _Region(NamedTuple):
    """The lines of a pass that belong under `no_sync()`, and those up to the step."""

    lines: list[cst.BaseStatement]
    until_step: list[cst.BaseStatement]


def _edits(
    script: Script, window: GradientAccumulation, networks: list[cst.BaseExpression]
) -> Edits | None:
    """Put the forward and backward pass under `no_sync()`, None if that may be wrong."""
    region = _region(script, window, networks[0])
    if region is None or len(networks) != 1 or _reads_gradients(script, window):
        return None
    if window.closing is None and _may_skip(script, window, region):
        return None
    network = networks[0]
    wraps = script.program.processes.made_by(network)
    if any(script.calls.at(wrap).given("static_graph") for wrap in wraps):
        return None
    test = _test(script, window, region, network)
    context = _null_context(script, region.lines[0])
    if test is None or context is None:
        return None
    (written, imports), (name, value) = context, test
    header = f"with {written}() if {name} else {script.code(network)}.no_sync():"
    indent = script.edits.indent_of(region.lines[0])
    if value:
        header = f"{name} = {value}{script.source.newline}{indent}{header}"
    return (*imports, *script.edits.wrap(region.lines, header))


def _null_context(script: Script, at: cst.CSTNode) -> tuple[str, Edits] | None:
    direct = script.edits.importing("contextlib", "nullcontext", at=at)
    if direct is not None and not direct[1]:
        return direct
    module = script.edits.importing("contextlib", at=at)
    return (f"{module[0]}.nullcontext", module[1]) if module is not None else None


def _region(
    script: Script, window: GradientAccumulation, network: cst.BaseExpression
) -> _Region | None:
    """Return the lines of a pass from the first forward call to the last backward."""
    block = window.loop.node.body
    if not isinstance(block, cst.IndentedBlock):
        return None
    lines = list(block.body)
    first = next(at for at, line in enumerate(lines) if script.tree.inside(network, line))
    last = max(
        at
        for at, line in enumerate(lines)
        if any(script.tree.inside(call, line) for call in window.backwards)
    )
    step = len(lines)
    if window.closing is not None:
        if window.closing not in lines:
            return None
        step = lines.index(window.closing)
    chosen = lines[first : last + 1]
    if not first <= last < step or not all(script.edits.stands_alone(line) for line in chosen):
        return None
    return _Region(chosen, lines[first:step])


def _may_skip(script: Script, window: GradientAccumulation, region: _Region) -> bool:
    """Return whether a pass can end before its backward, so that the last may not average."""
    return any(
        script.loops.innermost(leave) is window.loop.node
        for line in region.lines
        for kind in (cst.Continue, cst.Break)
        for leave in script.tree.within(line, kind)
    )


def _reads_gradients(script: Script, window: GradientAccumulation) -> bool:
    """Return whether a pass reads the gradients before the window ends."""
    body = window.loop.node.body
    for call in script.tree.within(body, cst.Call):
        if word_of(call) in _READING and not _in_closing(script, window, call):
            return True
    return any(
        node.attr.value == "grad" and not _in_closing(script, window, node)
        for node in script.tree.within(body, cst.Attribute)
    )


def _test(
    script: Script, window: GradientAccumulation, region: _Region, network: cst.BaseExpression
) -> tuple[str, str] | None:
    """Return the name of the test for the last pass of a window, and the value to assign to it.

    The value is empty if the name holds it. Only values known before the forward pass count.
    """
    if window.closing is None:
        test = _last_part(script, window) if window.test is None else None
    elif _changes(script, window.closing.test, region.until_step):
        test = None
    else:
        test = script.code(window.closing.test)
    tail = _tail(script, window)
    if test is None or tail is None:
        return None
    sure = script.program.processes.wrapped(network) is Wrapped.YES
    or_else = "" if sure else f' or not hasattr({script.code(network)}, "no_sync")'
    if test.isidentifier() and not tail and not or_else:
        return test, ""
    used = {name.value for name in script.tree.all(cst.Name)}
    free = [word for word in _WORDS if word not in used]
    loose = isinstance(window.test, (cst.IfExp, cst.Lambda, cst.NamedExpr))
    if not free or "\n" in test or (tail + or_else and loose):
        return None
    return free[0], f"{test}{tail}{or_else}"


def _changes(script: Script, test: cst.BaseExpression, lines: list[cst.BaseStatement]) -> bool:
    """Return whether some lines assign a name in a test, or call code that may."""
    calls = script.tree.within(test, cst.Call)
    if any(script.name(call.func) != "builtins.len" for call in calls):
        return True
    return any(
        script.tree.inside(binding.node, line)
        for name in script.tree.within(test, cst.Name)
        for binding in script.scopes.reaching(name)
        for line in lines
    )


def _last_part(script: Script, window: GradientAccumulation) -> str | None:
    """Return the test for the last micro-batch of a batch."""
    node = window.loop.node
    if not isinstance(node, cst.For) or not isinstance(node.target, cst.Name):
        return None
    drawn = node.iter
    if not isinstance(drawn, cst.Call) or script.name(drawn.func) != "builtins.range":
        return None
    if len(drawn.args) != 1 or drawn.args[0].star or drawn.args[0].keyword is not None:
        return None
    return f"{node.target.value} + 1 == {script.code(drawn.args[0].value)}"


def _tail(script: Script, window: GradientAccumulation) -> str | None:
    """Return the test for the last pass of the loop, empty if not needed, None if not possible."""
    if window.closing is None or "len(" in script.code(window.closing.test):
        return ""
    said = script.loaders.last_pass.test(window.loop)
    if said is not None:
        return f" or {said}"
    steps_elsewhere = any(
        script.loops.is_step(site.node) and not script.tree.inside(site.node, window.closing)
        for site in script.calls.of_methods("step")
    )
    return None if steps_elsewhere else ""
