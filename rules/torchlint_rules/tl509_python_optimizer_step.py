"""TL509: Python loops over parameters that do what one kernel does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Act, Finding, Fix, How, Kind, Role, Rule, Safety, Script, regex
from torchlint_rules._averages import Average, average_of
from torchlint_rules._decaying import can_decay

_OPTIMIZERS: Final = regex(r"torch\.optim\.[A-Z]\w*")
_ITERATED: Final = frozenset("parameters named_parameters".split())
_UPDATING: Final = frozenset("add_ sub_ copy_ addcdiv_".split())
_SQUARES: Final = regex(r"\.pow\(2(?:\.0)?\)|\*\* ?2\b|\.square\(\)|torch\.square\(")


class PythonOptimizerStep(Rule):
    """
    ## What it does
    Flags loops over parameters that average them (`e.data = d * e.data + (1 - d) * p.data`), update
    them from their gradients or sum their squares for the loss, and optimizers that are told to go
    through their parameters one by one (`foreach=False`) on a GPU.

    ## Why it is slow
    Every operation of every parameter is a call from Python, a kernel and a pass over memory. A
    moving average takes three of each where `lerp_` takes one: 3.8 to 4.1 times as fast. An L2
    penalty made by hand goes through the graph as well: training steps with `weight_decay` were 2.1
    times as fast.

    ## When not to
    `foreach=False` needs less memory: with `foreach` a step holds one more copy of the parameters.
    Rules for updates that no optimizer of torch has are fine as loops, best in an optimizer class.

    ## Fix safety
    Close: `lerp_` rounds otherwise (2.4e-7), and so do kernels over several tensors on a GPU.
    Updates and penalties by hand are reported: moving them into an optimizer changes what momentum
    and adaptive steps see (for plain SGD, `weight_decay` is twice the factor of the penalty).
    """

    code = "TL509"
    name = "python-optimizer-step"
    summary = "a Python loop over parameters does what one kernel does"
    impact = "medium"
    safety = Safety.CLOSE
    articles = ("S3.5",)
    needs = ("foreach", "parameters", ".grad")

    invalid = {
        "a target network": """
              import torch
              def soft_update(local, target, tau):
                  for target_param, param in zip(target.parameters(), local.parameters()):
            -         target_param.data.copy_(tau * param.data + (1.0 - tau) * target_param.data)
            +         target_param.data.lerp_(param.data, tau)
            """,
        "a momentum encoder": """
              import torch
              class MoCo(torch.nn.Module):
                  @torch.no_grad()
                  def update(self):
                      for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            -             k.data = k.data * self.m + q.data * (1. - self.m)
            +             k.data.lerp_(q.data, 1. - self.m)
            """,
        "without `.data`, under `no_grad`": """
              import torch
              @torch.no_grad()
              def follow(net, average, decay):
                  for (_, own), kept in zip(net.named_parameters(), average.parameters()):
            -         kept.copy_(decay * kept + (1 - decay) * own)
            +         kept.lerp_(own, 1 - decay)
            """,
        "with numbers, on one line of its own": """
              import torch
              def update(net, ema):
                  for p, e in zip(net.parameters(), ema.parameters()):
            -         e.data = 0.999 * e.data + 0.001 * p.data  # slowly
            +         e.data.lerp_(p.data, 0.001)  # slowly
            """,
        "in place, with a product on the way": """
              import torch
              def update(student, teacher, m):
                  with torch.no_grad():
                      for param_q, param_k in zip(student.parameters(), teacher.parameters()):
            -             param_k.data.mul_(m).add_((1 - m) * param_q.detach().data)
            +             param_k.data.lerp_(param_q.detach().data, 1 - m)
            """,
        "storage is shared somewhere: reported": """
              import torch
              def start(net, ema):
                  for p, e in zip(net.parameters(), ema.parameters()):
                      e.data = p.data
              def update(net, ema, d):
                  for p, e in zip(net.parameters(), ema.parameters()):
            !         e.data = d * e.data + (1 - d) * p.data
            """,
        "one network is of another type, which `lerp_` refuses: reported": """
              import torch
              def update(net, ema, d):
                  ema.half()
                  for p, e in zip(net.parameters(), ema.parameters()):
            !         e.data = d * e.data + (1 - d) * p.data
            """,
        "an optimizer goes through its parameters one by one": """
              import torch
              def main(model):
                  model.cuda()
            -     optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
            +     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """,
        "a step of SGD by hand: reported": """
              import torch
              def train(model, loader, criterion, lr):
                  for x, y in loader:
                      model.zero_grad()
                      criterion(model(x), y).backward()
                      for p in model.parameters():
            !             p.data.add_(p.grad, alpha=-lr)
            """,
        "a step of SGD by hand, from a list, without `.data`": """
              import torch
              def train(params, loader, loss_of, lr):
                  for batch in loader:
                      loss_of(params, batch).backward()
                      with torch.no_grad():
                          for p in params:
            !                 p -= lr * p.grad
                              p.grad = None
            """,
        "a step by hand where there is no optimizer": """
              import torch
              def train(model, loader, criterion, optimizer, lr):
                  for x, y in loader:
                      model.zero_grad()
                      criterion(model(x), y).backward()
                      if optimizer:
                          optimizer.step()
                      else:
                          for p in model.parameters():
            !                 p.data = p.data - lr * p.grad
            """,
        "squares summed for the loss: reported": """
              import torch
              def train(model, loader, criterion, optimizer, decay):
                  for x, y in loader:
                      penalty = 0.0
                      for p in model.parameters():
            !             penalty = penalty + p.pow(2).sum()
                      loss = criterion(model(x), y) + decay * penalty
                      optimizer.zero_grad()
                      loss.backward()
                      optimizer.step()
            """,
        "squares summed in one expression: reported": """
              import torch
              def train(model, loader, criterion, optimizer, decay):
                  for x, y in loader:
            !         penalty = sum((p ** 2).sum() for p in model.parameters())
                      loss = criterion(model(x), y) + decay * penalty
                      optimizer.zero_grad()
                      loss.backward()
                      optimizer.step()
            """,
    }
    valid = {
        "averaged by one kernel, or by torch's own class": """
            import torch
            from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
            def update(net, ema, d):
                for p, e in zip(net.parameters(), ema.parameters()):
                    e.data.lerp_(p.data, 1 - d)
                    e.data.mul_(d).add_(p.data, alpha=1 - d)
                return AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(d))
            """,
        "the weights do not add up to one": """
            import torch
            def update(net, ema, a, b):
                for p, e in zip(net.parameters(), ema.parameters()):
                    e.data = a * e.data + b * p.data
                    e.data = 0.9 * e.data + 0.2 * p.data
            """,
        "something else is averaged": """
            import torch
            def update(net, ema, other, d):
                for p, e in zip(net.parameters(), ema.parameters()):
                    other.data = d * e.data + (1 - d) * p.data
            """,
        "whole state dicts hold integers, which `lerp_` refuses": """
            import torch
            def update(net, ema, d):
                for name, value in ema.state_dict().items():
                    value.copy_(d * value.data + (1 - d) * net.state_dict()[name].data)
            """,
        "no accelerator: one by one is what the CPU does anyhow": """
            import torch
            def main(model):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
            """,
        "fused was decided upon, and a flag decides": """
            import torch
            def main(model, args):
                model.cuda()
                a = torch.optim.Adam(model.parameters(), foreach=False, fused=True)
                b = torch.optim.Adam(model.parameters(), foreach=args.foreach)
            """,
        "an optimizer class is the place for it": """
            import torch
            class Signs(torch.optim.Optimizer):
                def step(self):
                    for group in self.param_groups:
                        for p in group["params"]:
                            p.data.add_(p.grad.sign(), alpha=-group["lr"])
            def train(model, loader, criterion):
                optimizer = Signs(model.parameters(), {})
                for x, y in loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "parameters are moved beside the optimizer's steps": """
            import torch
            def train(model, loader, criterion, optimizer, rho):
                for x, y in loader:
                    criterion(model(x), y).backward()
                    for p in model.parameters():
                        p.data.add_(p.grad, alpha=rho)
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "gradients are changed, not parameters": """
            import torch
            def train(model, loader, criterion, optimizer, world):
                for x, y in loader:
                    criterion(model(x), y).backward()
                    for p in model.parameters():
                        p.grad.data.div_(world)
                        p.grad.add_(p.data, alpha=1e-4)
                    optimizer.step()
            """,
        "norms, which are no weight decay": """
            import torch
            def train(model, loader, criterion, optimizer, decay):
                for x, y in loader:
                    penalty = 0.0
                    for p in model.parameters():
                        penalty = penalty + p.norm() + p.abs().sum()
                    loss = criterion(model(x), y) + decay * penalty
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            """,
        "scipy minimises, which has no weight decay": """
            import scipy.optimize
            import torch
            def fit(net, x, y, start, rate):
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                def objective(flat):
                    loss = (net(x) - y).abs().mean()
                    for p in net.parameters():
                        loss += p.pow(2).sum() * rate
                    loss.backward()
                    return loss.item()
                scipy.optimize.fmin_l_bfgs_b(objective, start)
                optimizer.step()
            """,
        "LBFGS has no weight decay": """
            import torch
            def fit(net, x, y, criterion, rate):
                optimizer = torch.optim.LBFGS(net.parameters())
                def closure():
                    optimizer.zero_grad()
                    loss = criterion(net(x), y)
                    for p in net.parameters():
                        loss += p.pow(2).sum() * rate
                    loss.backward()
                    return loss
                optimizer.step(closure)
            """,
        "squared errors are a loss like any other": """
            import torch
            def train(model, batches, optimizer):
                parameters = list(model.parameters())
                for x, y in batches:
                    errors = (model(x) - y).pow(2).sum()
                    loss = errors + 0.0
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            """,
        "squares that are only logged": """
            import torch
            def train(model, loader, criterion, optimizer):
                for x, y in loader:
                    optimizer.zero_grad()
                    criterion(model(x), y).backward()
                    optimizer.step()
                    with torch.no_grad():
                        size = sum((p ** 2).sum() for p in model.parameters())
                    print(size)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag loops over parameters and optimizers that are made to loop."""
        yield from self._one_by_one(script)
        for loop in _loops(script):
            names = frozenset(name.value for name in script.within(loop.target, cst.Name))
            for line in _lines(script, loop):
                average = average_of(script, line, names)
                if average is not None:
                    yield self._average(script, average)
                elif _is_update(script, loop, line) and _replaces_optimizer(script, loop):
                    yield self._update(script, line)
                elif _is_penalty(script, loop, line):
                    yield self._penalty(script, line)
        for site in script.calls("builtins.sum"):
            holder = script.parent(site.node)
            if isinstance(holder, cst.Assign) and _sums_in_place(script, site.node):
                if _penalises(script, holder):
                    yield self._penalty(script, holder)

    def _one_by_one(self, script: Script) -> Iterator[Finding]:
        for call in script.all(cst.Call) if "foreach" in script.source.text else ():
            if not any(
                arg.keyword is not None and arg.keyword.value == "foreach" for arg in call.args
            ):
                continue
            site = script.call(call)
            given = site.given("foreach")
            if given is None or not _OPTIMIZERS.fullmatch(site.name or ""):
                continue
            if script.code(given.value) != "False" or site.given("fused") is not None:
                continue
            if script.can_use_accelerator:
                label = script.optimizers.label(call)
                message = (
                    f"`foreach=False` makes {label} step parameter by parameter on the GPU too: "
                    "drop it, unless the memory of one more copy of the parameters is missing"
                )
                edits = script.rewrite.without_argument(call, given)
                because = "kernels over several tensors round otherwise"
                fix = Fix.close("Drop `foreach=False`", edits, because=because)
                fixed = fix if script.framework == "none" else None
                yield Finding(self.code, script.span(call), message, fixed)

    def _average(self, script: Script, average: Average) -> Finding:
        written = f"{average.old}.lerp_({average.new}, {average.weight})"
        call = average.node
        copies = isinstance(call, cst.Call) and script.code(call.func).endswith(".copy_")
        passes = "four" if copies else "three"
        message = (
            f"`{average.old}` is averaged in {passes} passes over memory: `{written}` takes one, and "
            "is about 4 times as fast"
        )
        fix = None
        commented = "#" in script.code(average.node)
        if script.framework == "none" and not commented and not script.once(_lerp_may_fail):
            edits = script.rewrite.replace(average.node, written)
            because = "`lerp_` rounds otherwise"
            fix = Fix.close("Average in place with `lerp_`", edits, because=because)
        return Finding(self.code, script.span(average.node), message, fix)

    def _update(self, script: Script, line: cst.BaseSmallStatement) -> Finding:
        message = (
            "parameters are updated one by one from Python: `torch.optim.SGD` steps with all of them "
            "in a few kernels"
        )
        return Finding(self.code, script.span(line), message)

    def _penalty(self, script: Script, line: cst.BaseSmallStatement) -> Finding:
        message = (
            "squares of all parameters are summed for the loss, one by one: `weight_decay` of the "
            "optimizer does the same in its step, for plain SGD with twice the factor"
        )
        return Finding(self.code, script.span(line), message)


# -- loops over parameters -------------------------------------------------------


def _loops(script: Script) -> Iterator[cst.For]:
    """Yield the loops that may go through the parameters of networks."""
    for loop in script.all(cst.For):
        if _over_parameters(script, loop.iter) or isinstance(loop.iter, cst.Name):
            yield loop


def _over_parameters(script: Script, node: cst.BaseExpression) -> bool:
    """Whether all that is gone through are the parameters of networks."""
    if not isinstance(node, cst.Call):
        return False
    name = script.name(node.func)
    if name in ("builtins.zip", "builtins.list", "builtins.filter"):
        inner = [arg.value for arg in node.args if not isinstance(arg.value, cst.Lambda)]
        return bool(inner) and all(_over_parameters(script, each) for each in inner)
    return isinstance(node.func, cst.Attribute) and node.func.attr.value in _ITERATED


def _lines(script: Script, loop: cst.For) -> Iterator[cst.BaseSmallStatement]:
    """Yield the assignments and calls of a loop itself."""
    for kind in (cst.Assign, cst.AugAssign, cst.Expr):
        for line in script.within(loop.body, kind):
            nearest = next(
                (outer for outer in script.tree.ancestors(line) if isinstance(outer, cst.For)), None
            )
            if nearest is loop and script.function(line) is script.function(loop):
                yield line


def _lerp_may_fail(script: Script) -> bool:
    """Whether two tensors may share their storage, or differ in type."""
    if next(script.method_calls("half", "bfloat16"), None) is not None:
        return True
    return any(_shares_storage(line) for line in script.all(cst.Assign))


def _shares_storage(line: cst.Assign) -> bool:
    """Whether a line makes two tensors one (`a.data = b.data`)."""
    sides = (line.targets[0].target, line.value)
    return all(type(side) is cst.Attribute and side.attr.value == "data" for side in sides)


# -- updates ---------------------------------------------------------------------


def _is_update(script: Script, loop: cst.For, line: cst.BaseSmallStatement) -> bool:
    """Whether a line moves the parameter of a pass by its gradient."""
    if isinstance(line, cst.AugAssign):
        return _is_parameter(script, loop, line.target) and _reads_gradient(script, line.value)
    if isinstance(line, cst.Assign):
        target = line.targets[0].target
        whole = isinstance(target, cst.Attribute) and _is_parameter(script, loop, target)
        return whole and _reads_gradient(script, line.value)
    call = line.value if isinstance(line, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return False
    if call.func.attr.value not in _UPDATING:
        return False
    return _is_parameter(script, loop, call.func.value) and any(
        _reads_gradient(script, arg.value) for arg in call.args
    )


def _is_parameter(script: Script, loop: cst.For, node: cst.BaseExpression) -> bool:
    """Whether an expression is `p` or `p.data` for a target `p` of a loop."""
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    return isinstance(node, cst.Name) and any(
        binding.node is loop or (binding.how is How.AUGMENTED and script.tree.inside(node, loop))
        for binding in script.scopes.reaching_name(node.value, node, script.scopes.scope(node))
    )


def _reads_gradient(script: Script, node: cst.BaseExpression) -> bool:
    return any(each.attr.value == "grad" for each in script.within(node, cst.Attribute))


def _replaces_optimizer(script: Script, loop: cst.For) -> bool:
    """Whether a loop stands where an optimizer would step: behind a backward pass, without one."""
    owner = script.scopes.class_of(loop)
    if owner is not None and any("Optim" in base for base in script.functions.bases(owner)):
        return False
    around = next(
        (each for each in script.loops_around(loop) if each.role is Role.TRAIN_BATCH), None
    )
    function = script.function(loop)
    region = around.node.body if around is not None else function and function.body
    if region is None or (function is not None and function.name.value == "step"):
        return False
    acts = script.updates.within(region)
    return any(each.act is Act.BACKWARD for each in acts) and not any(
        each.act is Act.STEP and not _is_alternative(script, each.at, loop) for each in acts
    )


def _is_alternative(script: Script, step: cst.Call, loop: cst.For) -> bool:
    """Whether a step stands in another branch of an `if` than a loop."""
    return any(
        isinstance(outer, cst.If)
        and outer.orelse is not None
        and script.tree.inside(step, outer.body)
        and script.tree.inside(loop, outer.orelse)
        for outer in script.tree.ancestors(loop)
    )


# -- penalties -------------------------------------------------------------------


def _is_penalty(script: Script, loop: cst.For, line: cst.BaseSmallStatement) -> bool:
    """Whether a line of a loop over the parameters adds the squares of one to the loss."""
    iterated = script.value_of(loop.iter).node
    if iterated is None or not _over_parameters(script, iterated):
        return False
    if not isinstance(line, (cst.Assign, cst.AugAssign)):
        return False
    own = any(
        binding.node is loop
        for name in script.within(line.value, cst.Name)
        for binding in script.scopes.reaching(name)
    )
    return own and _penalises(script, line)


def _sums_in_place(script: Script, call: cst.Call) -> bool:
    """Whether a call sums over the parameters of a network in one expression."""
    inner = call.args[0].value if len(call.args) == 1 else None
    return isinstance(inner, (cst.GeneratorExp, cst.ListComp)) and _over_parameters(
        script, inner.for_in.iter
    )


def _penalises(script: Script, line: cst.Assign | cst.AugAssign) -> bool:
    """Whether a line adds squares of parameters to what is sent backward."""
    target = line.target if isinstance(line, cst.AugAssign) else line.targets[0].target
    if not isinstance(target, cst.Name) or not _SQUARES.search(script.code(line.value)):
        return False
    if script.kind(target) in (Kind.NDARRAY, Kind.STRING) or ".grad" in script.code(line.value):
        return False
    return script.feeds_backward(target) and can_decay(script, line)
