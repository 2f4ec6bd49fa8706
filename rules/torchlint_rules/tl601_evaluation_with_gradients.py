"""TL601 evaluation-with-gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Evaluation,
    Fate,
    Finding,
    Fix,
    Grad,
    Mode,
    Role,
    Rule,
    Safety,
    Script,
    Span,
)

BELOW: Final = frozenset({"builtins.staticmethod", "builtins.classmethod", "builtins.property"})
ENTRIES: Final = frozenset({"main", "run", "run_worker", "main_worker", "worker", "__init__"})


class EvaluationWithGradients(Rule):
    """
    ## What it does
    Flags an evaluation (a loop over validation or test batches, or a function that scores all
    data at once) that runs a network while autograd records.

    ## Why it is slow
    Autograd keeps every activation and builds a graph for a backward pass that never comes.
    Without it a convolutional network evaluates up to twice as fast, and the memory that the
    graph took allows larger batches.

    ## When not to
    Where the evaluation itself differentiates: adversarial attacks, saliency maps, optimised
    inputs, physics-informed losses. The rule is silent where it sees any of these.

    ## Fix safety
    Exact: the numbers are the same with and without a graph. Unsafe where a result that carries
    a graph is returned to callers out of sight, which could still send it backward.
    """

    code = "TL601"
    name = "evaluation-with-gradients"
    summary = "Evaluation runs with gradients on"
    impact = "high"
    safety = Safety.EXACT
    needs = ("torch",)
    invalid = {
        "a function that only evaluates gets the decorator": """
              import torch
            + @torch.no_grad()
              def validate(model, val_loader, criterion):
                  model.eval()
                  total = 0.0
            !     for images, labels in val_loader:
                      total += criterion(model(images), labels).item()
                  return total / len(val_loader)
              validate(model, val_loader, criterion)
            """,
    }
    valid = {
        "no graph is recorded": """
            import torch
            def validate(model, val_loader):
                model.eval()
                with torch.no_grad():
                    for images, labels in val_loader:
                        print(model(images))
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every evaluation, and every metric of a training step, that records a graph."""
        for evaluation in script.evaluations():
            recording = [each for each in evaluation.forwards if each.records is Grad.ON]
            if not recording or any(e.records is Grad.UNKNOWN for e in evaluation.forwards):
                continue
            region = evaluation.body
            fate = script.fate(region)
            if script.needs_gradients(region) or fate is Fate.TRAINED:
                continue
            if fate is Fate.HIDDEN and isinstance(evaluation.node, cst.FunctionDef):
                continue
            names = list(dict.fromkeys(script.code(each.network) for each in recording))
            message = (
                f"{_subject(evaluation)} runs {_listed(names)} with gradients on: autograd keeps "
                f"every activation for a backward pass that never comes; use `torch.no_grad()`"
            )
            if any(_is_volatile(call) for call in script.within(region, cst.Call)):
                message += " (`volatile=True` has done nothing since torch 0.4)"
            place = _place(script, evaluation, recording[0].call)
            yield Finding(self.code, place, message, _fix(script, evaluation, fate))
        for call in _metrics(script):
            message = (
                f"`{script.code(call)}` is run for a metric only, yet records a graph: put it "
                "under `torch.no_grad()`"
            )
            edits = _wrapped(script, script.statement(call))
            fix = Fix.exact("Compute the metric without gradients", edits) if edits else None
            yield Finding(self.code, script.span(call), message, fix)


def _subject(evaluation: Evaluation) -> str:
    if evaluation.function is not None and evaluation.function.name.value not in ENTRIES:
        return f"`{evaluation.function.name.value}`"
    return "this evaluation"


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _is_volatile(call: cst.Call) -> bool:
    return any(arg.keyword is not None and arg.keyword.value == "volatile" for arg in call.args)


def _place(script: Script, evaluation: Evaluation, forward: cst.Call) -> Span:
    """Give the head of the loop, or the first forward call of a function without one."""
    node = evaluation.node
    if isinstance(node, cst.FunctionDef):
        return script.span(forward)
    head = node.iter if isinstance(node, cst.For) else node.test
    return Span(script.span(node).start, script.span(head).end)


# -- fixes --------------------------------------------------------------------------


def _fix(script: Script, evaluation: Evaluation, fate: Fate) -> Fix | None:
    function = evaluation.function
    if _passes_network_on(script, evaluation):
        return None
    if function is not None and _only_evaluates(script, evaluation, function):
        title, edits = "Decorate with `torch.no_grad()`", _decorated(script, function)
    elif isinstance(evaluation.node, cst.FunctionDef):
        return None
    else:
        title, edits = "Evaluate under `torch.no_grad()`", _wrapped(script, evaluation.node)
    if edits is None:
        return None
    if fate is Fate.HIDDEN:
        return Fix.unsafe(title, edits, because="a result could be sent backward out of sight")
    return Fix.exact(title, edits)


def _passes_network_on(script: Script, evaluation: Evaluation) -> bool:
    """Whether a function out of sight, which may want gradients, is handed a network."""
    networks = {script.code(network) for network in evaluation.networks}
    return any(
        script.definition(call.func) is None
        and script.module_call(call) is None
        and script.name(call.func) not in ("builtins.print", "builtins.isinstance")
        and any(script.code(arg.value) in networks for arg in call.args)
        for call in script.within(evaluation.body, cst.Call)
    )


def _only_evaluates(script: Script, evaluation: Evaluation, function: cst.FunctionDef) -> bool:
    """Whether a function does nothing that needs gradients, so that all of it can be decorated."""
    if function.name.value in ENTRIES or function.asynchronous is not None:
        return False
    if any(script.name(each.decorator) not in BELOW for each in function.decorators):
        return False
    if not evaluation.by_function and not _switches_to_eval(script, function):
        return False
    return script.only_measures(function.body) and not script.needs_gradients(function.body)


def _switches_to_eval(script: Script, function: cst.FunctionDef) -> bool:
    return any(each.mode is Mode.EVAL for each in script.modes.switches(function))


def _context(script: Script) -> tuple[str, Edits] | None:
    """Give how this file writes `torch.no_grad()`."""
    imported = script.rewrite.importing("torch", "no_grad")
    if imported is not None and not imported[1]:
        return f"{imported[0]}()", ()
    found = script.rewrite.importing("torch")
    return (f"{found[0]}.no_grad()", found[1]) if found is not None else None


def _decorated(script: Script, function: cst.FunctionDef) -> Edits | None:
    context = _context(script)
    if context is None or not script.rewrite.stands_alone(function):
        return None
    return (*script.rewrite.before(function, f"@{context[0]}"), *context[1])


def _wrapped(script: Script, statement: cst.CSTNode) -> Edits | None:
    context = _context(script)
    if context is None or not script.rewrite.stands_alone(statement):
        return None
    if isinstance(statement, cst.For) and statement.asynchronous is not None:
        return None
    if any(True for _ in script.within(statement, cst.Await)):
        return None
    return (*script.rewrite.wrap([statement], f"with {context[0]}:"), *context[1])


# -- metrics of training steps ------------------------------------------------------


def _metrics(script: Script) -> Iterator[cst.Call]:
    """Yield the forward calls in training loops that end in a comparison with the labels."""
    for loop in script.loops(Role.TRAIN_BATCH):
        for call in script.within(loop.node.body, cst.Call):
            if script.module_call(call) is None or script.batch_loop(call) is not loop:
                continue
            line = script.statement(call)
            if (
                isinstance(line, cst.SimpleStatementLine)
                and script.is_cut_off(call)
                and _compares(script, line)
                and script.grad(call) is Grad.ON
                and not script.needs_gradients(line)
            ):
                yield call


def _compares(script: Script, line: cst.SimpleStatementLine) -> bool:
    equals = any(True for _ in script.within(line, cst.Equal))
    return equals or any(
        isinstance(call.func, cst.Attribute) and call.func.attr.value == "eq"
        for call in script.within(line, cst.Call)
    )
