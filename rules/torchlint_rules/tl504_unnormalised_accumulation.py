"""TL504: gradients of several batches that are added up and never divided."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Rule, Safety, Script, Window, regex
from torchlint_rules._averaging import is_averaged

_PARTS: Final = regex(r"accum|micro", re.IGNORECASE)
_TITLE: Final = "Divide the loss by `{}`"
_BECAUSE: Final = "gradients, and with them the effective learning rate, become smaller by `{}`"
_TAIL: Final = ", and what an epoch leaves over is stepped with at its end"


class UnnormalisedAccumulation(Rule):
    """
    ## What it does
    Flags loops that accumulate gradients, stepping the optimizer every k batches, and send each
    batch's mean loss backward without dividing it by k.

    ## Why it is slow
    The gradient is k times that of one large batch: steps are k times too long, clipping cuts k
    times as much, and a run that diverges or crawls has to be repeated. Divided, the sum equals the
    gradient of the large batch to rounding (1e-7), unless batch norm sees the small ones.

    ## When not to
    A loss that sums over samples needs no division, nor does a learning rate that was tuned for
    the sum. Optimizers of Adam's kind hardly notice: they are flagged only where gradients are
    clipped or the weights decay with them.

    ## Fix safety
    Unsafe: the effective learning rate changes by the factor k. `(loss / k).backward()` leaves
    `loss` itself as it is for logging. Where it can, the fix also steps once more behind the loop,
    so that the batches left over do not leak into the next epoch.
    """

    code = "TL504"
    name = "unnormalised-accumulation"
    summary = "accumulated gradients are a sum where they should be a mean"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S0", "S1", "S2", "S3.9")
    needs = ("backward",)

    invalid = {
        "the loss of every batch, a step every few": """
              import torch
              def train(model, loader, criterion, optimizer, accumulation_steps):
                  for i, (x, y) in enumerate(loader):
                      loss = criterion(model(x), y)
            -         loss.backward()
            +         (loss / accumulation_steps).backward()
                      if (i + 1) % accumulation_steps == 0:
                          optimizer.step()
                          optimizer.zero_grad()
            +     if (i + 1) % accumulation_steps:
            +         optimizer.step()
            +         optimizer.zero_grad()
            """,
        "with a gradient scaler and clipping": """
              import torch
              def train(model, loader, criterion, optimizer, scaler, args):
                  for i, (x, y) in enumerate(loader):
                      loss = criterion(model(x), y)
            -         scaler.scale(loss).backward()
            +         scaler.scale(loss / args.accum).backward()
                      if (i + 1) % args.accum == 0:
                          scaler.unscale_(optimizer)
                          torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                          scaler.step(optimizer)
                          scaler.update()
                          optimizer.zero_grad()
                          print(loss.item())
                          print(i)
            """,
        "the last window is closed already": """
              import torch
              def train(model, loader, criterion, optimizer, k):
                  for i, (x, y) in enumerate(loader):
            -         criterion(model(x), y).backward()
            +         (criterion(model(x), y) / k).backward()
                      if (i + 1) % k == 0 or i + 1 == len(loader):
                          optimizer.step()
                          optimizer.zero_grad()
            """,
        "two losses, an own counter that goes on over epochs": """
              import torch
              def train(model, loader, optimizer, step):
                  for batch in loader:
                      step += 1
                      first, second = model(batch)
            -         (first + second).backward()
            +         ((first + second) / 4).backward()
                      if step % 4 == 0:
                          optimizer.step()
                          optimizer.zero_grad()
            """,
        "two backward passes": """
              import torch
              def train(model, loader, criteria, optimizer, k):
                  for i, (x, y) in enumerate(loader):
                      out = model(x)
                      first = criteria[0](out, y)
            -         first.backward(retain_graph=True)
            +         (first / k).backward(retain_graph=True)
            -         criteria[1](out, y).backward()
            +         (criteria[1](out, y) / k).backward()
                      if (i + 1) % k == 0 or i + 1 == len(loader):
                          optimizer.step()
                          optimizer.zero_grad()
            """,
        "divided by the size of the batch, not of the window": """
              import torch
              from torch.nn import functional as F
              def train(model, loader, optimizer, k):
                  for i, (x, y) in enumerate(loader):
                      loss = F.cross_entropy(model(x), y)
                      loss = loss * x.size(0) / len(y)
            -         loss.backward()
            +         (loss / k).backward()
                      if i % k == k - 1:
                          optimizer.step()
                          optimizer.zero_grad()
            +     if i % k != k - 1:
            +         optimizer.step()
            +         optimizer.zero_grad()
            """,
        "the parts of one batch": """
              import torch
              def train(model, get_batch, optimizer, accum_steps):
                  for step in range(100):
                      for micro_step in range(accum_steps):
                          loss = model(get_batch())
            -             loss.backward()
            +             (loss / accum_steps).backward()
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "a criterion of the file's own that gives means": """
              import torch
              import torch.nn.functional as F
              class Loss(torch.nn.Module):
                  def forward(self, out, y):
                      return F.mse_loss(out, y) + F.l1_loss(out, y)
              def train(model, loader, optimizer, k, args):
                  criterion = Loss()
                  optimizer = torch.optim.SGD(model.parameters(), lr=args.rate * args.batch / 256)
                  for i, (x, y) in enumerate(loader):
                      loss = criterion(model(x), y)
            -         loss.backward()
            +         (loss / k).backward()
                      if (i + 1) % k == 0 or i + 1 == len(loader):
                          optimizer.step()
                          optimizer.zero_grad()
            """,
        "Adam notices when gradients are clipped": """
              import torch
              def train(model, loader, criterion, k):
                  optimizer = torch.optim.Adam(model.parameters())
                  for i, (x, y) in enumerate(loader):
                      loss = criterion(model(x), y)
            -         loss.backward()
            +         (loss / k).backward()
                      if (i + 1) % k == 0:
                          torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                          optimizer.step()
                          optimizer.zero_grad()
            +     if (i + 1) % k:
            +         torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            +         optimizer.step()
            +         optimizer.zero_grad()
            """,
        "the size is known behind the backward pass only: reported": """
              import torch
              def train(model, loader, criterion, optimizer, schedule):
                  for i, (x, y) in enumerate(loader):
            !         criterion(model(x), y).backward()
                      k = schedule(i)
                      if (i + 1) % k == 0:
                          optimizer.step()
                          optimizer.zero_grad()
            """,
    }
    valid = {
        "divided in each of its spellings": """
            import torch
            def train(model, loader, criterion, optimizer, scaler, k):
                for i, (x, y) in enumerate(loader):
                    loss = criterion(model(x), y) / k
                    loss.backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
                for i, (x, y) in enumerate(loader):
                    loss = criterion(model(x), y)
                    loss /= k
                    loss.backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
                for i, (x, y) in enumerate(loader):
                    loss = criterion(model(x), y)
                    scaler.scale(loss.div(k)).backward()
                    if (i + 1) % k == 0:
                        scaler.step(optimizer)
                        optimizer.zero_grad()
                for i, (x, y) in enumerate(loader):
                    loss = criterion(model(x), y)
                    loss = loss * (1 / k)
                    loss.backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "divided where the loss is made": """
            import torch
            def compute(model, x, y, accumulation_steps):
                return torch.nn.functional.mse_loss(model(x), y) / accumulation_steps
            def train(model, loader, optimizer, accumulation_steps):
                for i, (x, y) in enumerate(loader):
                    loss = compute(model, x, y, accumulation_steps)
                    loss.backward()
                    if (i + 1) % accumulation_steps == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "a sum over samples stays one": """
            import torch
            def train(model, loader, optimizer, k):
                criterion = torch.nn.CrossEntropyLoss(reduction="sum")
                for i, (x, y) in enumerate(loader):
                    loss = criterion(model(x), y)
                    loss.backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
                for i, (x, y) in enumerate(loader):
                    loss = ((model(x) - y) ** 2).sum()
                    loss.backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "the learning rate was made for the sum": """
            import torch
            def train(model, loader, criterion, args):
                optimizer = torch.optim.SGD(model.parameters(), lr=args.lr / args.accum)
                for i, (x, y) in enumerate(loader):
                    criterion(model(x), y).backward()
                    if (i + 1) % args.accum == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "a criterion of the file's own adds up over samples": """
            import torch
            import torch.nn.functional as F
            class Loss(torch.nn.Module):
                def forward(self, out, y):
                    total = F.mse_loss(out, y, reduction="sum")
                    return total, total
            def train(model, loader, optimizer, k):
                criterion = Loss()
                for i, (x, y) in enumerate(loader):
                    loss, shown = criterion(model(x), y)
                    loss.backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "the learning rate is divided by the size of the batch": """
            import torch
            def train(model, loader, criterion, args, k):
                optimizer = torch.optim.SGD(model.parameters(), lr=args.rate / args.batch)
                for i, (x, y) in enumerate(loader):
                    criterion(model(x), y).backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "the gradients themselves are divided": """
            import torch
            def train(model, loader, criterion, optimizer, k):
                for i, (x, y) in enumerate(loader):
                    criterion(model(x), y).backward()
                    if (i + 1) % k == 0:
                        for p in model.parameters():
                            p.grad /= k
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "steps of Adam hardly depend on the size of the gradients": """
            import torch
            def train(model, loader, criterion, k):
                optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
                for i, (x, y) in enumerate(loader):
                    criterion(model(x), y).backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "a framework divides": """
            from accelerate import Accelerator
            def train(model, loader, optimizer, k):
                accelerator = Accelerator(gradient_accumulation_steps=k)
                for i, batch in enumerate(loader):
                    accelerator.backward(model(**batch).loss)
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "nothing accumulates: the gradients are cleared for every batch": """
            import torch
            def train(model, loader, criterion, optimizer, k):
                for i, (x, y) in enumerate(loader):
                    optimizer.zero_grad()
                    loss = criterion(model(x), y)
                    loss.backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
            """,
        "windows of one batch": """
            import torch
            def train(model, loader, criterion, optimizer):
                for i, (x, y) in enumerate(loader):
                    criterion(model(x), y).backward()
                    if i % 1 == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "the steps of a sequence, whose losses belong together": """
            import torch
            def train(cell, sequences, criterion, optimizer):
                for sequence in sequences:
                    state = None
                    for t in range(len(sequence)):
                        y, state = cell(sequence[t], state)
                        criterion(y, sequence[t]).backward(retain_graph=True)
                    optimizer.step()
                    optimizer.zero_grad()
            """,
        "a helper out of sight may divide": """
            import torch
            def train(model, loader, loss_scaler, optimizer, k):
                for i, (x, y) in enumerate(loader):
                    loss = model(x, y)
                    loss_scaler(loss, optimizer, update_grad=(i + 1) % k == 0)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every window of accumulation whose losses nothing divides."""
        if script.framework != "none":
            return
        for window in script.windows():
            size = _size(script, window)
            if size is None:
                continue
            sent = [_sent(script, call) for call in window.backwards]
            losses = [each for each in sent if each is not None]
            if len(losses) != len(sent) or is_averaged(script, window, size, losses):
                continue
            yield self._finding(script, window, size, losses)

    def _finding(
        self,
        script: Script,
        window: Window,
        size: cst.BaseExpression,
        losses: list[cst.BaseExpression],
    ) -> Finding:
        written = script.code(size)
        loss = script.code(losses[0]) if isinstance(losses[0], cst.Name) else "loss"
        shown = written if isinstance(size, cst.Integer) else f"`{written}`"
        message = (
            f"the gradients of {shown} passes are added up, not averaged: divide, "
            f"`({loss} / {written}).backward()`"
        )
        fix = None
        if not _changes(script, window, size):
            tail = _tail(script, window)
            edits = [_divided(script, each, written) for each in losses]
            because = _BECAUSE.format(written) + (_TAIL if tail else "")
            fix = Fix.unsafe(_TITLE.format(written), *edits, tail, because=because)
        return Finding(self.code, script.span(window.backwards[0]), message, fix)


# -- how many passes -----------------------------------------------------------


def _size(script: Script, window: Window) -> cst.BaseExpression | None:
    """Give how many passes a window has, None unless the file says so plainly."""
    found = _remainder(script, window)
    size = found.right if found is not None else _parts_of_batch(script, window)
    if not isinstance(size, (cst.Name, cst.Attribute, cst.Integer, cst.Subscript)):
        return None
    if script.value_of(size).equals(1) or (found and not _counts_passes(script, window, found)):
        return None
    return size


def _remainder(script: Script, window: Window) -> cst.BinaryOperation | None:
    """Give the one `i % k` of the test that closes a window."""
    if window.test is None or window.closing is None:
        return None
    test = script.value_of(window.test).node or window.test
    found = [
        each
        for each in script.within(test, cst.BinaryOperation)
        if isinstance(each.operator, cst.Modulo)
    ]
    return found[0] if len(found) == 1 else None


def _parts_of_batch(script: Script, window: Window) -> cst.BaseExpression | None:
    """Give `k` of `for micro_step in range(k):` where the optimizer steps behind the loop."""
    loop = window.loop.node
    if (
        window.test is not None
        or not isinstance(loop, cst.For)
        or not isinstance(loop.iter, cst.Call)
    ):
        return None
    if script.name(loop.iter.func) != "builtins.range" or len(loop.iter.args) != 1:
        return None
    spoken = _PARTS.search(script.code(loop.target)) or _PARTS.search(script.code(loop.iter))
    return loop.iter.args[0].value if spoken else None


def _counts_passes(script: Script, window: Window, remainder: cst.BinaryOperation) -> bool:
    """Whether what is divided changes with the passes of the very loop."""
    return any(
        script.tree.inside(binding.node, window.loop.node)
        for name in script.within(remainder.left, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _changes(script: Script, window: Window, size: cst.BaseExpression) -> bool:
    """Whether a pass of the loop may set the size anew."""
    return any(
        script.tree.inside(binding.node, window.loop.node)
        for name in script.within(size, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _sent(script: Script, backward: cst.Call) -> cst.BaseExpression | None:
    """Give the loss that a call sends backward, None where it is not plain."""
    func = backward.func
    if not isinstance(func, cst.Attribute) or func.attr.value != "backward":
        return None
    if script.name(func) is not None or any(arg.keyword is None for arg in backward.args):
        return None
    value = func.value
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value == "scale" and value.args:
            return value.args[0].value
    return value


# -- the fix -------------------------------------------------------------------


def _divided(script: Script, loss: cst.BaseExpression, size: str) -> Edits:
    """Divide a loss where it is sent backward."""
    code = script.code(loss)
    if isinstance(loss, (cst.BinaryOperation, cst.IfExp)) and not loss.lpar:
        code = f"({code})"
    scaled = isinstance(script.parent(loss), cst.Arg)
    return script.rewrite.replace(loss, f"{code} / {size}" if scaled else f"({code} / {size})")


def _tail(script: Script, window: Window) -> Edits:
    """Step behind the loop with what is left over; nothing where that may be done already."""
    loop, closing = window.loop.node, window.closing
    if closing is None or closing.orelse is not None or loop.orelse is not None:
        return ()
    test = closing.test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return ()
    if not isinstance(test.comparisons[0].operator, cst.Equal):
        return ()
    counted = [
        binding
        for name in script.within(test.left, cst.Name)
        for binding in script.scopes.reaching(name)
        if binding.node is loop
    ]
    if not counted or script.tree.parent(closing) is not loop.body:
        return ()
    lines = _lines(script, closing)
    if not lines or not script.rewrite.stands_alone(loop) or _steps_behind(script, loop):
        return ()
    right = script.code(test.comparisons[0].comparator)
    left_over = script.code(test.left) + ("" if right == "0" else f" != {right}")
    unit = script.rewrite.unit()
    return script.rewrite.after(loop, f"if {left_over}:", *(f"{unit}{line}" for line in lines))


def _lines(script: Script, closing: cst.If) -> list[str]:
    """Give the lines that close a window where they only deal with gradients."""
    if not isinstance(closing.body, cst.IndentedBlock):
        return []
    lines = []
    for line in closing.body.body:
        small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        calls = [each.value for each in small if isinstance(each, cst.Expr)]
        if len(calls) != 1 or not isinstance(calls[0], cst.Call):
            return []
        func = calls[0].func
        word = func.attr.value if isinstance(func, cst.Attribute) else script.code(func)
        if word not in ("step", "zero_grad", "update", "unscale_") and "clip_grad" not in word:
            return []
        code = script.code(line)
        if "\n" in code:
            return []
        lines.append(code)
    return lines


def _steps_behind(script: Script, loop: cst.CSTNode) -> bool:
    """Whether something steps an optimizer behind a loop, in the same function."""
    function = script.function(loop)
    return any(
        script.function(call) is function and script.tree.order(call) >= script.tree.end(loop)
        for call in script.optimizers.steps
        if not _in_other_loop(script, call, loop)
    )


def _in_other_loop(script: Script, call: cst.Call, loop: cst.CSTNode) -> bool:
    """Whether a call stands in a batch loop of its own."""
    around = {id(each.node) for each in script.loops_around(loop)}
    return any(each.is_batch and id(each.node) not in around for each in script.loops_around(call))
