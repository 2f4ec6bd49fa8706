"""TL510 rebuilt-in-loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.api import Finding, Fix, Rule, Safety, Script, regex
from torchlint_rules._rebuilding import Rebuilt, hoisted, loss_loops, rebuilt, training_loops

_OPTIMIZER: Final = regex(r"torch\.optim\.[A-Z]\w*")
_SCHEDULER: Final = regex(r"torch\.optim\.lr_scheduler\.[A-Z]\w*")
_LOSS: Final = regex(r"torch\.nn\.(?!AdaptiveLogSoftmaxWithLoss)\w*Loss")
_LOOPS: Final = {"loss": loss_loops, "optimizer": training_loops, "scheduler": training_loops}
_KEEPS_STATE: Final = "what was thrown away with each {} is kept: the updates are others"


class RebuiltInLoop(Rule):
    """
    ## What it does
    Flags an optimizer, a scheduler or a loss module that each epoch, or each batch, makes anew out
    of the same things.

    ## Why it is slow
    An optimizer that is made anew has lost its momentum and Adam's averages, so each epoch starts
    with the blind steps of the first one; a scheduler starts its schedule from the beginning, and
    the rate never falls. A loss module costs its construction each time, for nothing.

    ## When not to
    Where each pass trains from the start (folds, seeds, tasks, a search over rates) or changes the
    network: the rule is silent there. Warm restarts are better written as a scheduler.

    ## Fix safety
    Exact for loss modules, which have neither parameters nor state. Unsafe for the others: they
    then keep their state, and training goes otherwise. No fix where a function has to change.
    """

    code = "TL510"
    name = "rebuilt-in-loop"
    summary = "each pass of a loop makes the same thing anew"
    impact = "low"
    safety = Safety.EXACT
    articles = ("S2",)
    needs = ("Loss", "SGD", "Adam", "RMSprop", "Adagrad", "lr_scheduler")

    invalid = {
        "a loss module in each batch": """
              import torch
              from torch import nn
            + criterion = nn.CrossEntropyLoss()
              for epoch in range(9):
                  for x, y in train_loader:
            -         criterion = nn.CrossEntropyLoss()
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "made and called at once": """
              import torch
              from torch import nn
            + cross_entropy_loss = nn.CrossEntropyLoss()
              for x, y in train_loader:
            -     nn.CrossEntropyLoss()(model(x), y).backward()
            +     cross_entropy_loss(model(x), y).backward()
                  optimizer.step()
            """,
        "moved to a device, in an evaluation": """
              import torch
              @torch.no_grad()
              def evaluate(model, val_loader, device):
                  model.eval()
            +     # The mean over the batch.
            +     loss_fn = torch.nn.MSELoss(reduction="mean").to(device)
                  for x, y in val_loader:
            -         # The mean over the batch.
            -         loss_fn = torch.nn.MSELoss(reduction="mean").to(device)
                      print(loss_fn(model(x), y).item())
            """,
        "an optimizer in each epoch": """
              import torch
            + optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
              for epoch in range(9):
            -     optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
                  for x, y in train_loader:
                      optimizer.zero_grad()
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "an optimizer in each batch, of groups": """
              from torch import optim
              def main():
            +     opt = optim.SGD([{"params": net.body.parameters()}, {"params": net.head.parameters()}], 0.1)
                  for x, y in train_loader:
            -         opt = optim.SGD([{"params": net.body.parameters()}, {"params": net.head.parameters()}], 0.1)
                      opt.zero_grad()
                      criterion(net(x), y).backward()
                      opt.step()
            """,
        "a scheduler in each epoch: the rate never falls": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            + scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
              for epoch in range(9):
            -     scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
                  scheduler.step()
            """,
        "in a function that each epoch calls: reported only": """
              import torch
              def train(model, loader):
            !     optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
                  for x, y in loader:
                      optimizer.zero_grad()
                      criterion(model(x), y).backward()
                      optimizer.step()
              model = build()
              for epoch in range(9):
                  train(model, train_loader)
            """,
        "a loss module in a function that each batch calls: reported only": """
              import torch
              from torch import nn
              def loss_fn(outputs, targets):
            !     return nn.BCEWithLogitsLoss()(outputs, targets.view(-1, 1))
              for epoch in range(9):
                  for x, y in train_loader:
                      loss_fn(model(x), y).backward()
                      optimizer.step()
            """,
        "the name is bound elsewhere too: reported only": """
              import torch
              optimizer = torch.optim.Adam(model.parameters())
              for epoch in range(9):
            !     optimizer = torch.optim.Adam(model.parameters())
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
    }
    valid = {
        "made once": """
            import torch
            criterion = torch.nn.CrossEntropyLoss()
            optimizer = torch.optim.Adam(model.parameters())
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
            for epoch in range(9):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                scheduler.step()
            """,
        "a loss module once an epoch, in a function, costs nothing": """
            import torch
            def train(model, loader):
                criterion = torch.nn.BCELoss()
                for x, y in loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            for epoch in range(9):
                train(model, train_loader)
            """,
        "each fold has a network and an optimizer of its own": """
            import torch
            for fold in range(5):
                model = build()
                optimizer = torch.optim.Adam(model.parameters())
                for epoch in range(9):
                    for x, y in train_loader:
                        criterion(model(x), y).backward()
                        optimizer.step()
            """,
        "a search over rates": """
            import torch
            for lr in (0.1, 0.01):
                optimizer = torch.optim.SGD(model.parameters(), lr=lr)
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "each run starts from fresh weights": """
            import torch
            for epoch in range(9):
                model.reset_parameters()
                optimizer = torch.optim.Adam(model.parameters())
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "the phases of a GAN that grows": """
            import torch
            for phase in range(5):
                optimizer = torch.optim.Adam(generator.parameters())
                for x in train_loader:
                    criterion(generator(x)).backward()
                    optimizer.step()
            """,
        "the rate depends on the epoch": """
            import torch
            for epoch in range(9):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / (epoch + 1))
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "the layers that learn change": """
            import torch
            for epoch in range(9):
                model.layer[epoch].requires_grad_(True)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "the weights of the classes change": """
            import torch
            for epoch in range(9):
                weights = count(epoch)
                criterion = torch.nn.CrossEntropyLoss(weight=weights)
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "now and then, on purpose": """
            import torch
            for epoch in range(9):
                if epoch == 5:
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "a sample has an optimizer of what it is turned into": """
            import torch
            for x, y in test_loader:
                noise = torch.zeros_like(x, requires_grad=True)
                optimizer = torch.optim.Adam([noise])
                for step in range(9):
                    criterion(model(x + noise), y).backward()
                    optimizer.step()
            """,
        "a loss with parameters of its own": """
            import torch
            for x, y in train_loader:
                criterion = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 100, [10])
                criterion(model(x), y).loss.backward()
                optimizer.step()
            """,
        "a whole run in a function": """
            import torch
            def main(model):
                optimizer = torch.optim.Adam(model.parameters())
                for epoch in range(9):
                    for x, y in train_loader:
                        criterion(model(x), y).backward()
                        optimizer.step()
            for model in models:
                main(model)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what the passes of training loops make again and again."""
        for site in script.calls(*filter(_noun, script.called)):
            noun = _noun(site.name or "")
            found = rebuilt(script, site.node, script.once(_LOOPS[noun]))
            if found is None or (noun == "loss" and found.runs and found.unit == "epoch"):
                continue
            edits = hoisted(script, found)
            title = f"Make the {noun} once, before the loop"
            fix = None
            if edits and noun == "loss":
                fix = Fix.exact(title, edits)
            elif edits and script.framework == "none":
                fix = Fix.unsafe(title, edits, because=_KEEPS_STATE.format(found.unit))
            yield Finding(self.code, script.span(site.node), _message(script, found, noun), fix)


def _noun(name: str) -> str:
    if not name.startswith(("torch.nn.", "torch.optim.")):
        return ""
    if _LOSS.fullmatch(name):
        return "loss"
    if _SCHEDULER.fullmatch(name):
        return "scheduler"
    return "optimizer" if _OPTIMIZER.fullmatch(name) else ""


def _message(script: Script, found: Rebuilt, noun: str) -> str:
    kind = (script.name(found.call.func) or "").rpartition(".")[2]
    where = ""
    function = script.function(found.call)
    if found.runs and function is not None:
        where = f" in `{function.name.value}()`"
    cost = {
        "optimizer": "its momentum and averages start from nothing each time",
        "scheduler": "its schedule starts from the beginning, and the rate never falls",
        "loss": "it is the same module each time",
    }[noun]
    return (
        f"each {found.unit} makes this `{kind}` anew{where}: {cost}; make it once before the loop"
    )
