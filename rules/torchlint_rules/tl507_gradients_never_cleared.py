"""TL507: gradients that pile up, or are thrown away before the optimizer sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Act, Finding, Kind, Loop, Note, Role, Rule, Script, Update

_CLEARING: Final = frozenset("zero clear reset".split())
_HOOKS: Final = frozenset("grad register_hook register_post_accumulate_grad_hook".split())


class GradientsNeverCleared(Rule):
    """
    ## What it does
    Flags training loops that go backward and step but never call `zero_grad()`, or only once an
    epoch, and a `zero_grad()` between the backward pass and the step that it was for.

    ## Why it is slow
    Backward adds to the gradients that are there. Never cleared, each step takes the sum of all
    batches so far, and the run diverges or crawls; cleared before the step, the step does nothing
    at all. Either way the hours are spent on a network that does not learn what it could.

    ## When not to
    Accumulating on purpose clears after the step, which is not flagged, nor are closures, loops of
    a framework, and gradients that the code handles by itself.

    ## Fix safety
    There is no automatic fix: results change, and only you know where a window was meant to end.
    """

    code = "TL507"
    name = "gradients-never-cleared"
    summary = "gradients of earlier batches are added to those of this one"
    impact = "high"
    safety = None
    needs = ("backward",)

    invalid = {
        "nowhere": """
              import torch
              def train(model, loader, criterion):
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  for x, y in loader:
                      loss = criterion(model(x), y)
                      loss.backward()
            !         optimizer.step()
            """,
        "once an epoch": """
              import torch
              def train(model, loader, criterion, optimizer, epochs):
                  for epoch in range(epochs):
                      optimizer.zero_grad()
                      for x, y in loader:
                          loss = criterion(model(x), y)
                          loss.backward()
            !             optimizer.step()
            """,
        "once for all epochs, in the caller": """
              import torch
              def train_epoch(model, loader, criterion, optimizer):
                  for x, y in loader:
                      criterion(model(x), y).backward()
            !         optimizer.step()
              def main(model, loader, criterion):
                  optimizer = torch.optim.Adam(model.parameters())
                  optimizer.zero_grad()
                  for epoch in range(10):
                      train_epoch(model, loader, criterion, optimizer)
            """,
        "through a gradient scaler": """
              import torch
              def train(model, loader, criterion, optimizer, scaler):
                  for x, y in loader:
                      scaler.scale(criterion(model(x), y)).backward()
            !         scaler.step(optimizer)
                      scaler.update()
            """,
        "one of two": """
              import torch
              def train(g, d, loader):
                  opt_g = torch.optim.Adam(g.parameters())
                  opt_d = torch.optim.Adam(d.parameters())
                  for x in loader:
                      opt_d.zero_grad()
                      d(x).mean().backward()
                      opt_d.step()
                      d(g(x)).mean().backward()
            !         opt_g.step()
            """,
        "a window that is stepped with and never cleared": """
              import torch
              def train(model, loader, criterion, optimizer, k):
                  for i, (x, y) in enumerate(loader):
                      (criterion(model(x), y) / k).backward()
                      if (i + 1) % k == 0:
            !             optimizer.step()
            """,
        "thrown away before the step": """
              import torch
              def train(model, loader, criterion, optimizer):
                  for x, y in loader:
                      loss = criterion(model(x), y)
                      loss.backward()
            !         optimizer.zero_grad()
                      optimizer.step()
            """,
        "thrown away by the network whose parameters are stepped": """
              import torch
              def step(model, x):
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  model(x).sum().backward()
            !     model.zero_grad()
                  torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  optimizer.step()
            """,
    }
    valid = {
        "cleared before the forward pass, before the backward pass, or after the step": """
            import torch
            def train(model, loader, criterion, optimizer):
                for x, y in loader:
                    optimizer.zero_grad()
                    criterion(model(x), y).backward()
                    optimizer.step()
                for x, y in loader:
                    loss = criterion(model(x), y)
                    model.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                for x, y in loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            """,
        "accumulated and cleared": """
            import torch
            def train(model, loader, criterion, optimizer, k):
                for i, (x, y) in enumerate(loader):
                    (criterion(model(x), y) / k).backward()
                    if (i + 1) % k == 0:
                        optimizer.step()
                        optimizer.zero_grad()
            """,
        "a closure clears": """
            import torch
            def train(model, loader, criterion):
                optimizer = torch.optim.LBFGS(model.parameters())
                for x, y in loader:
                    def closure():
                        optimizer.zero_grad()
                        loss = criterion(model(x), y)
                        loss.backward()
                        return loss
                    optimizer.step(closure)
            """,
        "cleared by hand": """
            import torch
            def train(model, loader, criterion, optimizer):
                for x, y in loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
                    for p in model.parameters():
                        p.grad = None
            """,
        "helpers clear, in sight or by their name": """
            import torch
            from helpers import reset_gradients
            class Solver:
                def __init__(self, model):
                    self.model = model
                    self.optimizer = torch.optim.Adam(model.parameters())
                def prepare(self):
                    self.optimizer.zero_grad()
                def train(self, loader):
                    for x in loader:
                        self.prepare()
                        self.model(x).backward()
                        self.optimizer.step()
                    for x in loader:
                        reset_gradients(self.model)
                        self.model(x).backward()
                        self.optimizer.step()
            """,
        "an optimizer of one's own clears when it steps": """
            import torch
            class Stepper:
                def __init__(self, optimizer):
                    self.inner = optimizer
                def step(self):
                    self.inner.step()
                    self.inner.zero_grad()
            def train(model, loader, criterion):
                optimizer = Stepper(torch.optim.SGD(model.parameters(), lr=0.1))
                for x, y in loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "network and optimizer are made anew": """
            import torch
            def search(make, x, y, criterion, rates):
                for rate in rates:
                    model = make()
                    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
                    criterion(model(x), y).backward()
                    optimizer.step()
            """,
        "every pass has an optimizer of its own": """
            import torch
            def update(losses, optimizers):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                for loss, optimizer in zip(losses, optimizers):
                    loss.backward(retain_graph=True)
                    optimizer.step()
            """,
        "a framework clears": """
            import deepspeed
            import torch
            def train(engine, loader):
                for batch in loader:
                    loss = engine(batch)
                    engine.backward(loss)
                    engine.step()
            """,
        "the gradients of the other network are cleared": """
            import torch
            def train(g, d, loader):
                opt_g = torch.optim.Adam(g.parameters())
                opt_d = torch.optim.Adam(d.parameters())
                for x in loader:
                    d(x).mean().backward()
                    opt_g.zero_grad()
                    opt_d.step()
                    d(g(x)).mean().backward()
                    opt_d.zero_grad()
                    opt_g.step()
            """,
        "the networks clear": """
            import torch
            def train(make, loader):
                g, d = make(), make()
                opt_g = torch.optim.Adam(g.parameters())
                opt_d = torch.optim.Adam(d.parameters())
                for x in loader:
                    d.zero_grad()
                    d(x).mean().backward()
                    opt_d.step()
                    g.zero_grad()
                    d(g(x)).mean().backward()
                    opt_g.step()
            """,
        "the parts of a batch, stepped with behind their loop": """
            import torch
            def train(model, loader, optimizer):
                for batch in loader:
                    optimizer.zero_grad()
                    for part in batch.chunk(4):
                        (model(part).mean() / 4).backward()
                    optimizer.step()
            """,
        "one step and done": """
            import torch
            def smoke(model, x):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                model(x).sum().backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag steps with gradients that pile up, and gradients that are gone before the step."""
        if script.framework != "none":
            return
        yield from self._piled_up(script)
        for clear in script.method_calls("zero_grad"):
            step = _step_after(script, clear)
            if step is not None:
                message = (
                    f"`{script.code(clear)}` throws away what the backward pass has computed, and "
                    f"`{script.code(step)}` steps with nothing: clear before the backward pass"
                )
                yield Finding(self.code, script.span(clear), message)

    def _piled_up(self, script: Script) -> Iterator[Finding]:
        if all(
            _is_cleared_beside(script, call)
            for call in script.method_calls("step")
            if script.is_step(call)
        ):
            return
        seen: set[int] = set()
        for loop in script.loops(Role.TRAIN_BATCH):
            acts = script.updates.within(loop.node.body)
            steps = [each for each in _uncleared(script, acts) if id(each.call) not in seen]
            if not steps or not _is_plain(script, loop, acts):
                continue
            elsewhere = _clears_elsewhere(script, acts)
            clears = [each for each in acts if each.act is Act.CLEAR]
            for step in steps:
                if _is_never_cleared(script, loop, step, clears, elsewhere):
                    seen.add(id(step.call))
                    yield self._finding(script, step, elsewhere)

    def _finding(self, script: Script, step: Update, elsewhere: Sequence[cst.Call]) -> Finding:
        assert step.optimizer is not None
        name = script.code(step.optimizer)
        once = _cleared_elsewhere(script, step, elsewhere)
        where = "in this loop" if once is None else "for every step"
        message = (
            f"`{name}` steps with the sum of all gradients so far, for nothing in the loop clears "
            f"them: call `{name}.zero_grad()` {where}"
        )
        notes = () if once is None else (Note(script.span(once), "cleared here, outside the loop"),)
        return Finding(self.code, script.span(step.call), message, None, notes)


