"""TL301: training in float32 throughout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Kind, Note, Rule, Safety, Script, Step, regex
from torchlint_rules._cuda import imported, in_environment, may_be_cuda
from torchlint_rules._devicenames import device_in_sight

_OWN_KERNELS: Final = (
    "torch_geometric.", "torch_sparse.", "torch_scatter.", "dgl.", "e3nn.", "higher.", "pyro.",
    "gpytorch.", "opacus.", "torch.utils.cpp_extension.", "torch.sparse.", "functorch.",
    "learn2learn.", "torchdiffeq.",
)  # fmt: skip
_FULL: Final = frozenset({
    "torch.nn.BCELoss", "torch.nn.functional.binary_cross_entropy", "torch.spmm", "torch.dsmm",
    "torch.autograd.grad", "torch.autograd.functional.jacobian",
})  # fmt: skip
"""Functions that low precision, or one autocast, does not go with."""
_KEYWORDS: Final = ("create_graph", "is_sparse")
_PARALLEL: Final = "torch.nn.DataParallel"
_GRAPH: Final = regex(r"adj\w*|edge_index|edges|train_mask|idx_train|adjacency")
_SPOKEN: Final = ("train_mask", "idx_train", "train_idx", "edge_index")
_WHOLE_GRAPH: Final = regex(rf"\b(?:{'|'.join(_SPOKEN)})\b")
_TITLE: Final = "Run the forward pass and the loss under bfloat16 autocast"


class FullPrecisionTraining(Rule):
    """
    ## What it does
    Flags the forward pass of a training loop that runs in float32 on a GPU.

    ## Why it is slow
    Tensor cores multiply in bfloat16 or float16 at many times the rate of float32, and half the
    bytes move. Published speed-ups of whole training runs are 2 to 3 times; on a CPU with bfloat16
    units a convolutional step took a half to a third of the time.

    ## When not to
    Networks that need the digits: second-order gradients, complex numbers, matrix inverses,
    kernels of your own. None of these is flagged. A GPU before Ampere has no bfloat16 units: there
    `dtype=torch.float16` is the fast one, and it alone needs a `torch.amp.GradScaler`.

    ## Fix safety
    Unsafe: products are rounded to 8 bits, so losses drift from the first step on. The fix wraps
    the forward pass and the loss only, never the backward pass. It is left to you where outputs
    become NumPy arrays (there is no bfloat16 in NumPy) and under DataParallel.
    """

    code = "TL301"
    name = "full-precision-training"
    summary = "the training loop computes in float32"
    impact = "high"
    safety = Safety.UNSAFE
    after = ("TL306",)
    articles = ("S0", "S1", "S2", "S3.4")
    needs = (".backward(", ".manual_backward(")
    since = (1, 10)

    invalid = {
        "the forward pass and the loss, with the device in sight": """
              import torch
              import torch.nn.functional as F
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
              def train(model, loader, optimizer):
                  for x, y in loader:
                      x, y = x.to(device), y.to(device)
                      optimizer.zero_grad()
            -         output = model(x)
            -         loss = F.cross_entropy(output, y)
            +         with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device.type == "cuda"):
            +             output = model(x)
            +             loss = F.cross_entropy(output, y)
                      loss.backward()
                      optimizer.step()
            """,
        "the device has no name, and torch is imported for the fix": """
              from __future__ import annotations
            + import torch
              from torch import nn, optim
              def fit(model, train_loader):
                  criterion = nn.CrossEntropyLoss()
                  optimizer = optim.SGD(model.parameters(), lr=0.1)
                  for epoch in range(3):
                      for step, (x, y) in enumerate(train_loader):
            -             loss = criterion(model(x.cuda()), y.cuda()) / 2
            +             with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
            +                 loss = criterion(model(x.cuda()), y.cuda()) / 2
                          loss.backward()
                          if step % 2:
                              optimizer.step()
                              optimizer.zero_grad()
            """,
        "several networks, one loss; comments come along": """
              import torch
              def train(encoder, decoder, criterion, loader, opt):
                  for images, captions in loader:
                      images, captions = images.cuda(), captions.cuda()
                      # two networks
            -         features = encoder(images)
            -
            -         outputs = decoder(features, captions)  # (N, V)
            -         loss = criterion(outputs, captions)
            -         loss += 0.1 * features.norm()
            +         with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
            +             features = encoder(images)
            +
            +             outputs = decoder(features, captions)  # (N, V)
            +             loss = criterion(outputs, captions)
            +             loss += 0.1 * features.norm()
                      opt.zero_grad()
                      loss.backward()
                      opt.step()
            """,
        "the loss is one of a network's outputs, kept as an attribute": """
              import torch
              class Trainer:
                  def run(self, model, loader):
                      device = torch.device("cuda")
                      for x, y in loader:
            -             logits, self.loss = model(x.to(device), y.to(device))
            +             with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device.type == "cuda"):
            +                 logits, self.loss = model(x.to(device), y.to(device))
                          self.loss.backward()
                          self.optimizer.step()
            """,
        "a step in a function of its own, unrolled over time": """
              import torch
              def train_step(model, criterion, optimizer, x, y):
                  hidden, loss = None, 0
            -     for t in range(x.size(1)):
            -         output, hidden = model(x[:, t], hidden)
            -         loss += criterion(output, y[:, t])
            +     with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
            +         for t in range(x.size(1)):
            +             output, hidden = model(x[:, t], hidden)
            +             loss += criterion(output, y[:, t])
                  optimizer.zero_grad()
                  loss.backward()
                  optimizer.step()
              def main(model, criterion, optimizer, loader):
                  for x, y in loader:
                      train_step(model, criterion, optimizer, x.cuda(), y.cuda())
            """,
        "training under set_grad_enabled, in a loop over phases": """
              import torch
              def run(model, criterion, optimizer, loaders):
                  for phase in ["train", "val"]:
                      for x, y in loaders[phase]:
                          x, y = x.cuda(), y.cuda()
                          with torch.set_grad_enabled(phase == "train"):
            -                 outputs = model(x)
            -                 loss = criterion(outputs, y)
            +                 with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
            +                     outputs = model(x)
            +                     loss = criterion(outputs, y)
                              if phase == "train":
                                  loss.backward()
                                  optimizer.step()
            """,
        "a sum in float64 decides nothing about the network": """
              import torch
              import torch.nn.functional as F
              def train(model, loader, optimizer):
                  total = torch.zeros((), dtype=torch.float64, device="cuda")
                  for x, y in loader:
            -         loss = F.cross_entropy(model(x.cuda()), y.cuda())
            +         with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
            +             loss = F.cross_entropy(model(x.cuda()), y.cuda())
                      loss.backward()
                      optimizer.step()
                      total = total + loss.detach().double()
            """,
        "sent backward in the same line: reported, left alone": """
              import torch
              import torch.nn.functional as F
              def train(model, loader, optimizer):
                  for x, y in loader:
            !         F.cross_entropy(model(x.cuda()), y.cuda()).backward()
                      optimizer.step()
            """,
        "NumPy has no bfloat16: reported, left alone": """
              import torch
              def train(model, criterion, loader, optimizer):
                  for x, y in loader:
            !         output = model(x.cuda())
                      loss = criterion(output, y.cuda())
                      loss.backward()
                      optimizer.step()
                      print(output.detach().cpu().numpy())
            """,
        "DataParallel's threads do not see the dtype: reported, left alone": """
              import torch
              def train(net, criterion, loader, optimizer):
                  model = torch.nn.DataParallel(net.cuda())
                  for x, y in loader:
            !         loss = criterion(model(x.cuda()), y.cuda())
                      loss.backward()
                      optimizer.step()
            """,
    }
    valid = {
        "FSDP has a policy of its own for precision, which whoever shards the network gives it": """
            import os
            import torch
            def train(model: torch.nn.Module, loader, optimizer):
                local_rank = int(os.environ["LOCAL_RANK"])
                fsdp_loss = 0
                for x, y in loader:
                    loss = model(x.to(local_rank), y.to(local_rank))
                    loss.backward()
                    optimizer.step()
                    fsdp_loss += loss.item()
            """,
        "autocast is in use": """
            import torch
            def train(model, criterion, loader, optimizer):
                for x, y in loader:
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = criterion(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
            """,
        "an argument decides on the precision": """
            import torch
            def train(model, criterion, loader, optimizer, args):
                if args.fp16:
                    model, optimizer = convert(model, optimizer)
                for x, y in loader:
                    loss = criterion(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
            """,
        "the network itself was made bfloat16": """
            import torch
            def train(model, criterion, loader, optimizer):
                model.to("cuda", torch.bfloat16)
                for x, y in loader:
                    loss = criterion(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
            """,
        "this code runs on the CPU": """
            import torch
            def train(model, criterion, loader, optimizer):
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
            """,
        "the target is Apple's GPU": """
            # target-device: mps
            import torch
            def train(model, criterion, loader, optimizer, device):
                for x, y in loader:
                    loss = criterion(model(x.to(device)), y.to(device))
                    loss.backward()
                    optimizer.step()
            """,
        "BCELoss raises under autocast": """
            import torch
            def train(model, loader, optimizer):
                criterion = torch.nn.BCELoss()
                for x, y in loader:
                    loss = criterion(torch.sigmoid(model(x.cuda())), y.cuda())
                    loss.backward()
                    optimizer.step()
            """,
        "so does binary_cross_entropy": """
            import torch
            import torch.nn.functional as F
            def train(model, loader, optimizer):
                for x in loader:
                    x = x.cuda()
                    loss = F.binary_cross_entropy(model(x), x)
                    loss.backward()
                    optimizer.step()
            """,
        "a function with a backward pass of its own that does not know autocast": """
            import torch
            class Round(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x.round()
                @staticmethod
                def backward(ctx, grad):
                    return grad
            def train(model, criterion, loader, optimizer):
                for x, y in loader:
                    loss = criterion(Round.apply(model(x.cuda())), y.cuda())
                    loss.backward()
                    optimizer.step()
            """,
        "a float64 network": """
            import torch
            def train(model, criterion, loader, optimizer):
                model = model.double().cuda()
                for x, y in loader:
                    loss = criterion(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
            """,
        "complex numbers": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    loss = (torch.fft.rfft(model(x.cuda())) - y.cuda()).abs().mean()
                    loss.backward()
                    optimizer.step()
            """,
        "an inverse exists in float32 and float64 only": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    a = model(x.cuda())
                    loss = (torch.linalg.inv(a) @ y.cuda()).square().mean()
                    loss.backward()
                    optimizer.step()
            """,
        "gradients of gradients": """
            import torch
            def train(model, loader, optimizer):
                for x in loader:
                    x = x.cuda().requires_grad_()
                    (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
                    loss = (g.norm(dim=1) - 1).square().mean()
                    loss.backward()
                    optimizer.step()
            """,
        "a GAN: two losses, two networks": """
            import torch
            def train(netG, netD, criterion, loader, optimizerG, optimizerD):
                for x in loader:
                    x = x.cuda()
                    fake = netG(torch.randn(len(x), 8, device="cuda"))
                    loss_d = criterion(netD(x), 1) + criterion(netD(fake.detach()), 0)
                    loss_d.backward()
                    optimizerD.step()
                    loss_g = criterion(netD(fake), 1)
                    loss_g.backward()
                    optimizerG.step()
            """,
        "a loop over an environment: small networks, actions on the host": """
            import gymnasium as gym
            import torch
            def train(model, optimizer):
                env = gym.make("CartPole-v1")
                state, _ = env.reset()
                for _ in range(1000):
                    values = model(torch.as_tensor(state).cuda())
                    state, reward, *_ = env.step(values.argmax().item())
                    loss = (reward - values.max()).square()
                    loss.backward()
                    optimizer.step()
            """,
        "Accelerate owns the precision": """
            import torch
            from accelerate import Accelerator
            def train(model, criterion, loader, optimizer):
                accelerator = Accelerator()
                for x, y in loader:
                    loss = criterion(model(x), y)
                    accelerator.backward(loss)
                    optimizer.step()
            """,
        "a cross entropy by hand: bfloat16 rounds a likely p to 1, and log(1 - p) is infinite": """
            import torch
            def train(model, loader, optimizer):
                for x, y in loader:
                    p = model(x.cuda())
                    y = y.cuda()
                    loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            """,
        "a network on one whole graph: sparse work": """
            import torch
            import torch.nn.functional as F
            def train(model, data, optimizer):
                data = data.to("cuda")
                for epoch in range(100):
                    optimizer.zero_grad()
                    output = model(data)
                    loss = F.nll_loss(output[data.train_mask], data.y[data.train_mask])
                    loss.backward()
                    optimizer.step()
            """,
        "seeded for a GPU, which nothing goes to": """
            import torch
            if torch.cuda.is_available():
                torch.cuda.manual_seed(42)
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                optimizer.zero_grad()
                loss = (model(x) - y).square().mean()
                loss.backward()
                optimizer.step()
            """,
        "an image is optimised, not a network": """
            import torch
            def dream(model, image):
                image = image.cuda().requires_grad_()
                for _ in range(20):
                    loss = model(image).norm()
                    loss.backward()
                    image.data += image.grad / image.grad.abs().mean()
                    image.grad.zero_()
            """,
        "kernels of an extension need not know autocast": """
            import torch
            from torch_geometric.nn import GCNConv
            def train(model, criterion, loader, optimizer):
                for data in loader:
                    data = data.to("cuda")
                    loss = criterion(model(data.x, data.edge_index), data.y)
                    loss.backward()
                    optimizer.step()
            """,
        "a sparse matrix": """
            import torch
            import torch.nn.functional as F
            def train(model, features, adj, labels, optimizer):
                features, adj, labels = features.cuda(), adj.cuda(), labels.cuda()
                for epoch in range(200):
                    loss = F.nll_loss(model(features, adj), labels)
                    loss.backward()
                    optimizer.step()
            """,
        "one step outside any loop": """
            import torch
            def smoke(model, criterion, x, y):
                loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()
            """,
        "torch before 1.10 has no such autocast": """
            # target-torch: 1.9
            import torch
            def train(model, criterion, loader, optimizer):
                for x, y in loader:
                    loss = criterion(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the forward pass of every step that runs in float32."""
        if not may_be_cuda(script) or _keeps_to_float32(script):
            return
        for step in script.steps.all:
            if _is_plain(script, step):
                yield _finding(self.code, script, step)


def _keeps_to_float32(script: Script) -> bool:
    """Whether the file decides on a precision, or does what float32 or more is needed for."""
    if script.precision.speaks_of_low or "fsdp" in script.source.text.lower():
        return True
    if in_environment(script) or any(
        f"{each}.".startswith(_OWN_KERNELS) for each in imported(script)
    ):
        return True
    if any(
        "torch.autograd.Function" in script.functions.bases(owner)
        for owner in script.all(cst.ClassDef)
    ):
        return True
    if any(name in _FULL or name.startswith("torch.sparse") for name in script.called):
        return True
    if any(log.node.args and _is_rest(log.node.args[0].value) for log in script.calls("torch.log")):
        return True
    spoken = any(word in script.source.text for word in _KEYWORDS)
    if spoken and any(
        arg.keyword is not None
        and arg.keyword.value in _KEYWORDS
        and script.code(arg.value) != "False"
        for arg in script.all(cst.Arg)
    ):
        return True
    return script.precision.is_wide


def _is_rest(node: cst.BaseExpression) -> bool:
    """Whether an expression is `1 - p`, which is 0 where bfloat16 rounds `p` to 1."""
    return (
        isinstance(node, cst.BinaryOperation)
        and isinstance(node.operator, cst.Subtract)
        and isinstance(node.left, (cst.Integer, cst.Float))
    )


def _is_plain(script: Script, step: Step) -> bool:
    """Whether a step has one loss, stepped by an optimizer over parameters of a network."""
    home = script.function(step.backward)
    if home is not None and home.name.value.startswith("test_"):
        return False
    if not script.steps.is_alone(step) or not script.steps.updates(step):
        return False
    if any(_GRAPH.fullmatch(name.value) for name in script.within(step.forwards[0], cst.Name)):
        return False
    if (home or script.tree.module) in script.once(_of_whole_graphs):
        return False
    return "param" in script.source.text or not any(
        script.kind(call) is Kind.OPTIMIZER for call in script.all(cst.Call)
    )


def _of_whole_graphs(script: Script) -> frozenset[cst.CSTNode]:
    """Give the functions, and the module, that speak of graphs handled whole."""
    text = script.source.text
    spoken = any(word in text for word in _SPOKEN) and _WHOLE_GRAPH.search(text)
    homes = script.all(cst.FunctionDef) if spoken else []
    found = (home for home in homes if _WHOLE_GRAPH.search(script.code(home)))
    return frozenset([*found, script.tree.module] if spoken else ())


def _finding(code: str, script: Script, step: Step) -> Finding:
    call = step.forwards[0]
    named = script.code(call)
    if len(named) > 40 or "\n" in named:
        named = f"{script.code(call.func)}(…)"
    message = (
        f"`{named}` trains in float32: bfloat16 autocast around it and the loss runs its matrix "
        "products on tensor cores, which full float32 does not use"
    )
    parallel = next(iter(script.calls(_PARALLEL)), None)
    notes: tuple[Note, ...] = ()
    fix = None
    if parallel is not None:
        note = "its threads do not see the dtype: put autocast inside the network's `forward`"
        notes = (Note(script.span(parallel.node), note),)
    else:
        fix = _fix(script, step)
    return Finding(code, script.span(call), message, fix, notes)


def _fix(script: Script, step: Step) -> Fix | None:
    """Wrap the forward pass and the loss, where nothing that follows forbids it."""
    if not step.lines or not all(script.rewrite.stands_alone(line) for line in step.lines):
        return None
    if _becomes_array(script, step) or any(_leaves(script, line) for line in step.lines):
        return None
    written = script.rewrite.importing("torch")
    if written is None:
        return None
    torch, imported = written
    device = device_in_sight(script, step.backward, step.lines[0])
    enabled = f'{device}.type == "cuda"' if device else f"{torch}.cuda.is_available()"
    header = f'with {torch}.autocast("cuda", dtype={torch}.bfloat16, enabled={enabled}):'
    return Fix.unsafe(
        _TITLE,
        imported,
        script.rewrite.wrap(step.lines, header),
        because="bfloat16 rounds to 8 bits; a GPU before Ampere wants float16 and a GradScaler",
    )


def _leaves(script: Script, line: cst.BaseStatement) -> bool:
    """Whether a statement sends something backward, steps, or makes an array."""
    for call in script.within(line, cst.Call):
        if script.is_step(call):
            return True
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "numpy":
            return True
    return False


def _becomes_array(script: Script, step: Step) -> bool:
    """Whether an array of NumPy is made of what the wrapped lines give names to."""
    given = {
        name.value
        for line in step.lines
        for name in script.within(line, cst.Name)
        if script.scopes.stored(name) is not None
    }
    home = script.function(step.backward)
    region = home.body if home is not None else script.tree.module
    numpy = (name for name in script.called if name.startswith("numpy."))
    arrays = [site.node for site in script.calls(*numpy)]
    return any(
        name.value in given
        for call in (*arrays, *script.method_calls("numpy"))
        if script.tree.inside(call, region)
        for name in script.within(call, cst.Name)
    )
