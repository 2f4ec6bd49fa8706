"""TL207: every training step waits for the device to log a number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Binding, Finding, Fix, Heat, How, Kind, Loop, Role, Rule, Safety, Script
from torchlint_rules._shown import shown

_METHODS: Final = frozenset(
    (
        "set_postfix set_postfix_str set_description set_description_str add_scalar add_scalars "
        "add_histogram add_image info warning log_metric log_metrics scalar_summary"
    ).split()
)
_LOGGERS: Final = frozenset(
    "wandb run logger log experiment mlflow writer accelerator fabric tracker neptune".split()
)
_PLOTTERS: Final = ("vis", "viz", "visdom")
_FUNCTIONS: Final = ("builtins.print", "sys.stdout.write", "tqdm.tqdm.write", "progress_bar")
_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)


class LoggingEveryStep(Rule):
    """
    ## What it does
    Flags a line that prints or logs the value of a tensor in every batch of a training loop, or of
    an evaluation loop of the same file.

    ## Why it is slow
    To show a loss the host must wait until the device has computed it. The device is then idle
    until the next batch is queued. Progress bars and metric writers add their own time.

    ## When not to
    While you look for a mistake, or where one step takes seconds. The rule is silent for lines
    behind `if step % n == 0:` and their like, for scripts that run on the CPU alone, for values
    that are on the host anyway, and for loops that make one step an epoch.

    ## Fix safety
    Unsafe: fewer records are written, and a progress bar shows the last one for a while.
    """

    code = "TL207"
    name = "logging-every-step"
    summary = "every step waits for the device to log a number"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S2",)
    needs = ("backward",)
    options = {"every": 50}

    invalid = {
        "sums, lists and meters that every step adds to": """
              import numpy as np
              import torch.nn.functional as F
              from tqdm import tqdm
              def train(model, loader, meter, bar, sums):
                  losses = []
                  for x, y in loader:
                      loss = F.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
                      losses.append(loss.item())
                      meter.update(loss.item())
                      sums["loss"] += loss.item()
            !         bar.set_description(f"{np.mean(losses):.3f}")
            !         bar.set_postfix(loss=meter.avg)
                      seen = len(losses)
                      bar.set_postfix_str(f"{seen} of {meter.count}")
            !         bar.write("%.3f" % (sums["loss"] / seen))
            """,
        "a dictionary, entry by entry": """
              import torch.nn.functional as F
              def train(model, loader, writer):
                  for i, (x, y) in enumerate(loader):
                      loss = F.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
                      logs = {"loss": loss.item()}
                      for name, value in logs.items():
            -             writer.add_scalar(name, value, i)
            +             if i % 50 == 0:
            +                 writer.add_scalar(name, value, i)
            """,
        "the first process shows every step": """
              import torch.nn.functional as F
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
                  if local_rank == 0:
            -         writer.add_scalar("loss", loss.item(), i)
            +         if i % 50 == 0:
            +             writer.add_scalar("loss", loss.item(), i)
            """,
        "an evaluation prints its running loss for each batch, beside the training": """
              import torch
              def step(model, x, y, criterion):
                  criterion(model(x.cuda()), y.cuda()).backward()
              @torch.no_grad()
              def evaluate(model, loader, criterion):
                  total = 0.0
                  for i, (x, y) in enumerate(loader):
                      loss = criterion(model(x.cuda()), y.cuda())
                      total += loss.item()
            -         print(total / (i + 1))
            +         if i % 50 == 0:
            +             print(total / (i + 1))
            """,
        "a print, with and without item()": """
              import torch.nn.functional as F
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     print(i, loss.item())
            +     if i % 50 == 0:
            +         print(i, loss.item())
            """,
        "a string with a tensor in it reads the tensor": """
              import torch.nn.functional as F
              for step, (x, y) in enumerate(loader, 1):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     print(f"{step}: {loss:.3f}")
            +     if step % 50 == 0:
            +         print(f"{step}: {loss:.3f}")
            """,
        "other ways to make the string, other loggers": """
              import logging, sys
              import torch.nn.functional as F
              logger = logging.getLogger()
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     sys.stdout.write("%d %f" % (i, loss))
            -     logger.info("loss %f", loss)
            -     print("{} {}".format(i, float(loss)))
            +     if i % 50 == 0:
            +         sys.stdout.write("%d %f" % (i, loss))
            +         logger.info("loss %f", loss)
            +         print("{} {}".format(i, float(loss)))
            """,
        "a stream that a star import brought along": """
              import torch.nn.functional as F
              from utils import *
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     sys.stdout.write("%f" % loss.item())
            +     if i % 50 == 0:
            +         sys.stdout.write("%f" % loss.item())
            """,
        "a progress bar": """
              import torch.nn.functional as F
              from tqdm import tqdm
              bar = tqdm(enumerate(loader), total=len(loader))
              for i, (x, y) in bar:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     bar.set_postfix(loss=loss.item())
            +     if i % 50 == 0:
            +         bar.set_postfix(loss=loss.item())
            """,
        "TensorBoard and Weights & Biases, apart from each other": """
              import wandb
              import torch.nn.functional as F
              step = 0
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     writer.add_scalar("loss", loss.item(), step)
            +     if step % 50 == 0:
            +         writer.add_scalar("loss", loss.item(), step)
                  optimizer.step()
            -     wandb.log({"loss": loss})
            +     if step % 50 == 0:
            +         wandb.log({"loss": loss})
                  step += 1
            """,
        "as often as the project says": """
              # options: every=100
              import torch.nn.functional as F
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     print(loss.item())
            +     if i % 100 == 0:
            +         print(loss.item())
            """,
        "a mean of all losses so far needs each of them": """
              import torch.nn.functional as F
              running = 0.0
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
                  running += loss.item()
            -     bar.set_description(f"{running / (i + 1):.3f}")
            +     if i % 50 == 0:
            +         bar.set_description(f"{running / (i + 1):.3f}")
            """,
        "nothing counts the steps": """
              import torch.nn.functional as F
              for x, y in loader:
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            !     print(loss.item())
            """,
        "a line that it shares with others": """
              import torch.nn.functional as F
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
            !     loss.backward(); print(loss.item())
            """,
        "a number that was read before": """
              import torch.nn.functional as F
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
            -     value = loss.item()
            -     print(value)
            +     if i % 50 == 0:
            +         value = loss.item()
            +         print(value)
            """,
        "a number that was read before and is needed in each step": """
              import torch.nn.functional as F
              for i, (x, y) in enumerate(loader):
                  loss = F.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
                  value = loss.item()
            !     print(value)
                  history.keep(value)
            """,
    }
    valid = {
        "the first process, every hundred steps": """
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                if local_rank == 0 and i % 100 == 0:
                    print(loss.item())
            """,
        "the end of an episode is no step": """
            import torch
            state = env.reset()
            for step in range(10000):
                value = model(torch.as_tensor(state).cuda())
                loss = value.pow(2).mean()
                loss.backward()
                optimizer.step()
                state, reward, done, info = env.step(value.argmax().item())
                if done:
                    print(loss.item())
            """,
        "now and then": """
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                if i % 100 == 0:
                    print(i, loss.item())
            """,
        "on the first rank, when asked for, at the end": """
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                if args.debug:
                    print(loss.item())
                if i == len(loader) - 1:
                    print(loss.item())
            """,
        "the script runs on the CPU": """
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                print(loss.item())
            """,
        "numbers of the host": """
            import time
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                print(i, x.shape, y.size(0), scheduler.get_last_lr(), time.time())
            """,
        "tensors of the host": """
            import torch
            import torch.nn.functional as F
            from torch.utils.data import DataLoader
            loader = DataLoader(images)
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                print(y.sum().item())
            """,
        "after the loop": """
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
            print(loss.item())
            """,
        "once an epoch": """
            import torch.nn.functional as F
            for epoch in range(10):
                for x, y in loader:
                    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                    loss.backward()
                print(epoch, loss.item())
            """,
        "one step is one epoch": """
            import torch.nn.functional as F
            model.cuda()
            for epoch in range(200):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                print(epoch, loss.item())
            """,
        "one step for each of a few things": """
            import torch.nn.functional as F
            model.cuda()
            for i, size in enumerate([16, 32, 64]):
                loss = F.cross_entropy(model(x[:size]), y[:size])
                loss.backward()
                print(size, loss.item())
            """,
        "a message on the way out": """
            import math, sys
            import torch.nn.functional as F
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                if not math.isfinite(loss.item()):
                    print("stopping", loss.item())
                    sys.exit(1)
                loss.backward()
            """,
        "Lightning gathers what is logged, and reads it when it is due": """
            import lightning as L
            import torch.nn.functional as F
            class Net(L.LightningModule):
                def fit_batches(self, loader):
                    for i, (x, y) in enumerate(loader):
                        loss = F.cross_entropy(self.model(x.cuda()), y.cuda())
                        loss.backward()
                        self.log("loss", loss)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the lines of every batch loop that log a tensor's value in each pass."""
        if not script.can_use_accelerator:
            return
        found: dict[int, tuple[cst.Expr, Loop, str]] = {}
        for loop in script.loops(Role.TRAIN_BATCH, Role.EVAL_BATCH):
            if script.is_round(loop):
                continue
            for line in script.within(loop.node.body, cst.Expr):
                if not isinstance(line.value, cst.Call) or not _logs(script, line.value, loop):
                    continue
                if script.batch_loop(line) is not loop:
                    continue
                if script.heat(line) is not Heat.HOT:
                    if not script.is_hot_in_one_process(line, loop):
                        continue
                value = shown(script, line.value, loop)
                if value is not None and not _reports_episode(script, line, loop):
                    found[id(line)] = (line, loop, value)
        every = self.settings["every"]
        fixes = _fixes(script, found, every)
        for line, _, value in found.values():
            assert isinstance(line.value, cst.Call)
            message = (
                f"every step waits for the device so that `{script.code(line.value.func)}` can "
                f"show `{value}`; log every {every}th step"
            )
            yield Finding(self.code, script.span(line), message, fixes.get(id(line)))