# -- gradients that pile up ------------------------------------------------------


def _is_cleared_beside(script: Script, step: cst.Call) -> bool:
    """Whether the code that calls `step` clears, by the same name, all that it steps."""
    function, loop = script.function(step), next(script.loops_around(step), None)
    region = loop.node.body if loop is not None else function or script.tree.module
    return any(
        script.function(clear) is function
        and script.tree.inside(clear, region)
        and script.code(_of(clear)) == script.code(_of(step))
        for clear in script.method_calls("zero_grad")
    )


def _of(call: cst.Call) -> cst.BaseExpression:
    """Give what a method is called of."""
    assert isinstance(call.func, cst.Attribute)
    return call.func.value


def _uncleared(script: Script, acts: Sequence[Update]) -> list[Update]:
    """Give the steps of optimizers that nothing clears by the same name."""
    cleared = {
        script.code(each.optimizer)
        for each in acts
        if each.act is Act.CLEAR and each.optimizer is not None
    }
    return [
        each
        for each in acts
        if each.act is Act.STEP
        and each.optimizer is not None
        and script.code(each.optimizer) not in cleared
    ]


def _is_plain(script: Script, loop: Loop, acts: Sequence[Update]) -> bool:
    """Whether a loop goes backward and steps, and deals with gradients in no other way."""
    if not all(each.in_sight for each in acts):
        return False
    if not any(each.act is Act.BACKWARD for each in acts):
        return False
    bodies = script.functions.reached(loop.node.body)
    return not any(_handles_gradients(script, body) for body in bodies)


