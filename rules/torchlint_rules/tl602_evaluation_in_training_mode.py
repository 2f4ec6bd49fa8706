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
    How,
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
        "adaptation calibrate calibration recalibrate temperature tent generator discriminator gan netg netd"
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
    needs = (
        "val", "Val", "VAL", "test", "Test", "TEST", "infer", "Infer", "predict", "Predict",
        "acc", "Acc", "scor", "Scor", "holdout", "dev_", "devloader", "volatile",
    )  # fmt: skip
    invalid = {
        "nobody calls eval, training calls train": """
              import torch
              def evaluate(model, val_loader):
            +     model.eval()
                  correct = 0
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
        "training never calls train: the mode is put back": """
              import torch
              def evaluate(model, val_loader):
            +     model.eval()
                  correct = 0
            !     for x, y in val_loader:
                      correct += (model(x).argmax(1) == y).sum()
            +     model.train()
                  return correct
              for epoch in range(3):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
                  print(evaluate(model, val_loader))
            """,
        "train is called once, before all epochs: the mode is put back": """
              import torch
              model.train()
              for epoch in range(3):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            +     model.eval()
                  with torch.no_grad():
            !         for x, y in val_loader:
                          print(model(x))
            +     model.train()
            """,
        "in the epoch loop, where each epoch begins with train": """
              import torch
              for epoch in range(3):
                  model.train()
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            +     model.eval()
            !     for x, y in val_loader:
                      print(model(x))
            """,
        "in the middle of an epoch: the mode is put back": """
              import torch
              model.train()
              for step, (x, y) in enumerate(train_loader):
                  criterion(model(x), y).backward()
                  optimizer.step()
                  if step % 100 == 0:
            +         model.eval()
            !         for x, y in val_loader:
                          print(model(x))
            +         model.train()
            """,
        "a network with dropout, in sight": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.head = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2))
                  def forward(self, x):
                      return self.head(x)
              net = Net()
            + net.eval()
            ! for x in test_loader:
                  print(net(x))
            """,
        "batch norm in a block of the network": """
              import torch
              from torch import nn
              def block():
                  return nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.first = block()
              net = Net().to("cpu")
            + net.eval()
            ! for x in test_loader:
                  print(net(x))
            """,
        "a network kept in an object": """
              import torch
              class Experiment:
                  def fit(self):
                      self.model.train()
                      for x, y in self.train_loader:
                          self.criterion(self.model(x), y).backward()
                          self.optimizer.step()
                  def validate(self):
            +         self.model.eval()
                      hits = 0
            !         for x, y in self.val_loader:
                          hits += (self.model(x).argmax(1) == y).sum()
                      return hits
            """,
        "two loops of one evaluation are one finding": """
              import torch
              def evaluate(model, val_loader, test_loader):
            +     model.eval()
            !     for x in val_loader:
                      print(model(x))
                  for x in test_loader:
                      print(model(x))
              for epoch in range(3):
                  model.train()
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "what runs before the loop counts too": """
              import torch
              def evaluate(encoder, decoder, x):
            +     encoder.eval()
            +     decoder.eval()
                  state = encoder(x)
            !     for step in range(10):
                      x, state = decoder(x, state)
              for epoch in range(3):
                  encoder.train()
                  decoder.train()
                  for x, y in train_loader:
                      criterion(decoder(x, encoder(x)), y).backward()
                      optimizer.step()
            """,
        "two networks": """
              import torch
              def evaluate(encoder, decoder, test_loader):
            +     decoder.eval()
            +     encoder.eval()
            !     for x in test_loader:
                      print(decoder(encoder(x)))
            +     decoder.train()
            +     encoder.train()
              for x, y in train_loader:
                  criterion(decoder(encoder(x)), y).backward()
                  optimizer.step()
            """,
        "who trains is out of sight, and so is whether they call train: reported only": """
              import torch
              def evaluate(model, val_loader):
            !     for x, y in val_loader:
                      print(model(x))
            """,
        "the loop is left by return, where no mode would be put back: reported only": """
              import torch
              def evaluate(model, val_loader):
            !     for x, y in val_loader:
                      if not model(x).isfinite().all():
                          return None
              for x, y in train_loader:
                  criterion(model(x), y).backward()
                  optimizer.step()
            """,
        "eval is called, but train comes after it": """
              import torch
              from torch import nn
              net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
              net.eval()
              net.train()
              for x, y in train_loader:
                  criterion(net(x), y).backward()
                  optimizer.step()
            + net.eval()
            ! for x in test_loader:
                  print(net(x))
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
        "the caller calls it": """
            import torch
            def evaluate(model, val_loader):
                for x, y in val_loader:
                    print(model(x))
            net.eval()
            evaluate(net, val_loader)
            """,
        "train(False) is eval": """
            import torch
            model.train(False)
            for x, y in val_loader:
                print(model(x))
            """,
        "the mode goes by a flag": """
            import torch
            def run(model, val_loader, training):
                model.train(training)
                for x, y in val_loader:
                    print(model(x))
            """,
        "the network was made ready where it was made": """
            import torch
            model = build().eval()
            for x in test_loader:
                print(model(x))
            """,
        "a helper of this file does it": """
            import torch
            def prepare(networks):
                for network in networks:
                    network.eval()
            def test(net, test_loader):
                prepare([net])
                for x in test_loader:
                    print(net(x))
            """,
        "neither dropout nor batch norm": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.norm = nn.LayerNorm(4)
                    self.rest = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.0))
                def forward(self, x):
                    return self.rest(self.norm(x))
            net = Net()
            for x in test_loader:
                print(net(x))
            """,
        "a recurrent network without dropout": """
            import torch
            from torch import nn
            net = nn.LSTM(4, 4, num_layers=2)
            for x in test_loader:
                print(net(x))
            """,
        "Monte Carlo dropout wants the noise": """
            import torch
            def predict_mc_dropout(model, test_loader):
                for x in test_loader:
                    print(torch.stack([model(x) for _ in range(20)]).std(0))
            """,
        "the statistics of batch norm are estimated anew": """
            import torch
            def validate_bn_stats(model, val_loader):
                for x in val_loader:
                    model(x)
            """,
        "temperature scaling gets a network as its caller left it": """
            import torch
            def set_temperature(model, valid_loader):
                for x in valid_loader:
                    print(model(x))
            """,
        "train right before it is on purpose": """
            import torch
            def validation_losses(detector_model, val_loader):
                detector_model.train()
                for images, targets in val_loader:
                    print(detector_model(images, targets))
            """,
        "a generator is judged with its noise": """
            import torch
            def test(generator, test_loader):
                for x in test_loader:
                    print(generator(x))
            """,
        "Transformers hands networks out in evaluation mode": """
            import torch
            from transformers import AutoModel
            model = AutoModel.from_pretrained("bert-base-uncased")
            for x in test_loader:
                print(model(x))
            """,
        "a framework sets the mode for this step": """
            import lightning as L
            class Classifier(L.LightningModule):
                def validation_step(self, batch, index):
                    for x in self.val_loader:
                        print(self.model(x))
            """,
        "nobody is in sight, but somebody here calls eval on such a network": """
            import torch
            def evaluate(model, val_loader):
                for x in val_loader:
                    print(model(x))
            def main(net):
                net.eval()
                evaluate(net, get_loader())
            """,
        "a training loop": """
            import torch
            for x, y in train_loader:
                criterion(model(x), y).backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every evaluation of a network that heeds its mode and is in training mode."""
        told_of: set[tuple[int | str, ...]] = set()
        for evaluation in script.evaluations():
            if script.speaks_of(evaluation, DELIBERATE) or script.needs_gradients(evaluation.body):
                continue
            networks = [
                network
                for network in _networks(script, evaluation)
                if _is_measured_in_training(script, evaluation, network)
            ]
            if not networks:
                continue
            names = [script.code(network) for network in networks]
            if evaluation.function is not None:
                if (id(evaluation.function), *names) in told_of:
                    continue
                told_of.add((id(evaluation.function), *names))
            listed = " and ".join(f"`{name}`" for name in names)
            told = all(script.modes.heeds_mode(network) for network in networks)
            message = (
                f"{listed} {'is' if len(names) == 1 else 'are'} evaluated in training mode: "
                f"{'' if told else 'any '}dropout and batch norm make the score depend on chance; "
                f"call `{names[0]}.eval()` first"
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


def _networks(script: Script, evaluation: Evaluation) -> list[cst.BaseExpression]:
    """Give the networks of an evaluation, and those that its function runs around the loop."""
    found = {script.code(network): network for network in evaluation.networks}
    function = evaluation.function
    if function is not None and evaluation.by_function and script.only_measures(function.body):
        for call in script.within(function.body, cst.Call):
            network = script.module_call(call)
            if network is not None and script.function(call) is function:
                found.setdefault(script.code(network), network)
    return sorted(found.values(), key=lambda network: script.span(network).start)


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
    between = range(script.span(last.call).end, script.span(place).start)
    return not any(
        script.span(loop.node).start in between
        for loop in script.loops(Role.TRAIN_BATCH, Role.EPOCH)
    )


# -- the fix --------------------------------------------------------------------------


def _fix(script: Script, evaluation: Evaluation, names: list[str]) -> Edits | None:
    node = evaluation.node
    if isinstance(node, cst.FunctionDef) or not all(_is_plain(name) for name in names):
        return None
    statement = _outermost(script, node)
    if not script.rewrite.stands_alone(statement):
        return None
    lines = [f"{name}.eval()" for name in names]
    edits = _at_head(script, evaluation, names, lines)
    if edits is None:
        edits = script.rewrite.before(statement, *lines)
    trains = script.loops(Role.TRAIN_BATCH)
    if not trains:
        # What trains, if anything does, is out of sight, and so is whether it calls train().
        return edits if evaluation.function is None else None
    if all(_is_renewed(script, evaluation, loop.node) for loop in trains):
        return edits
    if any(True for _ in script.within(node, cst.Return)):
        return None
    return (*edits, *script.rewrite.after(statement, *(f"{name}.train()" for name in names)))


def _at_head(
    script: Script, evaluation: Evaluation, names: list[str], lines: list[str]
) -> Edits | None:
    """Put lines first into a function that only evaluates networks which come from outside."""
    function = evaluation.function
    if function is None or not script.only_measures(function.body):
        return None
    bound = script.scopes.scope_at(function).bindings
    for name in names:
        bindings = [*bound.get(name, []), *bound.get(name.partition(".")[0], [])]
        if any(binding.how is not How.PARAMETER for binding in bindings):
            return None
    return script.rewrite.first_in(function.body, *lines)


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
