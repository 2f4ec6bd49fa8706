"""Definitions that have nothing to do with the script to which they are appended."""

from __future__ import annotations

import ast
import builtins
from typing import Final

__all__ = ["HAND", "RUN", "beside", "donor_of"]

_SUFFIX: Final = "_apart"
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def donor_of(text: str) -> str | None:
    """Return the definitions of a script that use no other name of its module, with new names."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    imports = [line for line in tree.body if isinstance(line, (ast.Import, ast.ImportFrom))]
    imports = [each for each in imports if getattr(each, "module", "") != "__future__"]
    known = {
        (alias.asname or alias.name).partition(".")[0] for each in imports for alias in each.names
    }
    bound = {
        node.id
        for line in tree.body
        if not isinstance(line, _DEFINITIONS)
        for node in ast.walk(line)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    definitions = {line.name: line for line in tree.body if isinstance(line, _DEFINITIONS)}
    left = dict(definitions)
    while True:
        gone = {
            name
            for name, line in left.items()
            if {"__name__", "__file__"} & _read(line)
            or any(word in bound and word not in known for word in _read(line))
            or any(word in definitions and word not in left for word in _read(line))
        }
        if not gone:
            break
        for name in gone:
            del left[name]
    if not left:
        return None
    _Renaming(frozenset(left)).visit(tree)
    used = {word for line in left.values() for word in _read(line)}
    lines: list[ast.stmt] = [
        each
        for each in imports
        if {(alias.asname or alias.name).partition(".")[0] for alias in each.names} & used
    ]
    module = ast.Module([*lines, *left.values()], [])
    return ast.unparse(module) + "\n"


def _read(line: ast.AST) -> set[str]:
    """Return the names that a definition may read from its module."""
    inner = {arg.arg for arg in ast.walk(line) if isinstance(arg, ast.arg)}
    return {
        node.id
        for node in ast.walk(line)
        if isinstance(node, ast.Name) and node.id not in inner and not hasattr(builtins, node.id)
    }


def beside(script: str, donor: str) -> str | None:
    """Return a donor without the imports that a script has, None if a name means two things."""
    try:
        here, lines = _bound_by(ast.parse(script)), ast.parse(donor).body
    except SyntaxError:
        return None
    left: list[ast.stmt] = []
    for line in lines:
        if not isinstance(line, (ast.Import, ast.ImportFrom)):
            left.append(line)
            continue
        own = _bound_by(ast.Module([line], []))
        if any(name in here and here[name] != {thing} for name, (thing,) in own.items()):
            return None
        line.names = [each for each in line.names if _bound_as(each) not in here]
        left += [line] if line.names else []
    return ast.unparse(ast.Module(left, [])) + "\n"


def _bound_by(tree: ast.Module) -> dict[str, set[str]]:
    """Return what each name at the top level of a module is bound to; imports by their source."""
    found: dict[str, set[str]] = {}
    for line in tree.body:
        if isinstance(line, (ast.Import, ast.ImportFrom)):
            prefix = f"{line.module}." if isinstance(line, ast.ImportFrom) else ""
            for alias in line.names:
                whole = prefix + alias.name
                thing = whole if alias.asname or prefix else alias.name.partition(".")[0]
                found.setdefault(_bound_as(alias), set()).add(thing)
        elif isinstance(line, _DEFINITIONS):
            found.setdefault(line.name, set()).add("")
        else:
            for node in ast.walk(line):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found.setdefault(node.id, set()).add("")
    return found


def _bound_as(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


class _Renaming(ast.NodeTransformer):
    """Renames definitions of the module and their uses."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self.names:
            node.id += _SUFFIX
        return node

    def _definition(self, node: ast.AST) -> ast.AST:
        if node.name in self.names and node.col_offset == 0:  # type: ignore[attr-defined]
            node.name += _SUFFIX  # type: ignore[attr-defined]
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition  # noqa: N815


