"""TL206: a network is moved, or put into its mode, in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Heat, Kind, Loop, Record, Rule, Safety, Script

_MOVING: Final = ("to", "cuda")
_MODES: Final = ("train", "eval")
_LEAVING: Final = frozenset("to cuda cpu xpu half float double bfloat16 to_empty".split())
_KINDS: Final = (Kind.MODULE, Kind.CRITERION)


class _Call(Record):
    """A statement of a loop that calls `method` of a network: `net = net.to(device)`, `net.train()`."""

    line: cst.SimpleStatementLine
    call: cst.Call
    network: cst.BaseExpression
    method: str
    loop: Loop


class ModuleMovedInLoop(Rule):
    """
    ## What it does
    Flags `model.to(device)`, `criterion.cuda()`, `model.train()` and `model.eval()` in every step
    of a training or evaluation loop, where once before the loop is enough.

    ## Why it is slow
    Each goes through every module and every parameter of the network in Python. For a network of
    fifty layers that takes longer than its forward pass on a small batch.

    ## When not to
    Where the loop itself moves the network away or changes its mode (an evaluation every thousand
    steps), the call must stay; the rule is silent there.

    ## Fix safety
    Exact: nothing in the loop undoes the call, so it does the same before the loop.
    """

    code = "TL206"
    name = "module-moved-in-loop"
    summary = "a network is moved, or put into its mode, in every step"
    impact = "low"
    safety = Safety.EXACT
    after = ("TL601",)
    articles = ("S2",)
    needs = (".to", ".cuda", ".train", ".eval")

    invalid = {
        "a network and its criterion": """
              import torch
              from torch import nn
              device = torch.device("cuda")
              model, criterion = nn.Linear(4, 4), nn.CrossEntropyLoss()
            + model.to(device)
            + model.train()
            + criterion = criterion.cuda()
              for x, y in loader:
            -     model.to(device)
                  x = x.to(device)
            -     model.train()
                  y = y.to(device)
            -     criterion = criterion.cuda()
                  loss = criterion(model(x), y)
                  loss.backward()
                  optimizer.step()
            """,
        "comments stay": """
              import torch
              def train(model, loader, optimizer, criterion, device):
                  for epoch in range(10):
                      # one epoch
            +         model.train()
                      for x, y in loader:
            -             model.train()  # dropout
            +             # dropout
                          loss = criterion(model(x.to(device)), y.to(device))
                          loss.backward()
                          optimizer.step()
            """,
        "it was called before the loop": """
              import torch
              def train(model, loader, optimizer, criterion):
                  model.train()
                  total = 0
                  for x, y in loader:
            -         model.train()
                      loss = criterion(model(x), y)
                      loss.backward()
                      optimizer.step()
            """,
        "an evaluation, behind an attribute": """
              import torch
              class Trainer:
                  def evaluate(self, loader):
            +         self.model.eval()
                      for x, y in loader:
            -             self.model.eval()
                          self.model(x)
            """,
        "batches by next()": """
              from torch.utils.data import DataLoader
              from mine import Images
              def train(model, optimizer, criterion):
                  batches = iter(DataLoader(Images()))
            +     model.train(True)
                  while True:
            -         model.train(True)
                      x, y = next(batches)
                      loss = criterion(model(x), y)
                      loss.backward()
                      optimizer.step()
            """,
        "behind an `if`, to the device of the batch, and on a line with others": """
              import torch
              def train(model, loader, optimizer, criterion, args):
                  for x, y in loader:
                      if args.cuda:
            !             model.cuda()
            !         criterion.to(x.device)
            !         optimizer.zero_grad(); model.train()
                      loss = criterion(model(x), y)
                      loss.backward()
                      optimizer.step()
            """,
    }
    valid = {
        "before the loop": """
            import torch
            def train(model, loader, optimizer, criterion, device):
                model.to(device)
                model.train()
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
            """,
        "the loop evaluates now and then": """
            import torch
            def train(model, loader, optimizer, criterion):
                for i, (x, y) in enumerate(loader):
                    model.train()
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
                    if i % 100 == 0:
                        model.eval()
                        print(model(x))
            """,
        "a function that the loop calls evaluates": """
            import torch
            def evaluate(net, loader):
                net.eval()
                for x, y in loader:
                    net(x)
            def train(model, loader, optimizer, criterion):
                for i, (x, y) in enumerate(loader):
                    model.train()
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
                    if i % 100 == 0:
                        evaluate(model, loader)
            """,
        "a function out of sight is handed the network": """
            import torch
            from mine import evaluate
            def train(model, loader, optimizer, criterion):
                for i, (x, y) in enumerate(loader):
                    model.train()
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
                    if i % 100 == 0:
                        evaluate(model)
            """,
        "a part of the network stays in evaluation mode": """
            import torch
            def train(model, loader, optimizer, criterion):
                for x, y in loader:
                    model.train()
                    model.backbone.eval()
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
            """,
        "the network is moved away in between": """
            import torch
            def train(model, loader, optimizer, criterion):
                for x, y in loader:
                    model.cuda()
                    loss = criterion(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
                    model.cpu()
            """,
        "a network of the pass": """
            from torch import nn
            def train(model, loader, optimizer, criterion):
                for x, y in loader:
                    head = nn.Linear(4, 4)
                    head.cuda()
                    loss = criterion(head(model(x)), y)
                    loss.backward()
                    optimizer.step()
            """,
        "one step is one epoch": """
            import torch
            def train(model, x, y, optimizer, criterion):
                for epoch in range(200):
                    model.train()
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
            """,
        "now and then": """
            import torch
            def train(model, loader, optimizer, criterion):
                for i, (x, y) in enumerate(loader):
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
                    if i == 0:
                        model.cuda()
            """,
        "tensors, and methods of that name that are the file's own": """
            from torch import nn
            class Net(nn.Module):
                def train(self):
                    self.steps += 1
            def train(loader, optimizer, criterion):
                net = Net()
                for x, y in loader:
                    net.train()
                    x = x.cuda()
                    loss = criterion(net(x.to("cuda")), y)
                    loss.backward()
                    optimizer.step()
            """,
        "another network of each pass": """
            import torch
            def train(models, loader, optimizer, criterion):
                for x, y in loader:
                    for model in models:
                        model.train()
                        loss = criterion(model(x), y)
                        loss.backward()
                    optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every call that a loop makes of a network in each pass and could make once."""
        for call in script.method_calls(*_MOVING, *_MODES):
            found = _repeated(script, call)
            if found is None or _is_undone(script, found):
                continue
            what = "moves" if found.method in _MOVING else "goes through"
            message = (
                f"`{script.code(call)}` {what} every part of the network in each step; call it "
                f"once, before the loop"
            )
            yield Finding(self.code, script.span(call), message, _fix(script, found))


def _repeated(script: Script, call: cst.Call) -> _Call | None:
    """Give the statement that a call makes, where it stands in every pass of a batch loop."""
    assert isinstance(call.func, cst.Attribute)
    network, method = call.func.value, call.func.attr.value
    small = script.parent(call)
    if not isinstance(network, (cst.Name, cst.Attribute)):
        return None
    if not isinstance(small, cst.Expr) and not _keeps_name(script, small, network):
        return None
    line = script.statement(call)
    loop = script.batch_loop(call)
    if loop is None or script.is_round(loop) or not isinstance(line, cst.SimpleStatementLine):
        return None
    if method in _MODES and call.args and script.code(call.args[0].value) != "True":
        return None
    if script.kind(network) not in _KINDS or script.definition(call.func) is not None:
        return None
    if script.heat(call) is not Heat.HOT or _bound_within(script, network, loop, small):
        return None
    return _Call(line, call, network, method, loop)


def _keeps_name(script: Script, small: cst.CSTNode | None, network: cst.BaseExpression) -> bool:
    """Whether a statement gives what a call returns, the network itself, to its own name."""
    return (
        isinstance(small, cst.Assign)
        and len(small.targets) == 1
        and script.code(small.targets[0].target) == script.code(network)
    )


def _bound_within(
    script: Script, node: cst.CSTNode, loop: Loop, besides: cst.CSTNode | None = None
) -> bool:
    """Whether a loop gives a name in an expression its value."""
    return any(
        script.tree.inside(binding.node, loop.node) and binding.node is not besides
        for name in script.within(node, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _is_undone(script: Script, found: _Call) -> bool:
    """Whether something in the loop may undo what the call does."""
    bodies = script.functions.reached(found.loop.node.body)
    root = script.code(found.network)
    for body in bodies:
        for call in script.functions.own(body, cst.Call):
            if call is found.call or not isinstance(call.func, cst.Attribute):
                continue
            far = body is not found.loop.node.body or _bound_within(
                script, call.func, found.loop, script.parent(call)
            )
            if (far or _is_part(script, call.func.value, root)) and _undoes(
                script, call, call.func, found
            ):
                return True
    return any(
        script.code(arg.value) == root and _is_out_of_sight(script, call)
        for call in script.within(found.loop.node.body, cst.Call)
        for arg in call.args
    )


def _is_part(script: Script, node: cst.BaseExpression, root: str) -> bool:
    """Whether an expression is a network, a part of it, or what it is a part of."""
    here, there = f"{script.code(node)}.", f"{root}."
    return here.startswith(there) or there.startswith(here)


def _undoes(script: Script, call: cst.Call, func: cst.Attribute, found: _Call) -> bool:
    method = func.attr.value
    if script.code(call) == script.code(found.call):
        return False
    if found.method in _MODES:
        return method in _MODES and (method != found.method or bool(call.args))
    return method in _LEAVING and script.kind(func.value) in _KINDS


def _is_out_of_sight(script: Script, call: cst.Call) -> bool:
    """Whether a call may do anything to a network that it is handed."""
    if script.functions.callee(call) is not None or script.module_call(call) is not None:
        return False
    name = script.name(call.func) or ""
    return not name.startswith(("builtins.", "torch."))


def _fix(script: Script, found: _Call) -> Fix | None:
    loop = found.loop.node
    alone = script.rewrite.stands_alone(found.line) and script.rewrite.stands_alone(loop)
    if not alone or script.parent(found.line) is not loop.body:
        return None
    if any(_bound_within(script, arg.value, found.loop) for arg in found.call.args):
        return None
    text = script.code(found.line)
    dropped = script.rewrite.drop(found.line)
    title = f"Call {script.code(found.call.func)} before the loop"
    if _comes_before(script, found, text):
        return Fix.exact(title, dropped)
    return Fix.exact(title, script.rewrite.before(loop, text), dropped)


def _comes_before(script: Script, found: _Call, text: str) -> bool:
    """Whether the same statement stands before the loop, with plain statements in between."""
    block = script.parent(found.loop.node)
    if not isinstance(block, (cst.IndentedBlock, cst.Module)):
        return False
    earlier = [
        line for line in block.body if script.tree.order(line) < script.tree.order(found.loop.node)
    ]
    for line in reversed(earlier):
        if not isinstance(line, cst.SimpleStatementLine):
            return False
        if script.code(line) == text:
            return True
        if any(
            script.code(name) in ("eval", "train", "cpu", "to")
            for name in script.within(line, cst.Name)
        ):
            return False
    return False
