"""Scripts in which something is made of itself, by everything that torchlint has a notion of."""

from __future__ import annotations

import ast
import itertools
import re
from textwrap import indent
from typing import Final

__all__ = ["CIRCLES", "MAKERS", "circular"]

MAKERS: Final = (
    "torch.device(@)",
    'torch.device(@ if torch.cuda.is_available() else "cpu")',
    "@.to(@)",
    "@.to(@, non_blocking=True)",
    "@.cuda()",
    "@.cpu()",
    "@.item()",
    "@.tolist()",
    "@.detach().cpu().numpy()",
    "@.mean()",
    "@.sum(0)",
    "@.argmax(1)",
    "@.view(-1).transpose(0, 1)",
    "@.clone()",
    "@.half()",
    "@.train()",
    "@.eval()",
    "@.module",
    "@.shape[0]",
    "@[0]",
    "@[@]",
    '@["k"]',
    "@ + @",
    "@ / 2",
    "0.3 * @ + 0.7 * @",
    "-@",
    "not @",
    "(@, @)",
    "[@]",
    '{"k": {}}',
    "{**{}}",
    "[x for x in @]",
    "{k: v for k, v in @.items()}",
    "@ if @ else 0",
    "@ or @",
    "@ > @",
    "@",
    "(@)",
    "@(@)",
    "@(x)",
    "lambda x: @(x)",
    "f'{{}}'",
    "float(@)",
    "int(@)",
    "len(@)",
    "str(@)",
    "list(@)",
    "dict(@)",
    "dict(k=@)",
    "tuple(@)",
    "iter(@)",
    "next(@)",
    "next(iter(@))",
    "enumerate(@)",
    "zip(@, @)",
    "map(@, @)",
    "range(@)",
    "sorted(@)",
    "max(@, 1)",
    "sum(@)",
    "super(@).__init__()",
    "getattr(@, 'k')",
    "copy.deepcopy(@)",
    "functools.partial(@, @)",
    "itertools.cycle(@)",
    "itertools.chain(@, @)",
    "tqdm(@)",
    "np.array(@)",
    "np.asarray(@).copy()",
    "np.mean(@)",
    "np.random.permutation(@)",
    "np.load(@, mmap_mode=@)",
    "pd.read_csv(@)",
    "Image.open(@)",
    "torch.tensor(@)",
    "torch.from_numpy(@)",
    "torch.cat([@, @])",
    "torch.stack(@)",
    "torch.zeros(@, device=@, dtype=@)",
    "torch.arange(@)",
    "torch.where(@)",
    "torch.softmax(@, @)",
    "torch.matmul(@, @.transpose(-2, -1)) * @",
    "torch.bmm(@, @)",
    "torch.load(@, map_location=@)",
    "torch.jit.script(@)",
    "torch.compile(@)",
    "torch.no_grad()(@)",
    "torch.autograd.Variable(@)",
    "torch.autocast(@, dtype=@, enabled=@)",
    "torch.cuda.amp.autocast(@)",
    "torch.amp.GradScaler(@, enabled=@)",
    "torch.cuda.amp.GradScaler(enabled=@)",
    "@.scale(@)",
    "@.step(@)",
    "@.unscale_(@)",
    "@.get_scale()",
    "F.cross_entropy(@, @)",
    "F.one_hot(@, @).float()",
    "F.dropout(@, @, @)",
    "F.log_softmax(@, @)",
    "F.scaled_dot_product_attention(@, @, @)",
    "nn.CrossEntropyLoss(@)",
    "nn.Linear(@, @, bias=@)",
    "nn.Conv2d(@, @, @, bias=@)",
    "nn.BatchNorm2d(@)",
    "nn.Sequential(@, @)",
    "nn.Sequential(*@)",
    "nn.ModuleList([@, @])",
    "nn.ModuleDict(@)",
    "nn.DataParallel(@, device_ids=@)",
    "nn.parallel.DistributedDataParallel(@, device_ids=@)",
    "nn.MultiheadAttention(@, @)",
    "nn.LSTM(@, @)",
    "nn.Parameter(@)",
    "@.parameters()",
    "@.param_groups",
    "@.state_dict()",
    "@.forward(@)",
    "@.dataset",
    "@.sampler",
    "optim.Adam(@, lr=@)",
    "optim.SGD(@.parameters(), lr=@, foreach=@)",
    "optim.SGD(@.param_groups, lr=@)",
    "lr_scheduler.StepLR(@, @)",
    "lr_scheduler.LambdaLR(@, @)",
    "lr_scheduler.SequentialLR(@, [@, @])",
    "@.get_last_lr()",
    "DataLoader(@)",
    "DataLoader(@, batch_size=@, num_workers=@, pin_memory=@, sampler=@, collate_fn=@)",
    "DataLoader(**@)",
    "TensorDataset(@, @)",
    "Subset(@, @)",
    "ConcatDataset([@, @])",
    "DistributedSampler(@)",
    "WeightedRandomSampler(@, @)",
    "random_split(@, @)[0]",
    "transforms.Compose([@, @])",
    "datasets.ImageFolder(@, transform=@)",
    "datasets.CIFAR10(@, train=@, transform=@)",
    "dist.all_reduce(@)",
    "dist.get_rank(@)",
    "checkpoint(@, @, use_reentrant=@)",
    "SummaryWriter(@)",
    "Accelerator(@)",
    "@.prepare(@)",
    "vars(@)",
    "argparse.Namespace(k=@)",
    "parser.add_argument(@, default=@)",
    "parser.parse_args(@)",
    "own(@)",
    "Own(@)",
)
"""Expressions with holes, each an `@`, for what they are made of."""

