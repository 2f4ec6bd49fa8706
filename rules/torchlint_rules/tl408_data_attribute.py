"""TL408: tensors that bypass autograd through `.data`, and `Variable`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import libcst as cst

from torchlint.api import Edit, Edits, Finding, Fix, Grad, Note, Rule, Safety, Script, Span
from torchlint_rules.shared.dataattribute import VARIABLE, misuse, without_graph, wraps

_CUTS: Final = "`Variable(x)` also cuts `x` off its graph: without it gradients may flow on"


class DataAttribute(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Report every useless `Variable` and every `.data` that fails or hides a change."""
        sites = [each for each in script.calls.of(VARIABLE) if each.node.args]
        calls = [each.node for each in sites if wraps(script, each.node)]
        calls = [call for call in calls if not _detaches(script, call)]
        volatile = [each for each in calls if script.values.gradients.is_volatile(each)]
        for call in volatile:
            message = "`volatile` has no effect since torch 0.4: use `torch.no_grad()`"
            yield Finding(self.code, script.span(call), message)
        fixes = _fixes(script, calls) if calls else {}
        groups: dict[Safety | None, list[cst.Call]] = {}
        for call in calls:
            fix = fixes.get(id(call))
            if call not in volatile:
                groups.setdefault(None if fix is None else fix.safety, []).append(call)
        for group in groups.values():
            yield self._useless(script, group, [fixes.get(id(each)) for each in group])
        for node in script.tree.all(cst.Attribute):
            found = misuse(script, node) if node.attr.value == "data" else None
            if found is not None:
                yield Finding(
                    self.code, script.span(node), found.message, found.fix, impact=found.impact
                )

    def _useless(
        self, script: Script, calls: Sequence[cst.Call], fixes: Sequence[Fix | None]
    ) -> Finding:
        """Return one finding for calls that one fix takes out, with a note at each further one."""
        what = script.code(calls[0].args[0].value)
        what = f"`{what}`" if len(what) < 40 else "the tensor itself"
        message = f"`Variable` has no purpose since torch 0.4: use {what}"
        if len(calls) > 1:
            more = "once more" if len(calls) == 2 else f"{len(calls) - 1} more times"
            message += f", here and {more}"
        known = [each for each in fixes if each is not None]
        edits = dict.fromkeys(edit for each in known for edit in each.edits)
        fix = replace(known[0], edits=tuple(edits)) if known else None
        notes = tuple(Note(script.span(each), "here as well") for each in calls[1:])
        return Finding(self.code, script.span(calls[0]), message, fix, notes)


def _detaches(script: Script, call: cst.Call) -> bool:
    """Return whether a `Variable` cuts what a network computed off its graph."""
    return script.values.gradients.grad(call) is not Grad.OFF and bool(
        script.modules.lineage.of(call.args[0].value).calls
    )


# -- Variable --------------------------------------------------------------------


def _fixes(script: Script, calls: Sequence[cst.Call]) -> dict[int, Fix]:
    """Return the fixes of calls; calls whose import becomes unused share its removal."""
    unwrapped = {id(call): edits for call in calls if (edits := _unwrapped(script, call))}
    plain = [
        call
        for call in calls
        if id(call) in unwrapped
        and all(_is_plain(script, each) for each in (call, *_gone_with(script, call)))
    ]
    others = [call for call in calls if id(call) in unwrapped and call not in plain]
    title, found = "Use the tensor itself", {}
    for group, together in ((plain, plain), (others, [*plain, *others])):
        imports = script.edits.without_imports(*(call.func for call in together))
        if imports is None:
            continue
        whole = tuple(edit for call in together for edit in unwrapped[id(call)])
        for call in group:
            edits = (*whole, *imports) if imports else unwrapped[id(call)]
            edits = tuple(dict.fromkeys(edits))
            exact = Fix.exact(title, edits)
            found[id(call)] = exact if group is plain else Fix.unsafe(title, edits, because=_CUTS)
    return found


def _unwrapped(script: Script, call: cst.Call) -> Edits | None:
    """Replace a call by its argument, None if that would lose something."""
    whole, inner = script.span(call), script.span(call.args[0].value)
    text = script.tree.source.text
    around = text[whole.start : inner.start] + text[inner.end : whole.end]
    if "#" in around or len(call.args) > 1 + ("requires_grad" in around) or call.args[0].star:
        return None
    besides = _besides(script, call)
    if besides:
        return _dropped(script, call)
    left_out = _left_out(script, call)
    if left_out is not None:
        return left_out
    value, holder = call.args[0].value, script.tree.parent(call)
    atom = script.tree.is_closed(value)
    free = isinstance(holder, (cst.Arg, cst.Assign, cst.Return, cst.Element))
    kept = script.tree.breaks_lines(value) or not (atom or (free and "\n" not in around))
    opening, closing = ("(", ")") if kept else ("", "")
    return (
        Edit(Span(whole.start, inner.start), opening),
        Edit(Span(inner.end, whole.end), closing),
    )


