"""TL902: a checkpoint that is written in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Heat, Kind, Role, Rule, Script

_KEEPERS: Final = frozenset({"accelerator", "fabric"})
_DEPTH: Final = 3


class CheckpointEveryStep(Rule):
    """
    ## What it does
    Flags a checkpoint (a network, a state dict, a dictionary of them) that is written in every
    step of the training loop.

    ## Why it is slow
    Writing waits for the device, copies every tensor to the host and then to the disk, and the
    next step waits for all of it. A checkpoint of 4 MB took 1.9 times as long as the forward and
    backward pass of its network.

    ## When not to
    Behind `if step % 1000 == 0:`, when something got better, once an epoch, or for results that
    are no checkpoint, there is nothing to gain: the rule is silent there.

    ## Fix safety
    There is no fix: how often to write is a matter of how much work you can bear to lose.
    """

    code = "TL902"
    name = "checkpoint-every-step"
    summary = "every step writes a checkpoint"
    impact = "high"
    safety = None
    articles = ("S2",)
    needs = ("save",)

    invalid = {
        "the state dict": """
              import torch
              from mine import loader, model, optimizer
              for epoch in range(10):
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
            !         torch.save(model.state_dict(), "last.pt")
            """,
        "the network, in a loop without epochs": """
              import torch as th
              from mine import get_batch
              def train(model, optimizer):
                  for step in range(100000):
                      x, y = get_batch("train")
                      model(x, y).backward()
                      optimizer.step()
            !         th.save(model, f"{step}.pt")
            """,
        "a dictionary with a name, into an open file": """
              import torch
              from mine import loader, model, optimizer
              for step, (x, y) in enumerate(loader):
                  model(x, y).backward()
                  optimizer.step()
                  state = {"step": step, "model": model.state_dict()}
                  with open("last.pt", "wb") as file:
            !         torch.save(state, file)
            """,
        "through a function": """
              import torch
              from mine import loader, optimizer
              def keep(model, path):
            !     torch.save({"model": model.state_dict()}, path)
              def main(model):
                  for x, y in loader:
                      model(x, y).backward()
                      optimizer.step()
                      keep(model, "last.pt")
            """,
        "a network that saves itself": """
              import torch
              from transformers import BertModel
              from mine import loader, optimizer
              model = BertModel.from_pretrained("bert-base-uncased")
              for x in loader:
                  model(x).loss.backward()
                  optimizer.step()
            !     model.save_pretrained("last")
            """,
        "by a function out of sight": """
              import torch
              from mine import loader, model, optimizer, save_checkpoint
              for step, (x, y) in enumerate(loader):
                  model(x, y).backward()
                  optimizer.step()
            !     save_checkpoint({"step": step, "model": model.state_dict()})
            """,
        "by Accelerate": """
              import torch
              from accelerate import Accelerator
              accelerator = Accelerator()
              def train(model, optimizer, loader):
                  for x, y in loader:
                      accelerator.backward(model(x, y))
                      optimizer.step()
            !         accelerator.save_state("last")
            """,
    }
    valid = {
        "every so many steps": """
            import torch
            from mine import loader, model, optimizer
            for step, (x, y) in enumerate(loader):
                model(x, y).backward()
                optimizer.step()
                if step % 1000 == 0:
                    torch.save(model.state_dict(), "last.pt")
            """,
        "the other steps go on before": """
            import torch
            from mine import loader, model, optimizer
            for step, (x, y) in enumerate(loader):
                model(x, y).backward()
                optimizer.step()
                if step % 1000 != 0:
                    continue
                torch.save(model.state_dict(), "last.pt")
            """,
        "when it got better": """
            import torch
            from mine import evaluate, loader, model, optimizer
            best = 1e9
            for x, y in loader:
                model(x, y).backward()
                optimizer.step()
                loss = evaluate(model)
                if loss < best:
                    best = loss
                    torch.save(model.state_dict(), "best.pt")
            """,
        "once an epoch": """
            import torch
            from mine import loader, model, optimizer
            for epoch in range(10):
                for x, y in loader:
                    model(x, y).backward()
                    optimizer.step()
                torch.save(model.state_dict(), "last.pt")
            """,
        "once an epoch, by a function that trains for one": """
            import torch
            from mine import loader, model, optimizer
            def train():
                for x, y in loader:
                    model(x, y).backward()
                    optimizer.step()
            for epoch in range(10):
                train()
                torch.save(model.state_dict(), "last.pt")
            """,
        "a function that says itself how often": """
            import torch
            from mine import loader, model, optimizer
            def keep(step):
                if step % 1000 == 0:
                    torch.save(model.state_dict(), "last.pt")
            for step, (x, y) in enumerate(loader):
                model(x, y).backward()
                optimizer.step()
                keep(step)
            """,
        "the state is compared, not written": """
            import torch
            from mine import compare, loader, model, optimizer
            for step, (x, y) in enumerate(loader):
                model(x, y).backward()
                optimizer.step()
                compare(model.state_dict())
            """,
        "the features of a batch are no checkpoint": """
            import torch
            from mine import loader, model, optimizer
            for step, (x, y) in enumerate(loader):
                features = model.features(x)
                features.sum().backward()
                optimizer.step()
                torch.save(features.detach(), f"{step}.pt")
            """,
        "the last thing that the loop does": """
            import torch
            from mine import loader, model, optimizer
            for step, (x, y) in enumerate(loader):
                model(x, y).backward()
                optimizer.step()
                try:
                    step = int(step)
                except KeyboardInterrupt:
                    torch.save(model.state_dict(), "last.pt")
                    break
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every checkpoint that nothing keeps from being written in each step."""
        for call in _writes(script):
            what = _checkpoint(script, call)
            if what and _each_step(script, call, _DEPTH):
                message = (
                    f"every training step writes {what} to disk and waits for it; write it once an "
                    "epoch or every so many steps"
                )
                yield Finding(self.code, script.span(call), message)


def _writes(script: Script) -> Iterator[cst.Call]:
    """Yield the calls that may write a checkpoint, and are not of functions in this file."""
    yield from (site.node for site in script.calls("torch.save"))
    for call in script.method_calls("save_pretrained", "save_state"):
        said = call.func.value if isinstance(call.func, cst.Attribute) else call.func
        network = script.kind(said) is Kind.MODULE
        if network or not _KEEPERS.isdisjoint(script.words(script.code(said))):
            yield call
    for state in script.method_calls("state_dict"):
        taker = _taker(script, state)
        last = _last_word(taker.func) if taker is not None else ""
        if taker is not None and "save" in script.words(last):
            if script.functions.callee(taker) is None and script.name(taker.func) != "torch.save":
                yield taker


def _taker(script: Script, state: cst.Call) -> cst.Call | None:
    """Give the call that is handed a state dict, in a dictionary or as it is."""
    at = script.parent(state)
    while isinstance(at, (cst.DictElement, cst.Dict)):
        at = script.parent(at)
    outer = script.parent(at) if isinstance(at, cst.Arg) else None
    return outer if isinstance(outer, cst.Call) else None


def _last_word(func: cst.BaseExpression) -> str:
    return func.attr.value if isinstance(func, cst.Attribute) else getattr(func, "value", "")


def _checkpoint(script: Script, call: cst.Call) -> str:
    """Give what the user calls the checkpoint that a call writes, nothing where it writes none."""
    func = call.func
    if isinstance(func, cst.Attribute) and func.attr.value in ("save_pretrained", "save_state"):
        return f"`{script.code(func.value)}`"
    given = script.call(call).given("obj", 0)
    if given is None:
        return ""
    if script.kind(given.value) is Kind.MODULE:
        return f"`{script.code(given.value)}`"
    value = script.value_of(given.value).node or given.value
    for attribute in script.within(value, cst.Attribute):
        if attribute.attr.value == "state_dict":
            return f"the state of `{script.code(attribute.value)}`"
    return ""


def _each_step(script: Script, node: cst.CSTNode, depth: int) -> bool:
    """Whether every pass of a loop that trains on batches comes to a node."""
    if script.heat(node) is not Heat.HOT or _is_conditional(script, node):
        return False
    loop = script.batch_loop(node)
    if loop is not None:
        return loop.role is Role.TRAIN_BATCH
    function = script.function(node)
    return (
        function is not None
        and depth > 0
        and any(
            _each_step(script, caller, depth - 1) for caller in script.functions.callers(function)
        )
    )


def _is_conditional(script: Script, node: cst.CSTNode) -> bool:
    """Whether an `if`, an `except` or the end of a loop decides if a node runs."""
    loop = script.batch_loop(node)
    child = node
    parent = script.parent(child)
    while parent is not None and not isinstance(parent, cst.FunctionDef):
        if loop is not None and parent is loop.node:
            return isinstance(child, cst.Else)
        if isinstance(parent, cst.If) and child is not parent.test:
            return True
        if isinstance(parent, (cst.ExceptHandler, cst.IfExp, cst.Else, cst.Finally)):
            return True
        child, parent = parent, script.parent(parent)
    return False
