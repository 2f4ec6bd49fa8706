"""TL504: gradients of several batches that are summed and never divided."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Duty,
    Edits,
    Finding,
    Fix,
    GradientAccumulation,
    PassFunction,
    Rule,
    Script,
    method_of,
    receiver_of,
)
from torchlint_rules.shared.accumulators import Divided, divided_twice
from torchlint_rules.tl504_unnormalised_accumulation.lossdivision import is_averaged

_PARTS: Final = re.compile(r"accum|micro", re.IGNORECASE)
_TITLE: Final = "Divide the loss by `{}`"
_BECAUSE: Final = "gradients, and with them the effective learning rate, become smaller by `{}`"
_TAIL: Final = ", and what an epoch leaves over is stepped with at its end"


class UnnormalisedAccumulation(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every accumulation window whose losses are not divided."""
        for window in script.loops.gradient_accumulations.windows():
            if script.loops.is_done(window.around, Duty.DIVIDING):
                continue
            size = _size(script, window)
            if size is None:
                continue
            sent = [_sent(script, call) for call in window.backwards]
            losses = [each for each in sent if each is not None]
            if len(losses) != len(sent) or is_averaged(script, window, size, losses):
                continue
            yield self._finding(script, window, size, losses)
        for each in divided_twice(script):
            yield self._twice(script, each)

    def _twice(self, script: Script, twice: Divided) -> Finding:
        size = script.code(twice.size)
        shown = size if isinstance(twice.size, cst.Integer) else f"`{size}`"
        message = (
            f"{twice.framework} divides the loss by {shown} already: a second division makes the "
            f"gradients {shown} times too small; leave it out"
        )
        fix = None
        if twice.only_here and isinstance(twice.division, cst.BinaryOperation):
            whole, line = script.code(twice.division.left), script.tree.statement(twice.division)
            rebinds = script.code(line) == f"{whole} = {script.code(twice.division)}"
            drops = rebinds and isinstance(line, cst.SimpleStatementLine)
            edits = (
                script.edits.drop(line) if drops else script.edits.replace(twice.division, whole)
            )
            because = f"gradients become larger by {shown}"
            fix = Fix.unsafe("Leave the division to the framework", edits, because=because)
        return Finding(self.code, script.span(twice.division), message, fix)

    def _finding(
        self,
        script: Script,
        window: GradientAccumulation | PassFunction,
        size: cst.BaseExpression,
        losses: list[cst.BaseExpression],
    ) -> Finding:
        written = script.code(size)
        loss = script.code(losses[0]) if isinstance(losses[0], cst.Name) else "loss"
        shown = written if isinstance(size, cst.Integer) else f"`{written}`"
        message = (
            f"the gradients of {shown} passes are added up, not averaged: divide, "
            f"`({loss} / {written}).backward()`"
        )
        fix = None
        if isinstance(window, GradientAccumulation) and not _changes(script, window, size):
            tail = _tail(script, window)
            edits = [_divided(script, each, written) for each in losses]
            because = _BECAUSE.format(written) + (_TAIL if tail else "")
            fix = Fix.unsafe(_TITLE.format(written), *edits, tail, because=because)
        return Finding(self.code, script.span(window.backwards[0]), message, fix)


# -- how many passes -----------------------------------------------------------


def _size(script: Script, window: GradientAccumulation | PassFunction) -> cst.BaseExpression | None:
    """Return the size of a window in iterations, None unless the file states it."""
    found = _remainder(script, window)
    size = found.right if found is not None else None
    if found is None and isinstance(window, GradientAccumulation):
        size = _parts_of_batch(script, window)
    if not isinstance(size, (cst.Name, cst.Attribute, cst.Integer, cst.Subscript)):
        return None
    if script.values.value_of(size).equals(1) or (
        found and not _counts_passes(script, window, found)
    ):
        return None
    return size


def _remainder(
    script: Script, window: GradientAccumulation | PassFunction
) -> cst.BinaryOperation | None:
    """Return the only `i % k` in the test that closes a window."""
    if window.test is None or not _is_tested(window):
        return None
    test = script.values.value_of(window.test).node or window.test
    found = [
        each
        for each in script.tree.within(test, cst.BinaryOperation)
        if isinstance(each.operator, cst.Modulo)
    ]
    return found[0] if len(found) == 1 else None


def _is_tested(window: GradientAccumulation | PassFunction) -> bool:
    """Return whether an `if` of the pass, not a helper, asks whether to step."""
    skips = isinstance(window, GradientAccumulation) and window.skipping is not None
    return window.closing is not None or skips


