"""TL502: gradients that are filled with zeros where they could be let go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Act, Edits, Finding, Fix, Heat, How, Kind, Rule, Safety, Script

_ZEROING: Final = ("zero_", "fill_")
_GRAPHS: Final = frozenset("CUDAGraph graph make_graphed_callables graphed".split())
_VIEWS: Final = "gradient_as_bucket_view"
_COST: Final = "fills every gradient with zeros, which backward then reads and adds to"
_BECAUSE: Final = (
    "a parameter without a gradient is left alone, where with zeros momentum and weight decay "
    "still move it"
)


class ZeroedGradients(Rule):
    """
    ## What it does
    Flags `zero_grad(set_to_none=False)`, and loops over the parameters of a network that do the
    same by hand: `p.grad.zero_()`, `p.grad = torch.zeros_like(p)`.

    ## Why it is slow
    Every gradient is written once more, and backward reads it and adds to it where it would
    simply put the new one in its place. Steps of a small network took 1.12 times as long. A plain
    `zero_grad()` lets the gradients go (since torch 2.0, which is why it is never flagged).

    ## When not to
    Code that looks at `.grad` when there has been no backward pass, that keeps its own hold on the
    gradients, or that captures a CUDA graph needs them to stay: files that do are not flagged.

    ## Fix safety
    Exact where the network is in sight, every parameter is used in every pass, and each pass of the
    loop goes backward and steps. Else unsafe: a parameter that got no gradient is then left alone,
    while with zeros momentum and weight decay still move it.
    """

    code = "TL502"
    name = "zeroed-gradients"
    summary = "gradients are filled with zeros instead of let go"
    impact = "low"
    safety = Safety.EXACT
    articles = ("S3.11",)
    needs = ("zero_grad", ".grad")
    since = (2, 0)

    invalid = {
        "told to, every parameter of the network gets a gradient": """
              import torch
              from torch import nn
              def main(loader):
                  net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
                  optimizer = torch.optim.Adam(net.parameters())
                  for x, y in loader:
            -         optimizer.zero_grad(set_to_none=False)
            +         optimizer.zero_grad()
                      loss = nn.functional.mse_loss(net(x), y)
                      loss.backward()
                      optimizer.step()
            """,
        "told to by position, the network not in sight: unsafe": """
              import torch
              def train(model, loader, criterion, optimizer):
                  for x, y in loader:
            -         optimizer.zero_grad(False)
            +         optimizer.zero_grad()
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "the network itself is told to": """
              import torch
              def train(model, loader, criterion, optimizer):
                  for x, y in loader:
            -         model.zero_grad(set_to_none=False)  # start afresh
            +         model.zero_grad()  # start afresh
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "a class whose forward may skip a layer: unsafe": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.one = nn.Linear(4, 4)
                      self.two = nn.Linear(4, 4)
                  def forward(self, x):
                      x = self.one(x)
                      if x.size(0) > 1:
                          x = self.two(x)
                      return x
              def main(loader):
                  net = Net()
                  optimizer = torch.optim.Adam(net.parameters())
                  for x, y in loader:
            -         optimizer.zero_grad(set_to_none=False)
            +         optimizer.zero_grad()
                      nn.functional.mse_loss(net(x), y).backward()
                      optimizer.step()
            """,
        "by hand": """
              import torch
              def train(model, loader, criterion, optimizer):
                  for x, y in loader:
            -         for p in model.parameters():
            -             if p.grad is not None:
            -                 p.grad.zero_()
            +         model.zero_grad()
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "by hand, cut from a graph first, in the form of old optimizers": """
              import torch
              def train(model, loader, criterion, optimizer):
                  for x, y in loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            -         for name, p in model.named_parameters():
            -             p.grad.detach_()
            -             p.grad.data.zero_()
            +         model.zero_grad()
            """,
        "zeros of their own": """
            - import torch
              def train(model, loader, criterion, optimizer):
                  params = list(model.parameters())
                  for x, y in loader:
            -         for p in params:
            -             p.grad = torch.zeros_like(p)
            +         model.zero_grad()
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "with other statements in the loop: reported": """
              import torch
              def train(model, loader, criterion, optimizer):
                  for x, y in loader:
                      for p in model.parameters():
            !             p.grad.zero_()
                          p.data.clamp_(-1, 1)
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "with another statement on its line: reported": """
              import torch
              def train(model, loader, criterion, optimizer):
                  for x, y in loader:
                      for p in model.parameters():
            !             p.grad.zero_(); p.data.clamp_(-1, 1)
                      criterion(model(x), y).backward()
                      optimizer.step()
            """,
        "a framework owns the loop: reported": """
              import torch
              from accelerate import Accelerator
              def train(model, loader, optimizer):
                  accelerator = Accelerator()
                  for batch in loader:
                      accelerator.backward(model(**batch).loss)
                      optimizer.step()
            !         optimizer.zero_grad(set_to_none=False)
            """,
    }
    valid = {
        "let go, or decided elsewhere": """
            import torch
            def train(model, optimizer, keep):
                optimizer.zero_grad()
                optimizer.zero_grad(set_to_none=True)
                model.zero_grad(True)
                optimizer.zero_grad(set_to_none=keep)
                for p in model.parameters():
                    p.grad = None
            """,
        "somebody looks at the gradients": """
            import torch
            def train(model, loader, criterion, optimizer):
                for x, y in loader:
                    optimizer.zero_grad(set_to_none=False)
                    criterion(model(x), y).backward()
                    print(sum(p.grad.norm() for p in model.parameters()))
                    optimizer.step()
            """,
        "somebody keeps a hold on the gradients": """
            import torch
            def train(model, loader, criterion, optimizer):
                flat = [p.grad for p in model.parameters()]
                for x, y in loader:
                    optimizer.zero_grad(set_to_none=False)
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "gradients are views of buckets": """
            import torch
            from torch.nn.parallel import DistributedDataParallel as DDP
            def train(model, loader, criterion, optimizer):
                model = DDP(model, gradient_as_bucket_view=True)
                for x, y in loader:
                    optimizer.zero_grad(set_to_none=False)
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "a CUDA graph needs its gradients where they are": """
            import torch
            def capture(model, x, y, criterion, optimizer):
                graph = torch.cuda.CUDAGraph()
                optimizer.zero_grad(set_to_none=False)
                with torch.cuda.graph(graph):
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "made once, before training": """
            import torch
            def prepare(model):
                for p in model.parameters():
                    p.grad = torch.zeros_like(p)
            """,
        "an attack has one gradient of its own": """
            import torch
            def attack(model, x, y, criterion, steps):
                delta = torch.zeros_like(x, requires_grad=True)
                for _ in range(steps):
                    criterion(model(x + delta), y).backward()
                    delta.data.add_(delta.grad.sign())
                    delta.grad.zero_()
            """,
        "parameters are updated by hand in the same loop": """
            import torch
            def train(model, loader, criterion):
                for x, y in loader:
                    criterion(model(x), y).backward()
                    with torch.no_grad():
                        for p in model.parameters():
                            p -= 0.1 * p.grad
                            p.grad.zero_()
            """,
        "some of the parameters": """
            import torch
            def train(model, loader, criterion, optimizer, frozen):
                for x, y in loader:
                    criterion(model(x), y).backward()
                    for name, p in model.named_parameters():
                        if name in frozen:
                            p.grad.zero_()
                    optimizer.step()
            """,
        "a test of what the wrapper hands on": """
            import pytest
            import torch
            def test_zero_grad(optimizer):
                optimizer.zero_grad(set_to_none=False)
            """,
        "an object of another kind": """
            import torch
            def reset(counter):
                counter.zero_grad(False)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what fills gradients with zeros, unless something needs them to stay."""
        calls = list(_told(script))
        loops = list(_by_hand(script))
        if (
            not (calls or loops)
            or script.imports("pytest", "unittest")
            or _are_needed(script, [loop for loop, _ in loops])
        ):
            return
        for call in calls:
            edits = script.rewrite.without_argument(call, call.args[0])
            message = f"`{script.code(call)}` {_COST}: drop the argument"
            fix = _fix(script, call, "Drop the argument", edits)
            yield Finding(self.code, script.span(call), message, fix)
        for loop, filled in loops:
            network = _network(script, loop)
            cleared = f"{script.code(network)}.zero_grad()" if network is not None else ""
            edits = _replaced(script, loop, cleared) if _does_nothing_else(script, loop) else ()
            spare = script.rewrite.without_imports(loop) if edits else None
            edits = script.rewrite.united(edits, spare or ())
            message = f"`{script.code(filled)}` {_COST}: `{cleared or 'optimizer.zero_grad()'}`"
            fix = _fix(script, filled, f"Call `{cleared}`", edits) if edits else None
            place = loop if edits else filled
            yield Finding(self.code, script.span(place), f"{message} lets them go", fix)


