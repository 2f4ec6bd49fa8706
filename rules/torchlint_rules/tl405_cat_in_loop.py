"""TL405: a tensor is copied in every pass of a loop to make it longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Edit, Edits, Finding, Fix, Rule, Safety, Script, Span
from torchlint_rules._growth import TENSORS, Growth, growths, held, written

_SLICE: Final = "a slice that is kept in a list keeps the whole tensor in memory until it is joined"
_BATCH: Final = (
    "batches of worker processes are kept instead of copied: each holds a file handle until the "
    "loop ends"
)


class CatInLoop(Rule):
    """
    ## What it does
    Flags a tensor that grows by `out = torch.cat([out, part])` in every pass of a loop, and an
    array that grows by `np.append` or `np.concatenate`.

    ## Why it is slow
    Each pass allocates a new tensor and copies all that was collected so far: a thousand passes
    copy the first part a thousand times. Measured on a CPU with 300 parts of 64 x 128, one
    `torch.cat` of a list was 265 times faster.

    ## When not to
    Keep it where the loop needs the whole tensor in each pass, as when a model generates a
    sequence token by token: there, allocate the full length once and write into it. Loops that
    read the tensor are not flagged, nor are loops of a handful of passes.

    ## Fix safety
    Exact: the same parts are joined in the same order, with what was there before the loop in
    front, so that types and the result of an empty loop stay what they were. Unsafe where the
    parts are slices, which keep the whole tensor they are cut out of alive until the loop ends, or
    batches as a loader gives them. Reported only for arrays, for attributes and entries, where
    the first pass is treated apart, and where a part may be written to in place later.
    """

    code = "TL405"
    name = "cat-in-loop"
    summary = "every pass copies the whole tensor to make it longer"
    impact = "medium"
    safety = Safety.EXACT
    articles = ("S2",)
    needs = (".cat", "concat", "stack", "np.append", "numpy.append", "import cat")

    invalid = {
        "outputs of an evaluation": """
              import torch
              @torch.no_grad()
              def predict(model, loader, device):
                  outputs = torch.empty(0, 10)
            +     outputs_parts = []
                  for x, y in loader:
                      out = model(x.to(device))
            -         outputs = torch.cat([outputs, out.cpu()], dim=0)  # all of them
            +         outputs_parts.append(out.cpu())  # all of them
            +     outputs = torch.cat([outputs, *outputs_parts], dim=0)
                  return outputs
            """,
        "two tensors, each with its own list; a start of another type stays in front": """
              import torch
              def collect(model, loader, criterion):
                  scores, losses = torch.tensor([]), torch.tensor([])
            +     scores_parts = []
            +     losses_parts = []
                  for x, y in loader:
                      score = model(x)
            -         scores = torch.cat((scores, score.argmax(1)))
            -         losses = torch.cat((losses, criterion(score, y)), -1)
            +         scores_parts.append(score.argmax(1))
            +         losses_parts.append(criterion(score, y))
            +     scores = torch.cat([scores, *scores_parts])
            +     losses = torch.cat([losses, *losses_parts], -1)
                  return scores, losses
            """,
        "several parts at once, in one of two branches": """
              from torch import hstack, zeros
              def unroll(cell, xs, state):
                  states = zeros(4, 0)
            +     states_parts = []
                  for x in xs:
                      state = cell(x, state)
                      if x is None:
            -             states = hstack([states, state * 2, state + 1])
            +             states_parts.extend([state * 2, state + 1])
                      else:
            -             states = hstack([states, state * 3])
            +             states_parts.append(state * 3)
            +     states = hstack([states, *states_parts])
                  return states
            """,
        "the start comes from elsewhere: the list is made before the loop": """
              import torch
              class Net(torch.nn.Module):
                  def forward(self, x, xs):
                      out = self.first(x)
                      if self.training:
                          out = out * 2
            +         out_parts = []
                      # every crop
                      for each in xs:
            -             out = torch.cat([out, self.rest(each)], 1)
            +             out_parts.append(self.rest(each))
            +         out = torch.cat([out, *out_parts], 1)
                      return self.head(out)
            """,
        "over two loops": """
              import torch
              def collect(model, loaders):
                  out = torch.empty(0)
            +     out_parts = []
                  for loader in loaders:
                      for x, y in loader:
            -             out = torch.cat([out, model(x)])
            +             out_parts.append(model(x))
            +     out = torch.cat([out, *out_parts])
                  return out
            """,
        "anew in every epoch, read after the batches": """
              import torch
              def train(model, loader, optimizer, criterion, epochs):
                  for epoch in range(epochs):
                      losses = torch.zeros(0)
            +         losses_parts = []
                      for x, y in loader:
                          loss = criterion(model(x), y)
                          loss.backward()
                          optimizer.step()
            -             losses = torch.cat([losses, loss.detach().reshape(1)])
            +             losses_parts.append(loss.detach().reshape(1))
            +         losses = torch.cat([losses, *losses_parts])
                      print(epoch, losses.mean())
            """,
        "batches as they come, slices of outputs: unsafe": """
              import torch
              def collect(model, loader):
                  labels, firsts = torch.tensor([]), torch.tensor([])
            +     labels_parts = []
            +     firsts_parts = []
                  for x, y in loader:
            -         labels = torch.cat([labels, y])
            -         firsts = torch.cat([firsts, model(x)[:, 0]])
            +         labels_parts.append(y)
            +         firsts_parts.append(model(x)[:, 0])
            +     labels = torch.cat([labels, *labels_parts])
            +     firsts = torch.cat([firsts, *firsts_parts])
                  return labels, firsts
            """,
        "arrays grow in the same way: reported": """
              import numpy as np
              import torch
              def evaluate(model, loader):
                  preds, labels = np.array([], dtype=int), np.array([], dtype=int)
                  for x, y in loader:
            !         preds = np.append(preds, model(x).argmax(1).cpu().numpy())
            !         labels = np.concatenate((labels, y.numpy()))
                  return (preds == labels).mean()
            """,
        "the first pass is treated apart: reported": """
              import torch
              def predict(model, loader):
                  first, rest, third = True, None, None
                  for x, y in loader:
                      out = model(x)
                      if first:
                          all_outputs = out.cpu()
                          first = False
                      else:
            !             all_outputs = torch.cat((all_outputs, out.cpu()), 0)
                      if rest is None:
                          rest = y
                      else:
            !             rest = torch.cat((rest, y)).cpu()
            !         third = x if third is None else torch.cat([third, x])
                  return all_outputs, rest, third
            """,
        "attributes and entries: reported": """
              import torch
              class Tester:
                  def run(self, loader, results):
                      for name, x in loader:
            !             self.outputs = torch.cat([self.outputs, self.net(x)])
            !             results["x"] = torch.cat([results["x"], x])
            """,
        "a part that is written to later must be copied: reported": """
              import torch
              def simulate(steps):
                  state, track = torch.zeros(3), torch.empty(0, 3)
                  for step in range(steps):
            !         track = torch.cat([track, state.unsqueeze(0)])
                      state += torch.randn(3)
                  return track
              def follow(model, loader, optimizer, criterion):
                  weights, all_weights = torch.empty(0), torch.empty(0)
                  for x, y in loader:
                      criterion(model(x), y).backward()
                      optimizer.step()
            !         weights = torch.cat([weights, model.fc.weight.detach().view(1, -1)])
                      for weight in model.parameters():
            !             all_weights = torch.cat([all_weights, weight.detach().view(-1)])
                  return weights, all_weights
            """,
        "put in front; an error that is caught; a stack of the stack: reported": """
              import torch
              def collect(model, loader):
                  a, b, c = torch.empty(0), torch.empty(0), torch.empty(0)
                  for x in loader:
            !         a = torch.cat([model(x), a])
                      try:
            !             b = torch.cat([b, model(x)])
                      except RuntimeError:
                          continue
            !         c = torch.stack([*c, model(x)])
                  return a, b, c
            """,
        "along a dimension that changes: reported": """
              import torch
              def collect(model, loader, dims):
                  out = torch.empty(0)
                  for x, dim in zip(loader, dims):
            !         out = torch.cat([out, model(x)], dim)
                  return out
            """,
    }
    valid = {
        "the loop reads the tensor in every pass": """
            import torch
            def generate(model, ids, steps):
                for step in range(steps):
                    logits = model(ids)
                    ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
                return ids
            """,
        "dense blocks feed on all that came before": """
            import torch
            class Dense(torch.nn.Module):
                def forward(self, x):
                    for layer in self.layers:
                        x = torch.cat([x, layer(x)], 1)
                    return x
            """,
        "the loop stops when there is enough": """
            import torch
            def collect(loader):
                out = torch.empty(0)
                for x in loader:
                    out = torch.cat([out, x])
                    if out.size(0) >= 1000:
                        break
                return out
            """,
        "a function that the loop calls reads it": """
            import torch
            seen = torch.empty(0)
            def report():
                print(seen.mean())
            def run(loader):
                global seen
                for x in loader:
                    seen = torch.cat([seen, x])
                    report()
            class Run:
                def loop(self, loader):
                    for x in loader:
                        self.seen = torch.cat([self.seen, x])
                        self.report()
                def report(self):
                    print(self.seen.mean())
            """,
        "made anew in every pass, nothing grows": """
            import torch
            def decode(model, loader, length):
                for x, y in loader:
                    start = torch.zeros_like(y[:, -length:])
                    start = torch.cat([y[:, :length], start], dim=1)
                    model(x, start)
            """,
        "each entry gets one more part": """
            import torch
            def extend(outputs, extra):
                for key in extra:
                    outputs[key] = torch.cat([outputs[key], extra[key]])
                for each in outputs:
                    each.ids = torch.cat([each.ids, torch.ones(1)])
            """,
        "skip connections join two tensors": """
            import torch
            def up(blocks, x, skips):
                for block in blocks:
                    x = torch.cat((x, skips.pop()), dim=1)
                    x = block(x)
                return x
            """,
        "a handful of passes copies little": """
            import torch
            def corners(x):
                out = torch.empty(0)
                for shift in (0, 1, 2):
                    out = torch.cat([out, x.roll(shift)])
                for _ in range(4):
                    out = torch.cat([out, x])
                return out
            """,
        "so does a loop over the parts of a network": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    merged = torch.tensor([], device=x.device)
                    for i in range(len(self.conv_kernel)):
                        merged = torch.cat((merged, self.convs[i](x)), dim=1)
                    for block in self.blocks:
                        merged = torch.cat((merged, block(x)), dim=1)
                    for i in range(self.num_layers):
                        merged = torch.cat((merged, self.gates[i](x)), dim=1)
                    return merged
            """,
        "now and then, or once an epoch, is rare": """
            import torch
            def train(model, loader, optimizer, criterion):
                curve, log = torch.empty(0), torch.empty(0)
                for epoch in range(100):
                    for step, (x, y) in enumerate(loader):
                        loss = criterion(model(x), y)
                        loss.backward()
                        optimizer.step()
                        if step % 100 == 0:
                            log = torch.cat([log, loss.detach().reshape(1)])
                    curve = torch.cat([curve, log.mean().reshape(1)])
                return curve
            """,
        "a list is joined once after the loop": """
            import torch
            def predict(model, loader):
                outputs = []
                for x, y in loader:
                    outputs.append(model(x))
                outputs = torch.cat(outputs)
                return outputs
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every assignment that makes a tensor or an array longer pass by pass."""
        found = list(growths(script))
        for growth in found:
            target = script.brief(growth.target)
            join = script.code(growth.call.func)
            if growth.function == "numpy.append":
                join = join.removesuffix("append") + "concatenate"
            message = (
                f"every pass copies all of `{target}`: collect the parts in a list and "
                f"`{join}` them once after the loop"
            )
            fix = _fix(script, growth, found)
            yield Finding(self.code, script.span(growth.node), message, fix)