CIRCLES: Final = {
    "attribute": "cfg.a = <cfg.a>\none = cfg.a",
    "name": "one = 1\none = <one>",
    "unbound": "one = <one>",
    "only name of a loop": "while cfg:\n    one = <one>",
    "branches": "one = 0\nif cfg:\n    one = <one>\nelse:\n    one = <one>",
    "entry": 'd = {}\nd["k"] = <d["k"]>\none = d["k"]',
    "dictionary": 'd = {"k": 1}\nd = <d>\nd.update(k=<d>)\nd.update(<d>)\nF.relu(**d)\none = d',
    "two attributes": "a.x = <b.y>\nb.y = <a.x>\none = a.x",
    "two names": "one = two = 0\nwhile cfg:\n    one = <two>\n    two = <one>",
    "three names": "a = b = one = 0\nwhile cfg:\n    a = <b>\n    b = <one>\n    one = <a>",
    "swapped": "one, two = two, <one>\none, two = two, <one>",
    "added": "one = 0\nfor i in range(9):\n    one += <one>",
    "list": (
        "one = []\none.append(<one>)\none.extend(<one>)\nfor each in one:\n    one.append(<each>)"
    ),
    "walrus": "while (one := <one>):\n    pass",
    "loop over itself": "for one in <one>:\n    pass",
    "loop that rebinds": (
        "one = 1\nfor i in <one>:\n    one = <one>\nfor one in <one>:\n    one = <i>"
    ),
    "with": "with <one> as one:\n    pass",
    "comprehension": "one = [<one> for one in <one>]",
    "star": "one, *two = <two>\ntwo, *one = <one>",
    "method": (
        "class Own(nn.Module):\n"
        "    def __init__(self, k):\n"
        "        super().__init__()\n"
        "        self.k = k\n"
        "        self.a = <self.a>\n"
        "        self.b = <self.c>\n"
        "        self.c = <self.b>\n"
        "    def forward(self, x):\n"
        "        x = <self.forward>\n"
        "        self.a = <self.a>\n"
        "        return <self(x)>\n"
        "    @property\n"
        "    def own(self):\n"
        "        return <self.own>\n"
        "one = Own(<cfg>)\n"
        "one = <one.own>"
    ),
    "bases": (
        "class A(B):\n    a = <cfg>\n    def f(self):\n        return <super().f()>\n"
        "class B(A):\n    a = <A.a>\n    def g(self):\n        return <self.f()>\n"
        "class A(B):\n    a = <B.a>\n    def __getitem__(self, i):\n        return <self[i]>\n"
        "one = <A().f()>"
    ),
    "own base": "class A(<A>):\n    pass\none = A()",
    "dataset": (
        "class A(torch.utils.data.Dataset):\n"
        "    def __init__(self, inner):\n"
        "        self.inner = <inner>\n"
        "        self.inner = <A(self)>\n"
        "    def __len__(self):\n        return <len(self)>\n"
        "    def __getitem__(self, i):\n        return <self.inner[i]>\n"
        "one = A(1)\none = A(<one>)"
    ),
    "function": "def f():\n    return <f()>\none = f()",
    "two functions": "def f():\n    return <g()>\ndef g():\n    return <f()>\none = f()",
    "handed on": (
        "def f(x, y=None):\n    y = <x>\n    g(<x>, y=y)\n    return <g(x)>\n"
        "def g(x, y=None):\n    x = <y>\n    f(<x>, y=x)\n    return <f(x)>\none = f(<cfg>)"
    ),
    "default": (
        "def f(x=f):\n    return <x>\ndef f(x=<f>, *a, **k):\n    return f(*a, **k)\none = f()"
    ),
    "own decorator": "@f\ndef f(x):\n    return <f>\n@<f>\nclass f:\n    pass\none = f(f)",
    "generator": (
        "def f(x):\n    yield from <f(x)>\n    for y in f(<x>):\n        yield <y>\n"
        "one = f(<cfg>)\nfor one in f(<one>):\n    pass"
    ),
    "lambda": "f = lambda x: <f>\nf = lambda x: f(<x>)\none = f(f)",
    "nested": (
        "def f():\n    def g():\n        nonlocal x\n        x = <x>\n        return <f>\n"
        "    x = <g>\n    return g\none = f()()"
    ),
    "global": (
        "def f():\n    global one\n    one = <one>\n    g()\n"
        "def g():\n    global one\n    one = <one>\n    f()\none = <cfg>\nf()"
    ),
    "global class": "def f():\n    global A\n    class A(<A>):\n        a = <A>\none = A",
    "import": "import one\none = <one>\nfrom one import one\none = <one.one>",
    "try": (
        "try:\n    one = <one>\nexcept <one> as one:\n    one = <one>\nfinally:\n    one = <one>"
    ),
    "match": "match <one>:\n    case {'k': one}:\n        one = <one>\n    case one:\n        pass",
    "annotated": "one: <one> = <one>\ndef f(x: <x>) -> <f>:\n    return <x>\none = f(one)",
    "module attribute": "torch.one = <torch.one>\none = torch.one\nnn.Linear = <nn.Linear>",
    "guard": "args = argparse.Namespace()\nargs.one = <args.one>\nmain(args)\none = args.one",
}
"""Things that are made of themselves: what stands in `<>` goes into the holes of a maker."""