def _told(script: Script) -> Iterator[cst.Call]:
    """Yield the calls of `zero_grad` that are told to keep the gradients."""
    for call in script.method_calls("zero_grad"):
        if len(call.args) != 1 or not script.call(call).argument("set_to_none", 0).equals(False):
            continue
        given = script.call(call).given("set_to_none", 0)
        owner = call.func.value if isinstance(call.func, cst.Attribute) else call.func
        if given is None or script.kind(owner) not in (Kind.OPTIMIZER, Kind.MODULE):
            continue
        if isinstance(given.value, cst.Name) and given.value.value == "False":
            yield call


# -- loops by hand -------------------------------------------------------------


def _by_hand(script: Script) -> Iterator[tuple[cst.For, cst.BaseExpression]]:
    """Yield the loops over parameters that fill the gradient of each, with what fills it."""
    for call in script.method_calls(*_ZEROING):
        assert isinstance(call.func, cst.Attribute)
        if call.func.attr.value == "zero_" or _is_zero(call):
            loop = _loop_over(script, call, _owner_of_gradient(call.func.value))
            if loop is not None:
                yield loop, call
    for made in script.calls("torch.zeros_like", "torch.zeros"):
        line = script.parent(made.node)
        if isinstance(line, cst.Assign) and len(line.targets) == 1:
            target = line.targets[0].target
            loop = _loop_over(script, line, _owner_of_gradient(target))
            if loop is not None:
                yield loop, target


