"""TL408: tensors taken out of autograd's sight by `.data` and `Variable`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import (
    Binding,
    Edit,
    Edits,
    Finding,
    Fix,
    Grad,
    How,
    Kind,
    Rule,
    Safety,
    Script,
    Span,
)

_VARIABLE: Final = "torch.autograd.Variable"
_CUTS: Final = "`Variable(x)` also cuts `x` off its graph: without it gradients may flow on"
_LEAVES: Final = ("weight", "bias", "grad")
_FACTORIES: Final = frozenset(
    (
        "tensor as_tensor from_numpy zeros ones full empty arange linspace eye rand randn randint "
        "randperm normal Tensor FloatTensor LongTensor DoubleTensor IntTensor ByteTensor "
        "HalfTensor BoolTensor"
    ).split()
)
_SAME: Final = frozenset(
    (
        "cuda cpu to type type_as float double half long int bool view reshape squeeze unsqueeze "
        "expand transpose permute t contiguous clone fill_ normal_ uniform_ zero_ bernoulli_ repeat "
        "random_ pin_memory to_dense flatten"
    ).split()
)
_METADATA: Final = frozenset(
    "size shape dim ndimension numel nelement device dtype is_cuda get_device type new".split()
)
_TYPES: Final = ("builtins.isinstance", "builtins.type")
_CUT: Final = re.compile(r"detach|new|new_(tensor|zeros|ones|full|empty)")
_INITIAL: Final = re.compile(r"_*(init|reset_parameters)")
_DEPTH: Final = 8


class DataAttribute(Rule):
    """
    ## What it does
    Flags `Variable(x)`, which has had no purpose since torch 0.4, and `x.data` where autograd
    records. `Variable(x)` becomes `x`.

    ## Why it is slow
    A `Variable` is one more call and one more tensor for nothing. `x.data` is worse than slow: it
    shares memory with `x` behind autograd's back, so a change made through it is not noticed, and
    gradients come out wrong where `x.detach()` raises an error. `loss.data[0]` fails today.

    ## When not to
    Keep `.data` in code that sets weights once, before training, and in optimizers that change
    parameters on purpose; `torch.no_grad()` says the same and is checked.

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
        "initial weights are set before anything is recorded": """
            import torch
            from torch import nn
            class Layer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.w = nn.Parameter(torch.empty(3, 4))
                    nn.init.xavier_uniform_(self.w.data)
            def init(module):
                for m in module.modules():
                    nn.init.zeros_(m.scale.mean(0).data)
                    if isinstance(m, nn.Linear):
                        m.weight.data.normal_(0, 0.02)
                        m.bias.data.zero_()
            """,
        "without gradients there is nothing to hide": """
            import torch
            @torch.no_grad()
            def evaluate(model, loader):
                for x, y in loader:
                    print(model(x).data.max(1))
            """,
        "what was computed without gradients has no graph": """
            import torch
            def act(model, state):
                with torch.no_grad():
                    values = model(state)
                model.train()
                return values.cpu().data.numpy().argmax()
            """,
        "a method that initialises sets weights through views of them": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.head = nn.Linear(3, 4)
                    self._initialize_biases()
                def _initialize_biases(self):
                    b = self.head.bias.view(2, -1)
                    b.data[:, 0] += 0.5
                    b.data[:, 1].fill_(1)
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
        "a batch, or a tensor made on the spot, has no graph": """
            import torch
            def train(model, train_loader, criterion, optimizer):
                for x, target in train_loader:
                    out = model(x.cuda())
                    criterion(out, target).backward()
                    optimizer.step()
                    print(target.data.cpu(), torch.zeros(3).data, out.data.size())
            """,
        "data of other things": """
            import numpy as np
            import torch.utils.data as data
            from torch.nn.utils.rnn import pack_padded_sequence
            def collate(dataset, batch, scores, lengths, response):
                scores = pack_padded_sequence(scores, lengths)
                return dataset.data[0], batch.data, scores.data, response.data, np.ones(3).data
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every `Variable` that wraps for nothing and every `.data` of a recorded tensor."""
        calls = [s.node for s in script.calls(_VARIABLE) if s.node.args and _wraps(script, s.node)]
        fixes = _fixes(script, calls) if calls else {}
        for call in calls:
            volatile = script.call(call).given("volatile", 2) is not None
            what = " ".join(script.code(call.args[0].value).split())
            what = f"`{what}`" if len(what) < 40 else "the tensor itself"
            message = f"`Variable` has no purpose since torch 0.4: use {what}"
            if volatile:
                message = "`volatile` has no effect since torch 0.4: use `torch.no_grad()`"
            yield Finding(self.code, script.span(call), message, fixes.get(id(call)))
        for node in script.all(cst.Attribute):
            if node.attr.value == "data":
                message = _hidden(script, node)
                if message:
                    yield Finding(self.code, script.span(node), message)


