"""TL308: networks that train without torch.compile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edits, Finding, Fix, Move, Rule, Safety, Script, regex
from torchlint_rules._cuda import (
    in_environment,
    makers,
    may_be_cuda,
    moved_networks,
    place,
    regions,
    trains,
)

_COMPILED: Final = regex(
    r"^(?!re\.compile$).*\b_?compiled?$|compile_model|torchcompile|_dynamo|tensorrt|jit\.(?:script|trace)$|"
    r"torch\.jit|ScriptModule|openxla|torch_xla",
    re.MULTILINE,
)
_UNFIT: Final = regex(
    r"create_graph|autograd\.grad$|gradgrad|torch_geometric|torch_sparse|torch_scatter|\bdgl\b|sparse|"
    r"\b(?:LSTM|GRU|RNN)(?:Cell)?$|\bDataParallel$|\bdata_parallel$|FullyShardedDataParallel|FSDP|fully_shard|"
    r"cpp_extension|quantiz|\.fx$|torch\.fx|set_detect_anomaly",
    re.MULTILINE,
)
_VARYING: Final = regex(
    r"collat|multi_?scale|detection|rcnn|\byolo|bbox|pad_sequence|pack_padded|bucket|tokenizer|"
    r"torchaudio|librosa|spectrogram|progressive|random_?size|random_?resolution|variable_length|"
    r"seq2seq|init_?hidden|\brnn|lstm|\bgru|translat|sentence|pad_idx|padding_idx|"
    r"edge_index|\badj\b|\bgcn|graph_?conv|unittest|pytest"
)
_LOSS: Final = frozenset("loss losses criterion crit metric metrics".split())
_ELSEWHERE: Final = frozenset(
    "test eval evaluate evaluation validate predict infer inference sample generate demo export "
    "ema teacher target frozen".split()
)
_LAYER: Final = regex(
    r"torch\.nn\.(?:Linear|Bilinear|Lazy\w+|Conv\w+|Embedding\w*|Transformer\w*|\w*Norm\w*|"
    r"MultiheadAttention)"
)
_OPEN: Final = regex(r"(?:torch|builtins|math|numpy|collections|functools|typing)(?:\.|$)")
_LINEAR: Final = "torch.nn.Linear"
_WORTH: Final = 3
_WORTH_LINEAR: Final = 8
_BECAUSE: Final = (
    "compiled code rounds otherwise and draws other dropout masks, compiling takes seconds to "
    "minutes, and it needs a C++ compiler and Triton"
)


class EagerModel(Rule):
    """
    ## What it does
    Flags a network that is moved to a GPU and trained without `torch.compile`.

    ## Why it is slow
    Without it every operation is a kernel of its own, which reads its input from memory and writes
    its output back. Compiled, neighbours become one kernel, forwards and backwards; a GELU written
    out ran 2.5 times as fast on a single CPU core.

    ## When not to
    It is off by default. Compiling takes from ten seconds to minutes, and small networks may run
    slower than before: measured on a CPU, a small MLP took a third more time. The rule is silent
    where shapes change, for each new one compiles again: detection, texts, audio, graphs; for
    recurrent networks, gradients of gradients and environments; and where somebody speaks of
    compiling. Code in `forward` that needs a value on the host, such as `.item()`, breaks the graph
    in two.

    ## Fix safety
    Unsafe: losses drift by rounding, dropout draws other masks, and a C++ compiler and Triton are
    needed, so the fix compiles for NVIDIA GPUs alone. It calls `model.compile()` (torch 2.2), which
    keeps the keys of checkpoints and what `isinstance` says; `torch.compile(model)` would put
    `_orig_mod.` before every key. Before DistributedDataParallel it is the inner network that is
    compiled.
    """

    code = "TL308"
    name = "eager-model"
    summary = "the network trains without torch.compile"
    impact = "high"
    safety = Safety.UNSAFE
    articles = ("S1", "S3.bonus")
    needs = (".backward(",)
    since = (2, 0)
    default = False

    invalid = {
        "behind the line that moves it; a run on the CPU stays as it is": """
              import torch
              from torch import nn
              device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
              model = nn.Sequential(nn.Linear(8, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8))
            - model = model.to(device)
            + model = model.to(device)
            + model.compile(disable=device.type != "cuda")
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  loss = (model(x.to(device)) - y.to(device)).square().mean()
                  optimizer.zero_grad()
                  loss.backward()
                  optimizer.step()
            """,
        "by `cuda`, under an `if`; the loss is left alone": """
              import re
              import torch
              from mine import Net, args, criterion, loader
              pattern = re.compile("a+")
              model = Net()
              if args.cuda:
            -     model.cuda(args.gpu)
            +     model.cuda(args.gpu)
            +     model.compile()
                  criterion.cuda()
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  loss = criterion(model(x.cuda()), y.cuda())
                  loss.backward()
                  optimizer.step()
            """,
        "inside DistributedDataParallel; the device is a word": """
              import torch
              from torch.nn.parallel import DistributedDataParallel
              from mine import Net, loader
              def main():
                  device = "cuda" if torch.cuda.is_available() else "cpu"
            -     model = Net().to(device)
            +     model = Net().to(device)
            +     model.compile(disable=not torch.cuda.is_available())
                  model = DistributedDataParallel(model)
                  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                  for x, y in loader:
                      loss = (model(x.to(device)) - y.to(device)).square().mean()
                      loss.backward()
                      optimizer.step()
              if __name__ == "__main__":
                  main()
            """,
        "two networks, attributes of a trainer": """
              import torch
              from mine import Decoder, Encoder, loader
              class Trainer:
                  def __init__(self):
            -         self.encoder = Encoder().to("cuda:0")
            -         self.decoder = Decoder().to(torch.device("cuda"))
            +         self.encoder = Encoder().to("cuda:0")
            +         self.encoder.compile()
            +         self.decoder = Decoder().to(torch.device("cuda"))
            +         self.decoder.compile()
                      self.optimizer = torch.optim.SGD(self.encoder.parameters(), lr=0.1)
                  def fit(self):
                      for x, y in loader:
                          loss = (self.decoder(self.encoder(x.cuda())) - y.cuda()).square().mean()
                          loss.backward()
                          self.optimizer.step()
              if __name__ == "__main__":
                  Trainer().fit()
            """,
        "two at once, each by what makes it": """
              import torch
              from mine import Block, loader
              class Maker(torch.nn.Module):
                  def __init__(self):
                      super().__init__()
                      self.body = Block()
              class Critic(Maker):
                  pass
            ! maker, critic = Maker().cuda(), Critic().cuda()
              optimizer = torch.optim.SGD(maker.parameters(), lr=0.1)
              for x, y in loader:
                  loss = (critic(maker(x.cuda())) - y.cuda()).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
        "two on a line have no line behind them": """
              import torch
              from mine import Net, loader
            ! model = Net().cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  loss = (model(x.cuda()) - y.cuda()).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
        "moved out of sight: told at the loop": """
              import torch
              from mine import build, loader
              device = torch.device("cuda")
              model = build(device)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            ! for x, y in loader:
                  loss = (model(x.to(device)) - y.to(device)).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
        "before torch 2.2 a network cannot compile in place": """
              # target-torch: 2.1
              import torch
              from mine import Net, loader
            ! model = Net().cuda()
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              for x, y in loader:
                  loss = (model(x.cuda()) - y.cuda()).square().mean()
                  loss.backward()
                  optimizer.step()
            """,
    }
    valid = {
        "it is compiled": """
            import torch
            from mine import Net, loader
            model = torch.compile(Net().cuda())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "it is compiled in place, or so somebody decides": """
            import torch
            from mine import Net, args, loader
            model = Net().cuda()
            if args.compile:
                model.compile()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "a `compile` of one's own is something else": """
            import torch
            from torch import nn
            from mine import Block, loader
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = Block()
                def compile(self, optimizer):
                    self.optimizer = optimizer
                def forward(self, x):
                    return self.body(x)
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "TorchScript is TL309's": """
            import torch
            from mine import Net, loader
            model = torch.jit.script(Net().cuda())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "a network too small to gain": """
            import torch
            from torch import nn
            from mine import loader
            model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "texts are of any length": """
            import torch
            from mine import Net, loader, tokenizer
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(tokenizer(x).cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "recurrent layers break the graph": """
            import torch
            from torch import nn
            from mine import loader
            model = nn.LSTM(8, 8).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda())[0] - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "gradients of gradients cannot be compiled": """
            import torch
            from mine import Net, loader
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                x = x.cuda().requires_grad_()
                out = model(x).sum()
                (slope,) = torch.autograd.grad(out, x, create_graph=True)
                slope.square().mean().backward()
                optimizer.step()
            """,
        "DataParallel copies the network in every step": """
            import torch
            from torch import nn
            from mine import Net, loader
            model = nn.DataParallel(Net().cuda())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "a loop over an environment": """
            import gymnasium as gym
            import torch
            from mine import Policy
            model = Policy().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            env = gym.make("CartPole-v1")
            state, _ = env.reset()
            for _ in range(100):
                model(torch.as_tensor(state).cuda()).sum().backward()
                optimizer.step()
            """,
        "nothing here runs on a GPU": """
            import torch
            from mine import Net, loader
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x) - y).square().mean().backward()
                optimizer.step()
            """,
        "a module of a program that may compile it elsewhere": """
            import torch
            def train(model, loader, optimizer):
                model.cuda()
                for x, y in loader:
                    (model(x.cuda()) - y.cuda()).square().mean().backward()
                    optimizer.step()
            """,
        "a loop that Accelerate owns": """
            import torch
            from accelerate import Accelerator
            from mine import Net, loader
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "a network that only measures": """
            import torch
            from mine import Net, loader
            model = Net().cuda()
            with torch.no_grad():
                for x, y in loader:
                    print((model(x.cuda()) - y.cuda()).square().mean())
            """,
        "a function that only shows what the network does": """
            import torch
            from mine import Net, loader, optimizer, show
            def stylize(image):
                net = Net().cuda()
                show(net(image.cuda()))
            def main():
                network = torch.nn.Linear(8, 8).cuda()
                for x, y in loader:
                    (network(x.cuda()) - y.cuda()).square().mean().backward()
                    optimizer.step()
            if __name__ == "__main__":
                main()
            """,
        "recurrent networks out of sight, by what is asked of them": """
            import torch
            from mine import Encoder, loader
            encoder = Encoder().cuda()
            optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
            for x, y in loader:
                hidden = encoder.init_hidden()
                (encoder(x.cuda(), hidden) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "graphs have neighbours of their own in every batch": """
            import torch
            from mine import Net, graphs
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for graph in graphs:
                model(graph.x.cuda(), graph.edge_index.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "a test of a network": """
            import unittest
            import torch
            from mine import Net, loader
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
        "torch before 2.0 has no compiler": """
            # target-torch: 1.13
            import torch
            from mine import Net, loader
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                (model(x.cuda()) - y.cuda()).square().mean().backward()
                optimizer.step()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every network of a training program that could be compiled and is not."""
        if not may_be_cuda(script) or in_environment(script) or not trains(script):
            return
        said = script.vocabulary
        if said.has(_COMPILED) or said.has(_UNFIT) or said.has_lowered(_VARYING):
            return
        moves = list(moved_networks(script))
        known: set[str] = set()
        for move in moves:
            name = _named(script, move)
            if (
                (name and name in known)
                or not _is_trained(script, move, name)
                or _is_small(script, move)
            ):
                continue
            known.add(name)
            edits = _compiled(script, move, name)
            fix = None
            if edits is not None:
                fix = Fix.unsafe("Compile the network", edits, because=_BECAUSE)
            yield Finding(self.code, script.span(move.call), _message(script, name, move), fix)
        name = _run(script) if not moves else ""
        node = place(script) if name else None
        if node is not None:
            yield Finding(self.code, script.span(node), _message(script, name))


def _message(script: Script, name: str, move: Move | None = None) -> str:
    """Say what it costs that a network is not compiled, and how to compile it."""
    named = f"`{name}`" if name else "the network"
    if not name and move is not None and isinstance(move.moved, cst.Call):
        named = f"`{script.code(move.moved.func)}`"
    if script.target.has((2, 2)):
        how = f"`{name or 'model'}.compile()`"
    else:
        how = (
            f"`torch.compile({name or 'model'})`, whose checkpoints prefix keys with `_orig_mod.`,"
        )
    return (
        f"{named} runs one kernel after another: {how} fuses them, which pays off when the "
        "training takes longer than some minutes"
    )


def _run(script: Script) -> str:
    """Name the network that the first training step runs."""
    for step in script.steps.all:
        for call in step.forwards:
            network = script.module_call(call)
            if isinstance(network, (cst.Name, cst.Attribute)):
                return script.code(network)
    return ""


def _named(script: Script, move: Move) -> str:
    """Give the name that a network has once it is moved."""
    holder = script.parent(move.call)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        target: cst.BaseExpression = holder.targets[0].target
    else:
        target = move.moved
    return script.code(target) if isinstance(target, (cst.Name, cst.Attribute)) else ""


def _is_trained(script: Script, move: Move, name: str) -> bool:
    """Whether what moves is neither a loss nor a network that others only look at."""
    function = script.function(move.call)
    words = set(script.words(name))
    if function is not None:
        words |= set(script.words(function.name.value)) & _ELSEWHERE
        if "." not in name and not _trains_or_gives(script, function, name):
            return False
    made = {(script.name(call.func) or "") for call in makers(script, move.moved)}
    is_loss = any(each.endswith("Loss") or each == "copy.deepcopy" for each in made)
    return not is_loss and words.isdisjoint(_LOSS | _ELSEWHERE)


def _trains_or_gives(script: Script, function: cst.FunctionDef, name: str) -> bool:
    """Whether a function, or what it calls, goes backward, or returns a network of some name."""
    steps = [step.backward for step in script.steps.all]
    bodies = script.functions.reached(function)
    return any(script.tree.inside(step, body) for step in steps for body in bodies) or any(
        inner.value == name
        for returned in script.functions.returns(function)
        for inner in script.within(returned, cst.Name)
    )


def _is_small(script: Script, move: Move) -> bool:
    """Whether a network is in sight and has few layers."""
    made = makers(script, move.moved)
    if not made:
        return False
    layers: list[str] = []
    for call in made:
        for region in regions(script, call):
            if any(True for kind in (cst.For, cst.CompFor) for _ in script.within(region, kind)):
                return False
            names = {id(each): script.name(each.func) for each in script.within(region, cst.Call)}
            if any(name is not None and not _OPEN.match(name) for name in names.values()):
                return False
            layers += [name for name in names.values() if name and _LAYER.fullmatch(name)]
    return len(layers) < (_WORTH_LINEAR if set(layers) == {_LINEAR} else _WORTH)


def _compiled(script: Script, move: Move, name: str) -> Edits | None:
    """Compile a network behind the line that moves it."""
    line, holder = script.statement(move.call), script.parent(move.call)
    written = script.rewrite.importing("torch")
    if not name or not script.target.has((2, 2)) or written is None or written[1]:
        return None
    if not isinstance(holder, (cst.Assign, cst.Expr)) or not script.rewrite.stands_alone(line):
        return None
    if any(True for _ in script.loops_around(move.call)):
        return None
    disabled = _disabled(script, move, written[0])
    return script.rewrite.after(line, f"{name}.compile({disabled})")


def _disabled(script: Script, move: Move, torch: str) -> str:
    """Give the argument that leaves a network as it is where its device is no NVIDIA GPU."""
    if move.device is None or move.method == "cuda":
        return ""
    origin = script.origins.of(move.device)
    if origin.complete and origin.values and all(_is_cuda(script, each) for each in origin.values):
        return ""
    if isinstance(move.device, (cst.Name, cst.Attribute)) and script.moves.has_type(move.device):
        return f'disable={script.code(move.device)}.type != "cuda"'
    return f"disable=not {torch}.cuda.is_available()"


def _is_cuda(script: Script, device: cst.BaseExpression) -> bool:
    """Whether an expression surely is a GPU of NVIDIA's."""
    if isinstance(device, cst.Call) and script.name(device.func) == "torch.device" and device.args:
        return _is_cuda(script, device.args[0].value)
    return isinstance(device, cst.SimpleString) and str(device.evaluated_value).startswith("cuda")
