"""TL321: keys and values are copied for each query of their group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    ASSIGNED,
    Binding,
    CallSite,
    Finding,
    Fix,
    How,
    Kind,
    Rule,
    Script,
    State,
    method_of,
    receiver_of,
)

_FUNCTION: Final = "torch.nn.functional.scaled_dot_product_attention"
_NEEDED: Final = (2, 5)
_HEADS: Final = (1, -3)


class _Repeat(NamedTuple):
    """A repetition: how often, along which axis of four, of what, and the expression that does.

    `always` is False for one under an `if`, which leaves equal heads as they are, `shared` is
    whether other branches attend with it as well.
    """

    times: str
    axis: int
    source: cst.BaseExpression
    node: cst.Call
    always: bool = True
    shared: bool = False


class RepeatedKeyValueHeads(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every fused attention whose keys and values are repeated head by head."""
        for site in script.calls.of(_FUNCTION):
            if site.has_splat or site.argument("enable_gqa").state is not State.ABSENT:
                continue
            mask = site.argument("attn_mask")
            if mask.state is not State.ABSENT and not mask.equals(None):
                continue
            given = [site.given("key"), site.given("value")]
            found = [_repeat(script, each.value) for each in given if each is not None]
            key, value = found if len(found) == 2 else (None, None)
            if key is None or value is None or key.times != value.times:
                continue
            message = (
                f"keys and values are stored `{key.times}` times: `enable_gqa=True` attends to "
                "each head as often without a copy"
            )
            shared = key.shared or value.shared
            message += "; repeat them in the branches that need it" if shared else ""
            plain = key.always and value.always and not shared
            fix = _fix(script, site, key, value) if plain else None
            yield Finding(self.code, script.span(key.node), message, fix)


def _repeat(script: Script, node: cst.BaseExpression) -> _Repeat | None:
    """Return the repetition of heads that the keys or the values of an attention are."""
    given, swapped, shared = node, False, False
    for _ in range(ASSIGNED):
        if isinstance(node, cst.Name):
            bindings = script.scopes.reaching(node)
            if len(bindings) == 2:
                return _under_a_condition(script, node, bindings)
            value = _assigned(bindings[0]) if len(bindings) == 1 else None
            if value is None:
                return None
            others = [each for each in _uses(script, bindings[0], node) if each is not node]
            if any(script.tree.choice(given, each) is None for each in others):
                return None
            node, shared = value, shared or bool(others)
        elif isinstance(node, cst.Call):
            found = _of_call(script, node)
            if found is not None:
                axis = {1: 2, 2: 1}.get(found.axis, found.axis) if swapped else found.axis
                found = found._replace(shared=shared)
                return found if axis in _HEADS and (axis > 0 or not swapped) else None
            axes = {script.values.value_of(arg.value).literal for arg in node.args}
            if method_of(node) == "transpose" and axes == {1, 2}:
                swapped = not swapped
            elif method_of(node) != "contiguous":
                return None
            node = script.calls.at(node).receiver
        else:
            return None
    return None


def _assigned(made: Binding) -> cst.BaseExpression | None:
    """Return the value that a name gets, also by its place in a tuple: `k, v = left, right`."""
    if made.how is not How.UNPACKED or len(made.path) != 1:
        return made.assigned
    values = made.value.elements if isinstance(made.value, (cst.Tuple, cst.List)) else ()
    return values[made.path[0]].value if made.path[0] < len(values) else None


def _uses(script: Script, made: Binding, name: cst.Name) -> list[cst.CSTNode]:
    """Return the uses of a tensor in the function around one of them, but for its sizes."""
    uses = script.scopes.uses(made, script.scopes.home(name))
    return [each for each in uses if not _asks_size(script, each)]


def _asks_size(script: Script, name: cst.CSTNode) -> bool:
    holder = script.tree.parent(name)
    return isinstance(holder, cst.Attribute) and holder.attr.value in ("size", "shape")


def _under_a_condition(
    script: Script, node: cst.Name, bindings: tuple[Binding, ...]
) -> _Repeat | None:
    """Return the repetition in `if groups > 1: k = repeat(k, groups)`."""
    before, made = sorted(bindings, key=lambda each: each.at)
    if made.how is not How.ASSIGN or not isinstance(made.value, cst.Call):
        return None
    found = _of_call(script, made.value)
    if found is None or found.axis not in _HEADS or not isinstance(found.source, cst.Name):
        return None
    uses = list(script.scopes.uses(made, script.scopes.home(node)))
    same = script.scopes.reaching(found.source) == (before,)
    return found._replace(always=False) if same and uses == [node] else None