def _reports_episode(script: Script, line: cst.Expr, loop: Loop) -> bool:
    """Whether a line tells of an episode that has just ended, not of every step."""
    return any(True for _ in script.tests_around(line)) and any(
        "env" in script.code(call.func).lower()
        for call in script.within(loop.node, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"
    )


def _logs(script: Script, call: cst.Call, loop: Loop) -> bool:
    """Whether a call shows or records its arguments."""
    func = call.func
    if (script.name(func) or script.code(func)) in _FUNCTIONS:
        return True
    if isinstance(func, cst.Name):
        return func.value == "progress_bar"
    if not isinstance(func, cst.Attribute):
        return False
    if func.attr.value in _METHODS:
        return script.kind(func.value) not in _TENSORS
    owner = func.value.attr if isinstance(func.value, cst.Attribute) else func.value
    word = owner.value.lower() if isinstance(owner, cst.Name) else ""
    if func.attr.value == "line":
        return word in _PLOTTERS
    if func.attr.value in ("write", "writerow"):
        return loop.role is Role.TRAIN_BATCH  # an evaluation writes its results
    return func.attr.value in ("log", "print") and word in _LOGGERS


# -- the fix ----------------------------------------------------------------------


def _fixes(
    script: Script, found: Mapping[int, tuple[cst.Expr, Loop, str]], every: int
) -> dict[int, Fix]:
    """Give the fix of each line by its identity: lines one after the other share theirs."""
    holders = [script.parent(line) for line, _, _ in found.values()]
    blocks = {id(block): block for block in map(script.parent, filter(None, holders))}
    fixes: dict[int, Fix] = {}
    for block in blocks.values():
        for run in _runs(block, found) if isinstance(block, cst.IndentedBlock) else ():
            lines = [line.body[0] for line in run]
            fix = _fix(script, run, found[id(lines[0])][1], every)
            if fix is not None:
                fixes.update(dict.fromkeys(map(id, lines), fix))
    return fixes


def _runs(
    block: cst.IndentedBlock, found: Mapping[int, object]
) -> Iterator[list[cst.SimpleStatementLine]]:
    """Yield the statements of a block that log one after the other."""
    run: list[cst.SimpleStatementLine] = []
    for line in block.body:
        if isinstance(line, cst.SimpleStatementLine) and _is_one_of(line, found):
            run.append(line)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _is_one_of(line: cst.SimpleStatementLine, found: Mapping[int, object]) -> bool:
    return len(line.body) == 1 and id(line.body[0]) in found


def _fix(script: Script, lines: Sequence[cst.CSTNode], loop: Loop, every: int) -> Fix | None:
    counter = script.counter(loop.node)
    moved = _with_readings(script, lines, loop)
    if counter is None or moved is None:
        return None
    return Fix.unsafe(
        f"Log every {every}th step",
        script.rewrite.wrap(moved, f"if {counter} % {every} == 0:"),
        because="fewer records are written",
    )


def _with_readings(
    script: Script, lines: Sequence[cst.CSTNode], loop: Loop
) -> Sequence[cst.CSTNode] | None:
    """Add the lines above that read what is shown; None where other lines need their numbers."""
    readings = _readings(script, lines, loop)
    block = script.parent(lines[0])
    if not isinstance(block, cst.IndentedBlock):
        return None
    order = script.tree.order
    at = bisect_left(block.body, order(lines[0]), key=order)
    above = block.body[max(at - len(readings), 0) : at]
    if {id(line) for line in above} != set(readings):
        return None
    moved = [*above, *lines]
    bound = list(readings.values())
    for name in (use for each in bound for use in script.tree.spelled(each.name)):
        if script.scopes.reads(name):
            inside = any(script.tree.inside(name, line) for line in moved)
            if not inside and not set(bound).isdisjoint(script.scopes.reaching(name)):
                return None
    return moved


def _readings(script: Script, lines: Sequence[cst.CSTNode], loop: Loop) -> dict[int, Binding]:
    """Give the statements that read a tensor for the names in some lines, by their identity."""
    return {
        id(script.tree.statement(binding.node)): binding
        for line in lines
        for name in script.within(line, cst.Name)
        if script.scopes.reads(name)
        for binding in script.scopes.reaching(name)
        if binding.how is How.ASSIGN
        and binding.value is not None
        and script.tree.inside(binding.node, loop.node.body)
        and next(script.readings(binding.value), None) is not None
    }