def _wraps(script: Script, call: cst.Call) -> bool:
    """Whether a `Variable` asks for nothing but a tensor like its argument."""
    value = script.call(call).given("requires_grad", 1)
    return call.args[0].keyword is None and (
        value is None or script.value_of(value.value).equals(False)
    )


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
    opening, closing = ("", "") if atom or (free and "\n" not in around) else ("(", ")")
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
        if script.name(right.func) != _VARIABLE or not right.args or not _wraps(script, right):
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
    return _wraps(script, call) and _without_graph(script, value, _DEPTH)


def _without_graph(script: Script, node: cst.BaseExpression, depth: int) -> bool:
    """Whether a tensor was surely made on the spot or comes from a loader."""
    if not depth:
        return False
    if isinstance(node, cst.UnaryOperation):
        return _without_graph(script, node.expression, depth - 1)
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        wants = f"{node.value}.requires_grad" in script.source.text
        return (
            bool(bindings) and not wants and all(_plain_binding(script, b, depth) for b in bindings)
        )
    if isinstance(node, cst.Subscript):
        return _without_graph(script, node.value, depth - 1)
    if isinstance(node, cst.Attribute):
        return node.attr.value == "data" and script.kind(node.value) in (Kind.TENSOR, Kind.LOSS)
    if not isinstance(node, cst.Call):
        return False
    name = script.name(node.func)
    if name == _VARIABLE:
        return _wraps(script, node)
    if name is not None:
        made = name.startswith("torch.") and name.rpartition(".")[2] in _FACTORIES
        return made and script.call(node).given("requires_grad") is None
    if isinstance(node.func, cst.Name):
        return _is_type(script, node.func)
    func = node.func
    if not isinstance(func, cst.Attribute):
        return False
    if _CUT.fullmatch(func.attr.value):
        return script.call(node).given("requires_grad") is None
    return func.attr.value in _SAME and _without_graph(script, func.value, depth - 1)


def _plain_binding(script: Script, binding: Binding, depth: int) -> bool:
    """Whether what a name was bound to has no graph."""
    value = binding.value
    if binding.how is How.LOOP:
        return _loaded(script, value, binding.path)
    if value is None or binding.how not in (How.ASSIGN, How.UNPACKED):
        return False
    unrecorded = isinstance(value, cst.Call) and script.grad(value) is Grad.OFF
    return unrecorded or _without_graph(script, value, depth - 1)


def _loaded(script: Script, value: cst.BaseExpression | None, path: tuple[int, ...]) -> bool:
    if value is None:
        return False
    source, _ = script.iteration.source(value, path)
    return source is not None and script.kind(source) is Kind.LOADER


def _is_type(script: Script, name: cst.Name) -> bool:
    """Whether a name stands for a type of tensors, of one device or another."""
    made = script.value_of(name).node
    if not isinstance(made, cst.IfExp):
        return False
    return all(
        (script.name(each) or "").startswith("torch.") and script.code(each).endswith("Tensor")
        for each in (made.body, made.orelse)
    )


