"""The activations in which a value ends."""

from __future__ import annotations

from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Binding, How, Kind, Script, method_of, receiver_of

_LAYERS: Final = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "sigmoid": "Sigmoid"}
_ACTIVATIONS: Final = {
    name: word
    for word, layer in _LAYERS.items()
    for name in (f"torch.{word}", f"torch.nn.functional.{word}", f"torch.nn.{layer}")
}
_FUNCTIONAL: Final = frozenset(name for name in _ACTIVATIONS if name.rpartition(".")[2].islower())
METHODS: Final = tuple(_LAYERS)
"""The activations as methods of tensors."""
PASSING: Final = frozenset("squeeze unsqueeze view reshape flatten permute float to cuda".split())
"""Methods that hand on the numbers of a tensor."""
MOVES: Final = ("to", "cuda", "cpu", "double", "float", "half")
"""Methods that move a layer or a tensor."""
Path = tuple[int, ...]


class Activation(NamedTuple):
    """The activation at the end of a loss's input; `node` is the call or the layer."""

    kind: str
    node: cst.Call


def maker(script: Script, node: cst.BaseExpression) -> cst.Call | None:
    """Return the call that built a layer or a loss, without moves to a device."""
    value = script.values.value_of(node).node
    if not isinstance(value, cst.Call):
        return None
    moved = receiver_of(value, *MOVES) if script.name(value.func) is None else None
    return script.answer(maker, moved, None) if moved is not None else value


def ends(script: Script, node: cst.BaseExpression, path: Path, depth: int) -> list[Activation]:
    """Return the activations that a value ends in, empty unless every path has one."""
    if not depth:
        return []
    if isinstance(node, cst.Name):
        return _joint([_bound(script, b, path, depth) for b in script.scopes.reaching(node)])
    if isinstance(node, cst.IfExp):
        return _joint([ends(script, each, path, depth - 1) for each in (node.body, node.orelse)])
    if isinstance(node, cst.Tuple) and path and path[0] < len(node.elements):
        return ends(script, node.elements[path[0]].value, path[1:], depth - 1)
    if isinstance(node, cst.Subscript):
        index = script.values.key(node)
        inner = (index, *path) if isinstance(index, int) and index >= 0 else None
        chosen = ends(script, node.value, inner, depth - 1) if inner is not None else []
        return chosen or ends(script, node.value, path, depth - 1)
    if isinstance(node, cst.Call):
        return _called(script, node, path, depth)
    return []


def _joint(found: list[list[Activation]]) -> list[Activation]:
    if not all(found) or len({each.kind for one in found for each in one}) > 1:
        return []
    return [each for one in found for each in one]


def _bound(script: Script, binding: Binding, path: Path, depth: int) -> list[Activation]:
    if isinstance(binding.node, cst.Param):
        given = script.functions.given(binding.node)
        return _joint([ends(script, value, path, depth - 1) for value in given])
    if binding.value is None or binding.starred:
        return []
    if binding.how is How.ASSIGN:
        return ends(script, binding.value, path, depth - 1)
    if binding.how is How.UNPACKED:
        return ends(script, binding.value, (*binding.path, *path), depth - 1)
    return []


def _called(script: Script, call: cst.Call, path: Path, depth: int) -> list[Activation]:
    """Return the activations that the value of a call ends in."""
    name, func = script.name(call.func), call.func
    first = call.args[0].value if call.args else None
    if name is not None and name.startswith("torch."):
        if name in _FUNCTIONAL and not path:
            return [Activation(_ACTIVATIONS[name], call)]
        if first is None or path:
            return []
        if name == "torch.nn.parallel.data_parallel":
            ended = _layer_end(script, maker(script, first))
            return [ended] if ended is not None else []
        if name == "torch.log":
            return _logarithm(call, ends(script, first, path, depth - 1))
        passes = name.removeprefix("torch.") in PASSING
        return ends(script, first, path, depth - 1) if passes else []
    callee = script.functions.callee(call)
    if callee is not None:
        if script.functions.is_generator(callee):
            return []
        returned = script.functions.returns(callee)
        return _joint([ends(script, value, path, depth - 1) for value in returned])
    layer = maker(script, func)
    ended = _layer_end(script, layer) if not path else None
    if ended is not None:
        return [Activation(ended.kind, call) if ended.node is layer else ended]
    method, owner = method_of(call), receiver_of(call)
    if owner is None or name is not None:
        return []
    if method in METHODS and not path and _is_tensor(script, owner):
        return [Activation(method, call)]
    if method == "log" and not path:
        return _logarithm(call, ends(script, owner, path, depth - 1))
    return ends(script, owner, path, depth - 1) if method in PASSING else []


def _is_tensor(script: Script, node: cst.BaseExpression) -> bool:
    kind = script.kind(node)
    if kind is Kind.UNKNOWN:
        return script.name(node) is None and script.code(node) != "self"
    return kind in (Kind.TENSOR, Kind.LOSS)


def _logarithm(call: cst.Call, inner: list[Activation]) -> list[Activation]:
    if any(each.kind != "softmax" for each in inner):
        return []
    return [Activation("log(softmax)", call)] if inner else []


def _layer_end(script: Script, layer: cst.BaseExpression | None) -> Activation | None:
    """Return the activation that a layer is or, if it is a Sequential, ends in."""
    if not isinstance(layer, cst.Call):
        return None
    name = script.name(layer.func) or ""
    if name in _ACTIVATIONS and name not in _FUNCTIONAL:
        return Activation(_ACTIVATIONS[name], layer)
    if name != "torch.nn.Sequential" or not layer.args or layer.args[-1].star:
        return None
    return script.answer(_layer_end, script.values.value_of(layer.args[-1].value).node, None)
