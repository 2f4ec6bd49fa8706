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
    summary = "evaluation runs with dropout and batch norm in training mode"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S2",)
    needs = (
        "eval", "valid", "Valid", "val_", "test_", "Test", "infer", "predict",
        "accura", "acc_", "scor", "holdout", "dev_", "volatile", "backward",
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
        "two loops of one function, which trains in between: both are put right": """
              import torch
              def run(model, train_loader, val_loader, test_loader):
                  for epoch in range(3):
                      for x, y in train_loader:
                          criterion(model(x), y).backward()
                          optimizer.step()
            +         model.eval()
            !         for x, y in val_loader:
                          print(model(x))
            +         model.train()
            +     model.eval()
                  for x, y in test_loader:
                      print(model(x))
            +     model.train()
            """,
        "a loop that only calls an evaluation is not told of again": """
              import torch
              def evaluate(model, samples):
            !     for x in samples:
                      print(model(x))
              def evaluate_often(model, samples):
                  for turn in range(10):
                      evaluate(model, samples)
              evaluate_often(net, get_samples())
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
        "a base class out of sight may set the mode of what its subclasses evaluate": """
            import torch
            from mine import BaseTrainer
            class Trainer(BaseTrainer):
                def validate(self):
                    for x in self.val_loader:
                        print(self.model(x))
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
        for evaluations, networks in _in_training(script):
            names = [script.code(network) for network in networks]
            told = all(script.modes.heeds_mode(network) for network in networks)
            message = (
                f"{_listed(names)} {'is' if len(names) == 1 else 'are'} evaluated in training "
                f"mode: {'' if told else 'any '}dropout and batch norm make the score depend on "
                f"chance; call {_listed([f'{name}.eval()' for name in names])} first"
            )
            edits = _fix(script, evaluations, names)
            fix = Fix.unsafe("Switch to evaluation mode", edits, because=BECAUSE) if edits else None
            yield Finding(self.code, _place(script, evaluations[0]), message, fix)


def _in_training(
    script: Script,
) -> Iterator[tuple[list[Evaluation], list[cst.BaseExpression]]]:
    """Yield networks in training mode with all that one function evaluates of them."""
    found: dict[tuple[int | str, ...], tuple[list[Evaluation], list[cst.BaseExpression]]] = {}
    for evaluation in script.evaluations():
        if not evaluation.by_name:
            continue
        networks = [
            network
            for network in _networks(script, evaluation)
            if script.code(network) != "self"  # whoever calls the method sets the mode
            and _is_measured_in_training(script, evaluation, network)
        ]
        if not networks or _only_repeats(script, evaluation):
            continue
        if script.speaks_of(evaluation, DELIBERATE) or script.needs_gradients(evaluation.body):
            continue
        names = [script.code(network) for network in networks]
        place = evaluation.function or evaluation.node
        found.setdefault((id(place), *names), ([], networks))[0].append(evaluation)
    yield from found.values()


def _only_repeats(script: Script, evaluation: Evaluation) -> bool:
    """Whether a loop runs networks only in functions that are evaluations of their own."""
    own = {id(each.function) for each in script.evaluations() if each.function is not None}
    homes = [script.function(each.call) for each in evaluation.forwards]
    return all(home is not evaluation.function and id(home) in own for home in homes)


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


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
    if function is not None and evaluation.by_function:
        around: dict[str, cst.BaseExpression] = {}
        for call in script.within(function.body, cst.Call):
            network = script.module_call(call)
            if network is not None and script.function(call) is function:
                around.setdefault(script.code(network), network)
        if not around.keys() <= found.keys() and script.only_measures(function.body):
            found = {**around, **found}
    return sorted(found.values(), key=lambda network: script.span(network).start)


def _is_measured_in_training(
    script: Script, evaluation: Evaluation, network: cst.BaseExpression
) -> bool:
    place = _first(script, evaluation)
    mode = script.modes.mode(place, network)
    if mode not in (Mode.TRAIN, Mode.HIDDEN):
        return False
    heeds = script.modes.heeds_mode(network)
    if heeds is False:
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


def _fix(script: Script, evaluations: list[Evaluation], names: list[str]) -> Edits | None:
    loops = [each.node for each in evaluations if not isinstance(each.node, cst.FunctionDef)]
    if len(loops) < len(evaluations) or not all(_is_plain(name) for name in names):
        return None
    statements = [_outermost(script, loop) for loop in loops]
    if not all(script.rewrite.stands_alone(statement) for statement in statements):
        return None
    first, trains = evaluations[0], script.loops(Role.TRAIN_BATCH)
    if not trains and first.function is not None:
        # What trains, if anything does, is out of sight, and so is whether it calls train().
        return None
    put_back = not all(
        _is_renewed(script, each, loop.node) for each in evaluations for loop in trains
    )
    if put_back and any(True for loop in loops for _ in script.within(loop, cst.Return)):
        return None
    lines = [f"{name}.eval()" for name in names]
    whole = len(loops) == 1 or not put_back
    head = _at_head(script, first, names, lines) if whole else None
    edits: Edits = head or ()
    for index, statement in enumerate(statements):
        if not head and (put_back or not _is_reached_from(script, statement, statements[:index])):
            edits = (*edits, *script.rewrite.before(statement, *lines))
        if put_back:
            back = script.rewrite.after(statement, *(f"{name}.train()" for name in names))
            edits = (*edits, *back)
    return edits


def _is_reached_from(script: Script, statement: cst.CSTNode, earlier: list[cst.CSTNode]) -> bool:
    """Whether one of the earlier statements runs before this one on every path."""
    blocks = [script.parent(each) for each in earlier]
    return any(
        block is not None and script.span(statement) in script.span(block) for block in blocks
    )


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
