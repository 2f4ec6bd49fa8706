"""TL106: a tensor built from a list of arrays, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Finding, Fix, Grad, Impact, Kind, Rule, Script, index_of, receiver_of
from torchlint_rules.shared.grouping import joined
from torchlint_rules.shared.rebuilding import ways

_TYPED: Final = {
    "torch.FloatTensor": "float32",
    "torch.Tensor": "float32",
    "torch.DoubleTensor": "float64",
    "torch.HalfTensor": "float16",
    "torch.LongTensor": "int64",
    "torch.IntTensor": "int32",
    "torch.ByteTensor": "uint8",
    "torch.BoolTensor": "bool",
}
_MAKERS: Final = ("torch.tensor", "torch.as_tensor", *_TYPED)
_NORMS: Final = "torch._foreach_norm"
"""What gives a list of numbers, one for each tensor."""
_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)
_REDUCING: Final = ("norm", "mean", "sum", "std", "var", "prod", "max", "min", "any", "all")
_FILLING: Final = frozenset("append clear copy count index sort reverse".split())
_MIXED: Final = "NumPy promotes arrays of different dtypes by rules that differ from torch's"
_EMPTY: Final = "`np.stack` raises where the list is empty, torch.tensor made an empty tensor"


class TensorFromListOfArrays(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every list of arrays or losses that is made a tensor."""
        yield from joined(script, self._of_calls(script), ("call", "calls"))

    def _of_calls(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        """Yield the findings for single calls, each with the list that it gets."""
        for site in script.tree.in_file(script.calls.of(*_MAKERS)):
            given = site.given("data", 0)
            if given is None or given.star or (site.name in _TYPED and len(site.node.args) != 1):
                continue
            members = _members(script, given.value)
            if not members.elements:
                continue
            fix: Fix | None = None
            home = script.scopes.function(site.node)
            called = home is None or script.functions.callers(home)
            once = called and next(ways(script, site.node), None) is None
            impact: Impact | None = "medium" if once else None
            word = script.code(site.node.func)
            arrays = [script.values.arrays.array(element) for element in members.elements]
            if all(array is not None and array.sure and array.least > 0 for array in arrays):
                message = (
                    f"`{word}` converts a list of ndarrays number by number: stack "
                    f"`{script.tree.brief(given.value)}` with NumPy first"
                )
                fix = _stacked_arrays(script, site.node, given, members)
            elif all(
                script.kind(receiver_of(each, "detach") or each) is Kind.LOSS
                for each in members.elements
            ):
                message = (
                    f"`{word}` fetches the losses in `{script.tree.brief(given.value)}` from the "
                    "device one by one: stack them"
                )
                fix = _stacked_losses(script, site.node, given, members)
            elif script.loops.each_step(site.node) and all(
                _is_scalar(script, element) for element in members.elements
            ):
                impact = "medium"
                cure = "use `torch.stack`, which stays there"
                if (picked := _picked(members.elements[0])) is not None:
                    cure = f"index `{script.code(picked)}` with all of them at once"
                message = (
                    f"`{word}` fetches the numbers in `{script.tree.brief(given.value)}` from the "
                    f"device one by one: {cure}"
                )
            else:
                continue
            shared = script.scopes.only(given.value).assigned or site.node
            yield shared, Finding(self.code, script.span(site.node), message, fix, impact=impact)


class _Members(NamedTuple):
    """The kind of a list's items, empty if unknown."""

    elements: tuple[cst.BaseExpression, ...]
    may_be_empty: bool = False


def _members(script: Script, node: cst.BaseExpression) -> _Members:
    if isinstance(node, cst.List):
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return _Members(())
        return _Members(tuple(element.value for element in node.elements))
    if isinstance(node, cst.ListComp):
        return _Members((node.elt,), bool(node.for_in.ifs))
    if isinstance(node, cst.Call) and script.name(node.func) == _NORMS:
        return _Members((node,))
    if not isinstance(node, cst.Name):
        return _Members(())
    value = script.scopes.only(node).assigned
    if isinstance(value, cst.List) or script.names.is_empty(value):
        return _grown(script, node, value)
    if isinstance(value, (cst.ListComp, cst.Call)):
        return _members(script, value)
    return _Members(())


def _grown(script: Script, node: cst.Name, start: cst.BaseExpression | None) -> _Members:
    """Return the kind of the items of a list that is made on the spot and grows by `append`."""
    elements = [each.value for each in start.elements] if isinstance(start, cst.List) else []
    steady = bool(elements)
    for use in script.tree.spelled(node.value):
        if script.scopes.home(use) is not script.scopes.home(node):
            continue
        holder = script.tree.parent(use)
        if isinstance(holder, cst.AugAssign) and holder.target is use:
            return _Members(())
        call = script.tree.parent(holder) if isinstance(holder, cst.Attribute) else None
        if not isinstance(holder, cst.Attribute) or not isinstance(call, cst.Call):
            continue
        if holder.attr.value == "append" and len(call.args) == 1:
            elements.append(call.args[0].value)
            steady = steady or not any(True for _ in script.tree.tests_around(call))
        elif holder.attr.value not in _FILLING:
            return _Members(())
    return _Members(tuple(elements), may_be_empty=not steady)


# -- arrays -------------------------------------------------------------------


def _stacked_arrays(
    script: Script, call: cst.Call, given: cst.Arg, members: _Members
) -> Fix | None:
    name = script.name(call.func) or ""
    imported = script.edits.importing("numpy", alias="np", at=call)
    if not isinstance(call.func, cst.Attribute) or imported is None:
        return None
    dtype = _one_dtype(script, members)
    others = [arg for arg in call.args if arg is not given]
    typed = _TYPED.get(name, "")
    keywords = {arg.keyword.value for arg in others if arg.keyword is not None}
    if not keywords <= {"dtype", "device"} and name == "torch.tensor":
        maker = "tensor"
    elif others or (typed and typed != dtype) or given.keyword is not None:
        maker = "as_tensor"
    else:
        maker = "from_numpy"
    span = script.span(given.value)
    tail = ")"
    if maker == "as_tensor" and typed:
        tail = f"), dtype={script.code(call.func.value)}.{typed}"
    edits = (
        *script.edits.replace(call.func.attr, maker),
        *script.edits.insert(span.start, f"{imported[0]}.stack("),
        *script.edits.insert(span.end, tail),
        *imported[1],
    )
    title = f"Stack the arrays with `{imported[0]}.stack`"
    if not dtype and not typed and "dtype" not in keywords:
        return Fix.unsafe(title, edits, because=_MIXED)
    if members.may_be_empty:
        return Fix.unsafe(title, edits, because=_EMPTY)
    return Fix.exact(title, edits)


def _one_dtype(script: Script, members: _Members) -> str:
    """Return the dtype that all arrays of a list share, empty if that is unknown."""
    arrays = [script.values.arrays.array(element) for element in members.elements]
    dtypes = {array.dtype if array is not None else "" for array in arrays}
    return dtypes.pop() if len(dtypes) == 1 else ""


# -- losses -------------------------------------------------------------------


def _stacked_losses(
    script: Script, call: cst.Call, given: cst.Arg, members: _Members
) -> Fix | None:
    """Return the code that stacks losses in one call, detached as `torch.tensor` detaches them."""
    name = script.name(call.func)
    edits = script.edits.renamed(call, "stack")
    if name != "torch.tensor" or edits is None or len(call.args) > 1 or given.keyword is not None:
        return None
    attached = [each for each in members.elements if not _is_detached(script, each)]
    if isinstance(given.value, cst.Name) and attached:
        code = f"[loss.detach() for loss in {given.value.value}]"
        edits = (*edits, *script.edits.replace(given.value, code))
    elif not isinstance(given.value, cst.Name):
        for element in attached:
            opening, closing = ("", "") if script.tree.is_closed(element) else ("(", ")")
            span = script.span(element)
            edits = (*edits, *script.edits.insert(span.start, opening))
            edits = (*edits, *script.edits.insert(span.end, f"{closing}.detach()"))
    if script.program.devices.can_use_accelerator:
        edits = (*edits, *script.edits.insert(script.edits.closing(call) + 1, ".cpu()"))
    title = "Stack the losses with `torch.stack`"
    if members.may_be_empty:
        because = "`torch.stack` raises where the list is empty, torch.tensor made an empty tensor"
        return Fix.unsafe(title, edits, because=because)
    return Fix.exact(title, edits)


def _is_scalar(script: Script, element: cst.BaseExpression) -> bool:
    """Return whether an expression is a tensor of one number, which may be on a device."""
    if script.values.placement.on_host(element) or not script.program.devices.can_use_accelerator:
        return False
    if isinstance(element, cst.Call) and script.name(element.func) == _NORMS:
        return True
    picked = _picked(element)
    if picked is not None:
        # more than one number each would raise an error
        made = script.values.origins.of(picked)
        return made.complete and all(
            isinstance(each, cst.Call)
            and (script.name(each.func) or "").startswith("torch.")
            and not script.values.placement.on_host(each)
            for each in made.values
        )
    tensor = receiver_of(element, *_REDUCING)
    return (
        isinstance(element, cst.Call)
        and not element.args
        and tensor is not None
        and script.kind(tensor) in _TENSORS
    )


def _picked(element: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the tensor of which an expression takes one item, by an index with a name."""
    if not isinstance(element, cst.Subscript):
        return None
    return element.value if isinstance(index_of(element), cst.Name) else None


def _is_detached(script: Script, element: cst.BaseExpression) -> bool:
    if script.values.gradients.grad(element) is Grad.OFF:
        return True
    if receiver_of(element, "detach", "detach_") is not None:
        return True
    return isinstance(element, cst.Attribute) and element.attr.value == "data"