# -- data ------------------------------------------------------------------------


def _hidden(script: Script, node: cst.Attribute) -> str:
    """Say what is wrong with a `.data`, nothing where it does no harm."""
    tensor = node.value
    if isinstance(tensor, cst.Attribute) and tensor.attr.value in _LEAVES:
        return ""
    kind = script.kind(tensor)
    if kind not in (Kind.TENSOR, Kind.LOSS) or script.grad(node) is Grad.OFF:
        return ""
    if _is_parameter(script, tensor) or _without_graph(script, tensor, _DEPTH):
        return ""
    what, holder = " ".join(script.code(tensor).split()), script.parent(node)
    if _asks_only(script, holder) or _spoken_of(script, node):
        return ""
    if _receiver(script, holder).startswith("torch.nn.init."):
        return ""
    writes = _writes(script, node, holder)
    if writes and _initialises(script, node):
        return ""
    text = what if len(what) <= 40 else ""
    if writes:
        tensor_itself = f"`{text}`" if text else "the tensor"
        return (
            f"autograd does not see that `{text}.data` is written to, and gradients may be wrong: "
            f"write to {tensor_itself} under `torch.no_grad()`"
        )
    if isinstance(holder, cst.Subscript) and kind is Kind.LOSS:
        return f"`{text}.data[0]` fails since torch 1.0: use `{text}.item()`"
    if script.is_integral(tensor):
        return ""
    if isinstance(holder, cst.Attribute) and holder.attr.value == "item":
        return f"`{text}.data` is one more tensor for nothing: use `{text}.item()`"
    return (
        f"autograd would not notice a change to `{text}.data`: `{text}.detach()` is the same, "
        "and is checked"
    )


def _asks_only(script: Script, holder: cst.CSTNode | None) -> bool:
    """Whether nothing but the type, the shape or the place of a tensor is asked for."""
    if isinstance(holder, cst.Attribute):
        return holder.attr.value in _METADATA
    return _receiver(script, holder) in _TYPES


def _receiver(script: Script, holder: cst.CSTNode | None) -> str:
    """Give the qualified name of the function that a tensor is handed to."""
    call = script.parent(holder) if isinstance(holder, cst.Arg) else None
    return (script.name(call.func) or "") if isinstance(call, cst.Call) else ""


def _spoken_of(script: Script, node: cst.Attribute) -> bool:
    """Whether the same line writes to the same data, where it is spoken of."""
    line = script.statement(node)
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(line.body[0], cst.Assign):
        return False
    target: cst.BaseExpression = line.body[0].targets[0].target
    while isinstance(target, cst.Subscript):
        target = target.value
    return target is not node and script.code(target) == script.code(node)


def _initialises(script: Script, node: cst.Attribute) -> bool:
    """Whether a function sets weights before anything is recorded, as its name says."""
    function = script.function(node)
    return function is not None and _INITIAL.match(function.name.value) is not None


def _is_parameter(script: Script, tensor: cst.BaseExpression) -> bool:
    """Whether a tensor is a parameter, whose data is set when it is initialised."""
    made = script.value_of(tensor).node
    return isinstance(made, cst.Call) and script.name(made.func) == "torch.nn.Parameter"


def _writes(script: Script, node: cst.Attribute, holder: cst.CSTNode | None) -> bool:
    """Whether a line changes a tensor through its `.data`."""
    if script.scopes.stored(node) is not None:
        return True
    written: cst.CSTNode = node
    while isinstance(holder, cst.Subscript):
        written, holder = holder, script.parent(holder)
    if isinstance(holder, cst.Attribute):
        return holder.attr.value.endswith("_")
    if isinstance(holder, cst.AugAssign):
        return holder.target is written
    return isinstance(holder, cst.AssignTarget)
