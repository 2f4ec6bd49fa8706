"""TL307: convolutions over images that are laid out channel by channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, How, Record, Rule, Safety, Script, State, regex
from torchlint_rules._cuda import in_environment, makers, may_be_cuda, regions, trains

_COMMENT: Final = regex(r"#[^\r\n]*")
_LAYOUT: Final = regex(
    r"channels_last|memory_format|as_strided|\w3d\b|cpp_extension|torch\.ops\b|autograd\.Function|"
    r"\bDataParallel|jit\.|quantiz|storage_offset"
)
_STRIDED: Final = (".permute(", ".contiguous(", ".stride(", ".data_ptr(")
_VIEW: Final = regex(r"(\w*)(?:\[[^\]\r\n]*\])?(?:\.\w+(?:\([^()\r\n]*\))?)*\.view(?:_as)?\(")
_FLAT: Final = regex(r"(?:\w+_)?(?:targets?|labels?|correct|y)")
_ZOO: Final = regex(
    r"torchvision\.models\.(?:\w+\.)?"
    r"(?:alexnet|vgg\d+\w*|resnet\d+|wide_resnet\w+|densenet\d+|squeezenet\w+)"
)
_KNOWN: Final = regex(
    r"(?:torch|builtins|math|numpy|collections|functools|itertools|typing)(?:\.|$)"
)
_CONVOLUTIONS: Final = ("torch.nn.Conv2d", "torch.nn.ConvTranspose2d")
_GROUPS: Final = {"torch.nn.Conv2d": 6, "torch.nn.ConvTranspose2d": 6}
_WRITTEN: Final = "memory_format={torch}.channels_last"
_WIDTH: Final = 100
_BECAUSE: Final = "other kernels convolve, which add in another order"


class ContiguousImages(Rule):
    """
    ## What it does
    Flags a convolutional network that is moved to a GPU and trained in the default layout, one
    channel behind the other.

    ## Why it is slow
    Tensor cores convolve images whose channels lie side by side. In the default layout cuDNN turns
    every input and output of a convolution around. With `memory_format=torch.channels_last` the
    layout spreads from layer to layer; 8 to 35 % more speed were published, the most with mixed
    precision.

    ## When not to
    It is off by default, for without tensor cores, and for grouped convolutions, it may be slower:
    measure. The rule is silent where code depends on the layout: `view` of feature maps (it raises;
    `flatten` and `reshape` do not), `permute`, `contiguous`, `as_strided`, CUDA kernels of one's
    own, 3-D convolutions (which cannot be moved so), `DataParallel`, and networks out of sight.

    ## Fix safety
    Close: the mathematics and the weights stay, but other kernels add in another order, within
    1e-4 of a loss. Images are only converted where they surely go into a convolution.
    """

    code = "TL307"
    name = "contiguous-images"
    summary = "convolutions must turn images around before they use tensor cores"
    impact = "medium"
    safety = Safety.CLOSE
    after = ("TL204",)
    articles = ("S2",)
    needs = (
        "Conv2d", "ConvTranspose2d", "torchvision.models", "models.resnet", "models.vgg",
        "models.densenet", "models.alexnet", "models.squeezenet", "models.wide_resnet",
    )  # fmt: skip
    since = (1, 5)
    default = False

    invalid = {
        "a network of the file, and the images that go into its first convolution": """
              import torch
              import torch.nn as nn
              from torch.utils.data import DataLoader
              from mine import images
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.conv = nn.Conv2d(3, 8, 3)
                      self.fc = nn.Linear(8 * 30 * 30, 10)
                  def forward(self, x):
                      x = torch.relu(self.conv(x))
                      return self.fc(torch.flatten(x, 1))
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            - model = Net().to(device)
            + model = Net().to(device, memory_format=torch.channels_last)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in DataLoader(images, batch_size=8):
            -     x, y = x.to(device), y.to(device)
            +     x, y = x.to(device, memory_format=torch.channels_last), y.to(device)
                  loss = nn.functional.cross_entropy(model(x), y)
                  optimizer.zero_grad()
                  loss.backward()
                  optimizer.step()
            """,
        "of torchvision, by `cuda`, in training and evaluation, in functions": """
              import torch as th
              from torch.utils.data import DataLoader
              from torchvision import models
              from mine import images, pictures, criterion
              def train(model, loader, optimizer):
                  for x, y in loader:
            -         x = x.cuda(non_blocking=True)
            +         x = x.cuda(non_blocking=True, memory_format=th.channels_last)
                      loss = criterion(model(x), y.cuda())
                      loss.backward()
                      optimizer.step()
              @th.no_grad()
              def evaluate(model, loader):
                  for x, y in loader:
            -         correct = model(x.cuda()).argmax(1).eq(y.cuda())
            +         correct = model(x.cuda(memory_format=th.channels_last)).argmax(1).eq(y.cuda())
                      print(correct.view(-1).sum(), y.view(1, -1), y.view_as(correct))
              def main():
            -     model = models.resnet50().cuda()
            +     model = models.resnet50().cuda().to(memory_format=th.channels_last)
                  optimizer = th.optim.SGD(model.parameters(), lr=0.1)
                  train(model, DataLoader(images, batch_size=8), optimizer)
                  evaluate(model, DataLoader(pictures, batch_size=8))
              if __name__ == "__main__":
                  main()
            """,
        "a line of its own where one would become too long": """
              import torch
              from torch import nn
              from mine import loader
            - model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 8)).cuda()
            + model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 8)).cuda()
            + model.to(memory_format=torch.channels_last)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
                  loss.backward()
                  optimizer.step()
            """,
        "a sequence of layers; what comes before its convolution stays as it is": """
              import torch
              from torch import nn
              from torch.utils.data import DataLoader
              from mine import images
              model = nn.Sequential(nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 8, 3), nn.Flatten())
            - model.to("cuda")
            + model.to("cuda", memory_format=torch.channels_last)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in DataLoader(images, batch_size=8):
                  loss = nn.functional.cross_entropy(model(x.to("cuda")), y.to("cuda"))
                  loss.backward()
                  optimizer.step()
            """,
        "blocks of the file; the loader is out of sight, and so are the shapes": """
              import torch
              from torch import nn
              from torchvision.models import resnet18
              from mine import loader
              def block(i, o):
                  return nn.Sequential(nn.Conv2d(i, o, 3), nn.BatchNorm2d(o), nn.ReLU())
              class Net(nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.trunk = resnet18(weights=None)
                      self.body = nn.Sequential(block(3, 8), block(8, 8))
                  def forward(self, x):
                      return self.trunk(x), self.body(x).mean((2, 3))
              net = Net()
            - net = net.cuda(0)
            + net = net.cuda(0).to(memory_format=torch.channels_last)
              optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
              for x, y in loader:
                  loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
                  loss.backward()
                  optimizer.step()
            """,
    }
    valid = {
        "both are in the layout": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten())
            model = model.to("cuda", memory_format=torch.channels_last)
            for x, y in loader:
                x = x.to("cuda", memory_format=torch.channels_last)
                nn.functional.cross_entropy(model(x), y.to("cuda")).backward()
                optimizer.step()
            """,
        "`view` of a feature map raises in the other layout": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(3, 8, 3)
                def forward(self, x):
                    x = self.conv(x)
                    return x.view(x.size(0), -1)
            model = Net().cuda()
            for x, y in loader:
                nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "so does `view` of a network's output": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 1, 3)).cuda()
            for x, y in loader:
                nn.functional.mse_loss(model(x.cuda()).view(-1), y.cuda()).backward()
                optimizer.step()
            """,
        "3-D convolutions cannot be moved so": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Unflatten(1, (1, 8)), nn.Conv3d(1, 8, 3))
            model = model.cuda()
            for x, y in loader:
                nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "nothing convolves in two dimensions": """
            import torch
            from torch import nn
            # not Conv2d
            model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.Flatten()).cuda()
            for x, y in loader:
                nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "the code turns axes around by hand": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(3, 8, 3)
                def forward(self, x):
                    return self.conv(x).permute(0, 2, 3, 1).contiguous()
            model = Net().cuda()
            for x, y in loader:
                nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "it looks at strides": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()).cuda()
            for x, y in loader:
                x = torch.as_strided(x.cuda(), (1, 3, 8, 8), (192, 64, 8, 1))
                nn.functional.cross_entropy(model(x), y.cuda()).backward()
                optimizer.step()
            """,
        "a CUDA kernel of one's own": """
            import torch
            from torch import nn
            from torch.utils.cpp_extension import load
            kernel = load("kernel", ["kernel.cu"])
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()).cuda()
            for x, y in loader:
                nn.functional.cross_entropy(kernel.run(model(x.cuda())), y.cuda()).backward()
                optimizer.step()
            """,
        "grouped convolutions may be slower": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Flatten()).cuda()
            for x, y in loader:
                nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "so are those of MobileNet": """
            import torch
            import torchvision.models
            model = torchvision.models.mobilenet_v2().cuda()
            for x, y in loader:
                torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "a network out of sight may use `view`": """
            import torch
            from torch import nn
            from mine import Net, Backbone, loader
            class Outer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = Backbone()
                    self.conv = nn.Conv2d(8, 8, 3)
                def forward(self, x):
                    return self.conv(self.inner(x))
            model, other = Net().cuda(), Outer().cuda()
            for x, y in loader:
                nn.functional.mse_loss(other(model(x.cuda())), y.cuda()).backward()
                optimizer.step()
            """,
        "DataParallel lays the weights out anew on every GPU": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()).cuda()
            model = nn.DataParallel(model)
            for x, y in loader:
                nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "nothing here runs on a GPU": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()).to("cpu")
            for x, y in loader:
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            """,
        "a network that only infers": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()).cuda()
            with torch.no_grad():
                for x, y in loader:
                    print(model(x.cuda()))
            """,
        "a loop that Lightning owns": """
            import lightning as L
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()).cuda()
            for x, y in loader:
                nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
        "the arguments of the move are out of sight": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()).to("cuda", **options)
            for x, y in loader:
                nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every move of a convolutional network whose code does not depend on the layout."""
        if not may_be_cuda(script) or in_environment(script):
            return
        if script.vocabulary.has(_LAYOUT) or _is_strided(_COMMENT.sub("", script.source.text)):
            return
        if not trains(script):
            return
        for network in _networks(script):
            written = script.rewrite.importing("torch")
            fix = None
            if written is not None:
                word = _WRITTEN.format(torch=written[0])
                edits = (
                    *_network_moved(script, network.move, word),
                    *_images_moved(script, network, word),
                )
                title = "Lay images out with their channels side by side"
                fix = Fix.close(title, edits, written[1], because=_BECAUSE)
            message = (
                f"{_named(script, network)} gets its images channel by channel, so that every "
                "convolution on tensor cores turns them around: move it, and them, with "
                "`memory_format=torch.channels_last`"
            )
            yield Finding(self.code, script.span(network.move), message, fix)