def _is_zero(call: cst.Call) -> bool:
    value = call.args[0].value if len(call.args) == 1 else None
    return isinstance(value, (cst.Integer, cst.Float)) and float(value.value) == 0


def _owner_of_gradient(node: cst.BaseExpression) -> cst.Name | None:
    """Give `p` of `p.grad` and `p.grad.data`."""
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    if isinstance(node, cst.Attribute) and node.attr.value == "grad":
        return node.value if isinstance(node.value, cst.Name) else None
    return None


def _loop_over(script: Script, node: cst.CSTNode, owner: cst.Name | None) -> cst.For | None:
    """Give the loop over the parameters of a network that a name runs through, where it is hot."""
    bindings = script.scopes.reaching(owner) if owner is not None else ()
    if len(bindings) != 1 or bindings[0].how is not How.LOOP:
        return None
    loop = bindings[0].node
    if not isinstance(loop, cst.For) or _network(script, loop) is None:
        return None
    if script.heat(loop) is not Heat.HOT or _updates(script, loop):
        return None
    guards = [test for test in script.tests_around(node) if script.tree.inside(test, loop)]
    return loop if all(".grad" in script.code(test) for test in guards) else None


def _network(script: Script, loop: cst.For) -> cst.BaseExpression | None:
    """Give the network whose parameters a loop goes through, all of them."""
    value = script.value_of(loop.iter).node
    if isinstance(value, cst.Call) and script.name(value.func) in (
        "builtins.list",
        "builtins.tuple",
    ):
        value = value.args[0].value if len(value.args) == 1 else None
    if not isinstance(value, cst.Call) or value.args or not isinstance(value.func, cst.Attribute):
        return None
    if value.func.attr.value not in ("parameters", "named_parameters"):
        return None
    return value.func.value if script.kind(value.func.value) is Kind.MODULE else None


