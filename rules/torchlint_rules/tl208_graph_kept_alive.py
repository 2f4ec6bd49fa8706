"""TL208: tensors are kept together with the graph that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Accumulation,
    Adding,
    Fate,
    Finding,
    Fix,
    Grad,
    Heat,
    How,
    Kind,
    Role,
    Rule,
    Safety,
    Script,
)

TENSORS: Final = (Kind.TENSOR, Kind.LOSS)
BOUND: Final = (How.ASSIGN, How.UNPACKED, How.AUGMENTED)
CUTTING: Final = ("detach", "item", "numpy", "tolist", "size", "argmax")
DEPTH: Final = 6
PASSING: Final = frozenset(
    "mean sum clone cpu cuda to float double half squeeze unsqueeze view reshape flatten".split()
)


class GraphKeptAlive(Rule):
    """
    ## What it does
    Flags losses and outputs that are added up or collected batch by batch without `detach()`:
    each keeps the graph of its batch alive.

    ## Why it is slow
    A tensor that came out of a network holds on to every operation that made it, and before the
    backward pass to every activation. A sum of such tensors holds all batches of the epoch, so
    memory grows with each one, until the allocator has to search and at last to give up.

    ## When not to
    Keep the graph where the sum itself is sent backward: several losses of one step, truncated
    backpropagation through time, gradients accumulated over a window. None of these is flagged.

    ## Fix safety
    Exact: `detach()` gives the same numbers. Unsafe where the collected values leave the function
    for code out of sight, which could still send them backward.
    """

    code = "TL208"
    name = "graph-kept-alive"
    summary = "what is kept of each batch keeps the batch's whole graph in memory"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S2",)
    after = ("TL601",)
    needs = ("backward", ".step", "oader", "iter", "_dl", "batch", "queue")

    invalid = {
        "losses of training batches": """
              import torch.nn.functional as F
              def train(model, loader, optimizer):
                  total, losses = 0, []
                  for x, y in loader:
                      loss = F.cross_entropy(model(x), y)
                      optimizer.zero_grad()
                      loss.backward()
                      optimizer.step()
            -         total += loss
            -         losses.append(loss)  # for the plot
            +         total += loss.detach()
            +         losses.append(loss.detach())  # for the plot
                  return total / len(loader), losses
            """,
        "a loss weighted by the size of the batch, scaled for the backward pass": """
              import torch.nn.functional as F
              def train(model, loader, optimizer, scaler, steps):
                  total = 0.0
                  for x, y in loader:
                      loss = F.cross_entropy(model(x), y)
                      scaler.scale(loss / steps).backward()
                      scaler.step(optimizer)
            -         total = total + loss * x.size(0)
            +         total = total + loss.detach() * x.size(0)
                  return total
            """,
        "a dictionary of lists, and an attribute": """
              import torch.nn.functional as F
              class Trainer:
                  def train(self, loader, history):
                      for x, y in loader:
                          loss = F.mse_loss(self.model(x), y)
                          loss.backward()
                          self.optimizer.step()
            -             history["loss"].append(loss)
            -             self.last_loss = loss
            +             history["loss"].append(loss.detach())
            +             self.last_loss = loss.detach()
            """,
        "two losses that are sent backward as one": """
              import torch.nn.functional as F
              def train(model, loader, optimizer):
                  total = 0
                  for x, y in loader:
                      first, second = F.l1_loss(model(x), y), F.mse_loss(model(x), y)
                      (first + second).backward()
                      optimizer.step()
            -         total += first + second
            +         total += (first + second).detach()
                  return total
            """,
        "a running loss that is read now and then, and starts anew": """
              import torch.nn.functional as F
              def train(model, loader, optimizer, args):
                  train_loss = 0
                  for i, (x, y) in enumerate(loader):
                      loss = F.nll_loss(model(x), y)
                      loss.backward()
                      optimizer.step()
            -         train_loss += loss
            +         train_loss += loss.detach()
                      if i > 0 and i % args.log_interval == 0:
                          print(train_loss.item() / args.log_interval)
                          train_loss = 0
            """,
        "outputs and losses of an evaluation with gradients": """
              import torch.nn.functional as F
              def evaluate(model, loader):
                  model.eval()
                  total, outputs = 0, []
                  for x, y in loader:
                      out = model(x)
            -         outputs.append(out)
            -         total += F.cross_entropy(out, y)
            +         outputs.append(out.detach())
            +         total += F.cross_entropy(out, y).detach()
                  print(total.item(), len(outputs))
            """,
        "the output itself is collected": """
              import torch
              def predict(model, test_loader):
                  model.eval()
                  outputs = []
                  for x, y in test_loader:
            -         outputs.append(model(x))
            +         outputs.append(model(x).detach())
                  return outputs
            """,
    }
    valid = {
        "a function that counts right answers returns no graph": """
            import torch.nn.functional as F
            def share(output, label):
                _, pred = output.max(1)
                return (pred == label).sum().data[0] / output.shape[0]
            def evaluate(model, loader):
                model.eval()
                right = 0
                for x, y in loader:
                    right += share(model(x.cuda()), y.cuda())
                return right
            """,
        "a number has no graph": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                total = 0
                for x, y in loader:
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                return total
            """,
        "a detached tensor has no graph, nor has its data": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                total, losses = 0, []
                for x, y in loader:
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
                    total += loss.data
                    losses.append(loss.detach().cpu())
                return total, losses
            """,
        "the losses of several tasks are sent backward together": """
            import torch.nn.functional as F
            def train(model, loader, optimizer, heads):
                for x, targets in loader:
                    loss = 0
                    for head in heads:
                        loss += F.cross_entropy(model(x)[head], targets[head])
                    loss.backward()
                    optimizer.step()
            """,
        "the losses of a window are sent backward together": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                window = 0
                for step, (x, y) in enumerate(loader):
                    loss = F.cross_entropy(model(x), y)
                    window = window + loss
                    if step % 4 == 3:
                        window.backward()
                        optimizer.step()
                        window = 0
            """,
        "truncated backpropagation through time sends the sum of a list backward": """
            import torch
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                for x, y in loader:
                    state, losses = None, []
                    for t in range(x.size(1)):
                        out, state = model(x[:, t], state)
                        losses.append(F.mse_loss(out, y[:, t]))
                    loss = torch.stack(losses).mean()
                    loss.backward()
                    optimizer.step()
            """,
        "without gradients there is no graph": """
            import torch
            import torch.nn.functional as F
            @torch.no_grad()
            def evaluate(model, loader):
                total, outputs = 0, []
                for x, y in loader:
                    outputs.append(model(x))
                    total += F.cross_entropy(outputs[-1], y)
                return total, outputs
            """,
        "a loss of detached outputs has no graph": """
            import torch
            def evaluate(model, loader, criterion):
                model.eval()
                losses = []
                for x, y in loader:
                    pred = model(x).detach().cpu()
                    loss = criterion(pred, y)
                    losses.append(loss)
                return losses
            """,
        "labels have no graph": """
            import torch
            def evaluate(model, loader):
                model.eval()
                labels, right = [], 0
                for x, y in loader:
                    labels.append(y)
                    right += (model(x).argmax(1) == y).sum()
                return right, labels
            """,
        "the caller sends the sum backward": """
            import torch.nn.functional as F
            def full_loss(model, loader):
                total = 0
                for x, y in loader:
                    total += F.mse_loss(model(x), y)
                return total
            def fit(model, loader, optimizer):
                for epoch in range(100):
                    loss = full_loss(model, loader)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            """,
        "one batch in a hundred": """
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                losses = []
                for i, (x, y) in enumerate(loader):
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
                    if i % 100 == 0:
                        losses.append(loss)
                return losses
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag what training and evaluation batches add up or keep with its graph."""
        for addition in script.accumulations(Role.TRAIN_BATCH):
            carriers = _carriers(script, addition, _sent)
            if carriers:
                yield self._finding(script, addition.target, _value(addition), carriers)
        for addition, carriers, hidden in _evaluated(script):
            yield self._finding(script, addition.target, _value(addition), carriers, hidden)
        for target, value in _attributes(script):
            yield self._finding(script, target, value, [value])

    def _finding(
        self,
        script: Script,
        target: cst.BaseExpression,
        value: cst.BaseExpression,
        carriers: list[cst.BaseExpression],
        hidden: bool = False,
    ) -> Finding:
        """Say what keeps which graph, and cut it off."""
        kept = _quoted(script, carriers[0])
        message = f"{_quoted(script, target)} keeps the graph of {kept}"
        if not isinstance(target, cst.Attribute) or not script.scopes.stored(target):
            message += " for every batch: memory grows until the loop ends"
        message += f"; keep {kept[:-1]}.detach()`" if len(kept) < 42 else "; `.detach()` it"
        edits = script.rewrite.insert(script.span(carriers[0]).end, ".detach()")
        if len(carriers) > 1 or isinstance(carriers[0], cst.BinaryOperation):
            span = script.span(value)
            opening, closing = ("", "") if value.lpar else ("(", ")")
            edits = script.rewrite.insert(span.end, f"{closing}.detach()")
            edits += script.rewrite.insert(span.start, opening) if opening else ()
        fix = Fix.exact("Detach what is kept", edits)
        if hidden:
            because = "the values leave the function and could be sent backward out of sight"
            fix = Fix.unsafe("Detach what is kept", edits, because=because)
        return Finding(self.code, script.span(value), message, fix)