class _Network(Record):
    """A convolutional network: the call that moves it, and those that make it."""

    move: cst.Call
    moved: cst.BaseExpression
    made: tuple[cst.Call, ...]


def _is_strided(code: str) -> bool:
    """Whether code depends on how the elements of an image lie in memory."""
    if any(call in code for call in _STRIDED):
        return True
    return not all(
        _FLAT.fullmatch(view[1])
        for line in code.split("\n")
        if ".view" in line
        for view in _VIEW.finditer(line)
    )


def _named(script: Script, network: _Network) -> str:
    """Name a network by its name, or by that of what makes it."""
    if not isinstance(network.moved, cst.Call):
        return f"`{script.code(network.moved)}`"
    holder = script.parent(network.move)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) else network.moved.func
    return f"`{script.code(target)}`" if not isinstance(target, cst.Tuple) else "the network"


def _networks(script: Script) -> Iterator[_Network]:
    for call in script.method_calls("to", "cuda"):
        move = script.moves.move(call)
        if move is None or script.call(call).has_splat:
            continue
        made = makers(script, move.moved)
        if made and all(_is_open(script, each) for each in made):
            yield _Network(call, move.moved, made)


# -- what a network is made of ----------------------------------------------------


def _is_open(script: Script, made: cst.Call) -> bool:
    """Whether the code of a network is in sight, convolves, and has plain convolutions only."""
    name = script.name(made.func)
    if name is not None and _ZOO.fullmatch(name):
        return True
    calls = [call for region in regions(script, made) for call in script.within(region, cst.Call)]
    names = {name for call in calls if (name := script.name(call.func)) is not None}
    zoo = {each for each in names if _ZOO.fullmatch(each)}
    if not names & set(_CONVOLUTIONS) and not zoo:
        return False
    if not all(_KNOWN.match(each) for each in names - zoo):
        return False
    return all(
        (groups := script.call(call).argument("groups", _GROUPS[name])).state is State.ABSENT
        or groups.equals(1)
        for call in calls
        if (name := script.name(call.func)) in _GROUPS
    )


