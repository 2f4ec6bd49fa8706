"""TL602 evaluation-in-training-mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edits,
    Evaluation,
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

DELIBERATE: Final = frozenset(
    (
        "mc mcdropout montecarlo dropout bayes bayesian uncertainty stochastic bn swa adapt "
        "adaptation calibrate calibration recalibrate tent generator discriminator gan netg netd"
    ).split()
)
BECAUSE: Final = "the measured numbers change: dropout off, batch norm by its running statistics"


class EvaluationInTrainingMode(Rule):
    """
    ## What it does
    Flags an evaluation for which nobody put the network into evaluation mode with `eval()`.

    ## Why it is slow
    Dropout draws masks and batch norm computes statistics of every batch, for a measurement that
    both make wrong: scores depend on chance and on the other samples of the batch, and each
    validation batch leaks into the running statistics that are saved with the model.

    ## When not to
    Monte Carlo dropout and the re-estimation of batch norm statistics run networks in training
    mode on purpose. The rule is silent where names say so, and for networks that have neither
    dropout nor batch norm.

    ## Fix safety
    Unsafe: the numbers that the evaluation reports change, which is the point.
    """

    code = "TL602"
    name = "evaluation-in-training-mode"
    summary = "Evaluation runs with dropout and batch norm in training mode"
    impact = "medium"
    safety = Safety.UNSAFE
    needs = ("torch",)
    invalid = {
        "nobody calls eval, training calls train": """
              import torch
              def evaluate(model, val_loader):
                  correct = 0
            +     model.eval()
                  with torch.no_grad():
            !         for x, y in val_loader:
                          correct += (model(x).argmax(1) == y).sum()
                  return correct
              for epoch in range(3):
                  model.train()
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
                  print(evaluate(model, val_loader))
            """,
    }
    valid = {
        "eval is called": """
            import torch
            def evaluate(model, val_loader):
                model.eval()
                with torch.no_grad():
                    for x, y in val_loader:
                        print(model(x))
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every evaluation of a network that heeds its mode and is in training mode."""
        for evaluation in script.evaluations():
            if script.speaks_of(evaluation, DELIBERATE) or script.needs_gradients(evaluation.body):
                continue
            networks = [
                network
                for network in evaluation.networks
                if _is_measured_in_training(script, evaluation, network)
            ]
            if not networks:
                continue
            names = [script.code(network) for network in networks]
            listed = " and ".join(f"`{name}`" for name in names)
            message = (
                f"{listed} {'is' if len(names) == 1 else 'are'} evaluated in training mode: dropout "
                f"and batch norm make the score depend on chance; call `{names[0]}.eval()` first"
            )
            edits = _fix(script, evaluation, names)
            fix = Fix.unsafe("Switch to evaluation mode", edits, because=BECAUSE) if edits else None
            yield Finding(self.code, _place(script, evaluation), message, fix)


def _place(script: Script, evaluation: Evaluation) -> Span:
    """Give the head of the loop, or the first forward call of a function without one."""
    node = evaluation.node
    if isinstance(node, cst.FunctionDef):
        return script.span(evaluation.forwards[0].call)
    head = node.iter if isinstance(node, cst.For) else node.test
    return Span(script.span(node).start, script.span(head).end)


def _is_measured_in_training(
    script: Script, evaluation: Evaluation, network: cst.BaseExpression
) -> bool:
    heeds = script.modes.heeds_mode(network)
    if heeds is False or not evaluation.by_name:
        return False
    place = _first(script, evaluation)
    mode = script.modes.mode(place, network)
    if mode not in (Mode.TRAIN, Mode.HIDDEN):
        return False
    if mode is Mode.HIDDEN or heeds is None:
        if script.modes.is_switched_to_eval(network):
            return False
    if any(switch.mode is Mode.EVAL for switch in script.modes.switches(evaluation.body)):
        return False
    return not _is_meant(script, place, network)


def _first(script: Script, evaluation: Evaluation) -> cst.CSTNode:
    """Give where the evaluation starts."""
    node = evaluation.node
    return evaluation.forwards[0].call if isinstance(node, cst.FunctionDef) else node


def _is_meant(script: Script, place: cst.CSTNode, network: cst.BaseExpression) -> bool:
    """Whether `train()` stands before the evaluation for its sake: nothing trains in between."""
    last = script.modes.last_switch(place, network)
    if last is None or last.mode is not Mode.TRAIN or last.network is None:
        return False
    span = Span(script.span(last.call).end, script.span(place).start)
    return not any(
        script.span(loop.node) in span for loop in script.loops(Role.TRAIN_BATCH, Role.EPOCH)
    )


# -- the fix --------------------------------------------------------------------------


def _fix(script: Script, evaluation: Evaluation, names: list[str]) -> Edits | None:
    node = evaluation.node
    if isinstance(node, cst.FunctionDef) or not all(_is_plain(name) for name in names):
        return None
    statement = _outermost(script, node)
    if not script.rewrite.stands_alone(statement):
        return None
    edits = script.rewrite.before(statement, *(f"{name}.eval()" for name in names))
    trains = script.loops(Role.TRAIN_BATCH)
    if not trains:
        # What trains, if anything does, is out of sight, and so is whether it calls train().
        return edits if evaluation.function is None else None
    if all(_is_renewed(script, evaluation, loop.node) for loop in trains):
        return edits
    if any(True for _ in script.within(node, cst.Return)):
        return None
    return (*edits, *script.rewrite.after(statement, *(f"{name}.train()" for name in names)))


def _is_plain(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _outermost(script: Script, loop: cst.CSTNode) -> cst.CSTNode:
    """Give the `with torch.no_grad():` that holds a loop alone, else the loop."""
    block = script.parent(loop)
    holder = script.parent(block) if isinstance(block, cst.IndentedBlock) else None
    if isinstance(holder, cst.With) and script.grad_mode(holder.items[0].item) is Grad.OFF:
        return holder
    return loop


def _is_renewed(script: Script, evaluation: Evaluation, training: cst.CSTNode) -> bool:
    """Whether `train()` is called again before each run of a training loop that follows."""
    if any(loop.node is training for loop in script.loops_around(evaluation.node)):
        return False
    function = script.function(training)
    last = script.modes.last_switch(training, None)
    if last is None or last.mode is not Mode.TRAIN or last.network is None:
        return False
    around = [loop.node for loop in script.loops_around(training)]
    if function is evaluation.function:
        here = [loop.node for loop in script.loops_around(evaluation.node)]
        shared = next((loop for loop in around if loop in here), None)
        return shared is None or script.span(last.call) in script.span(shared)
    return not around or script.span(last.call) in script.span(around[-1])
