"""TL208: tensors are stored together with their autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    TENSORS,
    Accumulation,
    Adding,
    Addition,
    Finding,
    Fix,
    Grad,
    GraphUse,
    How,
    Impact,
    Kind,
    Role,
    Rule,
    Script,
    container_of,
    method_of,
    receiver_of,
)

_REPORTING: Final = ("builtins.", "numpy.", "torch.", "wandb.", "logging.")
BOUND: Final = (How.ASSIGN, How.UNPACKED, How.AUGMENTED)
_CONTAINERS: Final = (cst.Tuple, cst.List, cst.Dict)
CUTTING: Final = ("detach", "item", "numpy", "tolist", "size", "argmax")
_COLLECTING: Final = (Adding.SUM, Adding.APPEND, Adding.MIX)
PASSING: Final = frozenset(
    "mean sum clone cpu cuda to float double half squeeze unsqueeze view reshape flatten".split()
)

_LEAVES: Final = "the values leave the function, and a caller may call `backward()` on them"
_RETAINED: Final = "`retain_graph=True` keeps a graph, through which code may go backward again"


class GraphKeptAlive(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag values that training and evaluation batches add up or store with their graph."""
        for addition in script.readings.accumulations_in_file(Role.TRAIN_BATCH):
            if not script.readings.accumulators.is_emptied(addition):
                yield from self._trained(script, addition, "the loop ends")
                yield from self._beside(script, addition)
        for added in script.readings.accumulators.of_steps:
            yield from self._trained(script, added, "it is emptied")
        for addition, carriers, hidden in _evaluated(script):
            message = (
                f"{_quoted(script, addition.target)} keeps the graph and all activations of every "
                "batch: memory grows until the loop ends"
            )
            fix = _detached(script, addition, carriers, _LEAVES if hidden else "")
            yield self._finding(script, addition, carriers, message, fix, "high")

    def _trained(
        self, script: Script, addition: Accumulation | Addition, end: str
    ) -> Iterator[Finding]:
        """Yield a finding for an addition of what goes backward in its own batch."""
        carriers = _carriers(script, addition, _sent)
        if carriers:
            message = (
                f"{_quoted(script, addition.target)} keeps the nodes of the graph of every "
                f"batch: host memory grows by tens of kilobytes a batch until {end}"
            )
            because = _RETAINED if script.once(_retains_graphs) else ""
            fix = _detached(script, addition, carriers, because)
            yield self._finding(script, addition, carriers, message, fix, "low")

    def _beside(self, script: Script, addition: Accumulation) -> Iterator[Finding]:
        """Yield a finding for an addition of what is computed beside the loss, with its graph."""
        carriers = _carriers(script, addition, _is_beside)
        uses = {script.evaluations.escapes.use_of(each) for each in carriers}
        if carriers and GraphUse.TRAINED not in uses and not _is_handed_on(script, addition):
            message = (
                f"{_quoted(script, addition.target)} keeps the part of every batch's graph that "
                "`backward()` does not free: device memory grows until the loop ends"
            )
            because = _LEAVES if GraphUse.ESCAPED in uses else ""
            fix = _detached(script, addition, carriers, because)
            yield self._finding(script, addition, carriers, message, fix, "medium")

    def _finding(
        self,
        script: Script,
        addition: Accumulation | Addition,
        carriers: list[cst.BaseExpression],
        message: str,
        fix: Fix,
        impact: Impact,
    ) -> Finding:
        kept = _quoted(script, carriers[0])
        cure = f"keep {kept[:-1]}.detach()`" if len(kept) < 42 else "`.detach()` it"
        span = script.span(_value(addition))
        return Finding(self.code, span, f"{message}; {cure}", fix, impact=impact)


def _detached(
    script: Script,
    addition: Accumulation | Addition,
    carriers: list[cst.BaseExpression],
    because: str,
) -> Fix:
    """Return the fix that detaches what is kept: exact if nothing, `because`, is against it."""
    value = _value(addition)
    edits = script.edits.insert(script.span(carriers[0]).end, ".detach()")
    if isinstance(value, _CONTAINERS):
        for each in carriers[1:]:
            edits += script.edits.insert(script.span(each).end, ".detach()")
    elif len(carriers) > 1 or isinstance(carriers[0], cst.BinaryOperation):
        span = script.span(value)
        opening, closing = ("", "") if value.lpar else ("(", ")")
        edits = script.edits.insert(span.end, f"{closing}.detach()")
        edits += script.edits.insert(span.start, opening) if opening else ()
    if because:
        return Fix.unsafe("Detach what is kept", edits, because=because)
    return Fix.exact("Detach what is kept", edits)


