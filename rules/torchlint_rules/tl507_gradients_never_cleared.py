"""TL507: gradients that are never cleared, or cleared before the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import (
    Act,
    Duty,
    Finding,
    Kind,
    Loop,
    Note,
    Role,
    Rule,
    Script,
    Update,
    method_of,
    receiver_of,
)

_CLEARING: Final = frozenset("zero clear reset".split())
_HOOKS: Final = frozenset("grad register_hook register_post_accumulate_grad_hook".split())


class GradientsNeverCleared(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag steps with gradients of earlier batches, and gradients cleared before the step."""
        yield from self._piled_up(script)
        yield from self._by_hand(script)
        for site in script.calls.of_methods("zero_grad"):
            clear = site.node
            if script.loops.is_done(clear, Duty.CLEARING):
                continue
            step = _step_after(script, clear)
            if step is not None:
                message = (
                    f"`{script.code(clear)}` clears the gradients after the backward pass, so "
                    f"`{script.code(step)}` has none: clear before the backward pass"
                )
                yield Finding(self.code, script.span(clear), message)

    def _piled_up(self, script: Script) -> Iterator[Finding]:
        if all(
            _is_cleared_beside(script, site.node)
            for site in script.calls.of_methods("step")
            if script.loops.is_step(site.node)
        ):
            return
        seen: set[int] = set()
        for loop in script.loops.of(Role.TRAIN_BATCH):
            if script.loops.is_done(loop.node, Duty.CLEARING):
                continue
            acts = script.optimizers.updates.within(loop.node.body)
            steps = [each for each in _uncleared(script, acts) if id(each.call) not in seen]
            if not steps or not _is_plain(script, loop, acts):
                continue
            elsewhere = _clears_elsewhere(script, acts)
            clears = [each for each in acts if each.act is Act.CLEAR]
            for step in steps:
                if _is_never_cleared(script, loop, step, clears, elsewhere):
                    seen.add(id(step.call))
                    yield self._finding(script, step, elsewhere)

    def _by_hand(self, script: Script) -> Iterator[Finding]:
        """Flag the training steps of Lightning that optimize by hand and clear nothing."""
        for function in script.tree.all(cst.FunctionDef):
            if function.name.value != "training_step" or not script.loops.ownership.steps_by_hand(
                function
            ):
                continue
            acts = script.optimizers.updates.within(function.body)
            stepped = [
                (each.call, each.optimizer)
                for each in acts
                if each.act is Act.STEP and each.optimizer is not None
            ]
            ran = any(each.act is Act.BACKWARD for each in acts)
            if not ran or not stepped or script.functions.attributes("zero_grad"):
                continue
            bodies = script.functions.reached(function.body)
            if not any(_handles_gradients(script, body) for body in bodies):
                name = script.code(stepped[0][1])
                message = (
                    f"`{name}` steps with the sum of all gradients so far: with "
                    f"`automatic_optimization = False` Lightning does not clear them, call "
                    f"`{name}.zero_grad()` before the backward pass"
                )
                yield Finding(self.code, script.span(stepped[0][0]), message)

    def _finding(self, script: Script, step: Update, elsewhere: Sequence[cst.Call]) -> Finding:
        assert step.optimizer is not None
        name = script.code(step.optimizer)
        once = _cleared_elsewhere(script, step, elsewhere)
        where = "in this loop" if once is None else "for every step"
        message = (
            f"`{name}` steps with the sum of all gradients so far, because nothing in the loop "
            f"clears them: call `{name}.zero_grad()` {where}"
        )
        notes = [Note(script.span(once), "cleared here, outside the loop")] if once else []
        notes += (
            Note(script.span(each), "without parentheses this calls nothing")
            for each in script.functions.uncalled("zero_grad", step.call)
        )
        return Finding(self.code, script.span(step.call), message, None, tuple(notes))


# -- gradients that accumulate ---------------------------------------------------


def _is_cleared_beside(script: Script, step: cst.Call) -> bool:
    """Return whether the caller of `step` clears everything that it steps, by the same name."""
    home, loop = script.scopes.home(step), next(script.loops.around(step), None)
    stepped = script.code(script.calls.at(step).receiver)
    region = loop.node.body if loop is not None else home
    return any(
        script.scopes.home(clear.node) is home
        and script.tree.inside(clear.node, region)
        and script.code(clear.receiver) == stepped
        for clear in script.calls.of_methods("zero_grad")
    )


def _uncleared(script: Script, acts: Sequence[Update]) -> list[Update]:
    """Return the steps of optimizers that are never cleared by the same name."""
    cleared = {
        script.code(each.optimizer)
        for each in acts
        if each.act is Act.CLEAR and each.optimizer is not None
    }
    return [
        each
        for each in acts
        if each.act is Act.STEP
        and each.optimizer is not None
        and script.code(each.optimizer) not in cleared
    ]


def _is_plain(script: Script, loop: Loop, acts: Sequence[Update]) -> bool:
    """Return whether a loop runs backward and steps, and handles gradients in no other way."""
    if not all(each.in_sight for each in acts):
        return False
    if not any(each.act is Act.BACKWARD for each in acts):
        return False
    bodies = script.functions.reached(loop.node.body)
    return not any(_handles_gradients(script, body) for body in bodies)


def _handles_gradients(script: Script, body: cst.CSTNode) -> bool:
    if any(node.attr.value in _HOOKS for node in script.functions.own(body, cst.Attribute)):
        return True
    return any(_may_clear(script, call) for call in script.functions.own(body, cst.Call))


