"""TL210: every step builds the same constant and copies it to the device again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, How, Kind, Note, Rule, Script, State
from torchlint_rules.shared.grouping import joined
from torchlint_rules.shared.targets import target_of
from torchlint_rules.shared.tensoruses import TensorUse, tensor_use
from torchlint_rules.tl210_constant_rebuilt_each_step.arrays import (
    is_array,
    is_set_at_start,
    is_table,
)
from torchlint_rules.tl210_constant_rebuilt_each_step.movedconstants import moved_constants

_OF_VALUES: Final = frozenset(
    "torch.tensor torch.as_tensor torch.from_numpy torch.FloatTensor torch.LongTensor "
    "torch.Tensor".split()
)
_OF_SIZES: Final = ("torch.ones",)
_COPYING: Final = ("torch.tensor", "torch.as_tensor")
"""What takes a number as data; `torch.FloatTensor(3)` takes a size."""
_SIZES: Final = frozenset("data start end step steps size n m".split())
_MASKS: Final = frozenset({"torch.tril", "torch.triu"})
_PASSING: Final = frozenset(
    "view reshape unsqueeze squeeze expand float long int bool half double flatten".split()
)
_VARIABLE: Final = "torch.autograd.Variable"


class ConstantRebuiltEachStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every constant that each step builds on the device, or copies there again."""
        if script.program.devices.can_use_accelerator:
            yield from self._of_moves(script)
        sites = list(script.tree.in_file(script.calls.of(*_OF_VALUES, *_OF_SIZES)))
        sites += script.tree.in_file(script.calls.of_methods("new_tensor"))
        if not sites or not script.program.devices.can_use_accelerator:
            return
        numbers: dict[int, list[cst.Call]] = {}
        yield from joined(script, self._of_lists(script, sites, numbers), ("constant", "constants"))
        for calls in numbers.values():
            yield self._of_numbers(script, calls)

    def _of_moves(self, script: Script) -> Iterator[Finding]:
        """Yield a finding for each constant that was made before the loop, on the host."""
        for move in moved_constants(script):
            message = (
                f"`{script.tree.brief(move.call)}` copies the same tensor in every step, and the "
                f"CPU waits for it: {_advice(script, move.call, 'move')}"
            )
            notes = script.loops.repetition.notes_on_callers(move.call)
            yield Finding(self.code, script.span(move.call), message, None, notes)

    def _of_lists(
        self, script: Script, sites: list[CallSite], numbers: dict[int, list[cst.Call]]
    ) -> Iterator[tuple[cst.CSTNode, Finding]]:
        """Yield a finding for each constant but single numbers, which are put into `numbers`."""
        for site in sites:
            of_sizes = site.name in _OF_SIZES
            if site.has_splat or not _is_constant_call(script, site, of_sizes):
                continue
            whole = _whole(script, site.node)
            if not _goes_to_device(script, site, whole, of_sizes) or _changes(script, whole):
                continue
            if not script.loops.each_step(site.node) or script.loops.is_in_round(site.node):
                continue
            if _is_number(script, site) and _is_instead(script, whole):
                continue
            if whole is site.node and _is_number(script, site):
                numbers.setdefault(id(script.scopes.home(whole)), []).append(site.node)
                continue
            message = (
                f"`{script.tree.brief(whole)}` is the same in every step, and each step rebuilds "
                f"it; {_advice(script, whole)}"
            )
            notes = script.loops.repetition.notes_on_callers(whole)
            found = Finding(self.code, script.span(whole), message, None, notes)
            yield script.scopes.home(whole), found

    def _of_numbers(self, script: Script, calls: list[cst.Call]) -> Finding:
        """Return one finding for the numbers that a function copies to the device."""
        first = calls[0]
        now = script.tree.brief(first)
        func = script.code(first.func)
        made = now.replace(f"{func}(", f"{func.removesuffix('tensor')}full((), ", 1)
        message = (
            f"`{now}` copies a number from the host in every step, and the CPU waits for it: "
            f"`{made}` makes it on the device"
        )
        notes = tuple(Note(script.span(call), "here as well") for call in calls[1:])
        callers = script.loops.repetition.notes_on_callers(first)
        return Finding(self.code, script.span(first), message, None, (*notes, *callers))


def _is_instead(script: Script, number: cst.BaseExpression) -> bool:
    """Return whether a number stands in a branch, for what the other one computes."""
    for outer in script.tree.ancestors(number):
        if isinstance(outer, (cst.If, cst.Else, cst.IfExp)):
            return True
        if isinstance(outer, (cst.FunctionDef, cst.For, cst.While)):
            return False
    return False


def _is_constant_call(script: Script, site: CallSite, of_sizes: bool) -> bool:
    """Return whether a tensor has the same values each time it is built."""
    given = [arg for arg in site.node.args if arg.keyword is None or arg.keyword.value in _SIZES]
    if not given or site.argument("requires_grad").state is not State.ABSENT:
        return False
    dtype = site.given("dtype")
    if (
        dtype is not None
        and isinstance(dtype.value, cst.Attribute)
        and script.name(dtype.value) is None
    ):
        return False
    if not of_sizes:
        return len(given) == 1 and _is_literal(script, given[0].value, site.name)
    return all(_is_fixed(script, arg.value) for arg in given)