def _handles_gradients(script: Script, body: cst.CSTNode) -> bool:
    if any(node.attr.value in _HOOKS for node in script.functions.own(body, cst.Attribute)):
        return True
    return any(_may_clear(script, call) for call in script.functions.own(body, cst.Call))


def _may_clear(script: Script, call: cst.Call) -> bool:
    """Whether a function out of sight may clear gradients, by its name or what it is handed."""
    if script.functions.callee(call) is not None:
        return False
    word = call.func.attr.value if isinstance(call.func, cst.Attribute) else script.code(call.func)
    if word == "zero_grad":
        return False
    parts = set(word.lower().replace(".", "_").split("_"))
    if _CLEARING & parts and ("grad" in word.lower() or "optim" in word.lower()):
        return True
    plain = script.name(call.func) or ""
    return not plain.startswith(("torch.", "builtins.")) and any(
        script.kind(arg.value) is Kind.OPTIMIZER
        for arg in call.args
        if word not in ("step", "unscale_", "append", "save")
    )


def _is_never_cleared(
    script: Script,
    loop: Loop,
    step: Update,
    clears: Sequence[Update],
    elsewhere: Sequence[cst.Call],
) -> bool:
    """Whether gradients surely are what every earlier pass has left."""
    node = step.optimizer
    if node is None or script.kind(node) is not Kind.OPTIMIZER or len(step.call.args) > 1:
        return False
    if script.functions.instance_of(node) is not None or _is_bound_in(script, node, loop):
        return False
    if step.call.args:
        if script.optimizers.stepped(step.call) is not step.call.args[0].value:
            return False
    if any(not _is_another(script, node, each.optimizer) for each in clears):
        return False
    return not _may_be_cleared_in(script, step, elsewhere)