def _updates(script: Script, loop: cst.For) -> bool:
    """Whether a loop reads the gradients that it then fills."""
    for node in script.within(loop, cst.Attribute):
        if node.attr.value != "grad":
            continue
        holder = script.parent(node)
        if isinstance(holder, cst.Attribute) and holder.attr.value == "data":
            holder = script.parent(holder)
        if isinstance(holder, cst.Attribute) and holder.attr.value in (*_ZEROING, "detach_"):
            continue
        if not isinstance(holder, (cst.Comparison, cst.AssignTarget, cst.If)):
            return True
    return False


def _does_nothing_else(script: Script, loop: cst.For) -> bool:
    """Whether all lines of a loop are about the gradients."""
    return loop.orelse is None and all(
        ".grad" in script.code(small) and "\n" not in script.code(small)
        for kind in (cst.SimpleStatementLine, cst.SimpleStatementSuite)
        for line in script.within(loop, kind)
        for small in line.body
    )


def _replaced(script: Script, loop: cst.For, text: str) -> Edits:
    if not script.rewrite.stands_alone(loop) or "#" in script.code(loop):
        return ()
    return script.rewrite.replace(loop, text)


# -- who needs them --------------------------------------------------------------


def _are_needed(script: Script, loops: list[cst.For]) -> bool:
    """Whether code beside some loops looks at gradients, or keeps them in place."""
    if any(arg.keyword is not None and arg.keyword.value == _VIEWS for arg in script.all(cst.Arg)):
        return True
    for node in script.all(cst.Attribute):
        word = node.attr.value
        if word in _GRAPHS and (script.name(node) or "").startswith("torch.cuda."):
            return True
        if word == "grad" and not any(script.tree.inside(node, loop) for loop in loops):
            if (script.name(node) or "") != "torch.autograd.grad" and not _is_let_go(script, node):
                return True
    return False


def _is_let_go(script: Script, node: cst.Attribute) -> bool:
    """Whether a gradient is set to None."""
    target = script.parent(node)
    line = script.parent(target) if isinstance(target, cst.AssignTarget) else None
    return (
        isinstance(line, cst.Assign)
        and isinstance(line.value, cst.Name)
        and line.value.value == "None"
    )


# -- the fix -------------------------------------------------------------------


def _fix(script: Script, place: cst.BaseExpression, title: str, edits: Edits) -> Fix | None:
    if script.framework != "none":
        return None
    if _is_exact(script, place):
        return Fix.exact(title, edits)
    return Fix.unsafe(title, edits, because=_BECAUSE)


def _is_exact(script: Script, place: cst.BaseExpression) -> bool:
    """Whether every parameter surely gets a gradient between clearing and stepping."""
    loop = script.batch_loop(place)
    if loop is None or not _goes_backward_and_steps(script, loop.node.body):
        return False
    for step in script.optimizers.steps:
        if script.tree.inside(step, loop.node):
            stepped = script.optimizers.stepped(step)
            made = script.optimizers.made_by(stepped) if stepped is not None else None
            if made is None or not all(_steps_whole_network(script, call) for call in made):
                return False
    return True


def _goes_backward_and_steps(script: Script, body: cst.BaseSuite) -> bool:
    """Whether each pass of a loop goes backward once, steps once and clears once, in any order."""
    acts = []
    for update in script.updates.within(body):
        line = script.statement(update.at)
        if update.at is not update.call or script.parent(line) is not body:
            return False
        acts.append(update.act)
    jumps = (cst.Break, cst.Continue, cst.Return)
    return acts.count(Act.BACKWARD) == acts.count(Act.STEP) == acts.count(Act.CLEAR) == 1 and all(
        next(script.within(body, jump), None) is None for jump in jumps
    )


def _steps_whole_network(script: Script, call: cst.Call) -> bool:
    """Whether an optimizer has the parameters of one network, all of which are always used."""
    given = script.call(call).given("params", 0)
    value = given.value if given is not None else None
    if not isinstance(value, cst.Call) or value.args or not isinstance(value.func, cst.Attribute):
        return False
    return value.func.attr.value == "parameters" and script.usage.is_whole(value.func.value)