def _of_call(script: Script, call: cst.Call) -> _Repeat | None:
    """Return the repetition that a call makes of one tensor."""
    site, name = script.calls.at(call), _last_word(script, call)
    if name == "repeat_interleave":
        free = site.name is not None
        times, dim = site.given("repeats", int(free)), site.argument("dim", 1 + free)
        source = site.given("input", 0) if free else None
        whole = source.value if source is not None else receiver_of(call)
        if times is None or whole is None or not isinstance(dim.literal, int):
            return None
        if script.kind(times.value) is Kind.TENSOR:
            return None
        return _Repeat(script.tree.argument(times.value), dim.literal, whole, call)
    function = script.functions.callee(call)
    if function is None or len(call.args) != 2 or any(arg.keyword for arg in call.args):
        return None
    axis = script.answer(_repeated_axis, function, None)
    if axis is None:
        return None
    return _Repeat(script.tree.argument(call.args[1].value), axis, call.args[0].value, call)


def _last_word(script: Script, call: cst.Call) -> str:
    """Return the last word of what a call calls, of torch or of a tensor."""
    name = script.name(call.func)
    if name is not None:
        return name.removeprefix("torch.")
    return method_of(call)


def _repeated_axis(script: Script, function: cst.FunctionDef) -> int | None:
    """Return the axis that a function `repeat_kv(x, times)` repeats, None if it does not.

    It puts a new axis behind that one, expands it, and joins the two.
    """
    names = [each.name.value for each in function.params.params]
    if len(names) != 2:
        return None
    axes = set()
    for value in script.functions.returns(function):
        if script.tree.argument(value) == names[0]:
            continue
        axes.add(_joined_axis(script, value, names[0], names[1]))
    return axes.pop() if len(axes) == 1 else None


def _joined_axis(script: Script, node: cst.BaseExpression, x: str, times: str) -> int | None:
    joined = _method(node, "reshape")
    if joined is None:
        return None
    inner = joined[0]
    if isinstance(inner, cst.Name) and script.values.value_of(inner).node is not None:
        inner = script.values.value_of(inner).node or inner
    expanded = _method(inner, "expand")
    if expanded is None or not isinstance(expanded[0], cst.Subscript):
        return None
    cut, sizes = expanded[0], [script.tree.argument(each) for each in expanded[1]]
    parts = [script.code(each.slice) for each in cut.slice]
    if script.tree.argument(cut.value) != x or parts.count("None") != 1 or len(sizes) != 5:
        return None
    new = parts.index("None")
    fits = len(parts) == len(sizes) or new == len(parts) - 1
    if not fits or set(parts) - {":", "None"} or sizes[new] != times or new < 1:
        return None
    heads = sizes[new - 1]
    wanted = [*sizes[: new - 1], {f"{heads} * {times}", f"{times} * {heads}"}, *sizes[new + 1 :]]
    shape = [script.tree.argument(each) for each in joined[1]]
    same = len(shape) == len(wanted) and all(
        one in two if isinstance(two, set) else one == two
        for one, two in zip(shape, wanted, strict=True)
    )
    return new - 1 if same else None


def _method(
    node: cst.BaseExpression, name: str
) -> tuple[cst.BaseExpression, list[cst.BaseExpression]] | None:
    """Return the receiver and the arguments of a call of a method."""
    owner = receiver_of(node, name)
    if not isinstance(node, cst.Call) or owner is None:
        return None
    if any(arg.keyword or arg.star for arg in node.args):
        return None
    return owner, [arg.value for arg in node.args]


def _fix(script: Script, site: CallSite, key: _Repeat, value: _Repeat) -> Fix | None:
    if not script.program.target.has(_NEEDED):
        return None
    parts = [script.edits.with_keyword(site.node, "enable_gqa", "True")]
    for each in (key, value):
        line = script.tree.statement(each.node)
        if "#" in script.code(line):
            return None
        assign = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        named = assign.targets[0].target if isinstance(assign, cst.Assign) else None
        again = named is not None and script.code(named) == script.code(each.source)
        if again and isinstance(assign, cst.Assign) and assign.value is each.node:
            if not script.edits.stands_alone(line):
                return None
            parts.append(script.edits.drop(line))
        else:
            parts.append(script.edits.replace(each.node, script.code(each.source)))
    edits = script.edits.united(*parts)
    title = "Pass `enable_gqa=True` and repeat nothing"
    doubt = script.program.target.doubt(_NEEDED)
    if doubt:
        return Fix.unsafe(title, edits, because=f"`enable_gqa` {doubt}")
    if (
        script.program.devices.can_use_accelerator
        and not script.values.precision.mentions_low_precision
    ):
        because = "for float32 on a GPU only the kernel that stores all scores takes it"
        return Fix.unsafe(title, edits, because=because)
    return Fix.close(title, edits, because="gradients of keys and values are summed differently")