HAND: Final = {
    "a scaler": """
from torch.cuda.amp import GradScaler

def scaled_apart(net, opt, x, y):
    scaler = GradScaler(enabled=False)
    scaler.scale(((net(x) - y) ** 2).mean()).backward()
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
""",
    "a sparse embedding": """
import torch

def table_apart(n):
    return torch.nn.Embedding(n, 8, sparse=True)
""",
    "complex numbers": """
import torch

def spectrum_apart(x):
    return torch.fft.fft(x.to(torch.complex64)).double()
""",
    "a process group": """
import os
import torch.distributed as dist

def start_apart():
    dist.init_process_group("nccl")
    return int(os.environ["LOCAL_RANK"])
""",
    "a wrapped network": """
import torch

def wrapped_apart(net, rank):
    return torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank])
""",
    "parallel threads": """
import torch

def spread_apart(net):
    return torch.nn.DataParallel(net).cuda()
""",
    "an autocast": """
import torch

def quick_apart(net, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return net(x)
""",
    "a compile": """
import torch

def compiled_apart(net):
    return torch.compile(net)
""",
    "a checkpoint": """
import torch

def restored_apart(net, opt, path):
    state = torch.load(path)
    net.load_state_dict(state["net"])
    opt.load_state_dict(state["opt"])
""",
    "a seed of Lightning": """
from pytorch_lightning import seed_everything

def seeded_apart():
    seed_everything(1)
""",
    "a seed of Accelerate": """
from accelerate.utils import set_seed

def fixed_apart():
    set_seed(1)
""",
    "arguments of transformers": """
from transformers import Trainer, TrainingArguments

def tuned_apart(net, data):
    Trainer(net, TrainingArguments("out"), train_dataset=data).train()
""",
    "a module of Lightning": """
import lightning

class LitApart(lightning.LightningModule):
    def training_step(self, batch, index):
        return self.net(batch).mean()
""",
    "a loop of Accelerate": """
from accelerate import Accelerator

def shared_apart(net, opt, loader):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    net, opt, loader = accelerator.prepare(net, opt, loader)
    for batch in loader:
        with accelerator.accumulate(net):
            accelerator.backward(net(batch).mean())
            opt.step()
            opt.zero_grad()
""",
    "a loop of Fabric": """
from lightning import Fabric

def woven_apart(net, opt, loader):
    fabric = Fabric(precision="bf16-mixed")
    net, opt = fabric.setup(net, opt)
    for index, batch in enumerate(fabric.setup_dataloaders(loader)):
        with fabric.no_backward_sync(net, enabled=index % 2 == 0):
            fabric.backward(net(batch).mean())
        opt.step()
        opt.zero_grad()
""",
    "a trainer of Lightning": """
import lightning

def fitted_apart(net, loader):
    trainer = lightning.Trainer(precision="16-mixed", gradient_clip_val=1.0)
    trainer.fit(net, loader)
""",
    "an engine of Ignite": """
from ignite.engine import Engine

def turned_apart(net, opt, loader):
    def turn(engine, batch):
        loss = net(batch).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()
    Engine(turn).run(loader)
""",
    "rows that a tokenizer makes": """
from datasets import load_dataset

def worded_apart(tokenize):
    rows = load_dataset("words").map(tokenize)
    rows.set_transform(tokenize)
    return rows
""",
    "apex": """
from apex import amp

def mixed_apart(net, opt):
    return amp.initialize(net, opt, opt_level="O1")
""",
    "a use of a GPU": """
import torch

def moved_apart(x):
    return x.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
""",
    "a model on the CPU": """
import torch

class SmallApart(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)

def run_apart(x):
    device = torch.device("cpu")
    return SmallApart().to(device)(x.to(device))
""",
    "gradients by hand": """
import torch

def norms_apart(net):
    return [p.grad.norm() for p in net.parameters() if p.grad is not None]
""",
    "a closure": """
import torch

def searched_apart(net, x, y):
    opt = torch.optim.LBFGS(net.parameters())

    def closure():
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward(create_graph=True)
        return loss

    opt.step(closure)
""",
    "an export": """
import torch

def exported_apart(net, x, path):
    torch.jit.save(torch.jit.trace(net, x), path)
    torch.onnx.export(net, x, path)
""",
    "a test": """
import pytest

def raises_apart():
    with pytest.raises(ValueError):
        int("x")
""",
    "repeatable kernels": """
import torch

def repeatable_apart():
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
""",
    "images of many sizes": """
import torch
import torchvision

def detector_apart(images):
    net = torchvision.models.detection.fasterrcnn_resnet50_fpn()
    images = torch.nn.functional.interpolate(images, scale_factor=2)
    return net(images.to(memory_format=torch.channels_last))
""",
    "a timed profile": """
import torch

def profiled_apart(net, x):
    with torch.profiler.profile() as prof:
        net(x)
    torch.cuda.synchronize()
    return prof
""",
    "a game": """
import gym

def played_apart(policy):
    env = gym.make("CartPole-v1")
    return env.step(policy(env.reset()))
""",
}
"""Definitions that one or another rule may take for a veto, by name."""


_APART: Final = "torch.nn.Linear(4, 4)"
_OF_APART: Final = f"torch.optim.SGD({_APART}.parameters(), 0.1)"
_CALLS: Final = {
    "a scaler": f"scaled_apart({_APART}, {_OF_APART}, torch.ones(2, 4), torch.ones(2, 4))",
    "a sparse embedding": "table_apart(16)",
    "complex numbers": "spectrum_apart(torch.ones(4))",
    "parallel threads": f"spread_apart({_APART})",
    "an autocast": f"quick_apart({_APART}, torch.ones(2, 4))",
    "a compile": f"compiled_apart({_APART})",
    "a checkpoint": f'restored_apart({_APART}, {_OF_APART}, "apart.pt")',
    "a model on the CPU": "run_apart(torch.ones(2, 4))",
    "gradients by hand": f"norms_apart({_APART})",
    "a closure": f"searched_apart({_APART}, torch.ones(2, 4), torch.ones(2, 4))",
    "an export": f'exported_apart({_APART}, torch.ones(2, 4), "apart.pt")',
    "images of many sizes": "detector_apart(torch.ones(2, 3, 8, 8))",
    "a timed profile": f"profiled_apart({_APART}, torch.ones(2, 4))",
}
RUN: Final = {
    name: f"import torch\n{HAND[name]}\nAPART = {call}\n" for name, call in _CALLS.items()
}
"""Definitions of `HAND` that run, with things of their own."""