def _retains_graphs(script: Script) -> bool:
    """Return whether a backward pass in view keeps its graph for another one."""
    return any(site.given("retain_graph") for site in script.calls.of_methods("backward"))


def _value(addition: Accumulation | Addition) -> cst.BaseExpression:
    return addition.values[0]


def _quoted(script: Script, node: cst.CSTNode) -> str:
    return f"`{script.tree.brief(node)}`"


def _carriers(
    script: Script,
    addition: Accumulation | Addition,
    is_meant: Callable[[Script, cst.BaseExpression], bool],
) -> list[cst.BaseExpression]:
    """Return the operands of an addition that carry a graph and that a test accepts."""
    if not _is_kept(script, addition):
        return []
    leaves = list(_leaves(script, _value(addition)))
    found = [leaf for leaf in leaves if is_meant(script, leaf)]
    if found and isinstance(_value(addition), _CONTAINERS):
        found = [leaf for leaf in leaves if leaf in found or _made(script, leaf)]
    return [] if found and _sent_with_others(script, addition) else found


def _is_kept(script: Script, addition: Accumulation | Addition) -> bool:
    """Return whether what is added stays as it is, with its graph.

    A meter of the program has to add up, or to list, what it is given first.
    """
    call = addition.node if isinstance(addition, Accumulation) else None
    meter = script.functions.callee(call) if isinstance(call, cst.Call) else None
    if meter is None:
        return addition.adding is not Adding.METER
    if len(meter.params.params) < 2:
        return False
    given = meter.params.params[1]
    parts = script.readings.accumulators.additions.parts
    kinds = (cst.Call, cst.AugAssign, cst.Assign)
    lines = (line for kind in kinds for line in script.tree.within(meter.body, kind))
    return any(
        not (isinstance(line, cst.Assign) and isinstance(line.value, cst.Call))  # keeps the best
        and (each := parts(line)) is not None
        and each.adding in _COLLECTING
        and script.code(each.target).startswith("self.")
        and script.values.gradients.grad(line) is not Grad.OFF
        and any(_is_factor(script, side, given) for one in each.values for side in _factors(one))
        for line in lines
    )


def _factors(value: cst.BaseExpression) -> tuple[cst.BaseExpression, ...]:
    return (value.left, value.right) if isinstance(value, cst.BinaryOperation) else (value,)


def _is_factor(script: Script, side: cst.BaseExpression, given: cst.Param) -> bool:
    """Return whether an operand is what a function was given, as it was."""
    reaching = script.scopes.reaching(side) if isinstance(side, cst.Name) else []
    return bool(reaching) and all(each.parameter is given for each in reaching)


def _sent_with_others(script: Script, addition: Accumulation | Addition) -> bool:
    """Return whether `backward()` is called on the collected value itself."""
    target = container_of(addition.target)
    return isinstance(target, (cst.Name, cst.Attribute)) and script.values.losses.feeds(target)


