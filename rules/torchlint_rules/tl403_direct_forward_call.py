"""TL403: a network's forward is called past its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, How, Kind, Rule, Safety, Script

_BECAUSE: Final = "hooks that were skipped until now run, as does compiled code"
_METHODS: Final = frozenset(
    (
        "parameters named_parameters state_dict load_state_dict eval train zero_grad "
        "requires_grad_ apply modules children named_modules"
    ).split()
)
_LISTS: Final = ("torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential")
_FORWARDS: Final = ("forward", "__call__")


class DirectForwardCall(Rule):
    """
    ## What it does
    Flags `model.forward(x)`, where `model(x)` is meant.

    ## Why it is slow
    The call by itself is not: it is wrong. `forward` goes past what `model(x)` does around it: the
    hooks of profilers, of pruning and weight normalisation, those that gather the shards of
    `fully_shard`, and the compiled code of `model.compile()`. The script then runs slower, or
    learns otherwise than it seems to, without a word.

    ## When not to
    Call `forward` of a base class from a subclass, and in methods that TorchScript is told to
    ignore. Neither is flagged.

    ## Fix safety
    Unsafe: hooks that were skipped so far run. Where a network has none, nothing changes.
    """

    code = "TL403"
    name = "direct-forward-call"
    summary = "`forward` goes past the hooks and the compiled code of a network"
    impact = "low"
    safety = Safety.UNSAFE
    needs = (".forward",)

    invalid = {
        "an instance of a class of the file": """
              from torch import nn
              class Net(nn.Module):
                  def forward(self, x):
                      return x
              model = nn.parallel.DistributedDataParallel(Net())
              def step(x, y, criterion):
            -     return criterion(model.forward(x), y)
            +     return criterion(model(x), y)
            """,
        "a layer of torch, a network of torchvision": """
              import torchvision
              from torch import nn
              layer, net = nn.Linear(3, 3), torchvision.models.resnet18()
            - y = layer.forward(net.forward(x)) + nn.ReLU().forward(x)
            + y = layer(net(x)) + nn.ReLU()(x)
            """,
        "an attribute that is treated as a network": """
              import torch
              from networks import QNetwork
              class Agent:
                  def __init__(self):
                      self.q_eval = QNetwork()
                      self.optimizer = torch.optim.Adam(self.q_eval.parameters())
                  def choose(self, state):
            -         return self.q_eval.forward(state).argmax()
            +         return self.q_eval(state).argmax()
            """,
        "itself, from another method": """
              import lightning as L
              from torch import nn
              class Lit(L.LightningModule):
                  def forward(self, x):
                      return x
                  def training_step(self, batch, index):
            -         return self.forward(batch).mean()
            +         return self(batch).mean()
              class Net(nn.Module):
                  def forward(self, x):
                      return x
                  def loss(self, x, **options):
            -         return self.forward(x, **options).sum()
            +         return self(x, **options).sum()
            """,
        "a base class out of sight, layers and inputs": """
              import torch
              from torch import nn
              from models import Base
              class Coder(Base):
                  def __init__(self):
                      super().__init__()
                      self.layer = nn.Linear(3, 3)
                  def forward(self, x):
                      return self.layer(x)
                  def generate(self, x):
            -         return self.forward(x)[0]
            +         return self(x)[0]
            """,
        "one of a list of networks": """
              import torch
              from torch import nn
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.lins = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
                  def forward(self, x):
            -         x = self.lins[0].forward(x)
            +         x = self.lins[0](x)
                      for lin in self.lins[1:]:
            -             x = x + lin.forward(x)
            +             x = x + lin(x)
                      for i, lin in enumerate(self.lins):
            -             x = x + lin.forward(x) * i
            +             x = x + lin(x) * i
                      return x
            """,
        "spread over lines with a comment: reported": """
              from torch import nn
              layer = nn.Linear(3, 3)
            ! y = (layer
                   # past the hooks
                   .forward(x))
            """,
    }
    valid = {
        "the forward of a base class": """
            from torch import nn
            class Base(nn.Module):
                def forward(self, x):
                    return x
            class Net(Base):
                def forward(self, x):
                    return super().forward(x) + super(Net, self).forward(x) + Base.forward(self, x)
            class Layer(nn.Linear):
                def forward(self, x):
                    return nn.Linear.forward(self, x)
            """,
        "TorchScript is told to leave the method alone": """
            import torch
            class Net(torch.nn.Module):
                def forward(self, x):
                    return x
                @torch.jit.ignore
                def debug(self, x):
                    return self.forward(x)
                @torch.jit.export
                def other(self, x):
                    return self.forward(x)
            """,
        "a call of its own": """
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    return self.forward(x[1:]) if len(x) > 1 else x
                def __call__(self, x):
                    return self.forward(x)
            """,
        "an autograd function, a compiled extension": """
            import torch
            import xentropy_cuda
            class Cube(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return xentropy_cuda.forward(x)
            class Fast(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return Cube.forward(ctx, x)
            """,
        "a class that is no module": """
            import torch
            class Trainer:
                def forward(self):
                    self.fake = self.net(self.real)
                def optimize(self):
                    self.forward()
            trainer = Trainer()
            trainer.forward()
            """,
        "a base class out of sight that trains networks": """
            import torch
            from models import Base, define
            class Trainer(Base):
                def __init__(self, options):
                    super().__init__(options)
                    self.net = define(options)
                    self.criterion = torch.nn.L1Loss()
                    self.optimizer = torch.optim.Adam(self.net.parameters())
                def forward(self):
                    self.fake = self.net(self.real)
                def optimize(self):
                    self.forward()
            """,
        "one of a list of other things": """
            import torch
            class Chain:
                def __init__(self, steps):
                    self.steps = [step for step in steps]
                def run(self, x):
                    for step in self.steps:
                        x = step.forward(x)
                    return self.steps[0].forward(x)
            """,
        "only the name says that it is a network": """
            import caffe
            import torch
            net = caffe.Net("deploy.prototxt", caffe.TEST)
            def run(model, x):
                net.forward()
                return model.forward(x)
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every call of the forward of something that surely is a network."""
        for call in script.method_calls("forward"):
            func = call.func
            assert isinstance(func, cst.Attribute)
            if script.name(func) is not None or not _is_network(script, func.value):
                continue
            if _is_own(script, call, func.value):
                continue
            network = script.brief(func.value)
            message = (
                f"`{network}.forward` goes past the network's hooks and compiled code: call "
                f"`{network}` itself"
            )
            start, end = script.span(func.value).end, script.span(func.attr).end
            fix = None
            if "#" not in script.source.text[start:end]:
                edits = script.rewrite.delete(start, end)
                fix = Fix.unsafe("Call the network itself", edits, because=_BECAUSE)
            yield Finding(self.code, script.span(call), message, fix)


def _is_network(script: Script, node: cst.BaseExpression) -> bool:
    """Whether the file shows, not only by a name, that an expression is a network."""
    if isinstance(script.definition(node), cst.ClassDef):
        return False
    if isinstance(node, cst.Call) and script.name(node.func) == "builtins.super":
        return False
    if script.functions.instance_of(node) is not None:
        return script.kind(node) is Kind.MODULE or _derives(script, node)
    made = script.value_of(node).node
    if isinstance(made, cst.Call) and script.name(made.func) is not None:
        if script.kind(made) is Kind.MODULE:
            return True
    if isinstance(node, (cst.Name, cst.Subscript)) and _is_member(script, node):
        return True
    return isinstance(node, (cst.Name, cst.Attribute)) and _is_treated_so(script, node)


def _is_member(script: Script, node: cst.Name | cst.Subscript) -> bool:
    """Whether an expression is one of a list of networks."""
    whole: cst.BaseExpression | None = node
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        if len(bindings) != 1 or bindings[0].how is not How.LOOP or bindings[0].value is None:
            return False
        whole, _ = script.iteration.source(bindings[0].value, bindings[0].path)
    while isinstance(whole, cst.Subscript):
        whole = whole.value
    made = script.value_of(whole).node if whole is not None else None
    return isinstance(made, cst.Call) and script.name(made.func) in _LISTS


def _derives(script: Script, node: cst.BaseExpression) -> bool:
    """Whether an expression is an instance of a class of modules."""
    owner = script.functions.instance_of(node)
    if owner is None:
        return False
    named = any(
        base.rpartition(".")[2] in ("Module", "LightningModule")
        for base in script.functions.bases(owner)
    )
    return named or _is_built_so(script, owner)


def _is_built_so(script: Script, owner: cst.ClassDef) -> bool:
    """Whether a class with a base out of sight holds layers and has a forward that takes inputs."""
    bases = script.functions.bases(owner)
    if not bases or any(base.startswith(("torch.", "builtins.", "abc.")) for base in bases):
        return False
    forward = next(
        (
            each
            for each in owner.body.body
            if isinstance(each, cst.FunctionDef) and each.name.value == "forward"
        ),
        None,
    )
    if forward is None or len(forward.params.params) < 2:
        return False
    if any(script.kind(call) is Kind.OPTIMIZER for call in script.within(owner, cst.Call)):
        return False
    return any(
        isinstance(line.targets[0].target, cst.Attribute)
        and isinstance(line.value, cst.Call)
        and (script.name(line.value.func) or "").startswith("torch.nn.")
        and script.kind(line.value) is Kind.MODULE
        and "Loss" not in script.code(line.value.func)
        for line in script.within(owner, cst.Assign)
    )


def _is_treated_so(script: Script, node: cst.BaseExpression) -> bool:
    """Whether the file asks an object for its parameters, or the like."""
    text = script.code(node)
    return any(
        isinstance(call.func, cst.Attribute) and script.code(call.func.value) == text
        for call in script.method_calls(*_METHODS)
    )


def _is_own(script: Script, call: cst.Call, node: cst.BaseExpression) -> bool:
    """Whether a class runs its own forward in its own way."""
    function = script.function(call)
    if function is None or not isinstance(node, cst.Name):
        return False
    if any((script.name(d.decorator) or "").startswith("torch.jit.") for d in function.decorators):
        return True
    bindings = script.scopes.reaching(node)
    own = any(
        isinstance(b.node, cst.Param) and script.functions.owner_of_self(b.node) is not None
        for b in bindings
    )
    return own and function.name.value in _FORWARDS