def _fix(script: Script, growth: Growth, found: Sequence[Growth]) -> Fix | None:
    """Collect the parts in a list; None where a condition of it does not hold."""
    target, loop = growth.target, growth.loop
    if not isinstance(target, cst.Name) or growth.starts_inside:
        return None
    grown = [each for each in found if each.loop is loop and _names(each.target, target)]
    if not all(_only_joins(script, each) for each in grown):
        return None
    if _mentioned_besides(script, target, loop, [each.node for each in grown]):
        return None
    kept = [held(script, part, loop) for each in grown for part in each.added]
    if any(written(script, each, loop) for each in kept):
        return None
    name, ends = f"{target.value}_parts", {_joined(script, each) for each in grown}
    around = _around(script, growth, name, ends.pop()) if len(ends) == 1 else None
    if around is None:
        return None
    edits = (around, *(_kept(script, each, name) for each in grown))
    title = f"Collect the parts of {target.value} in a list"
    doubts = [_BATCH for each in kept if each.loaded] + [_SLICE for each in kept if each.sliced]
    if doubts:
        return Fix.unsafe(title, *edits, because=doubts[0])
    return Fix.exact(title, *edits)


def _names(node: cst.BaseExpression, name: cst.Name) -> bool:
    return isinstance(node, cst.Name) and node.value == name.value