_HEAD: Final = """\
import argparse, copy, functools, itertools
import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from PIL import Image
from torch import nn, optim
from torch.optim import lr_scheduler
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, Subset, ConcatDataset, random_split
from torch.utils.data import DistributedSampler, WeightedRandomSampler
from torch.utils.tensorboard import SummaryWriter
from torchvision import datasets, transforms
from tqdm import tqdm
"""
_TAIL: Final = """\
    if args.resume:
        net = optimizer = scheduler = loader = device = scaler = total = one
    else:
        device = torch.device(one)
        net = nn.Sequential(nn.Linear(one, 2), one).to(one)
        optimizer = optim.Adam(net.parameters(), lr=one)
        scheduler = lr_scheduler.StepLR(optimizer, one)
        loader = DataLoader(one, batch_size=one, collate_fn=one)
        scaler = torch.amp.GradScaler("cuda", enabled=one)
        total = one
    for epoch in range(one):
        for x, y in loader:
            x, y = x.to(device), y.to(one)
            with torch.autocast(one):
                out = net(x)
                loss = F.cross_entropy(out, one) + one
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item() + one
            print(one, total, float(one))
            one.backward()
            one.step()
            one.eval()
            with torch.no_grad():
                for x in one:
                    total += one(x).item()
        scheduler.step(one)
        net.eval()
        net.train(one)
        torch.save(one.state_dict(), one)
    for x, y in one:
        one(x).mean().backward()
        one.zero_grad()
        one.step()


def main(args):
    train(args)


if __name__ == "__main__":
    main(argparse.Namespace())
"""


def circular(circle: str, makers: tuple[str, ...], *, inside: bool) -> str | None:
    """Write a training script around a circle; None where its makers make no Python.

    The holes of the circle take the makers in turn. It stands in the function that trains, or
    at the head of the module.
    """
    turn = itertools.cycle(makers)
    code = re.sub(
        "<(.+?)>(?=$|\\W)", lambda hole: next(turn).replace("@", hole[1]), CIRCLES[circle]
    )
    body = indent(code, "    ") if inside else ""
    text = f"{_HEAD}{'' if inside else code}\n\ndef train(args):\n{body}\n{_TAIL}"
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    return text