def _convolves_first(script: Script, made: cst.Call) -> bool:
    """Whether the first argument of a network goes into a convolution as it is."""
    name = script.name(made.func)
    if name in _CONVOLUTIONS or (name is not None and _ZOO.fullmatch(name)):
        return True
    if name == "torch.nn.Sequential":
        first = made.args[0].value if made.args and not made.args[0].star else None
        return isinstance(first, cst.Call) and _convolves_first(script, first)
    inner = script.definition(made.func)
    if isinstance(inner, cst.FunctionDef):
        returned = script.functions.returns(inner)
        return bool(returned) and all(
            isinstance(each, cst.Call) and _convolves_first(script, each) for each in returned
        )
    forward = script.functions.method(inner, "forward") if inner is not None else None
    if forward is None or len(forward.params.params) < 2:
        return False
    image = forward.params.params[1]
    return any(
        isinstance(call.func, cst.Attribute)
        and call.args
        and isinstance(call.args[0].value, cst.Name)
        and [binding.node for binding in script.scopes.reaching(call.args[0].value)] == [image]
        and _is_convolution(script, call.func)
        for call in script.within(forward.body, cst.Call)
    )


def _is_convolution(script: Script, layer: cst.Attribute) -> bool:
    """Whether a layer of a network is, or begins with, a convolution."""
    bindings = script.functions.attribute(layer)
    return bool(bindings) and all(
        isinstance(each.value, cst.Call) and _convolves_first(script, each.value)
        for each in bindings
    )


