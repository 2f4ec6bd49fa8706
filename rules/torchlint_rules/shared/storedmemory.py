"""What a list keeps alive that stores values without copying them, and who may write into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

import libcst as cst

from torchlint.api import ASSIGNED, Binding, How, Kind, Script, method_of, receiver_of, root_of

_VIEWS: Final = frozenset(
    "unsqueeze squeeze view view_as reshape reshape_as permute transpose t flatten unflatten "
    "expand expand_as detach to cpu float double half long int bool type type_as contiguous "
    "movedim swapaxes numpy".split()
)
_SLICES: Final = frozenset("narrow select chunk split unbind".split())
_SAME: Final = frozenset(
    f"torch.{word}"
    for word in (
        "unsqueeze squeeze reshape permute transpose flatten movedim as_tensor from_numpy"
    ).split()
)


_Pass: TypeAlias = cst.For | cst.While | cst.FunctionDef
"""What runs again and again: a loop, or a function that it calls."""


class Held(NamedTuple):
    """The memory that a list keeps alive if it stores a value without copying it.

    `replayed`: it may be of a CUDA graph, whose next run overwrites it.
    """

    roots: tuple[cst.BaseExpression, ...] = ()
    sliced: bool = False
    loaded: bool = False
    replayed: bool = False


def held(script: Script, value: cst.BaseExpression, loop: _Pass) -> Held:
    """Return the memory that storing a value keeps alive: the tensors that it shares it with."""
    return _held(script, value, loop, ASSIGNED)


def _held(script: Script, value: cst.BaseExpression, loop: _Pass, depth: int) -> Held:
    if not depth:
        return Held((value,))
    if isinstance(value, cst.Subscript):
        inner = _held(script, value.value, loop, depth - 1)
        outside = bool(inner.roots) and not _made_in(script, inner.roots[-1], loop)
        return inner._replace(sliced=inner.sliced or not outside)
    if isinstance(value, cst.Attribute):
        if value.attr.value in ("data", "T", "mT", "real"):
            return _held(script, value.value, loop, depth - 1)
        inner = _held(script, value.value, loop, depth - 1)
        return inner if inner.loaded else Held((value,), replayed=inner.replayed)
    if isinstance(value, cst.Call):
        return _held_by_call(script, value, loop, depth)
    if not isinstance(value, cst.Name):
        return Held()
    found = [_held_by_binding(script, b, loop, depth) for b in script.scopes.reaching(value)]
    return _joined((*found, Held((value,))))


def _joined(found: Iterable[Held]) -> Held:
    every = tuple(found)
    return Held(
        tuple(root for each in every for root in each.roots),
        any(each.sliced for each in every),
        any(each.loaded for each in every),
        any(each.replayed for each in every),
    )


def _held_by_call(script: Script, call: cst.Call, loop: _Pass, depth: int) -> Held:
    name = script.name(call.func)
    if name in _SAME and call.args:
        return _held(script, call.args[0].value, loop, depth - 1)
    word, whole = method_of(call), receiver_of(call) if name is None else None
    fills = word.endswith("_") and whole is not None and script.kind(whole) is not Kind.MODULE
    if whole is None or not (fills or word in _VIEWS or word in _SLICES):
        returned = [
            _held(script, each, callee, depth - 1)
            for callee in script.functions.callees(call)
            for each in script.functions.returns(callee)
        ]
        return _joined((*returned, Held(replayed=script.modules.overwrites_output(call))))
    inner = _held(script, whole, loop, depth - 1)
    sliced, moved = inner.sliced or word in _SLICES, word == "cpu"
    return inner._replace(sliced=sliced, replayed=inner.replayed and not moved)


def _held_by_binding(script: Script, binding: Binding, loop: _Pass, depth: int) -> Held:
    if not script.tree.inside(binding.node, loop) or binding.value is None:
        return Held()
    if binding.how is How.ASSIGN:
        return _held(script, binding.value, loop, depth - 1)
    if binding.how is How.UNPACKED:
        loaded = isinstance(binding.value, (cst.Name, cst.Subscript))
        made = _held(script, binding.value, loop, depth - 1)
        return Held(loaded=loaded, replayed=made.replayed)
    if binding.how is How.LOOP:
        source, _ = script.values.iteration.source(binding.value, binding.path)
        if isinstance(source, cst.Call):
            return Held((source,))
        loaded = source is not None and script.kind(source) is Kind.LOADER
        return Held(sliced=not loaded and binding.node is not loop, loaded=loaded)
    return Held()


def _made_in(script: Script, root: cst.BaseExpression, loop: _Pass) -> bool:
    return not isinstance(root, cst.Name) or any(
        script.tree.inside(binding.node, loop) for binding in script.scopes.reaching(root)
    )


def written(script: Script, kept: Held, loop: _Pass) -> bool:
    """Return whether a loop may overwrite a tensor that shares memory with a stored value.

    Writes to an attribute, or to a value that a call passes on, may be outside the loop.
    """
    if kept.replayed or any(isinstance(root, (cst.Attribute, cst.Call)) for root in kept.roots):
        return True
    texts = {script.code(root) for root in kept.roots}
    return bool(texts) and any(
        script.code(each.tensor) in texts for each in script.values.writes.within(loop)
    )


def may_change(script: Script, value: cst.BaseExpression, loop: _Pass) -> bool:
    """Return whether what a stored value shares memory with may be modified after it was stored.

    Only what each pass binds itself is known: any code may write into what was there before.
    """
    kept = held(script, value, loop)
    roots = [root_of(each, items=True) for each in kept.roots]
    if kept.replayed or not all(
        isinstance(each, cst.Name) and _is_new(script, each, loop) for each in roots
    ):
        return True
    texts = {script.code(each) for each in roots}
    return any(script.code(each.tensor) in texts for each in script.values.writes.within(loop))


def _is_new(script: Script, name: cst.Name, loop: _Pass) -> bool:
    """Return whether each pass, or each call of the function that returns it, binds a name."""
    bindings = script.scopes.reaching(name)
    made = loop if script.tree.inside(name, loop) else script.scopes.function(name) or loop
    return bool(bindings) and all(
        each.how is not How.PARAMETER and script.tree.inside(each.node, made) for each in bindings
    )