def _only_joins(script: Script, growth: Growth) -> bool:
    """Whether an assignment only puts parts behind the tensor, and nothing catches its errors."""
    call, first = growth.call, growth.call.args[0] if growth.call.args else None
    if growth.node.value is not call or call.lpar or growth.function not in TENSORS:
        return False
    if first is None or first.keyword is not None or growth.function == "torch.stack":
        return False
    joined = first.value
    if not isinstance(joined, (cst.List, cst.Tuple)) or joined.elements[0].value is not growth.own:
        return False
    whole = script.span(growth.node)
    start, end = script.span(growth.added[0]).start, script.span(growth.added[-1]).end
    text = script.source.text
    if "#" in text[whole.start : start] + text[end : whole.end]:
        return False
    inside = next(o for o in script.tree.ancestors(growth.node) if _ends(o, growth.loop))
    return inside is growth.loop


def _ends(outer: cst.CSTNode, loop: cst.CSTNode) -> bool:
    return outer is loop or isinstance(outer, cst.Try)


def _mentioned_besides(
    script: Script, target: cst.Name, loop: cst.CSTNode, nodes: Sequence[cst.CSTNode]
) -> bool:
    """Whether a loop, or a handler of what it raises, mentions a name outside some nodes."""
    around = [loop, *(o for o in script.tree.ancestors(loop) if isinstance(o, cst.Try))]
    handlers = [
        part
        for each in around[1:]
        if isinstance(each, cst.Try)
        for part in (*each.handlers, each.finalbody)
        if part is not None
    ]
    return any(
        name.value == target.value and not any(script.tree.inside(name, node) for node in nodes)
        for region in (loop, *handlers)
        for name in script.within(region, cst.Name)
    )


