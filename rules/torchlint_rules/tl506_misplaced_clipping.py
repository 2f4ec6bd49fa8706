"""TL506 misplaced-clipping."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Act, Edits, Finding, Fix, Heat, How, Kind, Rule, Safety, Script, Span
from torchlint_rules._cliporder import Clip, into_closing, misplaced, without_effect

_OLD: Final = "torch.nn.utils.clip_grad_norm"
_CLIPS: Final = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_", _OLD)
_GRADIENTS: Final = frozenset("grad grads gradient gradients".split())
_CLIPPED_NOW: Final = "gradients that were never clipped are clipped from now on"


class MisplacedClipping(Rule):
    """
    ## What it does
    Flags gradients that are clipped where it has no effect (before `backward()`, after the step, by
    an iterator that is used up) or too often (each micro-batch of an accumulation), one parameter
    after the other, by a norm that is added up by hand, and by the name that torch deprecated.

    ## Why it is slow
    Clipping that does not happen lets a run diverge that would have converged. `foreach=False` and
    a loop over the parameters launch kernels for each of them, and `.item()` in such a loop waits
    for the device as often.

    ## When not to
    Where you add up gradients over several losses and mean to clip in between. Whether to clip at
    all is yours: the rule never asks for it. Mixed precision has a rule of its own (TL304).

    ## Fix safety
    Unsafe where a clipping moves, for then it works. `clip_grad_norm_` for `clip_grad_norm` is
    exact; without `foreach=False` the norm can round otherwise on a GPU.
    """

    code = "TL506"
    name = "misplaced-clipping"
    summary = "gradients are clipped in the wrong place or the slow way"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S3.14",)
    needs = ("clip_grad", ".norm(")

    invalid = {
        "before backward": """
              import torch
              for x, y in train_loader:
                  optimizer.zero_grad()
                  loss = criterion(model(x), y)
            -     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  loss.backward()
            +     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  optimizer.step()
            """,
        "before backward, the gradients are cleared at the end": """
              from torch.nn.utils import clip_grad_value_
              for x, y in train_loader:
            -     # No large steps.
            -     clip_grad_value_(model.parameters(), 0.5)
                  criterion(model(x), y).backward()
            +     # No large steps.
            +     clip_grad_value_(model.parameters(), 0.5)
                  optimizer.step()
                  optimizer.zero_grad()
            """,
        "before backward, behind a flag": """
              import torch
              for x, y in train_loader:
                  optimizer.zero_grad()
                  loss = criterion(model(x), y)
            -     if args.clip > 0:
            -         torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                  loss.backward()
            +     if args.clip > 0:
            +         torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                  optimizer.step()
            """,
        "after the step": """
              import torch
              for x, y in train_loader:
                  optimizer.zero_grad()
                  criterion(model(x), y).backward()
            +     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  optimizer.step()
            -     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            """,
        "in a function that does one step": """
              import torch
              def step(x, y):
                  loss = criterion(model(x), y)
                  optimizer.zero_grad()
            -     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  loss.backward()
            +     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  optimizer.step()
            """,
        "its norm is read in between: reported only": """
              import torch
              for x, y in train_loader:
                  optimizer.zero_grad()
                  loss = criterion(model(x), y)
            !     norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  loss.backward()
                  optimizer.step()
            """,
        "with each micro-batch of an accumulation": """
              import torch
              for i, (x, y) in enumerate(train_loader):
                  loss = criterion(model(x), y) / 4
                  loss.backward()
            -     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  if (i + 1) % 4 == 0:
            +         torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "with each micro-batch, in a branch: reported": """
              import torch
              for i, (x, y) in enumerate(train_loader):
                  loss = criterion(model(x), y) / args.accumulation
                  if args.fp16:
                      with amp.scale_loss(loss, optimizer) as scaled:
                          scaled.backward()
            !         torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
                  else:
                      loss.backward()
            !         torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                  if (i + 1) % args.accumulation == 0:
                      optimizer.step()
                      optimizer.zero_grad()
            """,
        "the old name": """
              import torch
            - torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)
            + torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            """,
        "the old name, imported": """
            - from torch.nn.utils import clip_grad_norm, parameters_to_vector
            + from torch.nn.utils import clip_grad_norm_, parameters_to_vector
            - clip_grad_norm(model.parameters(), 1.0)
            + clip_grad_norm_(model.parameters(), 1.0)
            - norm = clip_grad_norm(head.parameters(), 1.0)
            + norm = clip_grad_norm_(head.parameters(), 1.0)
            """,
        "the old name under another": """
            - from torch.nn.utils import clip_grad_norm as clip
            + from torch.nn.utils import clip_grad_norm_ as clip
            ! clip(model.parameters(), 1.0)
            """,
        "one parameter after the other": """
              import torch
            - torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
            + torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            """,
        "the iterator was used up by the optimizer": """
              import torch
            - parameters = model.parameters()
            + parameters = list(model.parameters())
              optimizer = torch.optim.SGD(parameters, lr=0.1)
              for x, y in train_loader:
                  optimizer.zero_grad()
                  criterion(model(x), y).backward()
            !     torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                  optimizer.step()
            """,
        "the iterator is used up in the first pass": """
              import torch
            - weights = filter(lambda p: p.requires_grad, model.parameters())
            + weights = list(filter(lambda p: p.requires_grad, model.parameters()))
              for x, y in train_loader:
                  optimizer.zero_grad()
                  criterion(model(x), y).backward()
            !     torch.nn.utils.clip_grad_norm_(weights, 1.0)
                  optimizer.step()
            """,
        "a norm that is added up by hand": """
              import torch
              def grad_norm(parameters):
                  total = 0
            !     for p in parameters:
                      norm = p.grad.data.norm(2)
                      total += norm.item() ** 2
                  return total**0.5
            """,
        "the norm of a list of gradients": """
              import torch
              def clip(grads, bound):
                  total = 0
            !     for g in grads:
                      norm = g.data.norm(2)
                      total += norm.item() ** 2
                  factor = bound / (total**0.5 + 1e-6)
                  return [g * factor for g in grads]
            """,
    }
    valid = {
        "between backward and step": """
            import torch
            for x, y in train_loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            """,
        "between backward and step, both in functions": """
            import torch
            def backward(x, y):
                criterion(model(x), y).backward()
            def update():
                optimizer.step()
                optimizer.zero_grad()
            for x, y in train_loader:
                backward(x, y)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                update()
            """,
        "the gradients of the last pass are still there": """
            import torch
            for x, y in train_loader:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                criterion(model(x), y).backward()
            """,
        "two networks take turns": """
            import torch
            for x, y in train_loader:
                opt_d.zero_grad()
                loss_d(x).backward()
                torch.nn.utils.clip_grad_norm_(net_d.parameters(), 1.0)
                opt_g.zero_grad()
                opt_d.step()
                loss_g(x).backward()
                opt_g.step()
            """,
        "at the boundary of an accumulation": """
            import torch
            for i, (x, y) in enumerate(train_loader):
                (criterion(model(x), y) / 4).backward()
                if (i + 1) % 4 == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            """,
        "a scaler steps: what it must unscale first is TL304's": """
            import torch
            scaler = torch.amp.GradScaler("cuda")
            for i, (x, y) in enumerate(train_loader):
                scaler.scale(criterion(model(x), y) / 4).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if (i + 1) % 4 == 0:
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
            """,
        "gradients that are never cleared are clipped again and again": """
            import torch
            for x, y in train_loader:
                criterion(model(x), y).backward()
                optimizer.step()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            """,
        "no clipping at all is a choice, for recurrent networks too": """
            import torch
            model = torch.nn.LSTM(4, 4)
            for x, y in train_loader:
                optimizer.zero_grad()
                criterion(model(x)[0], y).backward()
                optimizer.step()
            """,
        "a list is never used up": """
            import torch
            weights = list(model.parameters())
            for x, y in train_loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
            """,
        "an iterator that is made anew for each use": """
            import torch
            for x, y in train_loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                weights = model.parameters()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
            """,
        "a function of one's own of that name": """
            import torch
            from mine import clip_grad_norm
            clip_grad_norm(model.parameters(), 1.0)
            """,
        "foreach is a choice": """
            import torch
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=args.foreach)
            """,
        "norms of what are no gradients": """
            import torch
            def size(vectors):
                total = 0
                for v in vectors:
                    total += v.norm(2).item() ** 2
                return total
            """,
        "each norm is of interest": """
            import torch
            for name, p in model.named_parameters():
                writer.add_scalar(name, p.grad.norm(), step)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every clipping out of place."""
        own = script.framework == "none"
        windows = list(script.windows())
        for site in script.calls(*_CLIPS):
            call = site.node
            said = _said(script, call, [window.closing for window in windows if window.closing])
            if said is not None:
                message, title, edits = said
                fix = Fix.unsafe(title, edits, because=_CLIPPED_NOW) if edits and own else None
                yield Finding(self.code, script.span(call), message, fix)
                continue
            if site.name == _OLD:
                message = "`clip_grad_norm` is deprecated: write `clip_grad_norm_`"
                edits = _renamed(script, call)
                fix = Fix.exact("Write `clip_grad_norm_`", edits) if edits else None
                yield Finding(self.code, script.span(call.func), message, fix)
            yield from self._one_by_one(script, call)
        yield from self._by_hand(script)

    def _one_by_one(self, script: Script, call: cst.Call) -> Iterator[Finding]:
        arg = script.call(call).given("foreach")
        if arg is None or not script.value_of(arg.value).equals(False):
            return
        message = "`foreach=False` clips one parameter after the other: leave it out"
        edits, title = script.rewrite.without_argument(call, arg), "Take out `foreach=False`"
        fix = Fix.exact(title, edits)
        if script.can_use_accelerator:
            fix = Fix.close(title, edits, because="on a GPU the norm can round otherwise")
        yield Finding(self.code, script.span(arg), message, fix)

    def _by_hand(self, script: Script) -> Iterator[Finding]:
        for loop in script.loops():
            node = loop.node
            if not isinstance(node, cst.For) or not _adds_norms(script, node):
                continue
            if script.can_use_accelerator and script.heat(node) is Heat.HOT:
                continue
            better = "`torch.nn.utils.get_total_norm`"
            if not script.target.has((2, 6)):
                better = "`torch.stack(torch._foreach_norm(grads)).norm()`"
            waits = "item()" in script.code(node) or "float(" in script.code(node)
            cost = "which waits for the device each time" if waits else "a few kernels for each"
            message = (
                f"the norm of the gradients is added up one parameter after the other, {cost}: "
                f"{better} takes them all at once"
            )
            place = Span(script.span(node).start, script.span(node.iter).end)
            yield Finding(self.code, place, message)


def _said(
    script: Script, call: cst.Call, closings: list[cst.If]
) -> tuple[str, str, Edits | None] | None:
    """Judge the place of a clipping."""
    found = without_effect(script, call)
    if found is not None:
        return (
            _order_message(script, found),
            "Clip between backward and step",
            misplaced(script, found),
        )
    name = script.code(call.func)
    empty = _used_up(script, call)
    if empty is not None:
        given, line = empty
        message = (
            f"`{script.code(given)}` is an iterator that was used up before: `{name}` finds no "
            "gradients and clips nothing; make a list of it"
        )
        edits = (
            *script.rewrite.insert(script.span(line.value).start, "list("),
            *script.rewrite.insert(script.span(line.value).end, ")"),
        )
        return message, "Keep the parameters in a list", edits
    for closing in closings:
        if _clips_each_part(script, call, closing):
            message = (
                f"`{name}` clips with each micro-batch what is not yet added up; clip once, before "
                "the step"
            )
            direct = script.parent(script.statement(call)) is script.parent(closing)
            inside = into_closing(script, call, closing) if direct else None
            return message, "Clip before the step", inside
    return None


def _order_message(script: Script, clip: Clip) -> str:
    name = script.code(clip.call.func)
    where = "before `backward()` has made any gradients"
    if not clip.early:
        where = f"after `{script.code(clip.step.call.func)}()` has used the gradients"
    return f"`{name}` comes {where}: it clips nothing; move it between the two"


def _clips_each_part(script: Script, call: cst.Call, closing: cst.If) -> bool:
    """Whether a clipping stands before the `if` that steps, in its block, after backward."""
    block = script.parent(closing)
    if script.tree.inside(call, closing) or not isinstance(block, cst.IndentedBlock):
        return False
    if any(_is_scaled(script, each) for each in script.within(closing.body, cst.Call)):
        return False
    if not script.tree.inside(call, block) or not _branches_only(script, call, block):
        return False
    if script.tree.order(call) > script.tree.order(closing):
        return False
    acts = [each for each in script.updates.within(block) if each.act is Act.BACKWARD]
    return any(script.tree.order(each.at) < script.tree.order(call) for each in acts)


def _branches_only(script: Script, node: cst.CSTNode, block: cst.IndentedBlock) -> bool:
    """Whether nothing but `if`s and `with`s that do not count passes stand between the two."""
    for outer in script.tree.ancestors(node):
        if outer is block:
            return True
        if isinstance(outer, (cst.For, cst.While, cst.FunctionDef, cst.Lambda, cst.Try)):
            return False
        if isinstance(outer, cst.If) and "%" in script.code(outer.test):
            return False
    return False


def _is_scaled(script: Script, call: cst.Call) -> bool:
    """Whether a gradient scaler steps, with gradients that another rule watches over."""
    func = call.func
    return isinstance(func, cst.Attribute) and script.kind(func.value) is Kind.SCALER


def _used_up(script: Script, call: cst.Call) -> tuple[cst.Name, cst.Assign] | None:
    """Give an iterator over parameters that something consumed before this call could."""
    given = call.args[0].value if call.args else None
    if not isinstance(given, cst.Name):
        return None
    bindings = script.scopes.reaching(given)
    if len(bindings) != 1 or bindings[0].how is not How.ASSIGN:
        return None
    line, value = bindings[0].node, bindings[0].value
    if (
        not isinstance(line, cst.Assign)
        or not isinstance(value, cst.Call)
        or value is not line.value
    ):
        return None
    method = value.func.attr.value if isinstance(value.func, cst.Attribute) else ""
    if method != "parameters" and script.name(value.func) != "builtins.filter":
        return None
    if script.function(line) is not script.function(call):
        return None
    if any(not script.tree.inside(line, loop.node) for loop in script.loops_around(call)):
        return given, line
    uses = [use for use in script.scopes.uses(bindings[0], script.tree.module) if use is not given]
    first = [use for use in uses if script.tree.order(use) < script.tree.order(given)]
    return (given, line) if any(isinstance(script.parent(use), cst.Arg) for use in first) else None


def _renamed(script: Script, call: cst.Call) -> Edits | None:
    """Write the new name, in the import as well where the old one came by it."""
    func = call.func
    if isinstance(func, cst.Attribute):
        return script.rewrite.insert(script.span(func.attr).end, "_")
    bindings = script.scopes.reaching(func) if isinstance(func, cst.Name) else ()
    line = bindings[0].node if len(bindings) == 1 else None
    if not isinstance(line, cst.ImportFrom) or isinstance(line.names, cst.ImportStar):
        return None
    alias = next(each for each in line.names if each.evaluated_name == "clip_grad_norm")
    edits = script.rewrite.insert(script.span(alias.name).end, "_")
    if alias.asname is not None:
        return edits
    uses = script.scopes.uses(bindings[0], script.tree.module)
    return (*edits, *(e for use in uses for e in script.rewrite.insert(script.span(use).end, "_")))


def _adds_norms(script: Script, loop: cst.For) -> bool:
    """Whether a loop adds up the norms of the gradients of what it goes through."""
    norms = [call for call in script.within(loop.body, cst.Call) if _is_norm(script, call, loop)]
    if not norms:
        return False
    named = {
        target.target.value
        for line in script.within(loop.body, cst.Assign)
        if any(script.tree.inside(norm, line.value) for norm in norms)
        for target in line.targets
        if isinstance(target.target, cst.Name)
    }
    return any(
        any(script.tree.inside(norm, line.value) for norm in norms)
        or any(name.value in named for name in script.within(line.value, cst.Name))
        for line in script.within(loop.body, cst.AugAssign)
    )


def _is_norm(script: Script, call: cst.Call, loop: cst.For) -> bool:
    func = call.func
    if not isinstance(func, cst.Attribute) or func.attr.value != "norm":
        return False
    owner = script.code(func.value)
    if owner.endswith((".grad", ".grad.data", ".grad.detach()")):
        return True
    gradients = isinstance(loop.iter, (cst.Name, cst.Attribute)) and not _GRADIENTS.isdisjoint(
        script.words(script.code(loop.iter).rpartition(".")[2])
    )
    own = isinstance(loop.target, cst.Name) and owner.partition(".")[0] == loop.target.value
    return gradients and own and owner.partition(".")[2] in ("", "data", "detach()")
