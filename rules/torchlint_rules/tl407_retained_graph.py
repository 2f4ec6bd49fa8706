"""TL407: a graph is kept after its only backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Binding, Finding, Fix, How, Kind, Rule, Safety, Script, regex

_BECAUSE: Final = "fails with an error where something out of sight goes backward a second time"
_NO_GRAPH: Final = (
    Kind.MODULE,
    Kind.OPTIMIZER,
    Kind.SCHEDULER,
    Kind.SCALER,
    Kind.LOADER,
    Kind.DATASET,
    Kind.SAMPLER,
    Kind.CRITERION,
    Kind.NUMBER,
    Kind.STRING,
    Kind.DEVICE,
    Kind.NDARRAY,
    Kind.NOTHING,
)
_STATE: Final = regex(r"\.(?:init_)?(?:hidden|state|memory|cell)s?\b(?!_dict)")
_LEAF: Final = regex(r"requires_grad|Parameter\(")
_DEPTH: Final = 4
_BACKWARDS: Final = ("backward", "manual_backward", "autograd")


class RetainedGraph(Rule):
    """
    ## What it does
    Flags `loss.backward(retain_graph=True)` in a loop where each pass makes a graph of its own and
    goes through it once.

    ## Why it is slow
    The backward pass frees the activations that it is done with. With `retain_graph=True` they all
    stay until the loss of the next pass takes the name of this one, so that two graphs are in
    memory at once. Measured on a CPU, a step was 1.03 to 1.09 times slower as well.

    ## When not to
    Keep it where a graph is used again: several losses that share one, gradients of gradients,
    a state that is carried from one step to the next with its graph. None of these is flagged.

    ## Fix safety
    Unsafe: if something out of sight goes backward through the same graph again, torch raises
    "Trying to backward through the graph a second time".
    """

    code = "TL407"
    name = "retained-graph"
    summary = "the graph stays in memory after the only backward pass through it"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S2",)
    needs = ("retain_graph",)

    invalid = {
        "one loss for each batch": """
              import torch.nn.functional as F
              def train(model, loader, optimizer, device):
                  total, step = 0.0, 0
                  for x, y in loader:
                      loss = F.cross_entropy(model(x.to(device)), y.to(device))
                      optimizer.zero_grad()
            -         loss.backward(retain_graph=True)
            +         loss.backward()
                      optimizer.step()
                      total += loss.item()
                      step = step + 1
                  return total / step
            """,
        "a scaled loss, with other arguments": """
              import torch
              from torch import nn
              model, criterion = nn.Linear(3, 3), nn.MSELoss()
              optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler()
              def make(count):
                  return torch.randn(count, 3), torch.randn(count, 3)
              x, y = make(8)
              for epoch in range(100):
                  out = model(x)
                  loss = criterion(out, y) / 4
            -     scaler.scale(loss).backward(retain_graph=True, inputs=list(model.parameters()))
            +     scaler.scale(loss).backward(inputs=list(model.parameters()))
                  scaler.step(optimizer)
                  scaler.update()
                  optimizer.zero_grad()
            """,
        "the last backward pass of a step, for graphs that are made anew": """
              import torch
              def train(generator, discriminator, loader, optimizer_g, optimizer_d):
                  for real, _ in loader:
                      fake = generator(torch.randn(8, 4))
                      loss_g = -discriminator(fake).mean()
                      optimizer_g.zero_grad()
                      loss_g.backward()
                      optimizer_g.step()
                      loss_d = discriminator(fake.detach()).mean() - discriminator(real).mean()
                      optimizer_d.zero_grad()
            -         loss_d.backward(retain_graph=True)
            +         loss_d.backward()
                      optimizer_d.step()
            """,
        "several terms, one backward pass": """
              import torch
              class Trainer:
                  def train(self, args):
                      for i, (x, y) in enumerate(self.train_loader):
                          out = self.model(x)
                          first, second = self.criterion(out, y), out.abs().mean()
                          loss = first + args.weight * second
            -             loss.backward(retain_graph=True)
            +             loss.backward()
                          self.optimizer.step()
            """,
    }
    valid = {
        "two losses share a graph": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                for x, y in loader:
                    out = model(x)
                    F.cross_entropy(out, y).backward(retain_graph=True)
                    out.abs().mean().backward()
                    optimizer.step()
            """,
        "a generator and its critic": """
            import torch
            def train(netG, netD, loader, opt_g, opt_d, criterion):
                for real, label in loader:
                    fake = netG(real)
                    g_loss = criterion(netD(fake), label)
                    g_loss.backward(retain_graph=True)
                    opt_g.step()
                    d_loss = criterion(netD(fake.detach()), 1 - label)
                    d_loss.backward()
                    opt_d.step()
            """,
        "one graph, a loss for each task": """
            import torch
            def train(model, loader, optimizer, criteria):
                for x, y in loader:
                    out = model(x)
                    for criterion in criteria:
                        loss = criterion(out, y)
                        loss.backward(retain_graph=True)
                    optimizer.step()
            """,
        "a state is carried from step to step": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                hidden = None
                for x, y in loader:
                    out, hidden = model(x, hidden)
                    loss = F.mse_loss(out, y)
                    loss.backward(retain_graph=True)
                    optimizer.step()
            """,
        "the network carries its state itself": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                model.hidden = model.init_hidden()
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)
                    loss.backward(retain_graph=True)
                    optimizer.step()
            """,
        "a network of the file keeps what it computed": """
            import torch.nn.functional as F
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    self.last = self.cell(x, self.last)
                    return self.last
            model = Net()
            def train(loader, optimizer):
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)
                    loss.backward(retain_graph=True)
                    optimizer.step()
            """,
        "gradients of gradients": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    loss = model(x).sum()
                    loss.backward(retain_graph=True)
                    penalty = torch.autograd.grad(loss, x)[0].norm()
                    optimizer.step()
            """,
        "a graph that was made before the loop": """
            import torch.nn.functional as F
            def transfer(model, style, content, optimizer, image):
                target = model(style)
                for step in range(300):
                    loss = F.mse_loss(model(image), target)
                    loss.backward(retain_graph=True)
                    optimizer.step()
            """,
        "a function of the file goes backward too": """
            import torch.nn.functional as F
            def regularise(out):
                out.abs().mean().backward()
            def train(model, loader, optimizer):
                for x, y in loader:
                    out = model(x)
                    loss = F.mse_loss(out, y)
                    loss.backward(retain_graph=True)
                    regularise(out)
                    optimizer.step()
            """,
        "a sum over the steps of a loop": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                total = 0
                for x, y in loader:
                    total = total + F.mse_loss(model(x), y)
                    total.backward(retain_graph=True)
                    optimizer.step()
                for x, y in loader:
                    total += F.mse_loss(model(x), y)
                    total.backward(retain_graph=True)
                    optimizer.step()
            """,
        "a flag decides, no loop, off": """
            import torch
            def step(model, loader, loss, args, optimizer):
                loss.backward(retain_graph=True)
                for x, y in loader:
                    loss = model(x, y)
                    loss.backward(retain_graph=args.retain)
                    loss = model(x, y)
                    loss.backward(retain_graph=False)
                    optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every graph that is kept though its loop goes through it once."""
        for call in script.method_calls("backward"):
            given = script.call(call).given("retain_graph", 1)
            if given is None or not script.value_of(given.value).equals(True):
                continue
            if not script.is_step(call) or not _is_used_once(script, call):
                continue
            func = call.func
            assert isinstance(func, cst.Attribute)
            loss = script.brief(func.value)
            message = (
                f"the graph of `{loss}` stays in memory after the only backward pass through it: "
                "drop `retain_graph=True`"
            )
            fix = None
            if given.keyword is not None:
                edits = script.rewrite.without_argument(call, given)
                fix = Fix.unsafe("Drop retain_graph=True", edits, because=_BECAUSE)
            yield Finding(self.code, script.span(given), message, fix)