def _parts_of_batch(script: Script, window: GradientAccumulation) -> cst.BaseExpression | None:
    """Return `k` of `for micro_step in range(k):` if the optimizer steps after the loop."""
    loop = window.loop.node
    if (
        window.test is not None
        or not isinstance(loop, cst.For)
        or not isinstance(loop.iter, cst.Call)
    ):
        return None
    if script.name(loop.iter.func) != "builtins.range" or len(loop.iter.args) != 1:
        return None
    spoken = _PARTS.search(script.code(loop.target)) or _PARTS.search(script.code(loop.iter))
    return loop.iter.args[0].value if spoken else None


def _counts_passes(
    script: Script, window: GradientAccumulation | PassFunction, remainder: cst.BinaryOperation
) -> bool:
    """Return whether the dividend changes from pass to pass."""
    return any(
        script.tree.inside(binding.node, window.around)
        for name in script.tree.within(remainder.left, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _changes(script: Script, window: GradientAccumulation, size: cst.BaseExpression) -> bool:
    """Return whether an iteration of the loop may change the size."""
    return any(
        script.tree.inside(binding.node, window.loop.node)
        for name in script.tree.within(size, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _sent(script: Script, backward: cst.Call) -> cst.BaseExpression | None:
    """Return the loss of a backward call, None if it is not a plain expression."""
    value = receiver_of(backward, "backward")
    if script.name(backward.func) is not None or any(arg.keyword is None for arg in backward.args):
        return None
    if isinstance(value, cst.Call) and value.args and method_of(value) == "scale":
        return value.args[0].value
    return value


# -- the fix -------------------------------------------------------------------


def _divided(script: Script, loss: cst.BaseExpression, size: str) -> Edits:
    """Divide a loss in its backward call."""
    code = script.code(loss)
    if isinstance(loss, (cst.BinaryOperation, cst.IfExp)) and not loss.lpar:
        code = f"({code})"
    scaled = isinstance(script.tree.parent(loss), cst.Arg)
    return script.edits.replace(loss, f"{code} / {size}" if scaled else f"({code} / {size})")


def _tail(script: Script, window: GradientAccumulation) -> Edits:
    """Step after the loop for the remaining batches, nothing if that may happen already."""
    loop, closing = window.loop.node, window.closing
    if closing is None or closing.orelse is not None or loop.orelse is not None:
        return ()
    test = closing.test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return ()
    if not isinstance(test.comparisons[0].operator, cst.Equal):
        return ()
    counted = [
        binding
        for name in script.tree.within(test.left, cst.Name)
        for binding in script.scopes.reaching(name)
        if binding.node is loop
    ]
    if not counted or script.tree.parent(closing) is not loop.body:
        return ()
    lines = _lines(script, closing)
    if not lines or not script.edits.stands_alone(loop) or _steps_behind(script, loop):
        return ()
    right = script.code(test.comparisons[0].comparator)
    left_over = script.code(test.left) + ("" if right == "0" else f" != {right}")
    unit = script.edits.unit()
    return script.edits.after(loop, f"if {left_over}:", *(f"{unit}{line}" for line in lines))


def _lines(script: Script, closing: cst.If) -> list[str]:
    """Return the lines that close a window if they only handle gradients."""
    if not isinstance(closing.body, cst.IndentedBlock):
        return []
    lines = []
    for line in closing.body.body:
        small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        calls = [each.value for each in small if isinstance(each, cst.Expr)]
        if len(calls) != 1 or not isinstance(calls[0], cst.Call):
            return []
        word = method_of(calls[0]) or script.code(calls[0].func)
        if word not in ("step", "zero_grad", "update", "unscale_") and "clip_grad" not in word:
            return []
        code = script.code(line)
        if "\n" in code:
            return []
        lines.append(code)
    return lines


def _steps_behind(script: Script, loop: cst.CSTNode) -> bool:
    """Return whether code after a loop, in the same function, steps an optimizer."""
    home = script.scopes.home(loop)
    return any(
        script.scopes.home(call) is home and script.tree.order(call) >= script.tree.end(loop)
        for call in script.optimizers.steps
        if not _in_other_loop(script, call, loop)
    )


def _in_other_loop(script: Script, call: cst.Call, loop: cst.CSTNode) -> bool:
    """Return whether a call is in its own batch loop."""
    around = {id(each.node) for each in script.loops.around(loop)}
    return any(each.is_batch and id(each.node) not in around for each in script.loops.around(call))
