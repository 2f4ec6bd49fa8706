"""Fixes that put an evaluation under `torch.no_grad()`."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Edits, Evaluation, Fix, GraphUse, Mode, Script, Span

_BACKWARD: Final = "a caller in another file may call `backward()` on the result"
_BELOW: Final = frozenset({"builtins.staticmethod", "builtins.classmethod", "builtins.property"})
ENTRIES: Final = frozenset({"main", "run", "run_worker", "main_worker", "worker", "__init__"})
_OTHER_KERNELS: Final = (
    "torch.nn.LSTM",
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
    "torch.nn.TransformerEncoder",
    "torch.nn.TransformerEncoderLayer",
)


def place_of(script: Script, evaluation: Evaluation) -> Span:
    """Return where an evaluation is reported: the header of its loop, or its forward pass."""
    start = evaluation.start
    return script.span(start) if isinstance(start, cst.Call) else script.tree.header(start)


def evaluation_fix(script: Script, evaluation: Evaluation, use: GraphUse) -> Fix | None:
    """Return the fix that evaluates without gradients, None if it may be wrong."""
    function = evaluation.function
    if _passes_network_on(script, evaluation):
        return None
    because = _BACKWARD if use is GraphUse.ESCAPED else ""
    if function is not None and _only_evaluates(script, evaluation, function):
        return without_graph(script, "Decorate with `torch.no_grad()`", function, because)
    if isinstance(evaluation.node, cst.FunctionDef):
        return None
    return without_graph(script, "Evaluate under `torch.no_grad()`", evaluation.node, because)


def without_graph(script: Script, title: str, place: cst.CSTNode, because: str = "") -> Fix | None:
    """Return the fix that decorates a function, or wraps a statement; None if it shares a line.

    It is exact if all code of the place is known, the layers use the same kernels, and nothing
    else, `because`, is against it.
    """
    if isinstance(place, cst.FunctionDef):
        edits = _decorated(script, place)
    else:
        edits = _wrapped(script, place)
    if edits is None:
        return None
    region = place.body if isinstance(place, cst.FunctionDef) else place
    unseen = script.values.visibility.unseen_call(region)
    if unseen is not None:
        word = script.tree.brief(unseen.func)
        because = because or f"`{word}` is not visible here and might need gradients itself"
    if because:
        return Fix.unsafe(title, edits, because=because)
    layer = next(script.calls.of(*_OTHER_KERNELS), None)
    if layer is None:
        return Fix.exact(title, edits)
    word = script.code(layer.node.func).rpartition(".")[2]
    because = f"without a graph `{word}` takes another kernel on a CPU, which rounds differently"
    return Fix.close(title, edits, because=because)


def _passes_network_on(script: Script, evaluation: Evaluation) -> bool:
    """Return whether a function of another module, which may need gradients, gets a network."""
    networks = {script.code(network) for network in evaluation.networks}
    return any(
        script.functions.definition(call.func) is None
        and script.loops.module_call(call) is None
        and script.name(call.func) not in ("builtins.print", "builtins.isinstance")
        and any(script.code(arg.value) in networks for arg in call.args)
        for call in script.tree.within(evaluation.body, cst.Call)
    )


def _only_evaluates(script: Script, evaluation: Evaluation, function: cst.FunctionDef) -> bool:
    """Return whether a function needs no gradients, so that all of it can be decorated."""
    if function.name.value in ENTRIES or function.asynchronous is not None:
        return False
    if any(script.name(each.decorator) not in _BELOW for each in function.decorators):
        return False
    if not evaluation.by_function and not any(
        each.mode is Mode.EVAL for each in script.modules.modes.switches(function)
    ):
        return False
    return script.evaluations.only_measures(
        function.body
    ) and not script.evaluations.needs_gradients(function.body)


def _context(script: Script, at: cst.CSTNode) -> tuple[str, Edits] | None:
    """Return the code for `torch.no_grad()` at a place of this file."""
    imported = script.edits.importing("torch", "no_grad", at=at)
    if imported is not None and not imported[1]:
        return f"{imported[0]}()", ()
    found = script.edits.importing("torch", at=at)
    return (f"{found[0]}.no_grad()", found[1]) if found is not None else None


def _decorated(script: Script, function: cst.FunctionDef) -> Edits | None:
    """Return the edits that decorate a function, None if it shares a line."""
    context = _context(script, function)
    if context is None or not script.edits.stands_alone(function):
        return None
    return (*script.edits.decorate(function, context[0]), *context[1])


def _wrapped(script: Script, statement: cst.CSTNode) -> Edits | None:
    """Return the edits that put a statement under `torch.no_grad()`, None if it shares a line."""
    context = _context(script, statement)
    if context is None or not script.edits.stands_alone(statement):
        return None
    if isinstance(statement, cst.For) and statement.asynchronous is not None:
        return None
    if any(True for _ in script.tree.within(statement, cst.Await)):
        return None
    return (*script.edits.wrap([statement], f"with {context[0]}:"), *context[1])