def _value(addition: Accumulation) -> cst.BaseExpression:
    return addition.values[0]


def _quoted(script: Script, node: cst.CSTNode) -> str:
    return f"`{script.brief(node)}`"


def _carriers(
    script: Script,
    addition: Accumulation,
    is_meant: Callable[[Script, cst.BaseExpression], bool],
) -> list[cst.BaseExpression]:
    """Give those operands of an addition that carry a graph, and that a test takes."""
    if addition.adding is Adding.METER:
        return []
    found = [leaf for leaf in _leaves(script, _value(addition)) if is_meant(script, leaf)]
    return [] if found and _sent_with_others(script, addition) else found


def _sent_with_others(script: Script, addition: Accumulation) -> bool:
    """Whether what is built up, or will be, is itself sent backward."""
    target: cst.BaseExpression = addition.target
    while isinstance(target, (cst.Subscript, cst.Attribute)):
        target = target.value
    return isinstance(target, cst.Name) and script.feeds_backward(target)


def _leaves(script: Script, value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the operands of a value that may carry a graph into it."""
    if script.grad(value) is not Grad.ON:
        return
    if isinstance(value, cst.BinaryOperation):
        yield from _leaves(script, value.left)
        yield from _leaves(script, value.right)
    elif isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value in PASSING and script.kind(value.func.value) in TENSORS:
            if any(True for _ in _leaves(script, value.func.value)):
                yield value
        elif (
            script.name(value.func) is not None
            or script.module_call(value) is not None
            or script.kind(value) is Kind.LOSS
        ):
            yield value
    elif isinstance(value, (cst.Name, cst.Call)):
        yield value


def _sent(script: Script, leaf: cst.BaseExpression) -> bool:
    """Whether a tensor is sent backward in its own batch, so that nothing else will."""
    while isinstance(leaf, cst.Call) and isinstance(leaf.func, cst.Attribute):
        leaf = leaf.func.value
    return isinstance(leaf, cst.Name) and script.sent_backward(leaf)


def _made(script: Script, leaf: cst.BaseExpression) -> bool:
    """Whether a tensor of floats came out of a network, with the graph that made it."""
    if script.kind(leaf) not in TENSORS or script.is_integral(leaf):
        return False
    return _carries(script, leaf, DEPTH)


def _passes_on(script: Script, node: cst.BaseExpression, depth: int) -> bool:
    """Whether what a function returns can hold the graph of what it is given."""
    if not depth:
        return True
    if isinstance(node, cst.Comparison) or script.is_integral(node):
        return False
    if isinstance(node, cst.Call):
        parts = [arg.value for arg in node.args]
        if isinstance(node.func, cst.Attribute):
            if node.func.attr.value in CUTTING:
                return False
            if script.name(node.func) is None:
                parts.append(node.func.value)
    elif isinstance(node, cst.BinaryOperation):
        parts = [node.left, node.right]
    elif isinstance(node, cst.Subscript):
        parts = [node.value]
    elif isinstance(node, cst.Attribute):
        parts = [] if node.attr.value in ("data", "shape") else [node.value]
    elif isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        if any(each.value is None for each in bindings):
            return True
        parts = [each.value for each in bindings if each.value is not None]
    else:
        return not isinstance(node, (cst.Integer, cst.Float))
    return any(_passes_on(script, part, depth - 1) for part in parts)


def _carries(script: Script, node: cst.BaseExpression, depth: int) -> bool:
    """Whether a network's graph hangs on an expression."""
    if not depth or script.grad(node) is not Grad.ON:
        return False
    if isinstance(node, cst.Call):
        if script.module_call(node) is not None:
            return True
        parts = [arg.value for arg in node.args]
        if isinstance(node.func, cst.Attribute):
            if node.func.attr.value in CUTTING:
                return False
            parts.append(node.func.value)
        callee = script.functions.callee(node)
        if callee is not None and not any(
            _passes_on(script, value, DEPTH) for value in script.functions.returns(callee)
        ):
            return False
        return any(_carries(script, part, depth - 1) for part in parts)
    if isinstance(node, cst.BinaryOperation):
        return any(_carries(script, side, depth - 1) for side in (node.left, node.right))
    if isinstance(node, (cst.Subscript, cst.Attribute)):
        cut = isinstance(node, cst.Attribute) and node.attr.value == "data"
        return not cut and _carries(script, node.value, depth - 1)
    if not isinstance(node, cst.Name):
        return False
    bindings = [each for each in script.scopes.reaching(node) if each.how in BOUND]
    return bool(bindings) and all(
        each.value is not None and _carries(script, each.value, depth - 1) for each in bindings
    )


def _evaluated(
    script: Script,
) -> Iterator[tuple[Accumulation, list[cst.BaseExpression], bool]]:
    """Yield the additions of evaluations, with what carries graphs into them.

    The third part says whether code out of sight may train on them.
    """
    added = [
        (each, _carriers(script, each, _made)) for each in script.accumulations(Role.EVAL_BATCH)
    ]
    added = [(each, carriers) for each, carriers in added if carriers]
    for evaluation in script.evaluations() if added else ():
        inside = [pair for pair in added if script.tree.inside(pair[0].node, evaluation.body)]
        if not inside or script.needs_gradients(evaluation.body):
            continue
        fate = script.fate(evaluation)
        if fate is not Fate.TRAINED:
            hidden = fate is Fate.HIDDEN and not evaluation.by_name
            yield from ((each, carriers, hidden) for each, carriers in inside)


def _attributes(script: Script) -> Iterator[tuple[cst.Attribute, cst.Name]]:
    """Yield `self.last = loss` in training batches, where `loss` was sent backward."""
    sent = {
        each.value.attr.value
        for each in script.functions.attributes("backward")
        if isinstance(each.value, cst.Attribute)
    }
    for assign in script.all(cst.Assign):
        target, value = assign.targets[0].target, assign.value
        if not isinstance(target, cst.Attribute) or not isinstance(value, cst.Name):
            continue
        if len(assign.targets) != 1 or target.attr.value in sent or not _sent(script, value):
            continue
        loop = script.batch_loop(assign)
        if loop is None or loop.role is not Role.TRAIN_BATCH:
            continue
        if script.heat(assign) is Heat.HOT and script.grad(assign) is Grad.ON:
            yield target, value
