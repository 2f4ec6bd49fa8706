"""TL314: a backward pass or an optimizer's step inside `with autocast`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Kind, Rule, Script, method_of, receiver_of


class BackwardUnderAutocast(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the first call in an autocast block that belongs after it."""
        seen: set[int] = set()
        for call in script.tree.all(cst.Call):
            if not _belongs_outside(script, call) or _runs_once(script, call):
                continue
            block = _autocast_around(script, call)
            if block is None or _goes_along(call, block, seen):
                continue
            func = call.func
            named = script.code(func) if len(script.code(func)) <= 40 else "backward"
            message = (
                f"`{named}` runs inside `autocast`, which is for the forward pass and the loss: "
                "move it out of the block"
            )
            if isinstance(block, cst.FunctionDef):
                marked = any(_is_on(script, each.decorator) for each in block.decorators)
                does = "decorates" if marked else "is around each call of"
                message = (
                    f"`{named}` runs inside `autocast`, which {does} `{block.name.value}`: put "
                    "only the forward pass and the loss into a `with` block"
                )
                yield Finding(self.code, script.span(call), message)
                continue
            edits = _moved_out(script, call, block)
            fix = _fix(script, call, block, edits) if edits is not None else None
            yield Finding(self.code, script.span(call), message, fix)


def _fix(script: Script, call: cst.Call, block: cst.With, edits: Edits) -> Fix:
    """Return the fix: close if only known code leaves the block."""
    title = "Move the backward pass out of autocast"
    lines = [line for line in block.body.body if script.tree.end(line) > script.tree.order(call)]
    unseen = (script.values.visibility.unseen_call(line) for line in lines)
    found = next((each for each in unseen if each is not None), None)
    if found is None:
        because = "hooks and custom functions may round differently"
        return Fix.close(title, edits, because=because)
    because = (
        f"`{script.tree.brief(found.func)}` is not visible here and might compute under autocast"
    )
    return Fix.unsafe(title, edits, because=because)


def _belongs_outside(script: Script, call: cst.Call) -> bool:
    owner = receiver_of(call, "backward", "step")
    if owner is None or not script.loops.is_step(call):
        return False
    if method_of(call) == "backward":
        return not any(arg.keyword is None for arg in call.args)
    return script.loops.owner(call.func) == "none" and script.kind(owner) is not Kind.UNKNOWN


def _runs_once(script: Script, call: cst.Call) -> bool:
    """Return whether a call is in no loop, nor in a function that the file calls in one."""
    function = script.scopes.function(call)
    if script.loops.each_step(call) or any(True for _ in script.loops.around(call)):
        return False
    if function is None:
        return True
    return bool(script.functions.callers(function)) and not script.loops.is_repeated(function)


def _autocast_around(script: Script, call: cst.Call) -> cst.With | cst.FunctionDef | None:
    """Return the block, or the function, that runs a call under autocast."""
    function = script.scopes.function(call)
    if function is not None and function.name.value.startswith("test"):
        return None
    for child, outer in script.tree.outward(call):
        if isinstance(outer, cst.With) and child is outer.body:
            if any(_is_on(script, item.item) for item in outer.items):
                return outer
        if isinstance(outer, cst.Lambda):
            return None
        if isinstance(outer, cst.FunctionDef):
            decorated = any(_is_on(script, each.decorator) for each in outer.decorators)
            return outer if decorated or script.answer(_is_called_inside, outer, False) else None
    return None


def _is_called_inside(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether each call of a function in view stands in a block of autocast."""
    calls = script.functions.callers(function)
    return bool(calls) and all(
        isinstance(_autocast_around(script, call), cst.With) for call in calls
    )


def _is_on(script: Script, manager: cst.BaseExpression) -> bool:
    call = script.values.precision.autocast(manager)
    return call is not None and not script.calls.at(call).argument("enabled").equals(False)


def _goes_along(call: cst.Call, block: cst.With | cst.FunctionDef, seen: set[int]) -> bool:
    """Return whether a call is a step after a backward pass that is already reported."""
    known = id(block) in seen
    seen.add(id(block))
    return known and method_of(call) == "step"


def _moved_out(script: Script, call: cst.Call, block: cst.With) -> Edits | None:
    """Move the statements of a block from a call onward out of it."""
    body = block.body
    if not isinstance(body, cst.IndentedBlock) or not script.edits.stands_alone(block):
        return None
    if not all(_is_on(script, item.item) for item in block.items):
        return None
    lines = list(body.body)
    first = next(at for at, line in enumerate(lines) if script.tree.inside(call, line))
    while first and _clears(lines[first - 1]):
        first -= 1
    moved = lines[first:]
    if isinstance(moved[0], (cst.For, cst.While, cst.With)) or _runs_network(script, moved):
        return None
    if not all(script.edits.stands_alone(line) for line in lines):
        return None
    if first == 0:
        return script.edits.unwrap(block)
    return script.edits.dedent(block, moved)


def _clears(line: cst.BaseStatement) -> bool:
    """Return whether a statement does nothing but clear gradients."""
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    call = small.value if isinstance(small, cst.Expr) else None
    return isinstance(call, cst.Call) and method_of(call) == "zero_grad"


def _runs_network(script: Script, lines: list[cst.BaseStatement]) -> bool:
    """Return whether some statements compute more than a backward pass and a step."""
    return any(script.loops.runs_module(line) for line in lines) or any(
        script.kind(call) is Kind.LOSS and script.kind(call.func) is Kind.CRITERION
        for line in lines
        for call in script.tree.within(line, cst.Call)
    )
