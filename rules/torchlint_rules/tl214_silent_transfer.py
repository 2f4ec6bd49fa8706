"""TL214: an operation that copies between host and device without showing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    TENSORS,
    Cause,
    Finding,
    Fix,
    How,
    Kind,
    Rule,
    Script,
    method_of,
    receiver_of,
)
from torchlint_rules.shared.grouping import joined

_SHAPES: Final = ("view", "reshape")
_METHODS: Final = frozenset("long float double half int bool bfloat16".split())
"""What converts on the device, as `type(torch.LongTensor)` does on the host."""
_SIZES: Final = {
    "one_hot": "waits for the largest class; pass num_classes",
    "repeat_interleave": "waits for the sum of the repeats; pass output_size if it is known",
}


class SilentTransfer(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every operation in each step that copies to or from the device unseen."""
        if not script.program.devices.can_use_accelerator:
            return
        yield from joined(script, self._each(script), ("entry", "entries"))

    def _each(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        """Yield the findings, each with the place that has one for all its transfers."""
        for found in (each for kind in _KINDS for each in kind(script)):
            if script.loops.each_step(found.node):
                message = f"`{script.tree.brief(found.node)}` {found.cost}"
                notes = script.loops.repetition.notes_on_callers(found.node)
                finding = Finding(self.code, script.span(found.node), message, found.fix, notes)
                yield found.place or found.node, finding


class _Transfer(NamedTuple):
    """An operation, what it costs, and a fix if there is one.

    `place` is what has many that are alike: a loop or a function.
    """

    node: cst.BaseExpression
    cost: str
    fix: Fix | None = None
    place: cst.CSTNode | None = None


# -- conversions by the name of a tensor type ------------------------------------------


def _types(script: Script) -> Iterator[_Transfer]:
    """Yield the conversions to a type of the host whose result goes back to the device."""
    for site in script.tree.in_file(script.calls.of_methods("type")):
        call = site.node
        func = cst.ensure_type(call.func, cst.Attribute)
        method = _conversion(script, call)
        if not method or not script.values.placement.may_be_on_device(func.value):
            continue
        back = _moved_back(script, call)
        if back is None:
            continue
        span = script.span(call)
        fix = None
        if "#" not in script.tree.source.text[span.start : span.end]:
            text = f"{script.code(func.value)}.{method}()"
            title = f"Convert on the device with .{method}()"
            fix = Fix.exact(title, script.edits.replace(call, text))
        cost = f"copies to the host, and `{script.tree.brief(back)}` copies back; use `.{method}()`"
        yield _Transfer(call, cost, fix)


def _conversion(script: Script, call: cst.Call) -> str:
    """Return the method for the tensor type that a call of `type` names, empty if unknown."""
    if len(call.args) != 1 or call.args[0].keyword is not None:
        return ""
    given = call.args[0].value
    name = script.name(given) or ""
    if isinstance(given, cst.SimpleString):
        name = str(given.evaluated_value)
    module, _, last = name.rpartition(".")
    method = last.removesuffix("Tensor").lower()
    return method if module == "torch" and last.endswith("Tensor") and method in _METHODS else ""


def _moved_back(script: Script, call: cst.Call) -> cst.Call | None:
    """Return the call that moves a result to the device again at once."""
    outer = script.tree.parent(call)
    moving = script.tree.parent(outer) if isinstance(outer, cst.Attribute) else None
    if not isinstance(moving, cst.Call) or moving.func is not outer:
        return None
    return moving if script.program.moves.move(moving) is not None else None


# -- indices on the host ---------------------------------------------------------------


def _indices(script: Script) -> Iterator[_Transfer]:
    """Yield the subscripts of a tensor on the device by numbers that are on the host."""
    seen: set[tuple[cst.CSTNode, str]] = set()
    for item in script.tree.own(cst.Subscript):
        given = [each.slice.value for each in item.slice if isinstance(each.slice, cst.Index)]
        made = [each for each in given if _is_on_host(script, each)]
        if made and script.values.placement.may_be_on_device(item.value):
            index = script.code(made[0])
            if (here := (script.scopes.home(item), index)) in seen:
                continue
            seen.add(here)
            cost = f"copies `{index}` to the device and waits; make the index there, once, or slice"
            yield _Transfer(item, cost)


def _is_on_host(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an index is several numbers in host memory: a list, an array, a tensor."""
    if isinstance(node, cst.List):
        return all(script.kind(each.value) is Kind.NUMBER for each in node.elements)
    if isinstance(node, cst.Call) and script.name(node.func) in ("builtins.range", "builtins.list"):
        return True
    kind = script.kind(node)
    held = kind in TENSORS and script.values.placement.on_host(node)
    return (held and not _is_item(script, node)) or kind is Kind.NDARRAY


def _is_item(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a loop over a tensor draws a name: a number, which indices take as it is."""
    binding = script.scopes.only(node) if isinstance(node, cst.Name) else None
    if binding is None or binding.how is not How.LOOP or binding.value is None:
        return False
    source, path = script.values.iteration.source(binding.value, binding.path)
    if source is None or path or script.kind(source) not in TENSORS:
        return False
    made = script.values.origins.of(source).values
    return not any(
        isinstance(each, cst.Call) and method_of(each) in _SHAPES and len(each.args) > 1
        for each in made
    )


# -- tables on the host ----------------------------------------------------------------


def _lookups(script: Script) -> Iterator[_Transfer]:
    """Yield the indices that are copied to a table on the host, whose rows go back."""
    for site in script.tree.in_file(script.calls.of_methods("cpu")):
        index, table = site.node, _table(script, site.node)
        if table is None or not script.values.placement.on_host(table):
            continue
        if script.values.placement.may_be_on_device(site.receiver) and _rows_go_back(script, index):
            held = script.tree.brief(table)
            cost = f"waits, to look up `{held}` on the host; keep `{held}` on the device"
            yield _Transfer(index, cost)


def _table(script: Script, index: cst.Call) -> cst.BaseExpression | None:
    """Return the tensor of which an index takes entries: `table[index]`, `table.gather(-1, i)`."""
    outer = script.tree.parent(index)
    if isinstance(outer, cst.Arg):
        call = script.tree.parent(outer)
        return receiver_of(call, "gather", "index_select") if isinstance(call, cst.Call) else None
    part = script.tree.parent(outer) if isinstance(outer, cst.Index) else None
    item = script.tree.parent(part) if part is not None else None
    return item.value if isinstance(item, cst.Subscript) else None


def _rows_go_back(script: Script, index: cst.Call) -> bool:
    """Return whether what a lookup finds is moved to the device in the same function."""
    line = script.tree.statement(index)
    targets = script.tree.within(line, cst.AssignTarget)
    names = {each.target.value for each in targets if isinstance(each.target, cst.Name)}
    return any(
        script.program.moves.move(site.node) is not None
        and script.scopes.home(site.node) is script.scopes.home(index)
        and (
            script.tree.inside(index, site.receiver)
            or any(each.value in names for each in script.tree.within(site.receiver, cst.Name))
        )
        for site in script.calls.of_methods("to", "cuda")
    )


# -- sizes that depend on values -------------------------------------------------------


def _counts(script: Script) -> Iterator[_Transfer]:
    """Yield the calls that ask the device for the size of their result."""
    for sync in script.tree.in_file(script.readings.syncs.of(Cause.SIZED)):
        if sync.word in _SIZES:
            yield _Transfer(sync.node, _SIZES[sync.word])


# -- the scale of a gradient scaler ----------------------------------------------------


def _scales(script: Script) -> Iterator[_Transfer]:
    """Yield the log lines that read a scaler's scale."""
    for site in script.tree.in_file(script.calls.of_methods("get_scale")):
        call = site.node
        func = cst.ensure_type(call.func, cst.Attribute)
        if script.kind(func.value) is Kind.SCALER and script.readings.is_logged(call):
            yield _Transfer(call, "waits for the device to show the scale; show it now and then")


# -- entries of what is on the host ----------------------------------------------------


def _entries(script: Script) -> Iterator[_Transfer]:
    """Yield the tensors that become a number in an entry of an array, or of a tensor there."""
    lines: list[cst.Assign | cst.AugAssign] = [
        *script.tree.own(cst.Assign),
        *script.tree.own(cst.AugAssign),
    ]
    for line in lines:
        target = line.target if isinstance(line, cst.AugAssign) else line.targets[0].target
        if not isinstance(target, cst.Subscript):
            continue
        stored = script.kind(target.value) in TENSORS and isinstance(line, cst.Assign)
        held = stored and script.values.placement.on_host(target.value)
        if not held and script.kind(target.value) is not Kind.NDARRAY:
            continue
        if isinstance(line.value, cst.Call) and script.program.moves.move(line.value) is not None:
            continue  # a tensor of a list
        around = next(script.loops.around(line), None)
        if around is not None and script.loops.environments.are_stepped_in(around.node):
            continue  # each pass waits for the action
        single = all(isinstance(each.slice, cst.Index) for each in target.slice)
        if single and script.values.placement.may_be_on_device(line.value):
            name = script.tree.brief(target.value)
            cost = f"waits for the device to put a number into `{name}`; keep it in a tensor there"
            place = script.scopes.home(line) if around is None else around.node
            yield _Transfer(line.value, cost, place=place)


_KINDS: Final = (_types, _indices, _lookups, _counts, _scales, _entries)
