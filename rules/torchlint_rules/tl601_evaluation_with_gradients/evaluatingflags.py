"""Batch loops that train or evaluate, as a flag says, and record a graph either way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Act, Grad, How, Loop, Role, Script

_MODES: Final = ("torch.no_grad", "torch.set_grad_enabled", "torch.inference_mode")


class Flagged(NamedTuple):
    """An evaluation that a flag chooses: where it starts, and the test that is false in it."""

    place: cst.CSTNode
    test: cst.BaseExpression
    function: cst.FunctionDef | None


def flagged_evaluations(script: Script) -> Iterator[Flagged]:
    """Yield the evaluations by loops that go backward only where a test of a flag holds."""
    for loop in script.loops.of(Role.TRAIN_BATCH):
        branch = _backward_branch(script, loop)
        if branch is None or _sets_mode(script, loop) or not _runs_outside(script, loop, branch):
            continue
        test = _asked(script, branch.test)
        flag = _flag(test)
        bindings = script.scopes.reaching(flag) if flag is not None else ()
        if len(bindings) != 1 or flag is None:
            continue
        if bindings[0].how is How.LOOP and isinstance(branch.test, cst.Comparison):
            around = [outer.node for outer in script.loops.around(loop.node)]
            if bindings[0].node in around and _compares_text(branch.test):
                yield Flagged(loop.node, branch.test, None)
        elif isinstance(bindings[0].node, cst.Param):
            function = script.scopes.function(loop.node)
            if function is not None:
                yield from _calls(script, function, flag, test)


def _backward_branch(script: Script, loop: Loop) -> cst.If | None:
    """Return the one `if` of a loop in whose body all its backward passes stand."""
    found: set[cst.If] = set()
    acts = [
        each
        for each in script.optimizers.updates.within(loop.node.body)
        if each.act is Act.BACKWARD
    ]
    for act in acts:
        branches = [
            outer
            for outer in script.tree.ancestors(act.at)
            if isinstance(outer, cst.If)
            and script.tree.inside(outer, loop.node.body)
            and script.tree.inside(act.at, outer.body)
            and _flag(outer.test) is not None
        ]
        if not branches:
            return None
        found.add(branches[-1])
    return found.pop() if len(found) == 1 else None


def _flag(test: cst.BaseExpression) -> cst.Name | None:
    """Return the name that a test like `train`, `optimizer is not None`, `x == "train"` asks."""
    if isinstance(test, cst.Name):
        return test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    asked = test.comparisons[0]
    if not isinstance(test.left, cst.Name):
        return None
    nothing = isinstance(asked.comparator, cst.Name) and asked.comparator.value == "None"
    if isinstance(asked.operator, cst.IsNot) and nothing:
        return test.left
    return test.left if _compares_text(test) else None


def _asked(script: Script, test: cst.BaseExpression) -> cst.BaseExpression:
    """Return the test itself, or the one that a name before the loop keeps the result of."""
    bindings = script.scopes.reaching(test) if isinstance(test, cst.Name) else ()
    kept = bindings[0].value if len(bindings) == 1 and bindings[0].how is How.ASSIGN else None
    return kept if kept is not None and _flag(kept) is not None else test


def _compares_text(test: cst.Comparison) -> bool:
    asked = test.comparisons[0]
    return isinstance(asked.operator, cst.Equal) and isinstance(asked.comparator, cst.SimpleString)


def _sets_mode(script: Script, loop: Loop) -> bool:
    """Return whether the code around a loop chooses itself when to record."""
    home = script.scopes.function(loop.node) or script.tree.module
    return any(
        script.tree.inside(site.node, home) and not _stands_aside(script, site.node, loop)
        for site in script.calls.of(*_MODES)
    ) or any(
        mark in script.code(decorator)
        for decorator in getattr(home, "decorators", ())
        for mark in ("grad", "inference")
    )


def _stands_aside(script: Script, mode: cst.CSTNode, loop: Loop) -> bool:
    """Return whether a mode covers only lines of a loop that run no network (its metrics)."""
    around = next((at for at in script.tree.ancestors(mode) if isinstance(at, cst.With)), None)
    return (
        around is not None
        and script.tree.inside(around, loop.node.body)
        and not _runs_network(script, script.tree.within(around.body, cst.Call))
    )


def _runs_outside(script: Script, loop: Loop, branch: cst.If) -> bool:
    """Return whether a loop runs a network, whatever its flag says."""
    calls = script.tree.within(loop.node.body, cst.Call)
    return _runs_network(script, (call for call in calls if not script.tree.inside(call, branch)))


def _runs_network(script: Script, calls: Iterable[cst.Call]) -> bool:
    """Return whether one of some calls runs a network, or a function that does."""
    for call in calls:
        callee = script.functions.callee(call)
        if script.loops.module_call(call) is not None:
            return True
        if callee is not None and script.loops.runs_module(callee.body):
            return True
    return False


def _calls(
    script: Script, function: cst.FunctionDef, flag: cst.Name, test: cst.BaseExpression
) -> Iterator[Flagged]:
    """Yield the calls of a function that only evaluate, and record a graph."""
    default = next(
        (each.default for each in function.params.params if each.name.value == flag.value), None
    )
    for call in script.functions.callers(function):
        splat = any(arg.star for arg in call.args)
        given = script.functions.passed(call, function, flag.value) or default
        if given is None or splat or not _is_off(script, given, test):
            continue
        within = script.tree.ancestors(call)
        modes = [item.item for at in within if isinstance(at, cst.With) for item in at.items]
        if not any(script.values.gradients.mode(each) is not Grad.ON for each in modes):
            caller = script.scopes.function(call)
            if caller is None or not caller.decorators:
                yield Flagged(call, test, function)


def _is_off(script: Script, given: cst.BaseExpression, test: cst.BaseExpression) -> bool:
    """Return whether a given value makes a test false."""
    value = script.values.value_of(given)
    if isinstance(test, cst.Comparison) and _compares_text(test):
        wanted = script.values.value_of(test.comparisons[0].comparator).literal
        return isinstance(value.literal, str) and value.literal != wanted
    return value.equals(False) or value.equals(None)
