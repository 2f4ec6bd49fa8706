"""TL304: gradients that are clipped while they are still scaled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, Safety, ScalerCall, Script, regex

_CLIPS: Final = regex(r"(?:\w*_)?clip_?grad\w*|clip_gradients?\w*", re.IGNORECASE)
_ON_GRADIENTS: Final = {"clamp_": "clips", "clip_": "clips", "norm": "measures", "mul_": "scales"}


class ClipBeforeUnscale(Rule):
    """
    ## What it does
    Flags gradients that are clipped, or whose norm is taken, between the backward pass of a scaled
    loss and the scaler's step, with no `scaler.unscale_(optimizer)` before.

    ## Why it is slow
    It is a bug that costs epochs: the gradients are still 65536 times as large as they are, so
    nearly every batch is clipped, and what is left after unscaling is 65536 times too small. With a
    scale of 1024 a norm of 3.46 was measured as 3547, and the step was a thousandth of what it
    should have been. Optimizers such as Adam hide it.

    ## When not to
    Leave it where a helper unscales out of sight.

    ## Fix safety
    Unsafe: it repairs the bug, so the run changes; `max_norm` means from then on what it says.
    """

    code = "TL304"
    name = "clip-before-unscale"
    summary = "gradients are clipped while they are still scaled"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S3.14",)
    needs = ("scaler.",)
    since = (1, 6)

    invalid = {
        "clipped by norm": """
              import torch
              def train(model, loader, optimizer):
                  scaler = torch.amp.GradScaler("cuda")
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
            +         scaler.unscale_(optimizer)
            -         torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            +         torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "clipped by value, at the boundary of several batches": """
              import torch
              from torch.nn.utils import clip_grad_value_
              def train(model, loader, optimizer):
                  scaler = torch.cuda.amp.GradScaler()
                  for i, (x, y) in enumerate(loader):
                      scaler.scale(model(x, y) / 4).backward()
                      if (i + 1) % 4 == 0:
            +             scaler.unscale_(optimizer)
            -             clip_grad_value_(model.parameters(), 0.5)
            +             clip_grad_value_(model.parameters(), 0.5)
                          scaler.step(optimizer)
                          scaler.update()
            """,
        "only the first of two is told, one call mends both": """
              import torch
              from torch.nn.utils import clip_grad_norm_, clip_grad_value_
              def train(self, model, loader):
                  for x, y in loader:
                      loss = model(x, y)
                      self.scaler.scale(loss).backward()
                      if self.clip:
            +             self.scaler.unscale_(self.optimizer)
            -             norm = clip_grad_norm_(model.parameters(), self.clip)
            +             norm = clip_grad_norm_(model.parameters(), self.clip)
                          clip_grad_value_(model.parameters(), 0.5)
                      self.scaler.step(self.optimizer)
                      self.scaler.update()
            """,
        "one branch scales, the other does not": """
              import torch
              def train(model, loader, optimizer, scaler):
                  for x, y in loader:
                      loss = model(x, y)
                      if scaler is not None:
                          scaler.scale(loss).backward()
            +             scaler.unscale_(optimizer)
            -             torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            +             torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                          scaler.step(optimizer)
                          scaler.update()
                      else:
                          loss.backward()
                          torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                          optimizer.step()
            """,
        "by hand, one gradient after the other": """
              import torch
              def train(model, loader, optimizer, scaler):
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
                      for p in model.parameters():
            !             p.grad.data.clamp_(-1, 1)
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "the norm is logged": """
              import torch
              def train(model, loader, optimizer, scaler):
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
            !         norms = [p.grad.norm() for p in model.parameters()]
                      scaler.step(optimizer)
                      scaler.update()
            """,
        "clipped in every pass but stepped in some: reported, left alone": """
              import torch
              def train(model, loader, optimizer, scaler):
                  for i, (x, y) in enumerate(loader):
                      scaler.scale(model(x, y) / 4).backward()
            !         torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                      if i % 4 == 3:
                          scaler.step(optimizer)
                          scaler.update()
            """,
        "two optimizers step behind it: reported, left alone": """
              import torch
              def train(model, loader, first_optimizer, second_optimizer, scaler):
                  for x, y in loader:
                      scaler.scale(model(x, y)).backward()
            !         torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                      scaler.step(first_optimizer)
                      scaler.step(second_optimizer)
                      scaler.update()
            """,
    }
    valid = {
        "unscaled before": """
            import torch
            def train(model, loader, optimizer, scaler):
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
            """,
        "unscaled under the same switch as the clipping": """
            import torch
            def train(model, loader, optimizer, scaler, args):
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    if args.clip:
                        scaler.unscale_(optimizer)
                    if args.clip:
                        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                    scaler.step(optimizer)
                    scaler.update()
            """,
        "a helper of this file unscales": """
            import torch
            def finish(scaler, optimizer):
                scaler.unscale_(optimizer)
            def train(model, loader, optimizer, scaler):
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    finish(scaler, optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
            """,
        "a helper out of sight is handed the scaler and may unscale": """
            import torch
            from engine import prepare
            def train(model, loader, optimizer, scaler):
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    prepare(scaler, optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
            """,
        "the scaler is switched off for good": """
            import torch
            def train(model, loader, optimizer):
                scaler = torch.amp.GradScaler("cuda", enabled=False)
                for x, y in loader:
                    scaler.scale(model(x, y)).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
            """,
        "nothing is scaled": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    model(x, y).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
            """,
        "the norm of something that is no gradient": """
            import torch
            def train(model, loader, optimizer, scaler):
                for x, y in loader:
                    out = model(x)
                    scaler.scale((out - y).norm()).backward()
                    size = out.norm()
                    scaler.step(optimizer)
                    scaler.update()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the first thing done to gradients that are still scaled."""
        if script.framework != "none" or script.scaling.is_off:
            return
        for backward, scale in script.scaling.backwards:
            call, word = _first_clip(script, backward)
            if call is None or _may_be_unscaled(script, call, backward):
                continue
            scaler = script.code(scale.scaler)
            named = script.code(call.func)
            steps = _steps_behind(script, call)
            handed = steps[0].optimizer if _is_one(script, steps) else None
            optimizer = script.code(handed) if handed is not None else "optimizer"
            times = ", by 65536 at first" if script.scaling.starts_by_default else ""
            message = (
                f"`{named}` {word} gradients that `{scaler}` multiplied{times}: call "
                f"`{scaler}.unscale_({optimizer})` before it"
            )
            yield Finding(self.code, script.span(call), message, _fix(script, call, scale, steps))


def _first_clip(script: Script, backward: cst.Call) -> tuple[cst.Call | None, str]:
    """Give the first call behind a backward pass that uses gradients before the scaler's step."""
    order = script.tree.order
    home = script.function(backward) or script.tree.module
    ends = [
        order(step.node)
        for step in script.scaling.of("step")
        if order(step.node) > order(backward) and script.scaling.together(step.node, backward)
    ]
    if not ends:
        return None, ""
    for call in script.functions.own(home, cst.Call):
        if order(backward) < order(call) < min(ends):
            word = _does(call)
            if word and script.scaling.together(call, backward):
                return call, word
    return None, ""


def _does(call: cst.Call) -> str:
    """Say what a call does to gradients, nothing for any other call."""
    func = call.func
    last = func.attr.value if isinstance(func, cst.Attribute) else ""
    last = func.value if isinstance(func, cst.Name) else last
    if _CLIPS.fullmatch(last):
        return "clips"
    if isinstance(func, cst.Attribute) and last in _ON_GRADIENTS:
        inner = func.value
        while isinstance(inner, (cst.Attribute, cst.Call)):
            if isinstance(inner, cst.Attribute) and inner.attr.value == "grad":
                return _ON_GRADIENTS[last]
            inner = inner.func if isinstance(inner, cst.Call) else inner.value
    return ""


def _may_be_unscaled(script: Script, clip: cst.Call, backward: cst.Call) -> bool:
    """Whether something between a backward pass and a clip unscales, or could."""
    order = script.tree.order
    home = script.function(backward) or script.tree.module
    scaling = script.scaling
    scalers = {script.code(each.scaler) for each in scaling.all}
    unscales = {id(each.node) for each in scaling.of("unscale_")}
    for call in script.functions.own(home, cst.Call):
        if order(call) > order(clip) or not scaling.together(call, clip):
            continue
        if id(call) in unscales:
            return True
        if order(call) < order(backward):
            continue
        callee = script.functions.callee(call)
        if callee is not None and any(
            script.tree.inside(each.node, body)
            for body in script.functions.reached(callee)
            for each in scaling.of("unscale_")
        ):
            return True
        if callee is None and any(script.code(arg.value) in scalers for arg in call.args):
            return True
    return False


def _steps_behind(script: Script, clip: cst.Call) -> list[ScalerCall]:
    """Give the steps behind a clip, up to the next update."""
    order = script.tree.order
    updates = [
        order(each.node) for each in script.scaling.of("update") if order(each.node) > order(clip)
    ]
    end = min(updates, default=script.tree.end(script.tree.module))
    return [
        each
        for each in script.scaling.of("step")
        if order(clip) < order(each.node) < end and script.scaling.together(each.node, clip)
    ]


def _is_one(script: Script, steps: list[ScalerCall]) -> bool:
    """Whether all of some steps, one at least, are of one optimizer."""
    return bool(steps) and all(
        script.scaling.same(step.optimizer, steps[0].optimizer) for step in steps
    )


def _fix(script: Script, clip: cst.Call, scale: ScalerCall, steps: list[ScalerCall]) -> Fix | None:
    """Unscale before a clip that stands where its optimizer steps."""
    line = script.statement(clip)
    optimizer = steps[0].optimizer if _is_one(script, steps) else None
    if optimizer is None or _does(clip) != "clips" or not isinstance(line, cst.SimpleStatementLine):
        return None
    if not script.rewrite.stands_alone(line):
        return None
    around = script.scaling.guards(clip)
    if any(guard not in around for step in steps for guard in script.scaling.guards(step.node)):
        return None
    if next(script.loops_around(clip), None) is not next(script.loops_around(steps[0].node), None):
        return None
    text = f"{script.code(scale.scaler)}.unscale_({script.code(optimizer)})"
    return Fix.unsafe(
        "Unscale the gradients first",
        script.rewrite.before(line, text),
        because="repairs the clipping, so the run changes",
    )
