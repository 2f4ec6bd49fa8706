"""TL203: a tensor is filled on the host in every step and then copied to the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Edit,
    Edits,
    Finding,
    Fix,
    Move,
    Rule,
    Safety,
    Script,
    Span,
    State,
)
from torchlint_rules._making import Made, made

_WIDTH: Final = 100
_TAKES_DTYPE: Final = frozenset("zeros ones eye".split())
_GENERATOR: Final = "the GPU's random generator gives other numbers than the CPU's"
_ROUNDING: Final = "a GPU may round the last digit otherwise"


class CreatedOnHost(Rule):
    """
    ## What it does
    Flags `torch.zeros(n).to(device)` and its like in code that runs in every step: the training
    and evaluation loops, what they call, and the `forward` of networks.

    ## Why it is slow
    The host fills memory that nobody needs, copies it to the device and waits for the copy.
    `torch.zeros(n, device=device)` is one small kernel, and the host does not wait.

    ## When not to
    A tensor that is made once costs nothing worth a change; the rule does not speak of it. It is
    silent for `from_numpy`, `stack` and the old `torch.FloatTensor`, which know no `device`, for
    a tensor with `requires_grad=True`, which would become a leaf, and for a list of constants,
    which TL210 speaks of.

    ## Fix safety
    Exact for what is filled with known values. Close for `linspace` and fractional steps, which a
    GPU may round otherwise. Unsafe for random numbers: the device has a generator of its own.
    """

    code = "TL203"
    name = "created-on-host"
    summary = "a tensor is filled on the host in every step and copied to the device"
    impact = "low"
    safety = Safety.EXACT
    articles = ("S3.7",)
    needs = ("cuda", "device")

    invalid = {
        "in the training loop, by `to` and by `cuda`": """
              import torch
              device = torch.device("cuda")
              for x, y in loader:
            -     state = torch.zeros(x.size(0), 8).to(device)
            -     ones = torch.ones(x.size(0)).cuda()
            +     state = torch.zeros(x.size(0), 8, device=device)
            +     ones = torch.ones(x.size(0), device="cuda")
                  loss = model(x, state, ones)
                  loss.backward()
            """,
        "every filled tensor": """
              import torch as th
              device = th.device("cuda" if th.cuda.is_available() else "cpu")
              for x, y in loader:
            -     a = th.full((4,), 0.5).to(device)
            -     b = th.arange(x.size(0)).to(device)
            -     c = th.eye(4).to(device)
            -     d = th.empty(4).to(device)
            +     a = th.full((4,), 0.5, device=device)
            +     b = th.arange(x.size(0), device=device)
            +     c = th.eye(4, device=device)
            +     d = th.empty(4, device=device)
                  loss = model(x, a, b, c, d)
                  loss.backward()
            """,
        "in the forward of a network": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def forward(self, x):
            -         h = torch.zeros(self.layers, x.size(0), self.hidden).to(x.device)
            +         h = torch.zeros(self.layers, x.size(0), self.hidden, device=x.device)
                      return self.rnn(x, h)[0]
              net = Net().cuda()
            """,
        "in a function that the loop calls": """
              import torch
              device = torch.device("cuda")
              def begin(size):
            -     return torch.zeros(1, size, 8).to(device), torch.zeros(1, size, 8).to(device)
            +     return torch.zeros(1, size, 8, device=device), torch.zeros(1, size, 8, device=device)
              for x, y in loader:
                  loss = model(x, begin(x.size(0)))
                  loss.backward()
            """,
        "behind a Variable, a view and a change of type": """
              import torch
              from torch.autograd import Variable
              for x, y in loader:
            -     real = Variable(torch.ones(x.size(0))).cuda()
            -     fake = torch.zeros(x.size(0)).unsqueeze(1).long().cuda()
            -     mask = torch.tril(torch.ones(4, 4)).view(1, 4, 4).cuda()
            +     real = Variable(torch.ones(x.size(0), device="cuda"))
            +     fake = torch.zeros(x.size(0), device="cuda").unsqueeze(1).long()
            +     mask = torch.tril(torch.ones(4, 4, device="cuda")).view(1, 4, 4)
                  loss = model(x, real, fake, mask)
                  loss.backward()
            """,
        "the type goes with the device, or stays": """
              import torch
              device = torch.device("cuda")
              for x, y in loader:
            -     a = torch.zeros(8).to(device, torch.long)
            -     b = torch.ones(8).to(device=device, dtype=torch.half)
            -     c = torch.arange(8).to(device, torch.float32)
            -     d = torch.zeros(8, dtype=torch.int).to(device, torch.long)
            +     a = torch.zeros(8, device=device, dtype=torch.long)
            +     b = torch.ones(8, device=device, dtype=torch.half)
            +     c = torch.arange(8, device=device).to(torch.float32)
            +     d = torch.zeros(8, dtype=torch.int, device=device).to(torch.long)
                  loss = model(x, a, b, c, d)
                  loss.backward()
            """,
        "numbers of the step": """
              import torch
              device = torch.device("cuda")
              for step, (x, y) in enumerate(loader):
            -     time = torch.tensor([step]).to(device)
            -     size = torch.tensor(x.size(0), dtype=torch.float).to(device, non_blocking=True)
            +     time = torch.tensor([step], device=device)
            +     size = torch.tensor(x.size(0), dtype=torch.float, device=device)
                  loss = model(x, time, size)
                  loss.backward()
            """,
        "like a batch that is on the host": """
              import torch
              from torch.utils.data import DataLoader
              from mine import Images, model
              for x in DataLoader(Images()):
            -     mask = torch.zeros_like(x).cuda()
            +     mask = torch.zeros_like(x, device="cuda")
                  loss = model(x.cuda(), mask)
                  loss.backward()
            """,
        "random numbers: unsafe": """
              import torch
              device = torch.device("cuda")
              for x, y in loader:
            -     noise = torch.randn(x.size(0), 100, 1, 1).to(device)
            -     alpha = torch.empty(x.size(0)).uniform_().to(device)
            +     noise = torch.randn(x.size(0), 100, 1, 1, device=device)
            +     alpha = torch.empty(x.size(0), device=device).uniform_()
                  loss = model(x, noise, alpha)
                  loss.backward()
            """,
        "what the file shows to be no array, and arithmetic with numbers": """
              import torch
              device = torch.device("cuda")
              for x, y in loader:
                  words = [len(word) for word in y]
            -     lengths = torch.tensor(words).to(device)
            -     rows = torch.tensor(y.rows, dtype=torch.long).cuda()
            -     start = torch.tensor(0.0).to(device)
            -     half = (torch.ones(8) * 0.5).to(device)
            +     lengths = torch.tensor(words, device=device)
            +     rows = torch.tensor(y.rows, dtype=torch.long, device="cuda")
            +     start = torch.tensor(0.0, device=device)
            +     half = torch.ones(8, device=device) * 0.5
                  loss = model(x, lengths, rows, start, half)
                  loss.backward()
            """,
        "made in one line, moved in another": """
              import torch
              device = torch.device("cuda")
              for x, y in loader:
            -     state = torch.zeros(x.size(0), 8)
            -     state = state.to(device)
            -     mask = torch.ones(x.size(0))
            +     state = torch.zeros(x.size(0), 8, device=device)
            +     mask = torch.ones(x.size(0), device="cuda")
                  x = x.to(device)
            -     loss = model(x, state, mask.cuda())
            +     loss = model(x, state, mask)
                  loss.backward()
            """,
        "in a function that its name calls for in every step": """
              import torch
              from mine import Net
              class Agent:
                  def __init__(self, device):
                      self.device = device
                      self.net = Net().to("cuda")
                  def update(self, batch):
                      loss = self.net(batch).mean()
                      loss.backward()
            -         nothing = torch.tensor(0.0).to(self.device)
            +         nothing = torch.tensor(0.0, device=self.device)
                      return loss, nothing
                  def predict(self, x):
            -         mask = torch.ones(len(x)).to(self.device)
            +         mask = torch.ones(len(x), device=self.device)
                      return self.net(x, mask)
            """,
        "in a loop that answers word by word": """
              import torch
              device = torch.device("cuda")
              model = torch.nn.LSTM(8, 8).to(device)
              def answer(word):
                  for _ in range(100):
            -         position = torch.linspace(0, 1, 8).to(device)
            +         position = torch.linspace(0, 1, 8, device=device)
                      word = model(word, position)
                  return word
            """,
        "a device that may be None or that the file does not show is reported": """
              import torch
              for x, y in loader:
            !     state = torch.zeros(8).cuda(args.gpu)
                  loss = model(x, state)
                  loss.backward()
            """,
    }
    valid = {
        "a list of constants belongs before the loop: TL210 speaks of it": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                mean = torch.tensor([0.5, 0.5, 0.5]).to(device)
                loss = model(x - mean)
                loss.backward()
            """,
        "made on the device": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                loss = model(x, torch.zeros(8, device=device))
                loss.backward()
            """,
        "made once": """
            import torch
            device = torch.device("cuda")
            fixed = torch.zeros(64, 100).to(device)
            for x, y in loader:
                loss = model(x, fixed)
                loss.backward()
            """,
        "made now and then": """
            import torch
            device = torch.device("cuda")
            for i, (x, y) in enumerate(loader):
                loss = model(x)
                loss.backward()
                if i % 100 == 0:
                    print(model(torch.zeros(1, 8).to(device)))
            """,
        "made when the network is": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self, device):
                    super().__init__()
                    self.mask = torch.ones(8, 8).to(device)
            net = Net("cuda")
            """,
        "the script runs on the CPU": """
            import torch
            device = torch.device("cpu")
            for x, y in loader:
                loss = model(x, torch.zeros(8).to(device))
                loss.backward()
            """,
        "nothing is copied of an empty one": """
            import torch
            def evaluate(model, loader):
                for x, y in loader:
                    seen = torch.empty(0).cuda()
                    seen = torch.cat((seen, model(x.cuda())))
            """,
        "numbers broke down: it hardly ever runs": """
            import torch
            class Model(torch.nn.Module):
                def forward(self, x):
                    scale = self.scale(x.cuda())
                    if torch.isnan(scale).any():
                        scale = torch.eye(scale.shape[0]).to(scale.device)
                    return x @ scale
            """,
        "tests are not tuned": """
            import pytest
            import torch
            def test_losses(model, optimizer):
                for i in range(10):
                    x = torch.zeros(20, 10).cuda()
                    model(x).sum().backward()
                    optimizer.step()
            """,
        "these know no `device`": """
            import numpy as np
            import torch
            import torch.nn.functional as F
            device = torch.device("cuda")
            for x, y in loader:
                a = torch.from_numpy(np.zeros(8)).to(device)
                b = torch.stack([x, y]).to(device)
                c = F.one_hot(y, 10).to(device)
                d = torch.Tensor(2, 2).to(device)
                e = torch.FloatTensor(8).fill_(1.0).to(device)
                f = torch.bernoulli(x).to(device)
                g = torch.multinomial(x, 1).to(device)
                h = torch.normal(x, x).to(device)
                loss = model(a, b, c, d, e, f, g, h)
                loss.backward()
            """,
        "an array is TL105's, a tensor is there already": """
            import numpy as np
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                rows = np.zeros(8)
                loss = model(torch.tensor(x).to(device), torch.tensor(rows).to(device))
                loss = loss + torch.tensor([np.ones(3), np.zeros(3)]).to(device).sum()
                loss.backward()
            """,
        "it is read on the host before it moves": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                state = torch.zeros(x.size(0), 8)
                state[0] = x.sum()
                state = state.to(device)
                loss = model(x, state)
                loss.backward()
            """,
        "a function that a program calls once": """
            import torch
            def export_step(model, path):
                example = torch.zeros(1, 8).cuda()
                torch.onnx.export(model, example, path)
            def train_update(model, loader, epochs):
                start = torch.zeros(1, 8).cuda()
                for x in loader:
                    model(x, start).backward()
            """,
        "it would become a leaf": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                delta = torch.zeros(8, requires_grad=True).to(device)
                other = torch.zeros(8).requires_grad_().to(device)
                loss = model(x + delta + other)
                loss.backward()
            """,
        "a parameter is made of it": """
            import torch
            from torch import nn
            device = torch.device("cuda")
            for x, y in loader:
                weight = nn.Parameter(torch.zeros(8)).to(device)
                loss = model(x, weight)
                loss.backward()
            """,
        "to a type, to another tensor, to the host": """
            import torch
            model.cuda()
            for x, y in loader:
                loss = model(torch.zeros(8).to(torch.half), torch.zeros(8).to(x), torch.zeros(8).to("cpu"))
                loss.backward()
            """,
        "like a tensor that is on the device already": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                x = x.to(device)
                loss = model(torch.zeros_like(x).to(device))
                loss.backward()
            """,
        "drawn with a generator of the host": """
            import torch
            device = torch.device("cuda")
            generator = torch.Generator()
            for x, y in loader:
                loss = model(x, torch.randn(8, generator=generator).to(device))
                loss.backward()
            """,
        "keywords that are out of sight may hold it": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                loss = model(x, torch.zeros(8, **options).to(device))
                loss.backward()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every tensor that code of each step fills on the host and moves."""
        for call in script.method_calls("to", "cuda"):
            assert isinstance(call.func, cst.Attribute)
            found, named = made(script, call.func.value), None
            if found is None:
                named = _named(script, call.func.value)
                found = made(script, named.value) if named is not None else None
            move = script.moves.move(call) if found is not None else None
            if found is None or move is None or not script.can_use_accelerator:
                continue
            if not script.each_step(call):
                continue
            where = _device(script, move)
            message = (
                f"`{script.code(found.site.node.func)}(...)` is made on the host and copied to the "
                f"device in every step; make it there with device={where or '...'}"
            )
            fix = _fix(script, move, found, where, named)
            yield Finding(self.code, script.span(call), message, fix)


def _named(script: Script, moved: cst.BaseExpression) -> cst.Assign | None:
    """Give the line of the same block that makes what is moved, where nothing else reads it."""
    bindings = script.scopes.reaching(moved) if isinstance(moved, cst.Name) else ()
    line = bindings[0].node if len(bindings) == 1 else None
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    if not isinstance(line.targets[0].target, cst.Name):
        return None
    first, last = script.statement(line), script.statement(moved)
    block = script.parent(first)
    home = script.function(line) or script.tree.module
    if block is not script.parent(last) or not isinstance(last, cst.SimpleStatementLine):
        return None
    return line if list(script.scopes.uses(bindings[0], home)) == [moved] else None


def _device(script: Script, move: Move) -> str | None:
    """Give what to pass as `device`, None where that is not what the move means."""
    if move.device is None:
        return '"cuda"'
    text = script.code(move.device)
    if move.method == "to" or script.moves.has_type(move.device):
        return text
    return text if script.value_of(move.device).is_literal else None


def _fix(
    script: Script, move: Move, made: Made, where: str | None, named: cst.Assign | None
) -> Fix | None:
    start, tail = script.span(move.moved).end, script.tree.bare(move.call).end
    dtype = script.call(move.call).given("dtype", 1) if move.method == "to" else None
    known = {move.device_arg, dtype}
    others = [arg for arg in move.call.args if arg not in known and not _only_waits(arg)]
    if where is None or others or "#" in script.source.text[start:tail]:
        return None
    if named is not None and not _is_known_at(script, move, named):
        return None
    added = f"device={where}"
    kept = ""
    if dtype is not None:
        written = script.code(dtype.value)
        direct = made.site.node is (move.moved if named is None else named.value)
        untyped = made.site.argument("dtype").state is State.ABSENT
        if direct and untyped and made.last in _TAKES_DTYPE:
            added += f", dtype={written}"
        else:
            kept = f".to({written})"
    saved = tail - start - len(kept) if named is None else 0
    edits = _with_device(script, made.site.node, added, saved)
    cut = script.rewrite.unlinked(move.call, kept)
    if not kept and _stands_in_parentheses(script, move):
        outer, inner = script.span(move.moved), script.tree.bare(move.moved)
        cut = (Edit(Span(outer.start, inner.start), ""), Edit(Span(inner.end, tail), ""))
    if named is not None and not kept and _only_renames(script, move, named):
        if not script.rewrite.stands_alone(script.statement(move.call)):
            return None
        cut = script.rewrite.drop(script.statement(move.call))
    title = f"Make it on the device: device={where}"
    if made.random:
        return Fix.unsafe(title, edits, cut, because=_GENERATOR)
    if made.rounds:
        return Fix.close(title, edits, cut, because=_ROUNDING)
    return Fix.exact(title, edits, cut)


def _stands_in_parentheses(script: Script, move: Move) -> bool:
    """Whether arithmetic has parentheses that nothing needs once the move is gone."""
    return (
        isinstance(move.moved, cst.BinaryOperation)
        and len(move.moved.lpar) == 1
        and not move.call.func.lpar
        and isinstance(script.parent(move.call), (cst.Assign, cst.Arg, cst.Return))
        and "\n" not in script.code(move.moved)
    )


def _only_renames(script: Script, move: Move, named: cst.Assign) -> bool:
    """Whether a line would be `x = x` without its move."""
    line = script.parent(move.call)
    return (
        isinstance(line, cst.Assign)
        and len(line.targets) == 1
        and script.code(line.targets[0].target) == script.code(named.targets[0].target)
    )


def _is_known_at(script: Script, move: Move, named: cst.Assign) -> bool:
    """Whether the device of a move is the same where the tensor is made, some lines above."""
    if move.device is None:
        return True
    at = script.tree.order(named)
    return all(
        binding.at < at
        for name in script.within(move.device, cst.Name)
        for binding in script.scopes.reaching(name)
    )


def _with_device(script: Script, call: cst.Call, added: str, saved: int) -> Edits:
    """Add `device` to a call whose line loses `saved` characters behind it."""
    end = script.span(call.args[-1].value).end
    line, last = script.rewrite.line_start(end), script.rewrite.line_end(end)
    code = script.source.text[line:last].partition("#")[0].rstrip()
    if script.span(call).start >= line and len(code) - saved + len(added) + 2 <= _WIDTH:
        return script.rewrite.insert(end, f", {added}")
    name, _, value = added.partition("=")
    return script.rewrite.with_keyword(call, name, value)


def _only_waits(arg: cst.Arg) -> bool:
    return arg.keyword is not None and arg.keyword.value in ("non_blocking", "copy")
