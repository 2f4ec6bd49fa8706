"""TL505 misplaced-scheduler-step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Kind, Rule, Safety, SchedulerStep, Script
from torchlint_rules._cadence import mismatch
from torchlint_rules._schedulerapi import is_only_shown, misuse
from torchlint_rules._schedulerexamples import MORE
from torchlint_rules._steporder import Early, early, put_behind

_EARLIER: Final = "every learning rate comes one {} later than now"
_OTHER_PACE: Final = "the learning rate follows another curve from the first epoch on"


class MisplacedSchedulerStep(Rule):
    """
    ## What it does
    Flags a learning-rate scheduler that is stepped before its optimizer, with the wrong beat
    (`StepLR` with every batch, `OneCycleLR` once an epoch), by an epoch number, or without the
    metric that it needs; and what torch took out of its interface: `verbose=`, `get_lr()`.

    ## Why it is slow
    Training at a rate that nobody chose takes more epochs. A scheduler that is stepped first skips
    the first value of its schedule; `StepLR(step_size=30)` in a loop of 100 batches is down to
    1e-11 of its rate after three epochs; a one-cycle policy that is stepped once an epoch was at
    4 % of its peak after ten.

    ## When not to
    Schedulers of timm have other conventions (`step(epoch)`, `step_update(n)`); the rule leaves
    them alone, and `CosineAnnealingWarmRestarts.step(epoch + i / n)`, which torch documents.
    A step that a test on the epoch guards (`if epoch > 0:`) is in its place.

    ## Fix safety
    A step that moves changes the rate of every epoch: unsafe. Taking out `verbose=` and the epoch
    that `ReduceLROnPlateau` only counts is exact; so is `get_last_lr()` where it is only shown.
    """

    code = "TL505"
    name = "misplaced-scheduler-step"
    summary = "the learning rate does not follow its schedule"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S1", "S2", "S3.1")
    needs = ("lr_scheduler", "scheduler.step", "_schedule")

    invalid = {
        "at the head of the epoch": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
              for epoch in range(90):
            -     # Decay the rate.
            -     scheduler.step()
                  for x, y in train_loader:
                      optimizer.zero_grad()
                      criterion(model(x), y).backward()
                      optimizer.step()
            +     # Decay the rate.
            +     scheduler.step()
            """,
        "between backward and step": """
              from torch import optim
              opt = optim.AdamW(model.parameters())
              sched = optim.lr_scheduler.LambdaLR(opt, lambda step: 0.99**step)
              for x, y in train_loader:
                  criterion(model(x), y).backward()
            -     sched.step()
                  opt.step()
            +     sched.step()
                  opt.zero_grad()
            """,
        "the optimizer steps in a function of this file": """
              from torch.optim import SGD, lr_scheduler
              def train(loader, optimizer):
                  for x, y in loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
              def main():
                  optimizer = SGD(model.parameters(), lr=0.1)
                  scheduler = lr_scheduler.MultiStepLR(optimizer, [30, 60])
                  for epoch in range(90):
            -         scheduler.step()
                      train(train_loader, optimizer)
            +         scheduler.step()
                      torch.save(model.state_dict(), "last.pt")
            """,
        "the function of an epoch begins with it": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
              def train(epoch):
            -     scheduler.step()
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            +     scheduler.step()
              for epoch in range(90):
                  train(epoch)
            """,
        "with a scaler and behind a flag; the rate is read later": """
              import torch
              optimizer = torch.optim.AdamW(model.parameters())
              scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10_000)
              scaler = torch.amp.GradScaler("cuda")
              for x, y in train_loader:
            -     if args.cosine:
            -         scheduler.step()
                  scaler.scale(criterion(model(x), y)).backward()
                  scaler.step(optimizer)
                  scaler.update()
                  print(optimizer.param_groups[0]["lr"])
            +     if args.cosine:
            +         scheduler.step()
            """,
        "each of two networks has its own": """
              import torch
              opt_g = torch.optim.Adam(net_g.parameters())
              opt_d = torch.optim.Adam(net_d.parameters())
              sched_g = torch.optim.lr_scheduler.StepLR(opt_g, 100)
              sched_d = torch.optim.lr_scheduler.StepLR(opt_d, 100)
              for x in train_loader:
                  loss_g(x).backward()
                  opt_g.step()
                  sched_g.step()
                  loss_d(x).backward()
            -     sched_d.step()
                  opt_d.step()
            +     sched_d.step()
            """,
        "who made the scheduler is out of sight: reported only": """
              import torch
              from mine import get_scheduler
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = get_scheduler(optimizer, cfg)
              for x, y in train_loader:
            !     scheduler.step()
                  criterion(model(x), y).backward()
                  optimizer.step()
            """,
        "a pass may end before the new place: reported only": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
              for x, y in train_loader:
            !     scheduler.step()
                  loss = criterion(model(x), y)
                  if not loss.isfinite():
                      continue
                  loss.backward()
                  optimizer.step()
            """,
        "a framework owns the loop: reported only": """
              import torch
              from accelerate import Accelerator
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
              for x, y in train_loader:
                  accelerator.backward(criterion(model(x), y))
            !     scheduler.step()
                  optimizer.step()
            """,
        "by the number of the epoch": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
              for epoch in range(90):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            -     scheduler.step(epoch)
            +     scheduler.step()
            """,
        "by the number of the epoch, at its head": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
              for epoch in range(90):
            -     scheduler.step(epoch=epoch)
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            +     scheduler.step()
            """,
        "by a number that starts where a run was resumed: reported only": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
              for epoch in range(args.start_epoch, 90):
                  train(train_loader, model, optimizer)
            !     scheduler.step(epoch)
            """,
        "ReduceLROnPlateau only counts the epoch": """
              import torch
              scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
              for epoch in range(90):
                  train(train_loader, model, optimizer)
            -     scheduler.step(evaluate(model), epoch)
            +     scheduler.step(evaluate(model))
            """,
        "ReduceLROnPlateau without its metric": """
              import torch
              scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)
              for epoch in range(90):
                  train(train_loader, model, optimizer)
            !     scheduler.step()
            """,
        "StepLR with a metric": """
              import torch
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
              for epoch in range(90):
                  val_loss = train(train_loader, model, optimizer)
            !     scheduler.step(val_loss)
            """,
        "StepLR with each batch": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
              for epoch in range(90):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            -         scheduler.step()
            +     scheduler.step()
            """,
        "milestones of epochs, met by batches": """
              import torch
              def train(epoch):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            -         scheduler.step()
            +     scheduler.step()
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[30, 60])
              for epoch in range(90):
                  train(epoch)
            """,
        "a cosine over all epochs, run through by batches": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
              for epoch in range(1, EPOCHS + 1):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            -         scheduler.step()  # cosine
            +     scheduler.step()  # cosine
            """,
        "one cycle of batches, stepped once an epoch": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.OneCycleLR(
                  optimizer, 0.1, epochs=10, steps_per_epoch=len(train_loader)
              )
              for epoch in range(10):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            +         scheduler.step()
                      optimizer.zero_grad()
            -     scheduler.step()
            """,
        "cycles of batches, stepped once an epoch": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              cycle = torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-4, 0.1)
              scaler = torch.amp.GradScaler("cuda")
              for epoch in range(10):
                  for x, y in train_loader:
                      scaler.scale(criterion(model(x), y)).backward()
                      scaler.step(optimizer)
                      scaler.update()
            +         cycle.step()
            -     cycle.step()
            """,
        "one cycle of epochs, stepped with each batch": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=num_epochs)
              for epoch in range(num_epochs):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            !         scheduler.step()
            """,
        "one cycle is planned for fewer epochs than are run": """
              import torch
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.OneCycleLR(
                  optimizer, 0.1, epochs=10, steps_per_epoch=len(train_loader)
              )
              for epoch in range(20):
                  for x, y in train_loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            !         scheduler.step()
            """,
        "verbose is gone": """
              import torch
            - scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30, verbose=True)
            + scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            - other = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, verbose=False, patience=3)
            + other = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
            """,
        **MORE,
    }
    valid = {
        "after the optimizer": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            for epoch in range(90):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                scheduler.step()
            """,
        "at the head of every epoch but the first": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            for epoch in range(90):
                if epoch > 0:
                    scheduler.step()
                train(train_loader, model, optimizer)
            """,
        "the optimizer has stepped before the loop, as torch asks": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            optimizer.step()
            for epoch in range(90):
                scheduler.step()
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "a resumed run catches up": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            for _ in range(start_epoch):
                scheduler.step()
            for epoch in range(start_epoch, 90):
                train(train_loader, model, optimizer)
                scheduler.step()
            """,
        "the optimizer that follows is another network's": """
            import torch
            opt_g = torch.optim.Adam(net_g.parameters())
            opt_d = torch.optim.Adam(net_d.parameters())
            sched_g = torch.optim.lr_scheduler.StepLR(opt_g, 1000)
            for x in train_loader:
                loss_g(x).backward()
                opt_g.step()
                sched_g.step()
                loss_d(x).backward()
                opt_d.step()
            """,
        "timm counts epochs, and updates": """
            import torch
            from timm.scheduler import create_scheduler
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            lr_scheduler, epochs = create_scheduler(args, optimizer)
            for epoch in range(epochs):
                lr_scheduler.step(epoch)
                for x, y in train_loader:
                    lr_scheduler.step_update(n)
                    optimizer.step()
            """,
        "a class of one's own that is no scheduler of torch's": """
            import torch
            class Warmup:
                def __init__(self, optimizer):
                    self.optimizer = optimizer
                def step(self):
                    self.optimizer.param_groups[0]["lr"] = 0.1
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = Warmup(optimizer)
            for x, y in train_loader:
                scheduler.step()
                criterion(model(x), y).backward()
                optimizer.step()
            """,
        "a noise scheduler of a diffusion model is no schedule of rates": """
            import torch
            for t in noise_scheduler.timesteps:
                latents = noise_scheduler.step(model(latents, t), t, latents).prev_sample
            """,
        "warm restarts take fractions of an epoch": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 10)
            for epoch in range(90):
                for i, (x, y) in enumerate(train_loader):
                    criterion(model(x), y).backward()
                    optimizer.step()
                    scheduler.step(epoch + i / len(train_loader))
            """,
        "ReduceLROnPlateau with a loss, once a batch": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            for epoch in range(9):
                for x, y in train_loader:
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
                    scheduler.step(loss.item())
            """,
        "one of two kinds, by a flag": """
            import torch
            if args.plateau:
                scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            else:
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            for epoch in range(90):
                train(train_loader, model, optimizer)
                if args.plateau:
                    scheduler.step(val_loss)
                else:
                    scheduler.step()
            """,
        "one cycle over all batches, stepped with each": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(
                optimizer, 0.1, epochs=10, steps_per_epoch=len(train_loader)
            )
            for epoch in range(10):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                    scheduler.step()
            """,
        "one cycle over the epochs": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
            for epoch in range(10):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                scheduler.step()
            """,
        "milestones are batches": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            lr_steps = args.epochs * len(train_loader)
            scheduler = torch.optim.lr_scheduler.MultiStepLR(
                optimizer, milestones=[lr_steps / 2, lr_steps * 3 / 4]
            )
            slow = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
            for epoch in range(args.epochs):
                for x, y in train_loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                    scheduler.step()
                    slow.step()
            """,
        "once an epoch, from within the batches": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            for epoch in range(90):
                for i, (x, y) in enumerate(train_loader):
                    criterion(model(x), y).backward()
                    optimizer.step()
                    if i % 1000 == 0:
                        scheduler.step()
            """,
        "the whole data in one step: a pass is an epoch": """
            import torch
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            for epoch in range(90):
                criterion(model(x), y).backward()
                optimizer.step()
                scheduler.step()
            """,
        "before torch 2.2 verbose printed the rate": """
            # target-torch: 2.1
            import torch
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30, verbose=True)
            """,
        "a scheduler asks itself for its rates": """
            import torch
            class Warm(torch.optim.lr_scheduler.LRScheduler):
                def __init__(self, optimizer, after):
                    self.after = after
                    super().__init__(optimizer)
                def get_lr(self):
                    return self.after.get_lr()
                def step(self, epoch=None):
                    self.after.step(epoch)
                    super().step(epoch)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every step out of place, and what the interface lost."""
        for made in script.schedulers.made:
            yield from self._verbose(script, made.call, made.name)
        for call in script.method_calls("get_lr"):
            yield from self._rate(script, call)
        for step in script.schedulers.steps:
            found = misuse(script, step) or _disorder(script, step)
            if found is not None:
                message, fix = found
                fix = fix if script.framework == "none" else None
                yield Finding(self.code, script.span(step.call), message, fix)

    def _verbose(self, script: Script, call: cst.Call, name: str) -> Iterator[Finding]:
        arg = script.call(call).given("verbose")
        if arg is None or not script.target.has((2, 2)):
            return
        fate = "was removed in torch 2.7: this raises TypeError"
        if not script.target.has((2, 7)):
            fate = "does nothing since torch 2.2, and from 2.7 on raises TypeError"
        message = f"`verbose=` of `{name}` {fate}; print `get_last_lr()` where you want the rate"
        plain = isinstance(arg.value, (cst.Name, cst.Attribute, cst.Integer))
        fix = None
        if plain:
            fix = Fix.exact("Take out `verbose`", script.rewrite.without_argument(call, arg))
        yield Finding(self.code, script.span(arg), message, fix)

    def _rate(self, script: Script, call: cst.Call) -> Iterator[Finding]:
        func = call.func
        if not isinstance(func, cst.Attribute) or call.args:
            return
        made = script.schedulers.of(func.value)
        if script.kind(func.value) is not Kind.SCHEDULER or not made:
            return
        if not all(each.in_sight and each.name for each in made):
            return
        name = script.code(func.value)
        message = (
            f"`{name}.get_lr()` computes a next rate from the present one, and torch warns of it: "
            "`get_last_lr()` is the rate in use"
        )
        edits = script.rewrite.replace(func.attr, "get_last_lr")
        title = "Ask for the rate in use"
        because = "the value differs where the schedule multiplies, and more than a print reads it"
        shown = is_only_shown(script, call)
        fix = Fix.exact(title, edits) if shown else Fix.unsafe(title, edits, because=because)
        yield Finding(self.code, script.span(call), message, fix)


# -- place and beat ------------------------------------------------------------------------


def _disorder(script: Script, step: SchedulerStep) -> tuple[str, Fix | None] | None:
    if not step.names & {"ReduceLROnPlateau"} and not step.call.args:
        found = early(script, step)
        if found is not None:
            return _early_message(script, step, found), _early_fix(script, step, found)
    beat = mismatch(script, step) if not step.call.args else None
    if beat is None:
        return None
    message, edits, title = beat
    return message, Fix.unsafe(title, edits, because=_OTHER_PACE) if edits else None


def _early_message(script: Script, step: SchedulerStep, found: Early) -> str:
    update = found.updates[0]
    own = f"`{script.code(update.call.func)}()`"
    if not update.in_sight and update.optimizer is not None:
        own = f"`{script.code(update.call.func)}` steps `{script.code(update.optimizer)}`"
    return (
        f"`{script.code(step.call)}` comes before {own}: the first value of the schedule is "
        f"skipped, and every rate comes one {found.unit} early; step it after the optimizer"
    )


def _early_fix(script: Script, step: SchedulerStep, found: Early) -> Fix | None:
    if not step.made or not all(each.in_sight for each in step.made):
        return None
    edits = put_behind(script, step, found)
    if edits is None:
        return None
    because = _EARLIER.format(found.unit)
    return Fix.unsafe("Step the scheduler after the optimizer", edits, because=because)
