"""TL604 training-mode-not-restored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Mode, Note, Rule, Safety, Script, Stuck

_OWNED: Final = frozenset("lightning ignite fastai transformers".split())
_DELIBERATE: Final = frozenset(
    (
        "mc mcdropout montecarlo bayes bayesian uncertainty generator discriminator gan netg netd "
        "gen disc teacher frozen"
    ).split()
)
_ONE_LETTER: Final = frozenset("G D".split())
BECAUSE: Final = (
    "dropout works again and batch norm takes the statistics of the batch, from the second round on"
)


class TrainingModeNotRestored(Rule):
    """
    ## What it does
    Flags an evaluation after which training goes on with the network still in evaluation mode:
    `eval()` in the loop over epochs, or among the batches, and no `train()` on the way back.

    ## Why it is slow
    `eval()` is sticky. From the second epoch on dropout is off and the statistics of batch norm
    stand still, so the network overfits or diverges, and the epochs that find it out are lost.

    ## When not to
    Where batch norm and dropout are off on purpose while you fine-tune: call `eval()` right before
    the training loop then, which the rule takes as your word. It is silent for networks that have
    neither, for the generators of GANs, and where a framework sets the mode.

    ## Fix safety
    Unsafe: training really changes, which is the point.
    """

    code = "TL604"
    name = "training-mode-not-restored"
    summary = "training goes on in evaluation mode"
    impact = "high"
    safety = Safety.UNSAFE
    articles = ("S2",)
    needs = (".eval",)

    invalid = {
        "train is called once, before all epochs": """
              import torch
              model.train()
              for epoch in range(9):
            +     model.train()
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            !     model.eval()
                  with torch.no_grad():
                      for x, y in val_loader:
                          print(model(x))
            """,
        "a function of this file evaluates": """
              import torch
              def validate(net, loader):
            !     net.eval()
                  with torch.no_grad():
                      for x, y in loader:
                          print(net(x))
              def main():
                  model = build()
                  for epoch in range(9):
            +         model.train()
                      for x, y in train_loader:
                          criterion(model(x), y).backward()
                          optimizer.step()
                      validate(model, val_loader)
            """,
        "another one trains": """
              import torch
              def train(net, loader):
            +     net.train()
                  for x, y in loader:
                      criterion(net(x), y).backward()
                      optimizer.step()
              def validate(net, loader):
            !     net.eval()
                  for x, y in loader:
                      print(net(x))
              model = build()
              for epoch in range(9):
                  train(model, train_loader)
                  validate(model, val_loader)
            """,
        "methods of one object": """
              import torch
              class Trainer:
                  def train_epoch(self):
            +         self.model.train()
                      for x, y in self.train_loader:
                          self.criterion(self.model(x), y).backward()
                          self.optimizer.step()
                  def validate(self):
            !         self.model.eval()
                      for x, y in self.val_loader:
                          print(self.model(x))
                  def fit(self):
                      for epoch in range(9):
                          self.train_epoch()
                          self.validate()
            """,
        "among the batches": """
              import torch
              model.train()
              for step, (x, y) in enumerate(train_loader):
                  criterion(model(x), y).backward()
                  optimizer.step()
                  if step % 100 == 0:
            !         model.eval()
                      with torch.no_grad():
                          print(model(held_out))
            +         model.train()
            """,
        "a function called among the batches": """
              import torch
              def evaluate():
            !     model.eval()
                  for x, y in val_loader:
                      print(model(x))
              model.train()
              for step, (x, y) in enumerate(train_loader):
                  criterion(model(x), y).backward()
                  optimizer.step()
                  if step % 100 == 0:
                      evaluate()
            +         model.train()
                      print(step)
            """,
        "in every pass, after the step": """
              import torch
              model.train()
              for x, y in train_loader:
            +     model.train()
                  criterion(model(x), y).backward()
                  optimizer.step()
            !     model.eval()
                  print(model(held_out))
            """,
        "train(False) is eval; another network is switched back": """
              import torch
              encoder, decoder = build_encoder(), build_decoder()
              for epoch in range(9):
            +     decoder.train()
                  encoder.train()
                  for x, y in train_loader:
                      criterion(decoder(encoder(x)), y).backward()
                      optimizer.step()
                  encoder.eval()
            !     decoder.train(False)
            """,
        "the last word of a pass ends it: reported only": """
              import torch
              for epoch in range(9):
                  model.train()
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
                      if step % 100 == 0:
            !             model.eval()
                          print(model(held_out))
                          continue
            """,
    }
    valid = {
        "each epoch begins with train": """
            import torch
            for epoch in range(9):
                model.train()
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                model.eval()
                print(model(held_out))
            """,
        "the function that trains begins with train": """
            import torch
            def train():
                model.train()
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            def validate():
                model.eval()
                print(model(held_out))
            for epoch in range(9):
                train()
                validate()
            """,
        "the evaluation puts it back": """
            import torch
            def validate(net):
                net.eval()
                print(net(held_out))
                net.train()
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                validate(model)
            """,
        "it puts back what was there": """
            import torch
            def validate(net):
                was_training = net.training
                net.eval()
                print(net(held_out))
                net.train(was_training)
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                validate(model)
            """,
        "a helper sets the mode by a flag": """
            import torch
            class Solver:
                def set_mode(self, train):
                    if train:
                        self.net.train()
                    else:
                        self.net.eval()
                def draw(self):
                    self.set_mode(train=False)
                    print(self.net(held_out))
                    self.set_mode(train=True)
                def run(self):
                    self.set_mode(train=True)
                    for step, (x, y) in enumerate(self.train_loader):
                        criterion(self.net(x), y).backward()
                        self.optimizer.step()
                        if step % 100 == 0:
                            self.draw()
            """,
        "each pass begins with train": """
            import torch
            for epoch in range(9):
                for x, y in train_loader:
                    model.train()
                    criterion(model(x), y).backward()
                    optimizer.step()
                model.eval()
            """,
        "after the last epoch": """
            import torch
            model.train()
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            model.eval()
            print(model(held_out))
            """,
        "the training is over once it was evaluated": """
            import torch
            def main():
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                model.eval()
                print(model(held_out))
            main()
            """,
        "neither dropout nor batch norm": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                model.eval()
                print(model(held_out))
            """,
        "fine-tuned in evaluation mode from the start": """
            import torch
            model.eval()
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                validate(model)
                model.eval()
            """,
        "eval right before the batches is meant": """
            import torch
            for epoch in range(9):
                model.eval()
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "a part that stays frozen": """
            import torch
            for epoch in range(9):
                model.train()
                model.backbone.eval()
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "a generator draws its samples in evaluation mode": """
            import torch
            for epoch in range(9):
                for x in train_loader:
                    criterion(generator(noise)).backward()
                    optimizer.step()
                generator.eval()
                save(generator(fixed))
            """,
        "Monte Carlo dropout has modes of its own": """
            import torch
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(bayesian_model(x), y).backward()
                    optimizer.step()
                bayesian_model.eval()
            """,
        "another network is evaluated": """
            import torch
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                ema_model.eval()
                print(ema_model(held_out))
            """,
        "the wrapped network is the same one": """
            import torch
            net = build()
            model = torch.nn.DataParallel(net)
            for epoch in range(9):
                net.train()
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                model.eval()
            """,
        "a framework sets the mode": """
            import lightning as L
            class Module(L.LightningModule):
                def fit(self):
                    for epoch in range(9):
                        for x, y in self.train_loader:
                            self.model(x).backward()
                            self.optimizer.step()
                        self.model.eval()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every `eval()` that lasts into training."""
        if script.framework in _OWNED:
            return
        for stuck in script.rounds.stuck:
            if not _matters(script, stuck):
                continue
            name = script.code(stuck.network)
            round_ = "batch" if stuck.rounds is stuck.trains else "epoch"
            message = (
                f"nothing calls `{name}.train()` after this: from here on `{name}` trains in "
                f"evaluation mode, without dropout and with frozen batch norm; call it before the "
                f"next {round_}"
            )
            found = _fix(script, stuck)
            fix = Fix.unsafe(found[0], found[1], because=BECAUSE) if found else None
            note = Note(script.span(stuck.network), f"`{name}` is trained here")
            yield Finding(self.code, script.span(stuck.switch), message, fix, (note,))


