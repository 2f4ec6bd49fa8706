"""TL306: float32 matrix products without TF32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Role, Rule, Safety, Script, regex
from torchlint_rules._cuda import (
    in_environment,
    makers,
    may_be_cuda,
    moved_networks,
    named_convolutional,
    place,
    setting,
    trains,
)

_SET: Final = regex(r"float32_matmul_precision|fp32_precision|tf32")
_PRODUCTS: Final = regex(
    r"Attention|Transformer(?!_?[Nn]et)|LSTM|GRU|RNN|MLP|Mixer|GPT|[Bb]ert\b|BERT|(?:\b|_)vit|ViT|[Ss]win|"
    r"matmul|bmm|einsum|\bmm\b|addmm|dot_product|torch_geometric|\bdgl\b"
)
_IMAGES: Final = regex(
    r"torchvision|image|(?:\b|_)imgs?(?:\b|_)|cifar|mnist|conv|cnn|resne[xs]?t|u_?net|vgg|densenet|"
    r"yolo|ssd|cityscapes|crop_?size|pixel|segment|style_?gan|super_?res|upscale|\btcn\b"
)
_LINE: Final = '{torch}.set_float32_matmul_precision("high")'


class Tf32Off(Rule):
    """
    ## What it does
    Flags a script that trains in float32 on a GPU and leaves the precision of matrix products as it
    is by default.

    ## Why it is slow
    Since Ampere the tensor cores multiply float32 matrices too, rounded to TF32, at many times the
    rate of full float32. Convolutions do so by default; matrix products, and so linear layers and
    attention, only once `torch.set_float32_matmul_precision("high")` was called.

    ## When not to
    Leave it where products need all 24 bits: physics, matrix inverses, networks in float64. Under
    autocast there is little left to gain.

    ## Fix safety
    Unsafe: products are rounded to 10 bits of mantissa, so losses drift. The fix writes "high",
    never "medium", which changes what a CPU computes as well.
    """

    code = "TL306"
    name = "tf32-off"
    summary = "float32 matrix products do not use the tensor cores"
    impact = "medium"
    safety = Safety.UNSAFE
    articles = ("S2",)
    needs = (".backward(",)
    since = (1, 12)

    invalid = {
        "a trainer that makes and moves its own network: no fix, a program decides for all": """
              import torch
              class Trainer:
                  def __init__(self, loader):
                      self.loader = loader
            !         self.net = torch.nn.Linear(4, 4).cuda()
                      self.optimizer = torch.optim.Adam(self.net.parameters())
                  def train(self):
                      for x, y in self.loader:
                          loss = (self.net(x.cuda()) - y.cuda()).square().mean()
                          loss.backward()
                          self.optimizer.step()
            """,
        "behind the imports; told where the network moves": """
              import torch
              from torch import nn
            +
            + torch.set_float32_matmul_precision("high")

              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            - model = nn.Linear(4, 4).to(device)
            + model = nn.Linear(4, 4).to(device)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  loss = (model(x.to(device)) - y.to(device)).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
        "in a function that a main guard runs, beside another setting": """
              import torch as T
              import torch.nn.functional as F

              T.backends.cudnn.benchmark = True
            + T.set_float32_matmul_precision("high")

              def main(model, loader):
            -     model = model.cuda()
            +     model = model.cuda()
                  optimizer = T.optim.SGD(model.parameters(), lr=0.1)
                  for x, y in loader:
                      loss = F.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
                      optimizer.step()

              if __name__ == "__main__":
                  main(None, None)
            """,
        "a sum in float64 widens no product": """
              import torch
            +
            + torch.set_float32_matmul_precision("high")

              def main(measure, loader):
            -     model = torch.nn.Linear(4, 4).cuda()
            +     model = torch.nn.Linear(4, 4).cuda()
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  error = 0.0
                  for x, y in loader:
                      loss = (model(x.cuda()) - y.cuda()).square().mean()
                      loss.backward()
                      optimizer.step()
                      error = error + measure(model, x).double() * len(x)
                  print(float(error))

              if __name__ == "__main__":
                  main(None, None)
            """,
        "a patch embedding convolves, and attention multiplies": """
              import torch
              from torch import nn
            +
            + torch.set_float32_matmul_precision("high")

            - patches = nn.Conv2d(3, 8, 4, stride=4).cuda()
            + patches = nn.Conv2d(3, 8, 4, stride=4).cuda()
              model = nn.MultiheadAttention(8, 2).cuda()
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  seen = patches(x.cuda()).flatten(2).permute(2, 0, 1)
                  loss = (model(seen, seen, seen)[0] - y.cuda()).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
        "the network moves out of sight: told at the loop": """
              import torch
              from models import build_model
            +
            + torch.set_float32_matmul_precision("high")

              device = "cuda:0"
              model = build_model(device)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            - for x, y in loader:
            + for x, y in loader:
                  loss = model(x.to(device), y.to(device))
                  loss.backward()
                  optimizer.step()
            """,
    }
    valid = {
        "a trainer that is given its network: the program that makes it decides": """
            import torch
            class Trainer:
                def __init__(self, model, loader):
                    self.model = model
                    self.loader, self.head = loader, torch.nn.Linear
                    self.model = self.model.to("cuda")
                def train(self, optimizer):
                    for x, y in self.loader:
                        (self.model(x.cuda()) - y.cuda()).square().mean().backward()
                        optimizer.step()
            """,
        "a trainer of a network out of sight, of which nothing says that it multiplies matrices": """
            import torch
            from models import Learner
            class Trainer:
                def __init__(self, loader):
                    self.loader = loader
                    self.net = Learner().cuda()
                    self.optimizer = torch.optim.Adam(self.net.parameters())
                def train(self):
                    for x, y in self.loader:
                        (self.net(x.cuda()) - y.cuda()).square().mean().backward()
                        self.optimizer.step()
            """,
        "a method that makes one step: whose loop it is, another file says": """
            import torch
            class Agent:
                def __init__(self):
                    self.net = torch.nn.Linear(4, 4).cuda()
                    self.optimizer = torch.optim.Adam(self.net.parameters())
                def update(self, x, y):
                    loss = (self.net(x) - y).square().mean()
                    loss.backward()
                    self.optimizer.step()
            """,
        "set already": """
            import torch
            torch.set_float32_matmul_precision("high")
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "somebody wants the full precision": """
            import torch
            torch.set_float32_matmul_precision("highest")
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "by the older switch; the two do not mix": """
            import torch
            torch.backends.cuda.matmul.allow_tf32 = True
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "by the newest, after which reading the others raises": """
            import torch
            torch.backends.cuda.matmul.fp32_precision = "tf32"
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "autocast covers the products": """
            import torch
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "scientific code computes in float64": """
            import torch
            model = torch.nn.Linear(4, 4).double().cuda()
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "matrix inverses need all digits": """
            import torch
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                loss = (torch.linalg.inv(model(x.cuda())) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "nothing here runs on a GPU": """
            import torch
            model = torch.nn.Linear(4, 4)
            for x, y in loader:
                loss = (model(x) - y).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "a module of a program that may set it elsewhere": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    loss = (model(x.cuda()) - y.cuda()).square().mean()
                    loss.backward()
                    optimizer.step()
            """,
        "convolutions use TF32 by themselves, and there is nothing else": """
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(3, 8, 3)
                def forward(self, x):
                    return self.conv(x)
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "a linear layer behind convolutions is the least of the work": """
            import torch
            from torch import nn
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 10)).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "a network out of sight that reads images convolves, as far as anyone can tell": """
            import torch
            import torchvision
            from models import build_model
            model = build_model().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "a new head on a convolutional network": """
            import torch
            import torchvision
            model = torchvision.models.resnet50()
            model.fc = torch.nn.Linear(2048, 2)
            model.cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "an attack changes pictures, it trains nothing": """
            import torch
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                x = x.cuda().requires_grad_()
                loss = (model(x) - y.cuda()).square().mean()
                loss.backward()
                x = x + x.grad.sign()
            """,
        "Lightning has a way of its own": """
            import torch
            import lightning as L
            torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                model(x).backward()
                optimizer.step()
            """,
        "a loop over an environment: its products are small": """
            import gymnasium as gym
            import torch
            model = torch.nn.Linear(4, 2).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            env = gym.make("CartPole-v1")
            state, _ = env.reset()
            for _ in range(100):
                loss = model(torch.as_tensor(state).cuda()).sum()
                loss.backward()
                optimizer.step()
            """,
        "torch before 1.12 has no such function": """
            # target-torch: 1.11
            import torch
            model = torch.nn.Linear(4, 4).cuda()
            for x, y in loader:
                loss = (model(x.cuda()) - y.cuda()).square().mean()
                loss.backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag a program that trains with matrix products in full float32."""
        if not may_be_cuda(script) or script.vocabulary.has_lowered(_SET):
            return
        if script.precision.speaks_of_low or script.precision.is_wide or in_environment(script):
            return
        if _only_convolves(script):
            return
        program = trains(script)
        node = place(script) if program or _trains_its_own(script) else None
        if node is None:
            return
        edits = setting(script, _LINE) if program else None
        fix = None
        if edits is not None:
            because = "matrix products are rounded to TF32, 10 bits of mantissa"
            fix = Fix.unsafe("Let matrix products use TF32", edits, because=because)
        message = (
            "float32 matrix products leave the tensor cores idle: call "
            '`torch.set_float32_matmul_precision("high")` when the program starts'
        )
        yield Finding(self.code, script.span(node), message, fix)


