"""TL408: tensors taken out of autograd's sight by `.data` and `Variable`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import Edit, Edits, Finding, Fix, Rule, Safety, Script, Span
from torchlint_rules._datause import VARIABLE, hidden, without_graph, wraps

_CUTS: Final = "`Variable(x)` also cuts `x` off its graph: without it gradients may flow on"


class DataAttribute(Rule):
    """
    ## What it does
    Flags `Variable(x)`, which has had no purpose since torch 0.4, and `x.data` of a tensor.
    `Variable(x)` becomes `x`.

    ## Why it is slow
    A `Variable` is one more call and one more tensor for nothing. `x.data` is worse than slow: it
    shares memory with `x` behind autograd's back, so a change made through it is not noticed, and
    gradients come out wrong where `x.detach()` raises an error. Where nothing is recorded it is
    one more tensor for nothing. `loss.data[0]` fails today.

    ## When not to
    Where a weight gets other memory, `module.weight.data = tensor` is what PyTorch itself writes.
    To set weights, before training or in an optimizer, `torch.no_grad()` does the same, checked.

    ## Fix safety
    Exact for `Variable` of a batch or of a tensor made on the spot. Unsafe where the file does not
    show that its argument has no graph, for `Variable` cuts it off. `.data` is reported only, as
    are `volatile=True`, which has no effect, and arguments with comments between them.
    """

    code = "TL408"
    name = "data-attribute"
    summary = "a tensor that autograd does not see"
    impact = "low"
    safety = Safety.EXACT
    needs = ("Variable", ".data")

    invalid = {
        "batches": """
            - from torch.autograd import Variable
              def train(model, train_loader, criterion, optimizer):
                  for data, target in train_loader:
            -         data, target = Variable(data.cuda()), Variable(target)
            +         data, target = data.cuda(), target
                      loss = criterion(model(data), target)
                      loss.backward()
                      optimizer.step()
            """,
        "an assignment of a name to itself goes": """
            - from torch.autograd import Variable
              def train(model, train_loader, optimizer):
                  for x, y in train_loader:
            -         x, y = Variable(x), Variable(y)
                      loss = model(x, y)
                      loss.backward()
                      optimizer.step()
            """,
        "what was cut off before has no graph": """
              import torch
            - from torch.autograd import Variable
              def start(memory: torch.Tensor, state: torch.Tensor):
            -     first = Variable(memory.new(3, 4).zero_()), Variable(state.data)
            -     return first, Variable(state.detach()), Variable(memory.new_ones(3))
            +     first = memory.new(3, 4).zero_(), state.data
            +     return first, state.detach(), memory.new_ones(3)
            """,
        "made on the spot, by constructors of types too": """
              import numpy as np
              import torch
            - from torch.autograd import Function, Variable
            + from torch.autograd import Function
              cuda = torch.cuda.is_available()
              Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
            - z = Variable(Tensor(np.random.normal(0, 1, (4, 8))))
            - fake = Variable(Tensor(4, 1).fill_(0.0), requires_grad=False)
            - noise = torch.autograd.Variable(-torch.randn(3)).view(3, 1)
            + z = Tensor(np.random.normal(0, 1, (4, 8)))
            + fake = Tensor(4, 1).fill_(0.0)
            + noise = (-torch.randn(3)).view(3, 1)
              class Cube(Function):
                  pass
            """,
        "what may have a graph: unsafe": """
              import torch
            - from torch.autograd import Variable
              class Net(torch.nn.Module):
                  def forward(self, x):
            -         state = Variable(torch.zeros(1, 3))
            -         return self.net(Variable(x), state)
            +         state = torch.zeros(1, 3)
            +         return self.net(x, state)
            """,
        "lines that would leave their block empty: reported": """
              import torch
              from torch.autograd import Variable
              def predict(model, x, y):
                  with torch.no_grad():
            !         x = Variable(x)
            !         y = Variable(y)
                  return model(x, y)
            """,
        "another use of the name keeps the import": """
              import torch
              from torch.autograd import Variable
              def wrap(x):
                  if isinstance(x, Variable):
                      return x
            -     return Variable(torch.tensor(x))
            +     return torch.tensor(x)
            """,
        "volatile has no effect, comments stay: reported": """
              import torch
              from torch.autograd import Variable
            ! x = Variable(torch.ones(3), volatile=True)
            ! y = Variable(
                  torch.ones(3),  # as many as there are
              )
            """,
        "data of a loss and of an output: reported": """
              import torch.nn.functional as F
              def train(model, loader, optimizer):
                  for x, y in loader:
                      out = model(x)
                      loss = F.cross_entropy(out, y)
                      loss.backward()
                      optimizer.step()
            !         total = loss.data[0]
            !         print(total, out.data.max(1))
            """,
        "looked at, cut out of a longer expression: reported": """
              import torch
              def report(model, loader, criterion):
                  for x, y in loader:
                      loss = criterion(model(x), y)
                      loss.backward()
            !         print(loss.data.item())
            !         worst = torch.cat((model(x).flatten(), loss.view(1))).data
            """,
        "what is asked of its data shows that it is a tensor: reported": """
              import torch
              def size(grads):
                  for g in grads:
            !         print(g.data.norm(2))
              def show(attention, batches):
            !     print(attention[-1].squeeze(0), attention.squeeze(0).data.numpy())
                  for batch in batches:
                      source, length = batch.source
            !         source = source.data.cuda()
                      print(source, length)
            """,
        "an attribute that would be assigned to itself goes": """
              import torch
            - from torch.autograd import Variable
              class Grid:
                  def __init__(self):
                      self.grid = torch.zeros(3, 3)
                  def prepare(self, rows: torch.Tensor):
                      self.grid[0] = rows
            -         self.grid = Variable(self.grid)
                      return self.grid
            """,
        "a tensor that wants gradients is no plain one: unsafe": """
              import torch
            - from torch.autograd import Variable
              x = torch.zeros(3)
              x.requires_grad_(True)
            - print(Variable(x), Variable(torch.zeros(3, requires_grad=True)))
            + print(x, torch.zeros(3, requires_grad=True))
            """,
        "written to through data: reported": """
              import torch
              def attack(model, x, criterion, y):
                  delta = torch.zeros_like(x, requires_grad=True)
                  criterion(model(x + delta), y).backward()
            !     delta.data.add_(delta.grad.sign())
            !     delta.data = delta.data.clamp(-1, 1)
            !     delta.data[:, 0] += 1
            !     delta.data[0] = 0
                  return delta
            """,
        "initial weights: reported": """
              import torch
              from torch import nn
              class Layer(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.w = nn.Parameter(torch.empty(3, 4))
            !         nn.init.xavier_uniform_(self.w.data)
            !         self.w.data *= 0.1
              def init(module):
                  for m in module.modules():
                      if isinstance(m, nn.Linear):
            !             m.weight.data.normal_(0, 0.02)
            !             m.bias.data = torch.zeros(4)
            """,
        "weights that are averaged or clipped, once a line: reported": """
              import torch
              def update(critic, average, decay, bound):
                  for p, q in zip(critic.parameters(), average.parameters()):
            !         q.data.copy_(decay * q.data + (1 - decay) * p.data)
                  for name, p in critic.named_parameters():
            !         print(name, p.data, p.grad.data.norm(2))
            !         p.data.clamp_(-bound, bound)
            !         p.grad.data.clamp_(-bound, bound)
            """,
        "without gradients there is nothing to hide: reported": """
              import torch
              @torch.no_grad()
              def evaluate(model, loader):
                  for x, y in loader:
            !         print(model(x).data.max(1))
              def act(model, state):
                  with torch.no_grad():
                      values = model(state)
            !         model.head.bias.data.zero_()
                  model.train()
            !     return values.cpu().data.numpy().argmax()
            """,
        "a batch, or a tensor made on the spot, has no graph: reported": """
              import torch
              def train(model, train_loader, criterion, optimizer):
                  for x, target in train_loader:
                      out = model(x.cuda())
                      criterion(out, target).backward()
                      optimizer.step()
            !         print(target.data.cpu())
            !         print(torch.zeros(3).data, torch.max(out, 1)[1].data.numpy())
            """,
    }
    valid = {
        "a leaf that wants gradients": """
            import torch
            from torch.autograd import Variable
            x = Variable(torch.ones(3), requires_grad=True)
            def leaf(x, flag):
                return Variable(x, requires_grad=flag)
            """,
        "another library's variable, a class of the file's own": """
            import torch
            import tensorflow as tf
            class Variable:
                pass
            a, b = tf.Variable(1.0), Variable(2)
            """,
        "only its type is asked for": """
            import torch
            import torch.nn.functional as F
            def pad(x, zeros):
                out = F.avg_pool3d(x, 1)
                if isinstance(out.data, torch.cuda.FloatTensor) or type(out.data) is torch.Tensor:
                    zeros = zeros.cuda()
                return torch.cat([out, zeros])
            """,
        "its size is asked for": """
            import torch
            def train(model, train_loader, criterion, optimizer):
                for x, target in train_loader:
                    out = model(x.cuda())
                    criterion(out, target).backward()
                    optimizer.step()
                    print(out.data.size(), target.data.shape)
            """,
        "records, datasets and packed sequences have a data of their own": """
            import torch
            from mine import make
            def look(batch, packed, train_set, graphs):
                print(batch.data.cuda(), packed.data.cpu(), train_set.data.numpy())
                for graph in graphs:
                    print(graph.data.cpu())
                thing = make()
                return thing.data.cpu()
            """,
        "data of other things": """
            import numpy as np
            import torch.utils.data as data
            from torch.nn.utils.rnn import pack_padded_sequence
            def collate(dataset, batch, scores, lengths, response):
                scores = pack_padded_sequence(scores, lengths)
                return dataset.data[0], batch.data, scores.data, response.data, np.ones(3).data
            class Pairs(data.Dataset):
                def __init__(self, rows, args):
                    self.rows, self.data = rows, args.data.weights
                def grow(self, rows):
                    self.data.add_(rows)
                    for row in rows:
                        row.data = self.data
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every `Variable` that wraps for nothing and every `.data` of a recorded tensor."""
        calls = [s.node for s in script.calls(VARIABLE) if s.node.args and wraps(script, s.node)]
        fixes = _fixes(script, calls) if calls else {}
        for call in calls:
            volatile = script.call(call).given("volatile", 2) is not None
            what = script.code(call.args[0].value)
            what = f"`{what}`" if len(what) < 40 else "the tensor itself"
            message = f"`Variable` has no purpose since torch 0.4: use {what}"
            if volatile:
                message = "`volatile` has no effect since torch 0.4: use `torch.no_grad()`"
            yield Finding(self.code, script.span(call), message, fixes.get(id(call)))
        for node in script.all(cst.Attribute):
            if node.attr.value == "data":
                message = hidden(script, node)
                if message:
                    yield Finding(self.code, script.span(node), message)


# -- Variable --------------------------------------------------------------------


def _fixes(script: Script, calls: Sequence[cst.Call]) -> dict[int, Fix]:
    """Give the fixes of calls; those that leave an import without use take it out together."""
    unwrapped = {id(call): edits for call in calls if (edits := _unwrapped(script, call))}
    plain = [
        call
        for call in calls
        if id(call) in unwrapped
        and all(_is_plain(script, each) for each in (call, *_besides(script, call)))
    ]
    others = [call for call in calls if id(call) in unwrapped and call not in plain]
    title, found = "Use the tensor itself", {}
    for group, together in ((plain, plain), (others, [*plain, *others])):
        imports = script.rewrite.without_imports(*(call.func for call in together))
        if imports is None:
            continue
        whole = tuple(edit for call in together for edit in unwrapped[id(call)])
        for call in group:
            edits = (*whole, *imports) if imports else unwrapped[id(call)]
            edits = tuple(dict.fromkeys(edits))
            exact = Fix.exact(title, edits)
            found[id(call)] = exact if group is plain else Fix.unsafe(title, edits, because=_CUTS)
    return found


def _unwrapped(script: Script, call: cst.Call) -> Edits | None:
    """Leave the argument of a call in its place, None where that would lose something."""
    whole, inner = script.span(call), script.span(call.args[0].value)
    text = script.source.text
    around = text[whole.start : inner.start] + text[inner.end : whole.end]
    if "#" in around or len(call.args) > 1 + ("requires_grad" in around) or call.args[0].star:
        return None
    besides = _besides(script, call)
    if besides:
        return _dropped(script, call)
    value, holder = call.args[0].value, script.parent(call)
    atom = isinstance(value, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or value.lpar
    free = isinstance(holder, (cst.Arg, cst.Assign, cst.Return, cst.Element))
    kept = script.tree.breaks_lines(value) or not (atom or (free and "\n" not in around))
    opening, closing = ("(", ")") if kept else ("", "")
    return (
        Edit(Span(whole.start, inner.start), opening),
        Edit(Span(inner.end, whole.end), closing),
    )


def _besides(script: Script, call: cst.Call) -> list[cst.Call]:
    """Give the calls of a line that would do nothing but assign names to themselves."""
    assign = next((o for o in script.tree.ancestors(call) if isinstance(o, cst.Assign)), None)
    line = script.parent(assign) if assign is not None else None
    return _self_assigned(script, line) if isinstance(line, cst.SimpleStatementLine) else []


def _self_assigned(script: Script, line: cst.CSTNode) -> list[cst.Call]:
    """Give the calls on the right of `x, y = Variable(x), Variable(y)`, none for other lines."""
    assign = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return []
    target, value = assign.targets[0].target, assign.value
    pairs: list[tuple[cst.BaseExpression, cst.BaseExpression]] = [(target, value)]
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        pairs = [(t.value, v.value) for t, v in zip(target.elements, value.elements, strict=False)]
    found = []
    for left, right in pairs:
        if not _is_own_name(left) or not isinstance(right, cst.Call):
            return []
        if script.name(right.func) != VARIABLE or not right.args or not wraps(script, right):
            return []
        if script.call(right).given("volatile", 2) is not None:
            return []
        if script.code(right.args[0].value) != script.code(left):
            return []
        found.append(right)
    return found if script.rewrite.stands_alone(line) else []


def _is_own_name(target: cst.BaseExpression) -> bool:
    """Whether a target is a name or an attribute of `self`."""
    if isinstance(target, cst.Attribute):
        return isinstance(target.value, cst.Name) and target.value.value == "self"
    return isinstance(target, cst.Name)


def _dropped(script: Script, call: cst.Call) -> Edits | None:
    """Take out a line of self-assignments; None where nothing else stands in its block."""
    line = script.statement(call)
    block = script.parent(line)
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(
        block, (cst.IndentedBlock, cst.Module)
    ):
        return None
    if len(block.body) > 1 and all(_self_assigned(script, each) for each in block.body):
        return None
    return script.rewrite.drop(line)


def _is_plain(script: Script, call: cst.Call) -> bool:
    value = call.args[0].value
    if isinstance(value, cst.Name) and "resize_" in script.source.text:
        return False
    return wraps(script, call) and without_graph(script, value)
