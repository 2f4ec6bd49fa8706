"""TL209: Python walks through a tensor where one operation would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Heat, Rule, Safety, Script
from torchlint_rules._elementloops import (
    element_reads,
    sole_line,
    written_by_element,
    written_by_row,
)
from torchlint_rules._elements import Walk, elementwise, is_surely_tensor, outermost_item, walk

_REDUCTIONS: Final = {
    "builtins.sum": "sum(0)", "builtins.max": "max()", "builtins.min": "min()",
}  # fmt: skip
_LAYERS: Final = frozenset(
    (
        "Linear Bilinear Embedding ReLU GELU SiLU Sigmoid Tanh LeakyReLU ELU Softplus LayerNorm "
        "Identity Hardswish Mish"
    ).split()
)
_WHOLE: Final = ("torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU")
_CELLS: Final = {f"{name}Cell": name for name in _WHOLE}
_PIECES: Final = ("split", "chunk", "unbind")
_BECAUSE: Final = "adds up in another order"


class PythonLoopOverTensor(Rule):
    """
    ## What it does
    Flags loops of Python over the elements of a tensor: sums of elements (also `sum(t)`, `max(t)`
    and `min(t)` of Python), elements that are read by `.item()` or written one by one, one call of
    a layer per row, and a recurrent layer or cell that is handed a known sequence step by step.

    ## Why it is slow
    Each pass indexes a tensor and starts a kernel for one element: microseconds of overhead for
    nanoseconds of work, and a wait for the device where `.item()` reads it. Sums by hand took 380
    to 3300 times as long as `t.sum()`, a linear layer row by row 25 to 40 times, an LSTM cell step
    by step 4.3 to 6.4 times as long as `nn.LSTM`.

    ## When not to
    Keep a loop whose passes depend on one another: a decoder that is fed its own output, states
    that are reset on the way. None of these is flagged, nor is a loop over a list.

    ## Fix safety
    Close: sums are added up in another order. Loops over layers and sequences are reported only:
    a batch norm sees other batches, and `nn.LSTM` names its parameters otherwise than a cell.
    """

    code = "TL209"
    name = "python-loop-over-tensor"
    summary = "Python walks through a tensor element by element"
    impact = "high"
    safety = Safety.CLOSE
    articles = ("S2",)
    needs = ("sum", "+=", "range", "enumerate", ".item", "Cell", "LSTM", "GRU", "RNN")

    invalid = {
        "elements are written one by one": """
              import torch
              def similarity(rows, columns):
                  found = torch.zeros(len(rows), len(columns))
            !     for i, row in enumerate(rows):
                      for j, column in enumerate(columns):
                          found[i][j] = torch.dot(row, column)
            !     for j in range(rows.size(0)):
                      found[rows[j]] = j
                  return found
            """,
        "elements are read in every step": """
              import torch
              from torch import nn
              class Masked(nn.Module):
                  def forward(self, x, lengths):
                      x = x.cuda()
                      mask = torch.zeros_like(x)
            !         for i, length in enumerate(lengths):
                          mask[i].narrow(1, 0, length.item()).fill_(1)
            !         for i in range(x.size(0)):
                          if lengths[i].item() > 4:
                              mask[i] = 0
                      return x * mask
            """,
        "a layer is called for every step of a sequence": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.rnn = nn.RNN(1, 32)
                      self.out = nn.Linear(32, 1)
                  def forward(self, x, h):
                      out, h = self.rnn(x, h)
                      steps = []
            !         for step in range(out.size(1)):
                          steps.append(self.out(out[:, step, :]))
                      return torch.stack(steps, dim=1)
            """,
        "elements are read one by one": """
              import torch
              def total(a, b):
                  t = torch.abs(a - b)
                  s = 0.0
            -     for e in t:
            -         s += e.item()
            +     s += t.sum().item()
                  return s
            """,
        "squares by index": """
              import torch
              def norm(t):
                  s = 0
            -     for i in range(t.size(0)):
            -         s += t[i] ** 2
            +     s += (t ** 2).sum(0)
                  return s
            """,
        "the sum is written out": """
              import torch
              t = torch.rand(100)
              s = torch.zeros(())
            - for i in range(len(t)):
            -     s = s + abs(t[i] - 0.5)
            + s = s + abs(t - 0.5).sum(0)
            """,
        "a number is made of each": """
              import torch
              t = torch.rand(100)
              s = 0.0
            - for e in t:
            -     s += float(torch.sqrt(e) * 2)
            + s += float((torch.sqrt(t) * 2).sum())
            """,
        "Python's own sum counts what is right": """
              import torch
              def count(out, y):
                  predicted = out.argmax(dim=1)
            -     return sum(predicted == y).item()
            +     return (predicted == y).sum(0).item()
            """,
        "Python's own maximum and minimum": """
              import torch
              def spread(x):
                  length = torch.linalg.norm(x, dim=1)
            -     return max(length) - min(length), length.sum()
            +     return length.max() - length.min(), length.sum()
            """,
        "the index is needed afterwards, so there is no fix": """
              import torch
              t = torch.rand(100)
              s = 0.0
            ! for i in range(len(t)):
                  s += t[i]
              print(s / i)
            """,
        "a comment would be lost, so there is no fix": """
              import torch
              t = torch.rand(100)
              s = 0.0
            ! for e in t:
                  # no more than a sum
                  s += e
            """,
        "a layer is called for every row": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.fc = nn.Linear(4, 4)
                  def forward(self, x):
                      rows = []
            !         for i in range(x.size(0)):
                          rows.append(self.fc(x[i]))
            !         more = torch.stack([self.fc(x[i]) for i in range(x.size(0))])
                      return torch.stack(rows) + more
            """,
        "a recurrent layer that could take the sequence": """
              import torch
              from torch import nn
              rnn = nn.GRU(8, 16)
              def encode(line, hidden):
            !     for i in range(line.size(0)):
                      output, hidden = rnn(line[i].unsqueeze(0), hidden)
                  return output
            """,
        "a cell for every step of a known sequence": """
              import torch
              from torch import nn
              class Sequence(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.lstm1 = nn.LSTMCell(1, 51)
                      self.linear = nn.Linear(51, 1)
                  def forward(self, x, h_t, c_t):
                      outputs = []
            !         for input_t in x.split(1, dim=1):
                          h_t, c_t = self.lstm1(input_t, (h_t, c_t))
                          outputs.append(self.linear(h_t))
                      return torch.cat(outputs, dim=1)
            """,
    }
    valid = {
        "a table of places that is made once, and each entry needs those before": """
            import torch
            def table(n, x):
                near, path = torch.zeros(n, n), torch.zeros(n, n)
                for i in range(n):
                    for j in range(n):
                        near[i, j] = i + j
                        path[i, j] = x[i] + path[i - 1, j - 1]
                return near, path
            """,
        "numbers on the host": """
            import torch
            class Bins(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.bounds = torch.linspace(0, 1, 16)
                def forward(self, x):
                    return [x.cuda().gt(bound.item()).sum() for bound in self.bounds]
            """,
        "a list of losses is no tensor": """
            import torch
            def total(losses):
                s = 0
                for loss in losses:
                    s += loss.item()
                return s + sum(losses)
            """,
        "what a network returns may be a list": """
            import torch
            from torch import nn
            net = nn.Linear(4, 4)
            def total(x):
                return sum(net(x))
            class Join(nn.Module):
                def forward(self, xs):
                    return sum(xs)
            def train(detector, images):
                losses = detector(images)
                return sum(losses.values())
            detector = nn.Linear(4, 4)
            train(detector, torch.ones(4))
            """,
        "an array of NumPy": """
            import numpy as np
            import torch
            a = np.random.rand(100)
            s = 0.0
            for i in range(a.shape[0]):
                s += a[i]
            print(sum(a), max(a))
            """,
        "more happens in a pass": """
            import torch
            t = torch.rand(100)
            s = 0.0
            for e in t:
                s += e.item()
                print(s)
            """,
        "two tensors of which nothing shows the shapes": """
            import torch
            def dot(a, b):
                s = 0
                for i in range(a.size(0)):
                    s += a[i] * b[i]
                return s
            """,
        "each pass needs the one before": """
            import torch
            t = torch.rand(100)
            s = 0.0
            for e in t:
                s = s * 0.9 + e
            """,
        "some are left out": """
            import torch
            t = torch.rand(100)
            s = 0.0
            for e in t:
                if e > 0.5:
                    s += e
            for i in range(10):
                s += t[i]
            """,
        "a decoder is fed its own output": """
            import torch
            from torch import nn
            cell = nn.GRUCell(8, 8)
            def decode(target, hidden):
                token = target[:, 0]
                for t in range(target.size(1)):
                    hidden = cell(token, hidden)
                    token = hidden
                return hidden
            """,
        "each pixel is drawn from those before it": """
            import torch
            def draw(net, device):
                sample = torch.zeros(8, 1, 28, 28, device=device)
                for i in range(28):
                    for j in range(28):
                        probs = net(sample)[:, :, i, j].softmax(1)
                        sample[:, :, i, j] = torch.multinomial(probs, 1).float()
                return sample
            """,
        "states are reset on the way": """
            import torch
            from torch import nn
            lstm = nn.LSTM(8, 8)
            def run(x, done, state):
                for i in range(x.size(0)):
                    out, state = lstm(x[i].unsqueeze(0), state * (1 - done[i]))
                return out
            """,
        "each piece of the sequence trains by itself": """
            import torch
            from torch import nn
            lstm = nn.LSTM(8, 8)
            def fit(x, state, optimizer):
                for piece in x.split(35):
                    out, state = lstm(piece, state)
                    out.mean().backward(retain_graph=True)
                    optimizer.step()
            """,
        "attention looks at the state before each step": """
            import torch
            from torch import nn
            cell = nn.LSTMCell(16, 8)
            def decode(attend, words, memory, h, c):
                for t in range(words.size(0)):
                    h, c = cell(torch.cat([words[t], attend(memory, h)], dim=1), (h, c))
                return h
            """,
        "a function of one's own may do anything with a row": """
            import torch
            def apply(f, x):
                return torch.stack([f(x[i]) for i in range(x.size(0))])
            """,
        "sum of numbers and with a start": """
            import torch
            sizes = [t.numel() for t in (torch.rand(2), torch.rand(3))]
            print(sum(sizes), max(torch.rand(()).item(), 0), sum([torch.rand(2)], torch.zeros(2)))
            """,
        "the sum of Python is shadowed": """
            import torch
            from torch import max, sum
            print(sum(torch.rand(2)), max(torch.rand(2)))
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every loop and every built-in that walks through a tensor."""
        for call in script.calls(*_REDUCTIONS):
            yield from self._of_builtin(script, call.node)
        recurrent = any(word in script.source.text for word in ("RNN", "LSTM", "GRU"))
        filled: cst.For | None = None
        for loop in script.all(cst.For):
            finding = self._of_line(script, loop)
            if finding is None and not (filled is not None and script.tree.inside(loop, filled)):
                finding = self._of_writes(script, loop)
                filled = loop if finding is not None else filled
            if finding is None and recurrent:
                finding = self._of_steps(script, loop)
            if finding is not None:
                yield finding
        for comprehension in script.all(cst.ListComp):
            yield from self._of_comprehension(script, comprehension)
        if script.can_use_accelerator:
            yield from self._of_reads(script)

    # -- sums -----------------------------------------------------------------

    def _of_builtin(self, script: Script, call: cst.Call) -> Iterator[Finding]:
        if len(call.args) != 1 or call.args[0].star or call.args[0].keyword is not None:
            return
        given = call.args[0].value
        if not is_surely_tensor(script, given) or script.heat(call) is Heat.COLD:
            return
        word = _REDUCTIONS[script.name(call.func) or ""]
        text = f"{_atom(script, given)}.{word}"
        fix = None
        if "#" not in script.code(call):
            fix = Fix.close(
                f"Write `.{word}`", script.rewrite.replace(call, text), because=_BECAUSE
            )
        named = script.code(call.func)
        message = (
            f"Python's `{named}` starts a kernel for every element: `.{word}` starts one for all"
        )
        yield Finding(self.code, script.span(call), message, fix)

    def _of_line(self, script: Script, loop: cst.For) -> Finding | None:
        """Read a loop whose body is one line."""
        line = sole_line(loop)
        added = _added(script, line) if line is not None else None
        row = _appended(line) if line is not None else None
        if line is None or (added is None and row is None):
            return None
        found = walk(script, loop.target, loop.iter)
        if found is None:
            return None
        if row is not None:
            return self._row_by_row(script, found, row, loop.iter)
        if found.dimension:
            return None
        return self._of_sum(script, loop, found, line, added) if added is not None else None

    def _of_sum(
        self,
        script: Script,
        loop: cst.For,
        found: Walk,
        line: cst.BaseSmallStatement,
        added: cst.BaseExpression,
    ) -> Finding | None:
        inner = outermost_item(script, added)
        whole = elementwise(script, found, inner if inner is not None else added)
        if whole is None:
            return None
        simple = all(sign.isidentifier() or sign in ".()[]" for sign in whole.replace(" ", ""))
        base = whole if simple or _is_wrapped(whole) or _is_call(inner or added) else f"({whole})"
        text = f"{base}.sum(0)"
        if inner is not None:
            number = isinstance(added, cst.Call) and isinstance(added.func, cst.Attribute)
            text = f"{base}.sum().item()" if number else f"float({base}.sum())"
        fix = None
        if "#" not in script.code(loop) and not _read_elsewhere(script, loop, found):
            span, at = script.span(line), script.span(added)
            code = script.tree.text(line)
            code = f"{code[: at.start - span.start]}{text}{code[at.end - span.start :]}"
            edits = script.rewrite.replace(loop, code)
            fix = Fix.close("Add up the whole tensor", edits, because=_BECAUSE)
        message = (
            f"this loop starts a kernel for every element of `{script.code(found.tensor)}`: "
            f"add `{' '.join(text.split())}`"
        )
        return Finding(self.code, script.span(loop.iter), message, fix)

    # -- elements ---------------------------------------------------------------

    def _of_reads(self, script: Script) -> Iterator[Finding]:
        for loop, call, tensor in element_reads(script):
            named = script.code(tensor)
            message = (
                f"`{script.code(call)}` waits for the device in every pass of this loop: work on "
                f"the whole of `{named}`, or read it once before with `{named}.tolist()`"
            )
            yield Finding(self.code, script.span(loop.iter), message)

    def _of_writes(self, script: Script, loop: cst.For) -> Finding | None:
        line = sole_line(loop)
        rows = written_by_row(script, loop, line) if line is not None else None
        written = written_by_element(script, loop) if rows is None else None
        if rows is None and written is None:
            return None
        shown = rows if written is None else script.code(written)
        message = (
            f"this loop starts kernels for one element of `{shown}` after the other: one "
            "operation on whole tensors fills it"
        )
        return Finding(self.code, script.span(loop.iter), message)

    # -- rows and steps -------------------------------------------------------

    def _of_comprehension(self, script: Script, node: cst.ListComp) -> Iterator[Finding]:
        part = node.for_in
        if part.ifs or part.inner_for_in is not None or not isinstance(node.elt, cst.Call):
            return
        found = walk(script, part.target, part.iter)
        finding = self._row_by_row(script, found, node.elt, node) if found is not None else None
        if finding is not None:
            yield finding

    def _row_by_row(
        self, script: Script, found: Walk, row: cst.BaseExpression, place: cst.CSTNode
    ) -> Finding | None:
        if not isinstance(row, cst.Call) or len(row.args) != 1:
            return None
        layer = script.value_of(row.func).node
        name = script.name(layer.func) if isinstance(layer, cst.Call) else None
        if name is None or name.removeprefix("torch.nn.") not in _LAYERS:
            return None
        if elementwise(script, found, row.args[0].value) is None:
            return None
        tensor, func = script.code(found.tensor), script.code(row.func)
        message = f"`{func}` is called for every row of `{tensor}`: call `{func}({tensor})` once"
        return Finding(self.code, script.span(place), message)

    def _of_steps(self, script: Script, loop: cst.For) -> Finding | None:
        if not isinstance(loop.target, cst.Name) or not _is_known(script, loop.iter):
            return None
        calls = list(script.within(loop.body, cst.Call))
        if any(script.is_step(call) for call in calls):
            return None
        for call in calls:
            layer = script.value_of(call.func).node if len(call.args) == 2 else None
            name = script.name(layer.func) if isinstance(layer, cst.Call) else None
            if name in (*_WHOLE, *_CELLS) and _steps_through(script, loop, call):
                short = f"nn.{_CELLS.get(name, name).rpartition('.')[2]}"
                named = script.code(call.func)
                how = f"`{short}` takes" if name in _CELLS else f"`{named}` can take"
                message = (
                    f"`{named}` is handed a known sequence step by step: {how} all of it in one "
                    "call"
                )
                return Finding(self.code, script.span(loop.iter), message)
        return None


def _atom(script: Script, node: cst.BaseExpression) -> str:
    code = script.code(node)
    simple = isinstance(node, (cst.Name, cst.Attribute, cst.Subscript, cst.Call)) or node.lpar
    return code if simple else f"({code})"


def _is_call(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and not node.lpar


def _is_wrapped(code: str) -> bool:
    return code.startswith("(") and code.endswith(")") and code.count("(") == 1


def _added(script: Script, line: cst.BaseSmallStatement) -> cst.BaseExpression | None:
    """Give what a line adds to a name: of `s += e` and `s = s + e`."""
    if isinstance(line, cst.AugAssign):
        return line.value if isinstance(line.operator, cst.AddAssign) else None
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    value = line.value
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return None
    same = script.code(line.targets[0].target) == script.code(value.left)
    return value.right if same else None


def _appended(line: cst.BaseSmallStatement) -> cst.BaseExpression | None:
    """Give what a line appends to a list."""
    call = line.value if isinstance(line, cst.Expr) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return None
    func = call.func
    appends = isinstance(func, cst.Attribute) and func.attr.value == "append"
    return call.args[0].value if appends else None


def _read_elsewhere(script: Script, loop: cst.For, found: Walk) -> bool:
    """Whether code behind a loop reads what its target was last."""
    binding = script.scopes.stored(found.target)
    region = script.function(loop) or script.tree.module
    uses = script.scopes.uses(binding, region) if binding is not None else iter(())
    return any(not script.tree.inside(use, loop) for use in uses)


def _is_known(script: Script, iterated: cst.BaseExpression) -> bool:
    """Whether a loop goes through a range, a tensor or its pieces."""
    if not isinstance(iterated, cst.Call):
        return is_surely_tensor(script, iterated)
    name = script.name(iterated.func)
    method = iterated.func.attr.value if isinstance(iterated.func, cst.Attribute) else ""
    return name == "builtins.range" or method in _PIECES


def _steps_through(script: Script, loop: cst.For, call: cst.Call) -> bool:
    """Whether a call's input depends on the place in the sequence alone, its state on itself."""
    if script.function(call) is not script.function(loop) or not isinstance(loop.target, cst.Name):
        return False
    taken, state = call.args[0].value, call.args[1].value
    names = {name.value for name in script.within(taken, cst.Name)}
    if loop.target.value not in names:
        return False
    outer = script.parent(call)
    if not isinstance(outer, cst.Assign):
        return False
    parts = (
        [element.value for element in state.elements] if isinstance(state, cst.Tuple) else [state]
    )
    states = {part.value for part in parts if isinstance(part, cst.Name)}
    bound = {name.value for name in script.within(outer.targets[0], cst.Name)}
    if len(states) != len(parts) or not states <= bound:
        return False
    changed = [
        name.value
        for name in script.within(loop.body, cst.Name)
        if not script.scopes.reads(name) and not script.tree.inside(name, outer)
    ]
    return not (names | states) & set(changed) and not names & bound