def _trains_its_own(script: Script) -> bool:
    """Whether a module trains, in a loop of its own, a network that it makes and moves itself."""
    if not script.loops(Role.TRAIN_BATCH):
        return False
    if not any(script.steps.updates(step) for step in script.steps.all):
        return False
    linear = any(name.endswith(".Linear") for name in script.called)
    if not linear and not script.vocabulary.has(_PRODUCTS):
        return False
    return any(
        makers(script, move.moved) and not _in_test(script, move.call)
        for move in moved_networks(script)
    )


def _in_test(script: Script, node: cst.CSTNode) -> bool:
    function = script.function(node)
    return function is not None and function.name.value.startswith("test_")


def _only_convolves(script: Script) -> bool:
    """Whether convolutions do the work of the networks, which are told by their data if need be."""
    if script.vocabulary.has(_PRODUCTS) or any(
        isinstance(each.operator, cst.MatrixMultiply) for each in script.all(cst.BinaryOperation)
    ):
        return False
    if named_convolutional(script):
        return True
    makes = [_last(site.name or "") for site in script.calls(*filter(_is_layer, script.called))]
    linear = makes.count("Linear")
    convolutions = len(makes) - linear
    if convolutions or linear:
        return convolutions >= linear
    return script.vocabulary.has_lowered(_IMAGES)


def _is_layer(name: str) -> bool:
    """Whether a qualified name is that of a convolution or of a linear layer."""
    return _last(name) == "Linear" or _last(name).startswith("Conv")


def _last(name: str) -> str:
    """Give the last part of a qualified name."""
    return name.rpartition(".")[2]
