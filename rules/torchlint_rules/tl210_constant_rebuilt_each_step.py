"""TL210: the same constant is built in every step and copied to the device anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import CallSite, Finding, Kind, Rule, Script, State
from torchlint_rules._tensorfate import TensorFate, tensor_fate

_OF_VALUES: Final = frozenset(
    "torch.tensor torch.as_tensor torch.FloatTensor torch.LongTensor torch.Tensor".split()
)
_OF_SIZES: Final = frozenset("torch.arange torch.eye torch.linspace torch.ones".split())
_SIZES: Final = frozenset("data start end step steps size n m".split())
_MASKS: Final = frozenset({"torch.tril", "torch.triu"})
_PASSING: Final = frozenset(
    "view reshape unsqueeze squeeze expand float long int bool half double flatten".split()
)
_VARIABLE: Final = "torch.autograd.Variable"


class ConstantRebuiltEachStep(Rule):
    """
    ## What it does
    Reports constants that code of every step builds on the device: `torch.tensor([0.5, 0.5],
    device=device)`, a mask or a range whose size never changes.

    ## Why it is slow
    A list of numbers lies on the host: each time it becomes a tensor on the device, the host
    waits for the copy. A mask or a range costs some kernels in every step for what one would
    have given for the whole run.

    ## When not to
    Where the values or the size depend on the batch, where the tensor is written to, and where it
    has gradients; the rule is silent there.

    ## Fix safety
    There is no automatic fix. In a network a buffer holds such a constant:
    `self.register_buffer("mean", torch.tensor([...]), persistent=False)` moves with the network
    and leaves its checkpoints as they are. In a script a name before the loop does.
    """

    code = "TL210"
    name = "constant-rebuilt-each-step"
    summary = "the same constant is built on the device in every step"
    impact = "low"
    safety = None
    articles = ("S2",)
    needs = (
        ".tensor", ".as_tensor", ".arange", ".eye", ".linspace", ".tril", ".triu", "FloatTensor",
        "LongTensor", "new_tensor",
    )  # fmt: skip

    invalid = {
        "a list of numbers goes to the device in every step": """
              import torch
              device = torch.device("cuda")
              for x, y in loader:
            !     mean = torch.tensor([0.5, 0.5, 0.5]).to(device)
            !     std = torch.tensor([0.2, 0.2, 0.2], device=device).view(1, 3, 1, 1)
            !     other = torch.FloatTensor([1, 2]).cuda()
                  loss = model((x - mean) / std, other)
                  loss.backward()
            """,
        "in the forward of a network": """
              import torch
              from torch import nn
              MEAN = [0.485, 0.456, 0.406]
              class Net(nn.Module):
                  def __init__(self, length):
                      super().__init__()
                      self.length = length
                      self.weights = [1.0, 2.0]
                  def forward(self, x):
            !         mean = torch.tensor(MEAN).to(x.device)
            !         weights = x.new_tensor(self.weights)
            !         places = torch.arange(self.length, device=x.device)
                      return self.net(x - mean, places) * weights
              net = Net(8).cuda()
            """,
        "a mask of one size": """
              import torch
              from torch import nn
              class Attention(nn.Module):
                  def __init__(self, block_size):
                      super().__init__()
                      self.block_size = block_size
                  def forward(self, x):
            !         mask = torch.tril(torch.ones(self.block_size, self.block_size, device=x.device))
                      return x.masked_fill(mask == 0, 0)
              net = Attention(8).cuda()
            """,
        "in a function that the loop calls, behind a Variable": """
              import torch
              from torch.autograd import Variable
              START = 0
              def begin():
            !     return Variable(torch.LongTensor([[START]])).cuda()
              for x, y in loader:
                  loss = model(x, begin())
                  loss.backward()
            """,
    }
    valid = {
        "made once": """
            import torch
            device = torch.device("cuda")
            mean = torch.tensor([0.5, 0.5, 0.5]).to(device)
            for x, y in loader:
                loss = model(x - mean)
                loss.backward()
            """,
        "a buffer": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("mean", torch.tensor([0.5, 0.5], device="cuda"))
                def forward(self, x):
                    return x - self.mean
            """,
        "the size depends on the batch": """
            import torch
            from torch import nn
            class GPT(nn.Module):
                def forward(self, idx):
                    b, t = idx.size()
                    pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
                    mask = torch.tril(torch.ones(t, t, device=idx.device))
                    return self.net(pos, mask)
            net = GPT().cuda()
            """,
        "the values depend on the step": """
            import torch
            device = torch.device("cuda")
            for step, (x, y) in enumerate(loader):
                when = torch.tensor([step], device=device)
                loss = model(x, when)
                loss.backward()
            """,
        "it is written to": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                counts = torch.tensor([0, 0], device=device)
                counts[0] = x.size(0)
                total = torch.tensor(0.0, device=device)
                total += model(x).sum()
                loss = model(x, counts) + total
                loss.backward()
            """,
        "where a sum starts": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                loss = torch.tensor(0.0, device=device)
                for part in x:
                    loss = loss + model(part).sum()
                loss.backward()
            """,
        "one for each process, for what the others send": """
            import torch
            import torch.distributed as dist
            device = torch.device("cuda")
            for x, y in loader:
                sizes = [torch.tensor([0], device=device) for _ in range(dist.get_world_size())]
                dist.all_gather(sizes, torch.tensor([len(x)], device=device))
                model(x, sizes).backward()
            """,
        "it has gradients": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                shift = torch.tensor([0.0, 0.0], device=device, requires_grad=True)
                loss = model(x + shift)
                loss.backward()
            """,
        "it stays on the host": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                weights = torch.tensor([0.5, 0.5])
                print(weights)
                loss = model(x.to(device))
                loss.backward()
            """,
        "a number that is moved: TL203 makes it on the device first": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                loss = model(x, torch.tensor(0.5).to(device))
                loss.backward()
            """,
        "filled on the host and moved: TL203 makes it on the device first": """
            import torch
            device = torch.device("cuda")
            for x, y in loader:
                loss = model(x, torch.arange(8).to(device))
                loss.backward()
            """,
        "now and then": """
            import torch
            device = torch.device("cuda")
            for i, (x, y) in enumerate(loader):
                loss = model(x)
                loss.backward()
                if i % 100 == 0:
                    print(model(torch.tensor([1.0, 2.0], device=device)))
            """,
        "the script runs on the CPU": """
            import torch
            for x, y in loader:
                mean = torch.tensor([0.5, 0.5], device="cpu")
                loss = model(x - mean)
                loss.backward()
            """,
        "the size depends on the batch, by keyword": """
            import torch
            from torch import nn
            class Places(nn.Module):
                def forward(self, x):
                    return x + torch.linspace(0, 1, steps=x.size(1), device=x.device)
            net = Places().cuda()
            """,
        "made in the first step and kept": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.places = None
                def forward(self, x):
                    if self.places is None:
                        self.places = torch.arange(8, device=x.device)
                    return self.net(x, self.places)
            net = Net().cuda()
            """,
        "the type comes with the batch": """
            import torch
            class Balance(torch.nn.Module):
                def forward(self, x):
                    return x + torch.tensor([0.5], device=x.device, dtype=x.dtype)
            """,
        "a function whose results are kept": """
            import functools
            import torch
            @functools.cache
            def smallest(device):
                return torch.tensor(1e-6, device=device)
            def train(model, loader, optimizer):
                for x, y in loader:
                    loss = model(x.cuda()).sum() + smallest("cuda")
                    loss.backward()
                    optimizer.step()
            """,
        "once for each evaluation": """
            import torch
            from mine import load
            def validate(model, loader, device):
                places = torch.linspace(0.5, 0.95, 10, device=device)
                for x, y in loader:
                    model(x.to(device), places)
            for name in ("small", "large"):
                validate(load(name).cuda(), loader, "cuda")
            """,
        "the size is changed now and then": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.length = 8
                def grow(self):
                    self.length = self.length * 2
                def forward(self, x):
                    return self.net(x, torch.arange(self.length, device=x.device))
            net = Net().cuda()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Report every constant that code of each step builds on the device."""
        sites = list(script.calls(*_OF_VALUES, *_OF_SIZES))
        sites += [script.call(call) for call in script.method_calls("new_tensor")]
        if not sites or not script.can_use_accelerator:
            return
        for site in sites:
            of_sizes = site.name in _OF_SIZES
            if site.has_splat or not _is_constant_call(script, site, of_sizes):
                continue
            whole = _whole(script, site.node)
            if not _goes_to_device(script, site, whole, of_sizes) or _changes(script, whole):
                continue
            if not script.each_step(site.node) or _is_cold_round(script, site.node):
                continue
            message = f"`{script.brief(whole)}` is the same in every step, and each builds it anew; {_advice(script, whole)}"
            yield Finding(self.code, script.span(whole), message)


def _is_constant_call(script: Script, site: CallSite, of_sizes: bool) -> bool:
    """Whether the values of a tensor are the same each time it is made."""
    given = [arg for arg in site.node.args if arg.keyword is None or arg.keyword.value in _SIZES]
    if not given or site.argument("requires_grad").state is not State.ABSENT:
        return False
    dtype = site.given("dtype")
    if (
        dtype is not None
        and isinstance(dtype.value, cst.Attribute)
        and script.name(dtype.value) is None
    ):
        return False
    if not of_sizes:
        return len(given) == 1 and _is_literal(script, given[0].value, site.name)
    return all(_is_fixed(script, arg.value) for arg in given)


def _is_literal(script: Script, node: cst.BaseExpression, maker: str | None) -> bool:
    """Whether data is numbers that stand in the file, in lists perhaps."""
    value = script.value_of(node)
    if value.node is None or value.state is not State.KNOWN:
        return False
    if isinstance(value.node, (cst.List, cst.Tuple)):
        elements = value.node.elements
        return bool(elements) and all(
            script.value_of(each.value).is_literal or _is_literal(script, each.value, None)
            for each in elements
        )
    # torch.FloatTensor(3) takes a size
    return maker in ("torch.tensor", "torch.as_tensor") and isinstance(
        value.node, (cst.Integer, cst.Float, cst.UnaryOperation)
    )


def _is_scalar(script: Script, site: CallSite) -> bool:
    data = site.given("data", 0)
    return data is not None and script.kind(data.value) is Kind.NUMBER


def _is_fixed(script: Script, node: cst.BaseExpression) -> bool:
    """Whether a size is a number of the file or an attribute that only `__init__` sets."""
    if isinstance(node, cst.BinaryOperation):
        return _is_fixed(script, node.left) and _is_fixed(script, node.right)
    if script.value_of(node).is_literal and not isinstance(node, cst.Attribute):
        return True
    if not isinstance(node, cst.Attribute) or script.code(node.value) != "self":
        return False
    bindings = script.functions.attribute(node)
    makers = [script.function(binding.node) for binding in bindings]
    return bool(makers) and all(
        maker is not None and maker.name.value == "__init__" for maker in makers
    )


def _whole(script: Script, node: cst.BaseExpression) -> cst.BaseExpression:
    """Give the expression around a constant that only shapes, types, masks or moves it."""
    while True:
        holder = script.parent(node)
        outer = script.parent(holder) if holder is not None else None
        if (
            isinstance(holder, cst.Attribute)
            and isinstance(outer, cst.Call)
            and outer.func is holder
        ):
            if holder.attr.value not in _PASSING and script.moves.move(outer) is None:
                return node
            node = outer
        elif isinstance(holder, cst.Arg) and isinstance(outer, cst.Call):
            if script.name(outer.func) not in (*_MASKS, _VARIABLE) or outer.args[0] is not holder:
                return node
            node = outer
        else:
            return node


def _goes_to_device(
    script: Script, site: CallSite, whole: cst.BaseExpression, of_sizes: bool
) -> bool:
    """Whether a constant is built for a device, and not by what another rule mends."""
    calls = [
        call for call in script.within(whole, cst.Call) if not script.tree.inside(call, site.node)
    ]
    calls += [site.node] if isinstance(whole, cst.Call) else []
    masked = any(script.name(call.func) in _MASKS for call in calls)
    moved = any(script.moves.move(call) is not None for call in calls)
    if site.name == "torch.ones" and not masked:
        return False
    if of_sizes or (site.name == "torch.tensor" and _is_scalar(script, site)):
        return not moved and _names_device(script, site)
    return moved or _names_device(script, site) or script.name(site.node.func) is None


def _names_device(script: Script, site: CallSite) -> bool:
    given = site.given("device")
    if given is None:
        return False
    value = script.value_of(given.value)
    return not (value.equals("cpu") or value.equals(None))


def _changes(script: Script, whole: cst.BaseExpression) -> bool:
    """Whether a constant is only what something else starts from."""
    line = script.parent(whole)
    if isinstance(line, cst.ListComp) or tensor_fate(script, whole) is TensorFate.WRITTEN:
        return True
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(target, cst.Name):
        return script.kind(whole) is Kind.LOSS
    home = script.function(whole) or script.tree.module
    grown: list[cst.CSTNode] = [
        each.value
        for each in script.within(home, cst.Assign)
        if each is not line and script.code(each.targets[0].target) == target.value
    ]
    sums = [each.target for each in script.within(home, cst.AugAssign)]
    return any(script.code(each) == target.value for each in sums) or any(
        name.value == target.value for value in grown for name in script.within(value, cst.Name)
    )


def _is_cold_round(script: Script, node: cst.CSTNode) -> bool:
    loop = script.batch_loop(node)
    return loop is not None and script.is_round(loop)


def _advice(script: Script, node: cst.CSTNode) -> str:
    owner = script.scopes.class_of(node)
    if owner is not None and script.batch_loop(node) is None:
        return "keep it in a buffer: self.register_buffer(..., persistent=False)"
    return "make it once, before the loop"