def _may_clear(script: Script, call: cst.Call) -> bool:
    """Return whether a function of another module may clear gradients, by name or by argument."""
    if script.functions.callee(call) is not None:
        return False
    word = method_of(call) or script.code(call.func)
    if word == "zero_grad":
        return False
    parts = set(word.lower().replace(".", "_").split("_"))
    if _CLEARING & parts and ("grad" in word.lower() or "optim" in word.lower()):
        return True
    plain = script.name(call.func) or ""
    return not plain.startswith(("torch.", "builtins.")) and any(
        script.kind(arg.value) is Kind.OPTIMIZER
        for arg in call.args
        if word not in ("step", "unscale_", "append", "save")
    )


def _is_never_cleared(
    script: Script,
    loop: Loop,
    step: Update,
    clears: Sequence[Update],
    elsewhere: Sequence[cst.Call],
) -> bool:
    """Return whether gradients certainly contain those of every earlier iteration."""
    node = step.optimizer
    if node is None or script.kind(node) is not Kind.OPTIMIZER or len(step.call.args) > 1:
        return False
    if script.functions.instance_of(node) is not None or _is_bound_in(script, node, loop):
        return False
    if step.call.args:
        if script.loops.stepped(step.call) is not step.call.args[0].value:
            return False
    if any(not _is_another(script, node, each.optimizer) for each in clears):
        return False
    return not _may_be_cleared_in(script, step, elsewhere)


def _is_another(
    script: Script, stepped: cst.BaseExpression, cleared: cst.BaseExpression | None
) -> bool:
    """Return whether a cleared value certainly is another optimizer than the one that steps."""
    if cleared is None or script.kind(cleared) is not Kind.OPTIMIZER:
        return False
    return script.optimizers.updates.same_optimizer(stepped, cleared) is False


def _is_bound_in(script: Script, node: cst.BaseExpression, loop: Loop) -> bool:
    """Return whether each iteration of a loop may have its own optimizer."""
    if not isinstance(node, (cst.Name, cst.Attribute)):
        return True
    names = list(script.tree.within(node, cst.Name))[:1]
    bindings = [binding for name in names for binding in script.scopes.reaching(name)]
    if any(script.tree.inside(binding.node, loop.node) for binding in bindings):
        return True
    made = script.optimizers.made_by(node)
    return made is not None and any(script.tree.inside(call, loop.node) for call in made)


def _clears_elsewhere(script: Script, acts: Sequence[Update]) -> list[cst.Call]:
    """Return the calls that clear gradients outside a loop."""
    known = {id(each.call) for each in acts}
    return [
        site.node for site in script.calls.of_methods("zero_grad") if id(site.node) not in known
    ]


def _may_be_cleared_in(script: Script, step: Update, elsewhere: Sequence[cst.Call]) -> bool:
    """Return whether a function of this file that the loop may run indirectly clears gradients."""
    home = {id(script.scopes.function(step.call)), id(script.scopes.function(step.at))}
    for call in elsewhere:
        function = script.scopes.function(call)
        if function is None or id(function) in home:
            continue
        cleared = script.calls.at(call).receiver
        if step.optimizer is not None and _is_another(script, step.optimizer, cleared):
            continue
        own = {each.act for each in script.optimizers.updates.within(function.body)}
        if Act.STEP not in own and not script.functions.callers(function):
            return True
    return any(
        not isinstance(script.tree.parent(node), cst.Call)
        for node in script.functions.attributes("zero_grad")
    )


def _cleared_elsewhere(
    script: Script, step: Update, elsewhere: Sequence[cst.Call]
) -> cst.Call | None:
    """Return a call outside the loop that clears the gradients of its optimizer."""
    for call in elsewhere:
        cleared = receiver_of(call)
        if cleared is not None:
            if script.optimizers.updates.same_optimizer(step.optimizer, cleared):
                return call
    return None


# -- gradients cleared too early -------------------------------------------------


def _step_after(script: Script, clear: cst.Call) -> cst.Call | None:
    """Return the step that uses no gradients because `zero_grad` follows the backward pass."""
    line = script.tree.statement(clear)
    block = script.tree.parent(line)
    if not isinstance(block, (cst.IndentedBlock, cst.Module)) or not isinstance(
        clear.func, cst.Attribute
    ):
        return None
    at = block.body.index(line)
    behind = (
        each for other in block.body[at + 1 :] for each in script.optimizers.updates.within(other)
    )
    step = next((each for each in behind if each.act in (Act.BACKWARD, Act.STEP)), None)
    if step is None or step.act is Act.BACKWARD:
        return None
    before = [each for other in block.body[:at] for each in script.optimizers.updates.within(other)]
    if not before or before[-1].act not in (Act.BACKWARD, Act.CLIP):
        return None
    if not any(each.act is Act.BACKWARD for each in before):
        return None
    return step.call if _is_of(script, clear.func.value, step.optimizer) else None


def _is_of(script: Script, cleared: cst.BaseExpression, stepped: cst.BaseExpression | None) -> bool:
    """Return whether a cleared value is the optimizer that steps, or its network."""
    if stepped is None:
        return False
    if script.kind(cleared) is not Kind.MODULE:
        return script.optimizers.updates.same_optimizer(cleared, stepped) is True
    made = script.optimizers.made_by(stepped)
    parameters = f"{script.code(cleared)}.parameters()"
    return bool(made) and all(
        call.args and script.code(call.args[0].value) == parameters for call in made or ()
    )