def _is_used_once(script: Script, call: cst.Call) -> bool:
    """Whether each pass of the loop around a backward pass surely makes a graph for it alone."""
    loop = next(script.loops_around(call), None)
    if loop is None or _STATE.search(script.source.text):
        return False
    others = [
        each
        for body in script.functions.reached(loop.node)
        for each in script.within(body, cst.Call)
        if each is not call
        and _goes_backward(script, each)
        and not _comes_after(script, call, each)
    ]
    if others or not script.runs_module(loop.node.body) or _networks_remember(script):
        return False
    return all(
        _is_fresh(script, name, loop.node) for name in script.within(loop.node.body, cst.Name)
    )


def _comes_after(script: Script, call: cst.Call, other: cst.Call) -> bool:
    """Whether each pass of a loop makes a call behind another one of the same loop."""
    loop = next(script.loops_around(call), None)
    return (
        loop is not None
        and next(script.loops_around(other), None) is loop
        and script.scopes.blocks(call)[0] is loop.node.body
        and script.tree.order(other) < script.tree.order(call)
    )


def _goes_backward(script: Script, call: cst.Call) -> bool:
    """Whether a call goes through a graph."""
    if (script.name(call.func) or "").startswith("torch.autograd."):
        return True
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in _BACKWARDS


def _networks_remember(script: Script) -> bool:
    """Whether a forward of the file keeps what it computed in an attribute."""
    return any(
        isinstance(target.target, cst.Attribute)
        for function in script.all(cst.FunctionDef)
        if function.name.value == "forward"
        for target in script.within(function, cst.AssignTarget)
    )