def _is_another(
    script: Script, stepped: cst.BaseExpression, cleared: cst.BaseExpression | None
) -> bool:
    """Whether what is cleared surely is an optimizer other than the one that steps."""
    if cleared is None or script.kind(cleared) is not Kind.OPTIMIZER:
        return False
    return script.updates.same_optimizer(stepped, cleared) is False


def _is_bound_in(script: Script, node: cst.BaseExpression, loop: Loop) -> bool:
    """Whether each pass of a loop may have an optimizer of its own."""
    if not isinstance(node, (cst.Name, cst.Attribute)):
        return True
    names = list(script.within(node, cst.Name))[:1]
    bindings = [binding for name in names for binding in script.scopes.reaching(name)]
    if any(script.tree.inside(binding.node, loop.node) for binding in bindings):
        return True
    made = script.optimizers.made_by(node)
    return made is not None and any(script.tree.inside(call, loop.node) for call in made)


def _clears_elsewhere(script: Script, acts: Sequence[Update]) -> list[cst.Call]:
    """Give the calls that clear gradients outside of a loop."""
    known = {id(each.call) for each in acts}
    return [call for call in script.method_calls("zero_grad") if id(call) not in known]


def _may_be_cleared_in(script: Script, step: Update, elsewhere: Sequence[cst.Call]) -> bool:
    """Whether a function of the file that may run in the loop unseen clears gradients."""
    home = {id(script.function(step.call)), id(script.function(step.at))}
    for call in elsewhere:
        function = script.function(call)
        if function is None or id(function) in home:
            continue
        own = {each.act for each in script.updates.within(function.body)}
        if Act.STEP not in own and not script.functions.callers(function):
            return True
    return any(
        not isinstance(script.parent(node), cst.Call)
        for node in script.functions.attributes("zero_grad")
    )


def _cleared_elsewhere(
    script: Script, step: Update, elsewhere: Sequence[cst.Call]
) -> cst.Call | None:
    """Give a call that clears the gradients of a stepped optimizer outside of the loop."""
    for call in elsewhere:
        if isinstance(call.func, cst.Attribute):
            if script.updates.same_optimizer(step.optimizer, call.func.value):
                return call
    return None


# -- gradients that are thrown away ----------------------------------------------


def _step_after(script: Script, clear: cst.Call) -> cst.Call | None:
    """Give the step that a call of `zero_grad` behind the backward pass leaves nothing for."""
    line = script.statement(clear)
    block = script.parent(line)
    if not isinstance(block, (cst.IndentedBlock, cst.Module)) or not isinstance(
        clear.func, cst.Attribute
    ):
        return None
    at = block.body.index(line)
    behind = (each for other in block.body[at + 1 :] for each in script.updates.within(other))
    step = next((each for each in behind if each.act in (Act.BACKWARD, Act.STEP)), None)
    if step is None or step.act is Act.BACKWARD:
        return None
    before = [each for other in block.body[:at] for each in script.updates.within(other)]
    if not before or before[-1].act not in (Act.BACKWARD, Act.CLIP):
        return None
    if not any(each.act is Act.BACKWARD for each in before):
        return None
    return step.call if _is_of(script, clear.func.value, step.optimizer) else None


def _is_of(script: Script, cleared: cst.BaseExpression, stepped: cst.BaseExpression | None) -> bool:
    """Whether what is cleared is the optimizer that steps, or the network that it steps."""
    if stepped is None:
        return False
    if script.kind(cleared) is not Kind.MODULE:
        return script.updates.same_optimizer(cleared, stepped) is True
    made = script.optimizers.made_by(stepped)
    parameters = f"{script.code(cleared)}.parameters()"
    return bool(made) and all(
        call.args and script.code(call.args[0].value) == parameters for call in made or ()
    )
