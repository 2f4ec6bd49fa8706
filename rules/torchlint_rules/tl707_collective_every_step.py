"""TL707: collectives in every training step that only serve to look at a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Heat, Role, Rule, Script, regex

_BARRIERS: Final = ("torch.distributed.barrier", "torch.distributed.monitored_barrier")
_COLLECTIVES: Final = tuple(
    f"torch.distributed.{name}"
    for name in (
        "all_reduce reduce all_gather all_gather_into_tensor all_gather_object gather "
        "gather_object broadcast"
    ).split()
)
_LOOPS: Final = (Role.TRAIN_BATCH, Role.EVAL_BATCH)
_HELPER: Final = regex(
    r"(?:all_)?reduce_(?:\w+_)?(?:tensor|tensors|dict|loss|losses|mean|metric|metrics|value|values)|"
    r"(?:all_reduce|allreduce|reduce|average|gather)_\w*(?:loss|losses|metric|metrics|mean)\w*"
)
_MEASURED: Final = frozenset(
    (
        "loss losses acc accuracy accuracies prec precision correct corrects hits metric metrics "
        "err error errors stats statistics score scores total totals"
    ).split()
)
_COPYING: Final = frozenset("data detach clone item mean sum float double new".split())
_GRADIENTS: Final = frozenset("grad grads gradient gradients param params parameters".split())


class CollectiveEveryStep(Rule):
    """
    ## What it does
    Flags a `barrier()` in each pass of a loop over batches, and a loss or another measured number
    that is sent through all processes in each pass, though nothing is trained with the result.

    ## Why it is slow
    A collective makes all processes wait for the slowest, once more per step, and the network
    between the GPUs is busy with it instead of gradients. `DistributedDataParallel` keeps the
    processes in step already. Numbers for a log can be added up in each process and reduced once
    per epoch, or when they are printed.

    ## When not to
    Averages that are part of the loss or of the network (a batch norm over processes, negatives of
    a contrastive loss, gradients that a script averages itself) are left alone. So is what runs
    now and then only.

    ## Fix safety
    Reported only: where and how often the number is needed is for you to say.
    """

    code = "TL707"
    name = "collective-every-step"
    summary = "all processes wait for one another in every step, beside the gradients"
    impact = "medium"
    safety = None
    articles = ("S1",)
    needs = (
        "barrier",
        "all_reduce",
        "allreduce_",
        "all_gather",
        "reduce_tensor",
        "reduce_dict",
        "reduce_loss",
        "reduce_mean",
        "reduce_value",
        "reduce_metric",
        "dist.reduce",
        "distributed.reduce",
    )

    invalid = {
        "a barrier": """
              import torch
              import torch.distributed as dist
              for x in loader:
                  model(x).backward()
                  optimizer.step()
            !     dist.barrier()
            """,
        "the loss is averaged for the log": """
              import torch
              import torch.distributed as dist
              for x in loader:
                  loss = model(x)
                  loss.backward()
                  optimizer.step()
                  seen = loss.detach().clone()
            !     dist.all_reduce(seen)
                  losses.append(seen)
              def again():
                  for x in loader:
                      loss = model(x)
                      loss.backward()
                      optimizer.step()
            !         torch.distributed.reduce(loss, 0)
            """,
        "by a helper of the file, of a copy": """
              import torch
              import torch.distributed as dist
              def reduce_tensor(tensor, n):
                  copy = tensor.clone()
                  dist.all_reduce(copy)
                  return copy / n
              for x in loader:
                  loss = model(x)
                  if distributed:
            !         reduced_loss = reduce_tensor(loss.data, 4).item()
                  else:
                      reduced_loss = loss.item()
                  loss.backward()
                  optimizer.step()
            """,
        "by a helper out of sight, a dictionary of losses": """
              import torch
              import utils
              for x in loader:
                  losses = model(x)
                  loss = sum(losses.values())
                  loss.backward()
                  optimizer.step()
            !     logger.update(utils.reduce_dict(losses))
            """,
        "a helper goes backward": """
              import torch
              import misc
              for i, x in enumerate(loader):
                  loss = model(x)
                  loss_value = loss.item()
                  loss_scaler(loss, optimizer, update_grad=i % 2 == 0)
            !     reduced = misc.all_reduce_mean(loss_value)
                  if i % 20 == 0:
                      print(reduced)
            """,
        "hits": """
              import torch
              import torch.distributed as dist
              for x, y in loader:
                  out = model(x)
                  criterion(out, y).backward()
                  optimizer.step()
                  correct = (out.argmax(1) == y).sum()
            !     dist.all_reduce(correct, op=dist.ReduceOp.SUM)
                  total += correct
            """,
        "an evaluation can add up before it reduces": """
              import torch
              import torch.distributed as dist
              def validate(model, loader, criterion, meter):
                  model.eval()
                  with torch.no_grad():
                      for x, y in loader:
                          loss = criterion(model(x), y)
            !             dist.barrier()
            !             dist.all_reduce(loss)
                          meter.update(loss.item())
            """,
    }
    valid = {
        "now and then, and once per epoch": """
            import torch
            import torch.distributed as dist
            for epoch in range(3):
                total = torch.zeros(())
                for i, x in enumerate(loader):
                    loss = model(x)
                    loss.backward()
                    optimizer.step()
                    total += loss.detach()
                    if i % 100 == 0:
                        dist.barrier()
                        seen = loss.detach()
                        dist.all_reduce(seen)
                dist.all_reduce(total)
                dist.barrier()
            """,
        "the average is trained with": """
            import torch
            import torch.distributed as dist
            for x in loader:
                count = x.sum()
                dist.all_reduce(count)
                loss = model(x)
                dist.all_reduce(loss)
                (loss / count).backward()
                optimizer.step()
            """,
        "a helper whose result is trained with": """
            import torch
            from utils import reduce_tensor
            for x in loader:
                total = reduce_tensor(x.sum())
                loss = model(x) / total
                loss.backward()
                optimizer.step()
            """,
        "the average goes to a helper that goes backward": """
            import torch
            import torch.distributed as dist
            for i, x in enumerate(loader):
                loss = model(x)
                dist.all_reduce(loss)
                loss_scaler(loss, optimizer, update_grad=i % 2 == 0)
            """,
        "gradients that the script averages itself": """
            import torch
            import torch.distributed as dist
            for x in loader:
                loss = model(x)
                loss.backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                total_grads = flatten(model)
                dist.all_reduce(total_grads)
                optimizer.step()
            """,
        "part of the network": """
            import torch
            import torch.distributed as dist
            class Net(torch.nn.Module):
                def forward(self, x):
                    total = x.sum(0)
                    dist.all_reduce(total)
                    return x / total
            model = Net()
            for x in loader:
                model(x).mean().backward()
                optimizer.step()
            """,
        "features that are compared across processes": """
            import torch
            import torch.distributed as dist
            for x in loader:
                features = model(x)
                dist.all_gather(parts, features)
                criterion(torch.cat(parts)).backward()
                optimizer.step()
            """,
        "a reduction of another kind": """
            import torch
            from functools import reduce
            from einops import reduce as pool
            for x in loader:
                loss = reduce(add, model(x))
                loss.backward()
                optimizer.step()
                barrier(loss)
                print(pool(loss, "b -> 1", "mean"))
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every collective of a training step that nothing is trained with."""
        for site in script.calls(*_BARRIERS):
            if _is_hot(script, site.node):
                yield Finding(self.code, script.span(site.node), _of_barrier(script, site.node))
        for call in (*(site.node for site in script.calls(*_COLLECTIVES)), *_helpers(script)):
            if not call.args or not _is_hot(script, call):
                continue
            measured = _measured(script, call)
            if measured is not None and not _is_trained_with(script, call, measured):
                yield Finding(self.code, script.span(call), _of_number(script, call, measured))


def _of_barrier(script: Script, call: cst.Call) -> str:
    loop = script.batch_loop(call)
    trains = loop is not None and loop.role is Role.TRAIN_BATCH
    why = "averaging the gradients keeps them in step" if trains else "no batch needs the others"
    return (
        f"`{script.code(call)}` makes all processes wait for the slowest in every batch, though "
        f"{why}: take it out of the loop"
    )


def _of_number(script: Script, call: cst.Call, measured: cst.Name) -> str:
    return (
        f"`{script.code(call.func)}` sends `{measured.value}` through all processes in every batch, "
        "and nothing is trained with it: add it up in each process and reduce it once per epoch, "
        "or where it is printed"
    )


def _is_hot(script: Script, call: cst.Call) -> bool:
    """Whether each pass of a loop over batches makes a call."""
    loop = script.batch_loop(call)
    return loop is not None and loop.role in _LOOPS and script.heat(call) is Heat.HOT


def _helpers(script: Script) -> Iterator[cst.Call]:
    """Yield the calls of functions that reduce a number over processes."""
    for call in script.all(cst.Call):
        func = call.func
        last = func.attr if isinstance(func, cst.Attribute) else func
        if isinstance(last, cst.Name) and _HELPER.fullmatch(last.value):
            if script.name(func) not in _COLLECTIVES and _reduces(script, call):
                yield call


def _reduces(script: Script, call: cst.Call) -> bool:
    """Whether a function that says that it reduces does, as far as the file shows it."""
    own = script.functions.callee(call)
    if own is None:
        outside = script.definition(call.func) is None
        return outside and not (script.name(call.func) or "").startswith(("torch.", "functools."))
    return any(
        script.name(inner.func) in _COLLECTIVES
        for body in script.functions.reached(own, 2)
        for inner in script.within(body, cst.Call)
    )


def _measured(script: Script, call: cst.Call) -> cst.Name | None:
    """Give the number that a collective is handed, by what it is called."""
    at: cst.BaseExpression = call.args[0].value
    while not isinstance(at, cst.Name):
        if isinstance(at, cst.Attribute) and at.attr.value in _COPYING:
            at = at.value
        elif isinstance(at, cst.Call) and isinstance(at.func, cst.Attribute):
            at = at.func
        else:
            return None
    spoken = set(script.words(at.value))
    spoken |= set(script.words(script.code_of(at)))
    if spoken & _GRADIENTS or not spoken & _MEASURED:
        return None
    return at


def _is_trained_with(script: Script, call: cst.Call, measured: cst.Name) -> bool:
    """Whether what a collective gives becomes part of a loss."""
    holder = script.parent(call)
    while isinstance(holder, (cst.Attribute, cst.Call, cst.BinaryOperation)):
        holder = script.parent(holder)
    if isinstance(holder, cst.Assign):
        for each in holder.targets:
            for name in script.within(each.target, cst.Name):
                if script.feeds_backward(name) or _goes_backward_below(script, call, name):
                    return True
        return False
    if script.name(call.func) not in _COLLECTIVES:
        return False
    return _is_itself(call, measured) and _goes_backward_below(script, call, measured)


def _is_itself(call: cst.Call, measured: cst.Name) -> bool:
    """Whether a collective changes the tensor of a name in place, no copy of it."""
    return call.args[0].value is measured


def _goes_backward_below(script: Script, call: cst.Call, name: cst.Name) -> bool:
    """Whether what a name holds is part of a loss that is sent backward later in the loop."""
    loop = script.batch_loop(call)
    if loop is None:
        return False
    below = [
        other
        for other in script.within(loop.node.body, cst.Call)
        if script.is_step(other) and script.tree.order(other) > script.tree.order(call)
    ]
    for other in below:
        if isinstance(other.func, cst.Attribute) and other.func.attr.value == "backward":
            if script.feeds_backward(name):
                return True
        elif any(
            arg.keyword is None and script.code(arg.value) == name.value for arg in other.args
        ):
            return True
    return False