def _is_fresh(script: Script, name: cst.Name, loop: cst.For | cst.While) -> bool:
    """Whether what a loop reads under a name has no graph of an earlier pass behind it."""
    if not script.scopes.reads(name) or _is_base(script, name) or _only_grows(script, name, loop):
        return True
    order = script.tree.order(name)
    return all(
        binding.at < order
        if script.tree.inside(binding.node, loop)
        else _has_no_graph(script, name, binding)
        for binding in script.scopes.reaching(name)
    ) or script.kind(name) in (Kind.NUMBER, Kind.NOTHING)


def _only_grows(script: Script, name: cst.Name, loop: cst.For | cst.While) -> bool:
    """Whether a loop does nothing with a name but add to it (`total += loss.detach()`)."""
    return all(
        isinstance(script.parent(each), cst.AugAssign)
        for each in script.within(loop, cst.Name)
        if each.value == name.value
    )


def _is_base(script: Script, name: cst.Name) -> bool:
    """Whether only an attribute of what a name stands for is asked for, or it is called."""
    holder = script.parent(name)
    if isinstance(holder, cst.Attribute):
        return True
    return isinstance(holder, cst.Call) and holder.func is name


def _has_no_graph(script: Script, name: cst.Name, binding: Binding) -> bool:
    """Whether a value that was there before the loop has no graph."""
    if binding.how in (How.IMPORT, How.FUNCTION, How.CLASS):
        return True
    if binding.how is How.LOOP or script.kind(name) in _NO_GRAPH:
        return True
    if isinstance(binding.node, cst.Param):
        given = script.functions.given(binding.node)
        return bool(given) and all(_is_clean(script, each, _DEPTH) for each in given)
    return binding.value is not None and _is_clean(script, binding.value, _DEPTH)


def _is_clean(script: Script, value: cst.BaseExpression, depth: int) -> bool:
    """Whether a value was surely computed without a network or a leaf that wants gradients."""
    if script.kind(value) in _NO_GRAPH:
        return True
    if not depth or _LEAF.search(script.source.text):
        return False
    for call in script.within(value, cst.Call):
        callee = script.functions.callee(call)
        handed = [arg.value for arg in call.args]
        if isinstance(call.func, cst.Attribute):
            handed.append(call.func.value)
        if script.module_call(call) is not None or any(
            script.kind(each) is Kind.MODULE for each in handed
        ):
            return False
        if callee is not None and script.runs_module(callee.body):
            return False
    return all(
        binding.how in (How.IMPORT, How.FUNCTION, How.CLASS, How.LOOP)
        or (binding.value is not None and _is_clean(script, binding.value, depth - 1))
        for name in script.within(value, cst.Name)
        if not _is_base(script, name)
        for binding in script.scopes.reaching(name)
    )
