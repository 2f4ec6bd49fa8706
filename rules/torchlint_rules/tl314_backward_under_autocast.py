"""TL314: a backward pass or an optimizer's step inside `with autocast`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Kind, Rule, Safety, Script


class BackwardUnderAutocast(Rule):
    """
    ## What it does
    Flags `backward()`, and the optimizer's step behind it, inside a `with autocast` block, and
    moves what follows the loss out of it.

    ## Why it is slow
    Autocast is for the forward pass: backward runs each operation in the dtype that its forward had
    anyway. Inside the block every operation is also asked whether to cast, custom functions compute
    in another precision, and the cache of casted weights lives on while the optimizer changes
    them: PyTorch's documentation advises against it.

    ## When not to
    Leave it where a second forward pass follows in the same block; such blocks are reported, not
    rewritten.

    ## Fix safety
    Close: the same operations in the same dtypes. Hooks and custom functions that compute in
    backward may round otherwise.
    """

    code = "TL314"
    name = "backward-under-autocast"
    summary = "the backward pass runs inside `with autocast`"
    impact = "low"
    safety = Safety.CLOSE
    articles = ("S0", "S1")
    needs = ("autocast",)
    since = (1, 6)

    invalid = {
        "the whole step in the block": """
              import torch
              def train(model, loader, optimizer):
                  for x, y in loader:
                      with torch.autocast("cuda", dtype=torch.bfloat16):
                          loss = model(x, y)
            -             optimizer.zero_grad()
            -             loss.backward()
            -             optimizer.step()
            +         optimizer.zero_grad()
            +         loss.backward()
            +         optimizer.step()
            """,
        "with a scaler, a comment and a blank line": """
              import torch
              from torch.cuda.amp import autocast
              def train(model, loader, optimizer, scaler):
                  for x, y in loader:
                      optimizer.zero_grad()
                      with autocast():
                          loss = model(x, y)

            -             # backward
            -             scaler.scale(loss).backward()
            -             if scaler.get_scale() > 1:
            -                 scaler.unscale_(optimizer)
            -             scaler.step(optimizer)
            -             scaler.update()
            +         # backward
            +         scaler.scale(loss).backward()
            +         if scaler.get_scale() > 1:
            +             scaler.unscale_(optimizer)
            +         scaler.step(optimizer)
            +         scaler.update()
            """,
        "behind a name, the branch moves as a whole": """
              import torch
              def run(model, loader, optimizer, train):
                  context = torch.autocast("cuda")
                  for x, y in loader:
                      with context:
                          loss = model(x, y)
            -             if train:
            -                 loss.backward()
            -                 optimizer.step()
            +         if train:
            +             loss.backward()
            +             optimizer.step()
            """,
        "around a whole loop: reported, left alone": """
              import torch
              def train(model, loader, optimizer):
                  with torch.autocast("cuda"):
                      for x, y in loader:
                          loss = model(x, y)
            !             loss.backward()
                          optimizer.step()
            """,
        "a second forward pass follows the first: what is behind the last one moves": """
              import torch
              def train(netG, netD, loader, optimizerG, optimizerD):
                  for x in loader:
                      with torch.autocast("cuda"):
                          d_loss = netD(x).mean()
            !             d_loss.backward()
                          optimizerD.step()
                          g_loss = netD(netG(x)).mean()
            -             g_loss.backward()
            -             optimizerG.step()
            +         g_loss.backward()
            +         optimizerG.step()
            """,
        "loss and backward in one line: reported, left alone": """
              import torch
              def train(model, loader, optimizer):
                  for x, y in loader:
                      with torch.autocast("cuda"):
            !             model(x, y).backward()
                      optimizer.step()
            """,
        "a decorated step: reported, left alone": """
              import torch
              @torch.autocast("cuda", dtype=torch.bfloat16)
              def step(model, optimizer, x, y):
                  loss = model(x, y)
            !     loss.backward()
                  optimizer.step()
            """,
        "the step alone": """
              import torch
              def train(model, loader, optimizer):
                  for x, y in loader:
                      with torch.autocast("cuda"):
                          loss = model(x, y)
                      loss.backward()
            -         with torch.autocast("cuda"):
            -             optimizer.step()
            +         optimizer.step()
            """,
    }
    valid = {
        "only the forward pass and the loss": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    with torch.autocast("cuda"):
                        loss = model(x, y)
                    loss.backward()
                    optimizer.step()
            """,
        "switched off for good": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    with torch.autocast("cuda", enabled=False):
                        loss = model(x, y)
                        loss.backward()
                        optimizer.step()
            """,
        "a function that is defined in the block runs elsewhere": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    with torch.autocast("cuda"):
                        loss = model(x, y)
                        def finish():
                            loss.backward()
                    finish()
                    optimizer.step()
            """,
        "another context": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    with torch.autograd.profiler.record_function("step"):
                        loss = model(x, y)
                        loss.backward()
                        optimizer.step()
            """,
        "a test of what autocast does to a backward pass": """
            import torch
            def test_backward_under_autocast(model, x):
                with torch.autocast("cpu"):
                    loss = model(x).mean()
                    loss.backward()
                    assert loss.grad_fn is not None
            """,
        "Accelerate sends backward, and says how": """
            import torch
            from accelerate import Accelerator
            def train(accelerator, model, loader, optimizer):
                for x, y in loader:
                    with accelerator.autocast(), torch.autocast("cuda"):
                        loss = model(x, y)
                        accelerator.backward(loss)
                        optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the first call in a block of autocast that belongs behind it."""
        seen: set[int] = set()
        for call in script.all(cst.Call):
            if not _belongs_outside(script, call):
                continue
            block = _autocast_around(script, call)
            if block is None or _goes_along(call, block, seen):
                continue
            func = call.func
            named = script.code(func) if len(script.code(func)) <= 40 else "backward"
            message = (
                f"`{named}` runs inside `autocast`, which is for the forward pass and the loss: "
                "move it out of the block"
            )
            if isinstance(block, cst.FunctionDef):
                message = (
                    f"`{named}` runs inside `autocast`, which decorates `{block.name.value}`: put "
                    "only the forward pass and the loss into a `with` block"
                )
                yield Finding(self.code, script.span(call), message)
                continue
            edits = _moved_out(script, call, block)
            fix = None
            if edits is not None:
                fix = Fix.close(
                    "Move the backward pass out of autocast",
                    edits,
                    because="hooks and custom functions may round otherwise",
                )
            yield Finding(self.code, script.span(call), message, fix)


def _belongs_outside(script: Script, call: cst.Call) -> bool:
    func = call.func
    if not isinstance(func, cst.Attribute) or func.attr.value not in ("backward", "step"):
        return False
    if not script.is_step(call):
        return False
    if func.attr.value == "backward":
        return not any(arg.keyword is None for arg in call.args)
    return script.framework == "none" and script.kind(func.value) is not Kind.UNKNOWN


def _autocast_around(script: Script, call: cst.Call) -> cst.With | cst.FunctionDef | None:
    """Give the block or the decorated function that runs a call under autocast."""
    function = script.function(call)
    if function is not None and function.name.value.startswith("test"):
        return None
    child: cst.CSTNode = call
    for outer in script.tree.ancestors(call):
        if isinstance(outer, cst.With) and child is outer.body:
            if any(_is_on(script, item.item) for item in outer.items):
                return outer
        if isinstance(outer, cst.Lambda):
            return None
        if isinstance(outer, cst.FunctionDef):
            decorated = any(_is_on(script, each.decorator) for each in outer.decorators)
            return outer if decorated else None
        child = outer
    return None


def _is_on(script: Script, manager: cst.BaseExpression) -> bool:
    call = script.precision.autocast(manager)
    return call is not None and not script.call(call).argument("enabled").equals(False)


def _goes_along(call: cst.Call, block: cst.With | cst.FunctionDef, seen: set[int]) -> bool:
    """Whether a call is a step behind a backward pass of its block, which was told already."""
    known = id(block) in seen
    seen.add(id(block))
    return known and isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"


def _moved_out(script: Script, call: cst.Call, block: cst.With) -> Edits | None:
    """Move the statements of a block from the one with a call on out of it."""
    body = block.body
    if not isinstance(body, cst.IndentedBlock) or not script.rewrite.stands_alone(block):
        return None
    lines = list(body.body)
    first = next(at for at, line in enumerate(lines) if script.tree.inside(call, line))
    while first and _clears(lines[first - 1]):
        first -= 1
    moved = lines[first:]
    if isinstance(moved[0], (cst.For, cst.While, cst.With)) or _runs_network(script, moved):
        return None
    if not all(script.rewrite.stands_alone(line) for line in lines):
        return None
    if first == 0:
        return script.rewrite.unwrap(block) if len(block.items) == 1 else None
    return script.rewrite.dedent(block, moved)


def _clears(line: cst.BaseStatement) -> bool:
    """Whether a statement does nothing but clear gradients."""
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    call = small.value if isinstance(small, cst.Expr) else None
    return (
        isinstance(call, cst.Call)
        and isinstance(call.func, cst.Attribute)
        and call.func.attr.value == "zero_grad"
    )


def _runs_network(script: Script, lines: list[cst.BaseStatement]) -> bool:
    """Whether some statements compute more than a backward pass and a step."""
    return any(script.runs_module(line) for line in lines) or any(
        script.kind(call) is Kind.LOSS
        and not (isinstance(call.func, cst.Attribute) and call.func.attr.value == "scale")
        and isinstance(call.func, (cst.Name, cst.Attribute))
        and script.kind(call.func) is Kind.CRITERION
        for line in lines
        for call in script.within(line, cst.Call)
    )