def _joined(script: Script, growth: Growth) -> str | None:
    """Give the call that joins the list, None where it depends on the pass of the loop."""
    call, name = growth.call, script.code(growth.target)
    rest = call.args[1:]
    if any(arg.star or not script.value_of(arg.value).is_literal for arg in rest):
        return None
    words = [f"[{name}, *{name}_parts]", *(script.code(arg) for arg in rest)]
    return f"{name} = {script.code(call.func)}({', '.join(words)})"


def _around(script: Script, growth: Growth, name: str, joined: str | None) -> Edits | None:
    """Make the list before the loop and join it after it."""
    loop, scopes = growth.loop, script.scopes
    assert isinstance(growth.own, cst.Name)
    if joined is None or not script.rewrite.stands_alone(loop):
        return None
    if script.tree.spelled(name):
        return None
    before = [b for b in scopes.reaching(growth.own) if not script.tree.inside(b.node, loop)]
    around = scopes.blocks(loop)
    homes = [scopes.blocks(b.node)[:1] for b in before if isinstance(b.node, cst.Assign)]
    if len(homes) != len(before) or not any(home[0] in around for home in homes if home):
        return None
    made = f"{name} = []"
    start = script.statement(before[0].node)
    if len(before) == 1 and homes[0][0] is around[0] and script.rewrite.stands_alone(start):
        first = script.rewrite.after(start, made)
    else:
        line = f"{script.rewrite.indent_of(loop)}{made}{script.rewrite.newline}"
        first = script.rewrite.insert(_above_comments(script, loop), line)
    return (*first, *script.rewrite.after(loop, joined))


def _above_comments(script: Script, statement: cst.CSTNode) -> int:
    """Give where the lines of a statement begin, comments right above it included."""
    at = script.rewrite.line_start(script.span(statement).start)
    while at:
        above = script.rewrite.line_start(at - 1)
        if not script.source.text[above:at].lstrip().startswith("#"):
            break
        at = above
    return at


def _kept(script: Script, growth: Growth, name: str) -> Edits:
    """Put the parts into the list, their text left as it is."""
    whole, several = script.span(growth.node), len(growth.added) > 1
    start, end = script.span(growth.added[0]).start, script.span(growth.added[-1]).end
    opening = f"{name}.extend([" if several else f"{name}.append("
    return (
        Edit(Span(whole.start, start), opening),
        Edit(Span(end, whole.end), "])" if several else ")"),
    )