def _is_listed(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a list item is itself a list of numbers."""
    return _is_literal(script, node, None)


def _is_literal(script: Script, node: cst.BaseExpression, maker: str | None) -> bool:
    """Return whether data is literal numbers, possibly in lists or arrays, or a fixed number."""
    value = script.values.value_of(node)
    if is_table(script, node) or (maker in _COPYING and _is_option(script, node)):
        return True
    if value.node is None or value.state is not State.KNOWN:
        return False
    if isinstance(value.node, (cst.List, cst.Tuple)):
        elements = value.node.elements
        return bool(elements) and all(
            script.values.value_of(each.value).is_literal
            or script.answer(_is_listed, each.value, False)
            for each in elements
        )
    if is_array(script, node, value.node):
        return True
    if maker not in _COPYING:
        return False
    literal = isinstance(value.node, (cst.Integer, cst.Float, cst.UnaryOperation))
    return literal or _is_setting(script, value.node)


def _is_option(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value is an attribute that keeps what the start of its object is given."""
    if not isinstance(node, cst.Attribute) or not is_set_at_start(script, node):
        return False
    plain = (cst.Name, cst.Attribute, cst.Integer, cst.Float)
    return all(isinstance(each.value, plain) for each in script.functions.attribute(node))


def _is_setting(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value is `float(self.x)`, where only `__init__` sets `x`."""
    if not isinstance(value, cst.Call) or len(value.args) != 1:
        return False
    converted = script.name(value.func) in ("builtins.float", "builtins.int")
    return converted and _is_fixed(script, value.args[0].value)


def _is_number(script: Script, site: CallSite) -> bool:
    """Return whether a call is `torch.tensor(number, ...)`."""
    first = site.node.args[0]
    number = script.kind(first.value) is Kind.NUMBER or script.values.numbers.is_number(first.value)
    return site.name == "torch.tensor" and first.keyword is None and number


def _is_fixed(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a size is a literal or an attribute that only the start of its object sets."""
    if isinstance(node, cst.BinaryOperation):
        return _is_fixed(script, node.left) and _is_fixed(script, node.right)
    if script.values.value_of(node).is_literal and not isinstance(node, cst.Attribute):
        return True
    return is_set_at_start(script, node)


def _whole(script: Script, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return the expression around a constant that only reshapes, casts, masks or moves it."""
    while True:
        holder = script.tree.parent(node)
        outer = script.tree.parent(holder)
        if not isinstance(outer, cst.Call):
            return node
        if isinstance(holder, cst.Attribute) and outer.func is holder:
            goes_on = holder.attr.value in _PASSING or script.program.moves.move(outer) is not None
        else:
            goes_on = script.name(outer.func) in (*_MASKS, _VARIABLE) and outer.args[0] is holder
        if not goes_on:
            return node
        node = outer


def _goes_to_device(
    script: Script, site: CallSite, whole: cst.BaseExpression, of_sizes: bool
) -> bool:
    """Return whether a constant is built for a device and no other rule reports it."""
    calls = [
        call
        for call in script.tree.within(whole, cst.Call)
        if not script.tree.inside(call, site.node)
    ]
    calls += [site.node] if isinstance(whole, cst.Call) else []
    masked = any(script.name(call.func) in _MASKS for call in calls)
    moved = any(script.program.moves.move(call) is not None for call in calls)
    if of_sizes and not masked:
        return False
    if of_sizes:
        return not moved and _names_device(script, site)
    return moved or _names_device(script, site) or script.name(site.node.func) is None


def _names_device(script: Script, site: CallSite) -> bool:
    given = site.given("device")
    if given is None:
        return False
    value = script.values.value_of(given.value)
    return not (value.equals("cpu") or value.equals(None))


def _changes(script: Script, whole: cst.BaseExpression) -> bool:
    """Return whether a constant is only a start value."""
    line, target = target_of(script, whole) or (None, None)
    listed = isinstance(script.tree.parent(whole), cst.ListComp)
    if listed or tensor_use(script, whole) is TensorUse.WRITTEN:
        return True
    if not isinstance(target, cst.Name):
        return script.kind(whole) is Kind.LOSS or (target is not None and _is_sum(script, target))
    return any(
        each.how is How.AUGMENTED
        or (
            each.node is not line
            and each.value is not None
            and any(name.value == target.value for name in script.tree.within(each.value, cst.Name))
        )
        for each in script.scopes.scope(target).bindings.get(target.value, ())
    )


def _is_sum(script: Script, start: cst.BaseExpression) -> bool:
    """Return whether something is added to an entry or an attribute that holds a start value."""
    sums = [each.target for each in script.readings.accumulators.all()]
    home = script.scopes.home(start)
    sums += [each.target for each in script.tree.within(home, cst.AugAssign)]
    sums += [
        each.target
        for line in script.tree.within(home, cst.Assign)
        for each in line.targets
        if script.code(each.target)
        in map(script.code, script.tree.within(line.value, type(each.target)))
    ]
    return script.code(start) in map(script.code, sums)


def _advice(script: Script, node: cst.CSTNode, verb: str = "make") -> str:
    """Return where a constant should be made, or moved to the device."""
    if script.loops.batch_loop(node) is not None:
        return f"{verb} it once, before the loop"
    owner = script.scopes.class_of(node)
    bases = script.functions.bases(owner) if owner is not None else []
    if any(base.endswith(("torch.nn.Module", ".LightningModule")) for base in bases):
        return "keep it in a buffer: self.register_buffer(..., persistent=False)"
    return f"{verb} it once and keep it"
