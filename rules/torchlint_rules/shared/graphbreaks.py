"""Graph breaks: what ends a graph of torch's compiler, with the name that torch has for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    TENSORS,
    Binding,
    Finding,
    Frame,
    How,
    Kind,
    Script,
    Span,
    method_of,
    operands_of,
    receiver_of,
)
from torchlint_rules.shared.arraydraws import draws_array
from torchlint_rules.shared.breakingconstructs import CONSTRUCTS

_CAPTURED: Final = ("item", "builtins.float", "builtins.int", "builtins.bool")
_LOGGING: Final = frozenset("debug info warning warn error critical exception log".split())
_SIZED: Final = frozenset(
    "nonzero argwhere masked_select unique unique_consecutive repeat_interleave".split()
)
_METHODS: Final = ("item", "tolist", "backward", "to_sparse")
_OF_TENSORS: Final = frozenset(
    "math builtins.float builtins.int builtins.bool builtins.str builtins.repr builtins.range "
    "builtins.any builtins.all copy.copy copy.deepcopy".split()
)
"""Calls that break the graph only if their first argument is a tensor."""
_DRAWING: Final = frozenset(
    f"numpy.random.{name}" for name in "rand random random_sample normal uniform randint".split()
)
_REDUCING: Final = frozenset("sum mean any all norm amax amin std var item".split())
_NOT_COMPARING: Final = (cst.Is, cst.IsNot, cst.In, cst.NotIn)
_RECURRENT: Final = frozenset({"torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU"})


class GraphBreak(NamedTuple):
    """A place that ends the graph; `skips`: its function is not compiled at all."""

    node: cst.CSTNode
    construct: str
    skips: bool = False


def graph_breaks(script: Script) -> Iterator[tuple[GraphBreak, Frame]]:
    """Yield what ends graphs in compiled code, with the frame that it costs most."""
    for found in _all(script):
        for frame in script.modules.compiled.frames_of(found.node):
            if not script.modules.compiled.option(frame.compilation, "fullgraph").equals(True):
                yield found, frame
                break


def without_breaks(script: Script, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings about waits that are not at a graph break, which TL316 reports."""
    broken = script.once(_spans)
    yield from (each for each in findings if not any(each.span in span for span in broken))


def _spans(script: Script) -> list[Span]:
    return [script.span(found.node) for found, _ in graph_breaks(script)]


def _all(script: Script) -> Iterator[GraphBreak]:
    """Yield what ends graphs in the functions that compiled code runs, in source order."""
    functions = dict.fromkeys(frame.function for frame in script.modules.compiled.frames)
    for function in functions:
        found_here = (
            *_branches(script, function),
            *_calls(script, function),
            *_selections(script, function),
        )
        last: cst.CSTNode | None = None
        for found in sorted(found_here, key=lambda each: script.tree.order(each.node)):
            if last is not None and script.tree.inside(found.node, last):
                continue
            if not _is_captured(script, found.construct) and script.modules.compiled.is_taken(
                found.node
            ):
                last = found.node
                yield found


def _is_captured(script: Script, construct: str) -> bool:
    """Return whether a setting of the file lets the compiler go on."""
    settings: tuple[str, ...] = ()
    if construct in _CAPTURED:
        settings = ("capture_scalar_outputs",)
    elif CONSTRUCTS[construct].name == "GB0036":
        settings = ("capture_dynamic_output_shape_ops",)
    elif construct == "recurrent":
        settings = ("allow_rnn",)
    elif construct in ("logger", "builtins.print") or construct.startswith("logging."):
        settings = ("ignore_logging_functions", "reorderable_logging_functions")
    return any(setting in script.whole.tree.source.text for setting in settings)


# -- branches -----------------------------------------------------------------


def _branches(script: Script, function: cst.FunctionDef) -> Iterator[GraphBreak]:
    """Yield the tests that need the value of a tensor."""
    holders: list[cst.If | cst.While | cst.IfExp] = [
        *script.functions.own(function, cst.If),
        *script.functions.own(function, cst.While),
        *script.functions.own(function, cst.IfExp),
    ]
    for holder in holders:
        for part in operands_of(holder.test):
            if _is_computed(script, part, frozenset()):
                yield GraphBreak(part, "branch")
                break


