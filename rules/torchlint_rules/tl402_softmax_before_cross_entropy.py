"""TL402: a loss gets probabilities where it wants logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import (
    Binding,
    Edit,
    Edits,
    Finding,
    Fix,
    How,
    Kind,
    Note,
    Record,
    Rule,
    Safety,
    Script,
    Span,
)

_FUNCTIONS: Final = {
    "torch.nn.functional.cross_entropy": "ce",
    "torch.nn.functional.nll_loss": "nll",
    "torch.nn.functional.binary_cross_entropy": "bce",
    "torch.nn.functional.binary_cross_entropy_with_logits": "logits",
}
_CRITERIA: Final = {
    "torch.nn.CrossEntropyLoss": "ce",
    "torch.nn.NLLLoss": "nll",
    "torch.nn.BCELoss": "bce",
    "torch.nn.BCEWithLogitsLoss": "logits",
}
_ACTIVATIONS: Final = {
    "torch.softmax": "softmax",
    "torch.nn.functional.softmax": "softmax",
    "torch.nn.Softmax": "softmax",
    "torch.log_softmax": "log_softmax",
    "torch.nn.functional.log_softmax": "log_softmax",
    "torch.nn.LogSoftmax": "log_softmax",
    "torch.sigmoid": "sigmoid",
    "torch.nn.functional.sigmoid": "sigmoid",
    "torch.nn.Sigmoid": "sigmoid",
}
_FUNCTIONAL: Final = frozenset(name for name in _ACTIVATIONS if name.rpartition(".")[2].islower())
_METHODS: Final = ("softmax", "log_softmax", "sigmoid")
_TAKES: Final = {
    ("ce", "softmax"): "`{loss}` applies softmax itself: a second one, `{place}`, changes the loss "
    "and flattens its gradients; pass the logits",
    ("ce", "log_softmax"): "`{loss}` applies log_softmax itself: `{place}` is computed for "
    "nothing; pass the logits",
    ("logits", "sigmoid"): "`{loss}` applies sigmoid itself: a second one, `{place}`, changes the "
    "loss and flattens its gradients; pass the logits",
    ("bce", "sigmoid"): "`{place}` before `{loss}` saturates, and fails under autocast on CUDA: "
    "pass logits to `{better}`",
    ("nll", "softmax"): "`{loss}` takes logarithms of probabilities: `{place}` has to be a "
    "log_softmax",
    ("nll", "log(softmax)"): "`{place}` is infinite where the softmax rounds to zero: use "
    "log_softmax",
}
_WRONG: Final = "the loss is another one: until now it was taken of probabilities"
_ROUNDS: Final = "the loss rounds otherwise, and no longer saturates"
_PASSING: Final = frozenset("squeeze unsqueeze view reshape flatten permute float to cuda".split())
_MOVES: Final = ("to", "cuda", "cpu", "double", "float", "half")
_DEPTH: Final = 8
Path = tuple[int, ...]


class Activation(Record):
    """An activation that ends what a loss gets; `node` is the call or the layer."""

    kind: str
    node: cst.Call


class Loss(Record):
    """A call of a loss."""

    kind: str
    node: cst.Call
    given: cst.BaseExpression


class SoftmaxBeforeCrossEntropy(Rule):
    """
    ## What it does
    Flags losses that get activated outputs and activate them again or should do it themselves:
    softmax or log_softmax before cross entropy, sigmoid before binary cross entropy (with or
    without logits), softmax or its logarithm before `nll_loss`. It looks through names, functions,
    layers and the `forward` of networks in the same file.

    ## Why it is slow
    Cross entropy of a softmax is another objective: its gradients are tiny, so a network needs
    many more steps to learn, and often stops short. Where the result is the same, an activation is
    computed twice, or in two kernels instead of a fused one that does not overflow. Binary cross
    entropy of a sigmoid also raises an error under autocast on CUDA.

    ## When not to
    Keep the activation where the network serves others who expect probabilities; take the loss of
    the logits then, before the activation.

    ## Fix safety
    Unsafe: the loss has other values. Only an activation that is written into the call of the loss
    is taken out; one at the end of a network changes what all its users get, and is reported.
    """

    code = "TL402"
    name = "softmax-before-cross-entropy"
    summary = "the loss wants logits and gets probabilities"
    impact = "medium"
    safety = Safety.UNSAFE
    needs = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss", "BCELoss", "BCEWithLogits")

    invalid = {
        "softmax or log_softmax in the call, by three spellings": """
              import torch
              import torch.nn.functional as F
              def loss(model, x: torch.Tensor, y):
            -     first = F.cross_entropy(F.softmax(model(x), dim=1), y)
            -     second = F.cross_entropy(torch.log_softmax(model(x), 1), y, label_smoothing=0.1)
            -     return first + second + F.cross_entropy(input=x.softmax(1), target=y)
            +     first = F.cross_entropy(model(x), y)
            +     second = F.cross_entropy(model(x), y, label_smoothing=0.1)
            +     return first + second + F.cross_entropy(input=x, target=y)
            """,
        "a criterion, and an import that nothing else needs": """
              import torch
              from torch import nn
            - from torch.nn.functional import softmax
              criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).cuda()
              def loss(model, x, y):
            -     return criterion(softmax(model(x), dim=1), y)
            +     return criterion(model(x), y)
            """,
        "sigmoid in the call of binary cross entropy": """
              import torch.nn.functional as F
              from torch import sigmoid
              def loss(model, x, y, w):
            -     return F.binary_cross_entropy(sigmoid(model(x)), y, weight=w), sigmoid(x)
            +     return F.binary_cross_entropy_with_logits(model(x), y, weight=w), sigmoid(x)
              def double(model, x, y):
            -     return F.binary_cross_entropy_with_logits(model(x).sigmoid(), y)
            +     return F.binary_cross_entropy_with_logits(model(x), y)
            """,
        "a criterion for probabilities that only gets sigmoids": """
            - import torch
              from torch import nn
            - criterion = nn.BCELoss(reduction="sum")
            + criterion = nn.BCEWithLogitsLoss(reduction="sum")
              def train(model, x, y):
            -     loss = criterion(torch.sigmoid(model(x)), y)
            +     loss = criterion(model(x), y)
                  loss.backward()
              def validate(model, x, y):
            -     return criterion(model(x).sigmoid(), y)
            +     return criterion(model(x), y)
            """,
        "a criterion for probabilities that gets others as well: reported": """
              import torch
              from torch import nn
              criterion = nn.BCELoss()
              def loss(model, other, x, y):
            !     return criterion(torch.sigmoid(model(x)), y) + criterion(other(x), y)
            """,
        "nll_loss of probabilities, and of their logarithm": """
            - import torch
              import torch.nn.functional as F
              def loss(model, x, y):
            -     first = F.nll_loss(F.softmax(model(x), dim=1), y)
            -     return first + F.nll_loss(torch.log(F.softmax(model(x), dim=1)), y)
            +     first = F.nll_loss(F.log_softmax(model(x), dim=1), y)
            +     return first + F.nll_loss(F.log_softmax(model(x), dim=1), y)
            """,
        "behind a name: reported": """
              import torch.nn.functional as F
              def loss(model, x, y):
                  out = model(x)
            !     probs = F.softmax(out, dim=1)
                  return F.cross_entropy(probs, y), probs
            """,
        "at the end of a network: reported": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.fc = nn.Linear(4, 3)
                      self.softmax = nn.Softmax(dim=1)
                  def forward(self, x):
                      x = self.fc(x)
            !         return self.softmax(x)
              from runner import fabric, optimizer
              model = nn.DataParallel(Net()).cuda()
              model, optimizer = fabric.setup(model, optimizer)
              criterion = nn.CrossEntropyLoss()
              def train(x, y):
                  return criterion(model(x), y)
            """,
        "the last layer of a sequence, one of two outputs: reported": """
              from torch import nn
              class Critic(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.body = nn.Linear(4, 4)
            !         self.real = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
            !         self.label = nn.Sequential(nn.Linear(4, 9), nn.Softmax(dim=1))
                  def forward(self, x):
                      x = self.body(x)
                      return self.real(x).squeeze(1), self.label(x)
              critic, bce, ce = Critic(), nn.BCELoss(), nn.CrossEntropyLoss()
              def loss(x, y):
                  real, label = critic(x)
                  return bce(real, y) + ce(label, y)
            """,
        "handed to a function of the file: reported": """
              import torch
              import torch.nn.functional as F
              class Vae(torch.nn.Module):
                  def decode(self, z):
            !         return torch.sigmoid(self.out(z))
                  def forward(self, x):
                      mu = self.enc(x)
                      return self.decode(mu), mu
              def loss_function(recon, x):
                  return F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum")
              model = Vae()
              def train(x):
                  recon, mu = model(x)
                  return loss_function(recon, x)
            """,
    }
    valid = {
        "probabilities for predictions, logits for the loss": """
            import torch.nn.functional as F
            def step(model, x, y):
                out = model(x)
                probs = F.softmax(out, dim=1)
                return F.cross_entropy(out, y), probs.argmax(1)
            """,
        "probabilities of a teacher are targets": """
            import torch.nn.functional as F
            def distil(model, teacher, x):
                return F.cross_entropy(model(x), F.softmax(teacher(x), dim=1))
            """,
        "nll_loss of a log_softmax is cross entropy": """
            import torch.nn.functional as F
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    return F.log_softmax(self.fc(x), dim=1)
            model = Net()
            def loss(x, y):
                return F.nll_loss(model(x), y)
            """,
        "a network that ends in a softmax only for inference": """
            import torch.nn.functional as F
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    x = self.fc(x)
                    if self.training:
                        return x
                    return F.softmax(x, dim=1)
            model = Net()
            def loss(x, y):
                return F.cross_entropy(model(x), y)
            """,
        "attention weights are no output": """
            import torch.nn.functional as F
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    attention = F.softmax(self.score(x), dim=1)
                    return self.fc(attention @ x)
            model = Net()
            def loss(x, y):
                return F.cross_entropy(model(x), y)
            """,
        "a loss of the file's own": """
            import torch.nn.functional as F
            from torch import nn
            class CrossEntropyLoss(nn.Module):
                def forward(self, probs, y):
                    return -(probs.gather(1, y).log()).mean()
            criterion = CrossEntropyLoss()
            def loss(model, x, y):
                return criterion(F.softmax(model(x), dim=1), y)
            """,
        "the network is out of sight": """
            import torch.nn.functional as F
            from models import Net
            model = Net()
            def loss(x, y):
                return F.cross_entropy(model(x), y) + F.binary_cross_entropy(model(x), y)
            """,
        "a flag chooses what the loss gets": """
            import torch
            import torch.nn.functional as F
            def loss(out, y, wasserstein):
                if not wasserstein:
                    out = torch.sigmoid(out)
                return F.binary_cross_entropy(out, y)
            """,
        "nll_loss without reduction picks the probability of a class": """
            import torch
            import torch.nn.functional as F
            def confidence(logits, y):
                return -F.nll_loss(torch.softmax(logits, dim=1), y, reduction="none")
            """,
        "probabilities that are clamped, mixed or otherwise changed": """
            import torch
            import torch.nn.functional as F
            def loss(a, b, y):
                mixed = (torch.sigmoid(a) + torch.sigmoid(b)) / 2
                kept = torch.log(F.softmax(a, dim=1) + 1e-8)
                return F.binary_cross_entropy(mixed, y) + F.nll_loss(kept, y)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every activation that ends what a loss gets and should not."""
        text = script.source.text
        if "oftmax" not in text and "igmoid" not in text:
            return
        seen: set[int] = set()
        for loss in _losses(script):
            found = _ends(script, loss.given, (), _DEPTH)
            for each in found:
                template = _TAKES.get((loss.kind, each.kind))
                if template is None or id(each.node) in seen:
                    continue
                seen.add(id(each.node))
                yield self._finding(script, loss, each, template)

    def _finding(
        self, script: Script, loss: Loss, activation: Activation, template: str
    ) -> Finding:
        name, place = script.code(loss.node.func), _spelled(script, activation.node)
        functional = script.name(loss.node.func) is not None
        better = "binary_cross_entropy_with_logits" if functional else "BCEWithLogitsLoss"
        message = template.format(loss=name, place=place, better=better)
        fix: Fix | None = None
        notes: tuple[Note, ...] = ()
        if activation.node is loss.given:
            edits = _without(script, loss, activation)
            because = _WRONG if "changes" in template or loss.kind == "nll" else _ROUNDS
            fix = Fix.unsafe("Pass the logits", edits, because=because) if edits else None
        else:
            notes = (Note(script.span(loss.node), "the loss that gets it"),)
        return Finding(self.code, script.span(activation.node), message, fix, notes)


def _spelled(script: Script, node: cst.Call) -> str:
    """Give the first words of an activation."""
    if isinstance(node.func, cst.Attribute) and script.name(node.func) is None:
        return node.func.attr.value
    return script.code(node.func)


def _losses(script: Script) -> Iterator[Loss]:
    """Yield the calls of losses that take logits or probabilities."""
    made = next(script.calls(*_CRITERIA), None) is not None
    named = [site.node for site in script.calls(*_FUNCTIONS)]
    for call in script.all(cst.Call) if made else named:
        kind = _loss(script, call)
        given = next((a.value for a in call.args if a.keyword and a.keyword.value == "input"), None)
        if kind and call.args and given is None and not call.args[0].star:
            given = call.args[0].value if call.args[0].keyword is None else None
        if kind and given is not None and not _picks(script, call, kind):
            yield Loss(kind, call, given)


def _picks(script: Script, call: cst.Call, kind: str) -> bool:
    """Whether `nll_loss` only picks one number of each row."""
    return kind == "nll" and script.call(call).argument("reduction").equals("none")


def _loss(script: Script, call: cst.Call) -> str:
    """Say which loss a call computes, if any."""
    name = script.name(call.func)
    if name is not None:
        return _FUNCTIONS.get(name, "")
    if not isinstance(call.func, (cst.Name, cst.Attribute, cst.Call)):
        return ""
    made = _made(script, call.func) if call.args else None
    loss = _CRITERIA.get(script.name(made.func) or "", "") if made is not None else ""
    return loss if loss and script.kind(call.func) is Kind.CRITERION else ""


def _made(script: Script, node: cst.BaseExpression) -> cst.Call | None:
    """Give the call that made a layer or a loss, moves to a device left out."""
    value = script.value_of(node).node
    while (
        isinstance(value, cst.Call)
        and isinstance(value.func, cst.Attribute)
        and value.func.attr.value in _MOVES
        and script.name(value.func) is None
    ):
        value = script.value_of(value.func.value).node
    return value if isinstance(value, cst.Call) else None


# -- what a value ends in --------------------------------------------------------


def _ends(script: Script, node: cst.BaseExpression, path: Path, depth: int) -> list[Activation]:
    """Give the activations that a value ends in, none unless it does on every path."""
    if not depth:
        return []
    if isinstance(node, cst.Name):
        return _joint([_bound(script, b, path, depth) for b in script.scopes.reaching(node)])
    if isinstance(node, cst.IfExp):
        return _joint([_ends(script, each, path, depth - 1) for each in (node.body, node.orelse)])
    if isinstance(node, cst.Tuple) and path and path[0] < len(node.elements):
        return _ends(script, node.elements[path[0]].value, path[1:], depth - 1)
    if isinstance(node, cst.Subscript):
        index = _index(script, node)
        chosen = _ends(script, node.value, (index, *path), depth - 1) if index is not None else []
        return chosen or _ends(script, node.value, path, depth - 1)
    if isinstance(node, cst.Call):
        return _called(script, node, path, depth)
    return []


def _index(script: Script, node: cst.Subscript) -> int | None:
    """Give the number by which an expression takes one of several values."""
    index = node.slice[0].slice
    if len(node.slice) != 1 or not isinstance(index, cst.Index):
        return None
    found = script.value_of(index.value).literal
    return found if type(found) is int and found >= 0 else None


def _joint(found: list[list[Activation]]) -> list[Activation]:
    if not all(found) or len({each.kind for one in found for each in one}) > 1:
        return []
    return [each for one in found for each in one]


def _bound(script: Script, binding: Binding, path: Path, depth: int) -> list[Activation]:
    if isinstance(binding.node, cst.Param):
        return _handed(script, binding.node, path, depth)
    if binding.value is None or binding.starred:
        return []
    if binding.how is How.ASSIGN:
        return _ends(script, binding.value, path, depth - 1)
    if binding.how is How.UNPACKED:
        return _ends(script, binding.value, (*binding.path, *path), depth - 1)
    return []


def _handed(script: Script, parameter: cst.Param, path: Path, depth: int) -> list[Activation]:
    """Give the activations that end what every call of this file hands to a parameter."""
    given = script.functions.given(parameter)
    return _joint([_ends(script, value, path, depth - 1) for value in given])


def _called(script: Script, call: cst.Call, path: Path, depth: int) -> list[Activation]:
    """Give the activations that the value of a call ends in."""
    name, func = script.name(call.func), call.func
    first = call.args[0].value if call.args else None
    if name is not None and name.startswith("torch."):
        if name in _FUNCTIONAL and not path:
            return [Activation(_ACTIVATIONS[name], call)]
        if first is None or path:
            return []
        if name == "torch.nn.parallel.data_parallel":
            ended = _layer_end(script, _made(script, first))
            return [ended] if ended is not None else []
        if name == "torch.log":
            return _logarithm(call, _ends(script, first, path, depth - 1))
        passes = name.removeprefix("torch.") in _PASSING
        return _ends(script, first, path, depth - 1) if passes else []
    callee = script.functions.callee(call)
    if callee is not None:
        if script.functions.is_generator(callee):
            return []
        returned = script.functions.returns(callee)
        return _joint([_ends(script, value, path, depth - 1) for value in returned])
    layer = _made(script, func)
    ended = _layer_end(script, layer) if not path else None
    if ended is not None:
        return [Activation(ended.kind, call) if ended.node is layer else ended]
    if not isinstance(func, cst.Attribute) or name is not None:
        return []
    method = func.attr.value
    if method in _METHODS and not path and _is_tensor(script, func.value):
        return [Activation(method, call)]
    if method == "log" and not path:
        return _logarithm(call, _ends(script, func.value, path, depth - 1))
    return _ends(script, func.value, path, depth - 1) if method in _PASSING else []


def _is_tensor(script: Script, node: cst.BaseExpression) -> bool:
    kind = script.kind(node)
    if kind is Kind.UNKNOWN:
        return script.name(node) is None and script.code(node) != "self"
    return kind in (Kind.TENSOR, Kind.LOSS)


def _logarithm(call: cst.Call, inner: list[Activation]) -> list[Activation]:
    if any(each.kind != "softmax" for each in inner):
        return []
    return [Activation("log(softmax)", call)] if inner else []


def _layer_end(script: Script, layer: cst.BaseExpression | None) -> Activation | None:
    """Give the activation that a layer is or, as a sequence of layers, ends in."""
    if not isinstance(layer, cst.Call):
        return None
    name = script.name(layer.func) or ""
    if name in _ACTIVATIONS and name not in _FUNCTIONAL:
        return Activation(_ACTIVATIONS[name], layer)
    if name != "torch.nn.Sequential" or not layer.args or layer.args[-1].star:
        return None
    return _layer_end(script, script.value_of(layer.args[-1].value).node)


# -- the fix ---------------------------------------------------------------------


def _without(script: Script, loss: Loss, activation: Activation) -> Edits | None:
    """Take out or replace an activation that is written into the call of a loss."""
    if loss.kind == "nll":
        return _logarithmic(script, activation)
    if loss.kind == "bce" and script.name(loss.node.func) is None:
        return _of_criterion(script, loss)
    edits, func = _taken_out(script, activation.node), loss.node.func
    if loss.kind != "bce" or edits is None:
        return edits
    if not isinstance(func, cst.Attribute):
        return None
    return (*script.rewrite.replace(func.attr, "binary_cross_entropy_with_logits"), *edits)


def _of_criterion(script: Script, loss: Loss) -> Edits | None:
    """Make a criterion take logits, if all that it gets are sigmoids in its calls."""
    made = _made(script, loss.node.func)
    if made is None or not isinstance(made.func, cst.Attribute) or made is loss.node.func:
        return None
    edits = script.rewrite.replace(made.func.attr, "BCEWithLogitsLoss")
    for each in _losses(script):
        if _made(script, each.node.func) is not made:
            continue
        ended = _ends(script, each.given, (), _DEPTH)
        own = len(ended) == 1 and ended[0].kind == "sigmoid" and ended[0].node is each.given
        taken = _taken_out(script, ended[0].node) if own else None
        if taken is None:
            return None
        edits = (*edits, *taken)
    return edits


def _taken_out(script: Script, call: cst.Call) -> Edits | None:
    """Leave the operand of an activation alone."""
    operand = _operand(script, call)
    imports = script.rewrite.without_imports(call.func) if operand is not None else None
    if operand is None or imports is None:
        return None
    whole, inner = script.span(call), script.span(operand)
    text = script.source.text
    if "#" in text[whole.start : inner.start] + text[inner.end : whole.end]:
        return None
    return (
        Edit(Span(whole.start, inner.start), ""),
        Edit(Span(inner.end, whole.end), ""),
        *imports,
    )


def _operand(script: Script, call: cst.Call) -> cst.BaseExpression | None:
    """Give what an activation is applied to."""
    func = call.func
    if isinstance(func, cst.Attribute) and func.attr.value in (*_METHODS, "log"):
        if script.name(func) is None and _made(script, func) is None:
            return func.value
    first = call.args[0] if call.args else None
    if first is None or first.star or (first.keyword and first.keyword.value != "input"):
        return None
    return first.value


def _logarithmic(script: Script, activation: Activation) -> Edits | None:
    """Make a softmax, or the logarithm of one, a log_softmax."""
    call = activation.node
    edits: Edits = ()
    if activation.kind == "log(softmax)":
        taken, inner = _taken_out(script, call), _operand(script, call)
        if taken is None or not isinstance(inner, cst.Call):
            return None
        call, edits = inner, taken
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "softmax":
        return None
    return (*edits, *script.rewrite.replace(call.func.attr, "log_softmax"))