def _matters(script: Script, stuck: Stuck) -> bool:
    network = stuck.network
    if script.modes.heeds_mode(network) is False:
        return False
    text = script.code(network)
    if _DELIBERATE.intersection(script.words(text)) or text in _ONE_LETTER:
        return False
    return script.modes.mode(stuck.trains.node, network) is not Mode.EVAL


def _fix(script: Script, stuck: Stuck) -> tuple[str, Edits] | None:
    name = script.code(stuck.network)
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    line, title = f"{name}.train()", "Switch back to training mode"
    if stuck.rounds is stuck.trains:
        edits = _behind_evaluation(script, stuck, line)
    elif script.function(stuck.rounds.node) is script.function(stuck.trains.node):
        edits = script.rewrite.first_in(stuck.rounds.node.body, line)
    elif script.rewrite.stands_alone(stuck.trains.node):
        edits = script.rewrite.before(stuck.trains.node, line)
    else:
        edits = None
    return (title, edits) if edits else None


def _behind_evaluation(script: Script, stuck: Stuck, line: str) -> Edits | None:
    """Put a line behind an evaluation that stands among the batches."""
    statement = script.statement(stuck.at)
    block = script.parent(statement)
    if block is stuck.rounds.node.body:
        return script.rewrite.first_in(stuck.rounds.node.body, line)
    if not isinstance(block, cst.IndentedBlock):
        return None
    last = block.body[-1] if stuck.at is stuck.switch else statement
    leaving = (cst.Break, cst.Continue, cst.Return, cst.Raise)
    if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], leaving):
        return None
    return script.rewrite.after(last, line) if script.rewrite.stands_alone(last) else None