def _is_computed(script: Script, node: cst.BaseExpression, trail: frozenset[int]) -> bool:
    """Return whether a value is a tensor that torch computes, not a flag by its name."""
    if id(node) in trail:
        return False
    trail = trail | {id(node)}
    if isinstance(node, cst.Call):
        name, owner = script.name(node.func), receiver_of(node)
        if (name or "").startswith("torch."):
            return script.kind(node) in TENSORS
        if owner is None or name is not None:
            return False
        if script.kind(owner) in TENSORS:
            return script.kind(node) in TENSORS
        return method_of(node) in _REDUCING and _is_given(script, owner)
    if isinstance(node, cst.Comparison):
        if any(isinstance(each.operator, _NOT_COMPARING) for each in node.comparisons):
            return False
        sides = (node.left, *(each.comparator for each in node.comparisons))
        return any(_is_computed(script, each, trail) for each in sides)
    if isinstance(node, cst.BinaryOperation):
        return any(_is_computed(script, each, trail) for each in (node.left, node.right))
    if isinstance(node, cst.UnaryOperation):
        return _is_computed(script, node.expression, trail)
    if isinstance(node, cst.Subscript):
        return _is_computed(script, node.value, trail)
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        return bool(bindings) and all(
            _is_declared(script, node, binding)
            or (
                binding.how is How.ASSIGN
                and binding.value is not None
                and _is_computed(script, binding.value, trail)
            )
            for binding in bindings
        )
    return False


def _is_declared(script: Script, node: cst.Name, binding: Binding) -> bool:
    """Return whether a parameter is annotated as a tensor."""
    parameter = binding.node
    return (
        isinstance(parameter, cst.Param)
        and parameter.annotation is not None
        and script.kind(node) in TENSORS
    )


def _is_given(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value of no known kind is a parameter, in compiled code a tensor."""
    if script.kind(node) is not Kind.UNKNOWN or not isinstance(node, cst.Name):
        return False
    bindings = script.scopes.reaching(node)
    return bool(bindings) and all(binding.how is How.PARAMETER for binding in bindings)


# -- calls --------------------------------------------------------------------


def _calls(script: Script, function: cst.FunctionDef) -> Iterator[GraphBreak]:
    for call in script.functions.own(function, cst.Call):
        construct = _construct(script, call)
        if construct is not None:
            yield GraphBreak(call, construct, skips=construct == "recurrent")


def _construct(script: Script, call: cst.Call) -> str | None:
    """Return the construct that a call is."""
    name = script.name(call.func)
    if name is not None:
        return _named(script, call, name)
    func = call.func
    made = script.values.value_of(func).node
    if isinstance(made, cst.Call) and script.name(made.func) in _RECURRENT:
        return "recurrent"
    method, owner = method_of(call), receiver_of(call)
    if owner is None:
        return None
    if method in _LOGGING:
        maker = script.values.value_of(owner).node
        if isinstance(maker, cst.Call) and script.name(maker.func) == "logging.getLogger":
            return "logger"
    if script.kind(owner) in TENSORS or _is_computed(script, owner, frozenset()):
        if method == "repeat_interleave" and not _repeats_by_tensor(script, call):
            return None
        return method if method in _SIZED or method in _METHODS else None
    return None


def _named(script: Script, call: cst.Call, name: str) -> str | None:
    """Return the construct that a call of a function with a qualified name is."""
    last = name.rpartition(".")[2]
    construct = last if name in {f"torch.{last}"} and last in _SIZED else name
    construct = "math" if name.startswith("math.") else construct
    first = call.args[0].value if call.args else None
    if construct in _OF_TENSORS:
        if first is None or not any(
            _is_computed(script, part, frozenset()) for part in _elements(first)
        ):
            return None
    if construct in ("torch.where", "torch.nn.functional.one_hot") and len(call.args) > 1:
        return None
    site = script.calls.at(call)
    if construct in _DRAWING and (site.has_splat or draws_array(site)):
        return None
    if construct == "repeat_interleave" and not _repeats_by_tensor(script, call):
        return None
    return construct if construct in CONSTRUCTS else None


def _elements(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield what a display or a comprehension holds, or the expression itself."""
    if isinstance(node, (cst.List, cst.Tuple)):
        yield from (element.value for element in node.elements)
    elif isinstance(node, (cst.GeneratorExp, cst.ListComp)):
        yield node.elt
    else:
        yield node


def _repeats_by_tensor(script: Script, call: cst.Call) -> bool:
    """Return whether only a tensor says how long the repeated tensor is."""
    site = script.calls.at(call)
    if site.has_splat or site.given("output_size") is not None:
        return False
    repeats = site.given("repeats") or site.given("input")
    return repeats is not None and script.kind(repeats.value) in TENSORS


# -- masks --------------------------------------------------------------------


def _selections(script: Script, function: cst.FunctionDef) -> Iterator[GraphBreak]:
    """Yield the subscripts by masks."""
    for item in script.functions.own(function, cst.Subscript):
        if _selects(script, item):
            yield GraphBreak(item, "mask")


def _selects(script: Script, item: cst.Subscript) -> bool:
    """Return whether a subscript reads the elements that a mask chooses."""
    if isinstance(script.tree.parent(item), (cst.AssignTarget, cst.Del)):
        return False
    if script.kind(item.value) not in TENSORS and not _is_given(script, item.value):
        return False
    return any(
        isinstance(each.slice, cst.Index)
        and script.kind(each.slice.value) in (*TENSORS, Kind.UNKNOWN)
        and script.values.dtypes.is_mask(each.slice.value)
        for each in item.slice
    )