# -- edits ------------------------------------------------------------------------


def _network_moved(script: Script, move: cst.Call, word: str) -> Edits:
    """Have a network moved into the layout too."""
    keyword, _, value = word.partition("=")
    assert isinstance(move.func, cst.Attribute)
    if move.func.attr.value == "to":
        return script.rewrite.with_keyword(move, keyword, value)
    end, line, holder = script.span(move).end, script.statement(move), script.parent(move)
    width = len(script.source.line(script.source.position(end).row).rstrip()) + len(f".to({word})")
    if width > _WIDTH and isinstance(holder, cst.Assign) and script.rewrite.stands_alone(line):
        return script.rewrite.after(line, f"{script.code(holder.targets[-1].target)}.to({word})")
    return script.rewrite.insert(end, f".to({word})")


def _images_moved(script: Script, network: _Network, word: str) -> Edits:
    """Have the images moved into the layout that surely go into the network's convolution."""
    keyword, _, value = word.partition("=")
    if not all(_convolves_first(script, each) for each in network.made):
        return ()
    moves: dict[int, cst.Call] = {}
    runs = script.once(_runs)
    found = {call for made in network.made for call in runs.get(made, ())}
    for call in sorted(found, key=script.tree.order):
        for move in _moves_of(script, call.args[0].value):
            moves[id(move)] = move
    return tuple(
        edit
        for move in moves.values()
        for edit in script.rewrite.with_keyword(move, keyword, value)
    )


def _runs(script: Script) -> dict[cst.Call, list[cst.Call]]:
    """Give the calls that run a network on something, by the calls that make the network."""
    found: dict[cst.Call, list[cst.Call]] = {}
    for call in script.all(cst.Call):
        network = script.module_call(call) if call.args else None
        for made in makers(script, network) if network is not None else ():
            found.setdefault(made, []).append(call)
    return found


def _moves_of(script: Script, node: cst.BaseExpression) -> Iterator[cst.Call]:
    """Yield the calls that move a part of a batch which a node may be."""
    if isinstance(node, cst.Call):
        move = script.moves.move(node)
        if move is not None and not script.call(node).has_splat and script.parts.of(move.moved):
            yield node
    if not isinstance(node, cst.Name):
        return
    for binding in script.scopes.reaching(node):
        value = binding.value
        if binding.how is How.UNPACKED and isinstance(value, cst.Tuple) and not binding.starred:
            at = binding.path[0]
            if len(binding.path) == 1 and isinstance(at, int) and at < len(value.elements):
                value = value.elements[at].value
        if isinstance(value, cst.Call):
            yield from _moves_of(script, value)