def _leaves(script: Script, value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the operands of a value that may carry a graph into it."""
    if script.values.gradients.grad(value) is not Grad.ON:
        return
    if isinstance(value, cst.BinaryOperation):
        yield from _leaves(script, value.left)
        yield from _leaves(script, value.right)
    elif isinstance(value, _CONTAINERS):
        for entry in value.elements:
            yield from _leaves(script, entry.value)
    elif isinstance(value, cst.Call) and (owner := receiver_of(value)) is not None:
        if method_of(value) in PASSING and script.kind(owner) in TENSORS:
            if any(True for _ in _leaves(script, owner)):
                yield value
        elif (
            script.name(value.func) is not None
            or script.loops.module_call(value) is not None
            or script.kind(value) is Kind.LOSS
        ):
            yield value
    elif isinstance(value, (cst.Name, cst.Call)):
        yield value


def _sent(script: Script, leaf: cst.BaseExpression) -> bool:
    """Return whether `backward()` runs on a tensor in its own batch, the last use of its graph."""
    return script.answer(_is_sent, leaf, False)


def _is_sent(script: Script, leaf: cst.BaseExpression) -> bool:
    if isinstance(leaf, cst.Call):
        callee, owner = script.functions.callee(leaf), receiver_of(leaf)
        if callee is not None:
            returned = script.functions.returns(callee)
            return bool(returned) and all(_sent(script, value) for value in returned)
        return owner is not None and method_of(leaf) not in CUTTING and _sent(script, owner)
    if not isinstance(leaf, cst.Name):
        return False
    bindings = script.scopes.reaching(leaf)
    if script.values.losses.sent_backward(bindings):
        return True
    made = [each.value for each in bindings if each.how is How.ASSIGN]
    return len(made) == len(bindings) > 0 and all(
        isinstance(value, cst.Call) and _sent(script, value) for value in made
    )


def _is_handed_on(script: Script, addition: Accumulation) -> bool:
    """Return whether other code may get what a loop collects, and train on it."""
    target = container_of(addition.target)
    uses: Iterable[cst.BaseExpression] = ()
    if isinstance(target, cst.Name):
        uses = script.tree.among(script.tree.spelled(target.value), script.scopes.home(target))
    elif isinstance(target, cst.Attribute) and script.functions.instance_of(target.value):
        uses = script.functions.attributes(target.attr.value)
    else:
        return True
    return any(
        isinstance(call := script.tree.parent(arg), cst.Call)
        and not (script.name(call.func) or "").startswith(_REPORTING)
        for use in uses
        if isinstance(arg := script.tree.parent(use), cst.Arg)
    )


def _is_beside(script: Script, leaf: cst.BaseExpression) -> bool:
    """Return whether a network's output leads to a value, and no backward pass starts there."""
    root = leaf
    while (owner := receiver_of(root)) is not None:
        root = owner
    if isinstance(root, cst.Name) and script.values.losses.feeds(root):
        return False
    return _made(script, leaf) and not _sent(script, leaf)


def _made(script: Script, leaf: cst.BaseExpression) -> bool:
    """Return whether a floating-point tensor is computed by a network and carries its graph."""
    if script.kind(leaf) not in TENSORS or script.values.dtypes.is_integral(leaf):
        return False
    return script.answer(_carries, leaf, False)


def _passes_on(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether the result of a function can carry the graph of its arguments."""
    if isinstance(node, cst.Comparison) or script.values.dtypes.is_integral(node):
        return False
    parts = _parts(script, node)
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        if any(each.value is None for each in bindings):
            return True
        parts = [each.value for each in bindings if each.value is not None]
    if parts is None:
        return not isinstance(node, (cst.Integer, cst.Float))
    return any(script.answer(_passes_on, part, True) for part in parts)


def _carries(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression carries a network's graph."""
    if script.values.gradients.grad(node) is not Grad.ON:
        return False
    if isinstance(node, cst.Name):
        bindings = [each for each in script.scopes.reaching(node) if each.how in BOUND]
        return bool(bindings) and all(
            each.value is not None and script.answer(_carries, each.value, False)
            for each in bindings
        )
    if isinstance(node, cst.Call):
        if script.loops.module_call(node) is not None:
            return True
        callee = script.functions.callee(node)
        if callee is not None and not any(
            script.answer(_passes_on, value, True) for value in script.functions.returns(callee)
        ):
            return False
    return any(script.answer(_carries, part, False) for part in _parts(script, node) or ())


def _parts(script: Script, node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """Return the parts whose graphs an expression carries, None if it has no such parts."""
    if isinstance(node, cst.Call):
        owner = receiver_of(node) if script.name(node.func) is None else None
        parts = [arg.value for arg in node.args] + ([owner] if owner is not None else [])
        return [] if method_of(node) in CUTTING else parts
    if isinstance(node, cst.BinaryOperation):
        return [node.left, node.right]
    if isinstance(node, cst.Attribute) and node.attr.value in ("data", "shape"):
        return []
    return [node.value] if isinstance(node, (cst.Subscript, cst.Attribute)) else None


def _evaluated(script: Script) -> Iterator[tuple[Accumulation, list[cst.BaseExpression], bool]]:
    """Yield the additions of evaluations, with what carries graphs into them.

    The third item says whether code of another module may train on them.
    """
    added = [
        (each, _carriers(script, each, _made))
        for each in script.readings.accumulations_in_file(Role.EVAL_BATCH)
    ]
    added = [
        (each, carriers)
        for each, carriers in added
        if carriers and not script.readings.accumulators.is_emptied(each)
    ]
    for evaluation in script.evaluations.all if added else ():
        inside = [pair for pair in added if script.tree.inside(pair[0].node, evaluation.body)]
        if not inside or script.evaluations.needs_gradients(evaluation.body):
            continue
        use = script.evaluations.graph_use(evaluation)
        if use is not GraphUse.TRAINED:
            hidden = use is GraphUse.ESCAPED
            yield from ((each, carriers, hidden) for each, carriers in inside)