def _besides(script: Script, call: cst.Call) -> list[cst.Call]:
    """Return the calls of a line that would only assign names to themselves."""
    assign = _assignment(script, call)
    line = script.tree.parent(assign)
    return _self_assigned(script, line) if isinstance(line, cst.SimpleStatementLine) else []


def _gone_with(script: Script, call: cst.Call) -> list[cst.Call]:
    """Return the calls that the fix of a call takes out of its line."""
    idle = [each for each in _idle(script, call) if each is not None]
    return idle or _besides(script, call)


def _self_assigned(script: Script, line: cst.CSTNode) -> list[cst.Call]:
    """Return the calls on the right of `x, y = Variable(x), Variable(y)`, empty for other lines."""
    assign = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return []
    found = [_given_back(script, left, right) for left, right in _pairs(assign)]
    if None in found or not script.edits.stands_alone(line):
        return []
    return [call for call in found if call is not None]


def _pairs(assign: cst.Assign) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Return what an assignment names with what it gives to each name."""
    target, value = assign.targets[0].target, assign.value
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        sides = zip(target.elements, value.elements, strict=False)
        return [(left.value, right.value) for left, right in sides]
    return [(target, value)]


def _given_back(
    script: Script, left: cst.BaseExpression, right: cst.BaseExpression
) -> cst.Call | None:
    """Return the call of `x = Variable(x)`, None for other assignments."""
    if not _is_own_name(left) or not isinstance(right, cst.Call):
        return None
    if script.name(right.func) != VARIABLE or not right.args or not wraps(script, right):
        return None
    if script.calls.at(right).given("volatile") is not None:
        return None
    given = right.args[0].value
    if isinstance(given, cst.Name):
        if all(binding.value is right for binding in script.scopes.reaching(given)):
            return None
    return right if script.code(given) == script.code(left) else None


def _idle(script: Script, call: cst.Call) -> list[cst.Call | None]:
    """Return what can go of `x, y = Variable(x), f(y)`, None for each part that stays."""
    assign = _assignment(script, call)
    if assign is None or len(assign.targets) != 1 or "\n" in script.code(assign):
        return []
    sides = assign.targets[0].target, assign.value
    idle = [_given_back(script, left, right) for left, right in _pairs(assign)]
    if call not in idle or None not in idle:
        return []
    whole = all(isinstance(side, cst.Tuple) and _is_plain_row(side, len(idle)) for side in sides)
    return idle if whole else []


def _left_out(script: Script, call: cst.Call) -> Edits | None:
    """Take `x` out of `x, y = Variable(x), f(y)`, None for other lines."""
    idle, assign = _idle(script, call), _assignment(script, call)
    if not idle or assign is None:
        return None
    dropped = [each is not None for each in idle]
    return tuple(
        edit
        for side in (assign.targets[0].target, assign.value)
        if isinstance(side, cst.Tuple)
        for edit in _without(script, side.elements, dropped)
    )


def _assignment(script: Script, call: cst.Call) -> cst.Assign | None:
    """Return the assignment that a call is a part of."""
    return next((o for o in script.tree.ancestors(call) if isinstance(o, cst.Assign)), None)


def _is_plain_row(row: cst.Tuple, length: int) -> bool:
    """Return whether a tuple has so many elements, no star and no comma at its end."""
    stars = any(isinstance(each, cst.StarredElement) for each in row.elements)
    ends = isinstance(row.elements[-1].comma, cst.Comma) if row.elements else True
    return len(row.elements) == length and not stars and not ends


def _without(
    script: Script, elements: Sequence[cst.BaseElement], dropped: Sequence[bool]
) -> Iterator[Edit]:
    """Take elements out of a row of them, each with the comma that parts it from what stays."""
    spans = [script.span(each.value) for each in elements]
    last = max(at for at, drop in enumerate(dropped) if not drop)
    for at, drop in enumerate(dropped):
        if drop and at < last:
            yield Edit(Span(spans[at].start, spans[at + 1].start), "")
        elif drop:
            yield Edit(Span(spans[at - 1].end, spans[at].end), "")


def _is_own_name(target: cst.BaseExpression) -> bool:
    """Return whether a target is a name or an attribute of `self`."""
    if isinstance(target, cst.Attribute):
        return isinstance(target.value, cst.Name) and target.value.value == "self"
    return isinstance(target, cst.Name)


def _dropped(script: Script, call: cst.Call) -> Edits | None:
    """Remove a line of self-assignments, None if it is the only one in its block."""
    line = script.tree.statement(call)
    block = script.tree.parent(line)
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(
        block, (cst.IndentedBlock, cst.Module)
    ):
        return None
    if len(block.body) > 1 and all(_self_assigned(script, each) for each in block.body):
        return None
    return script.edits.drop(line)


def _is_resized(script: Script, name: cst.Name) -> bool:
    """Return whether some code gives the tensor of a name another size in place."""
    return any(
        script.code(site.receiver).partition(".")[0] == name.value
        for site in script.calls.of_methods("resize_", "resize_as_")
    )


def _is_plain(script: Script, call: cst.Call) -> bool:
    value = call.args[0].value
    if isinstance(value, cst.Name) and _is_resized(script, value):
        return False
    return wraps(script, call) and without_graph(script, value)
