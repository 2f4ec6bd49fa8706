"""A fix is exact or close where all that it rests on is in sight, and unsafe where it is not."""

from __future__ import annotations

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import load_registry
from torchlint.source import Source

REGISTRY = load_registry()

EVALUATED = """\
import torch
from torch import nn
from mine import Backbone, score

def evaluate(net, loader):
    net.eval()
    correct = 0
    for x, y in loader:
        out = net(x)
        correct += {scored}
    return correct

evaluate({network}, val_loader)
"""
COMPILED = """\
import torch
import mine

class Trainer({base}):
    def __init__(self):
        self.net = torch.nn.Linear(4, 4)
    def run(self):
        for fold in range(3):
            {line}
            net = torch.compile(self.net)
            for x in torch.rand(8, 2, 4):
                net(x).sum().backward()
"""
JOINED = """\
import torch
from mine import extract
out = torch.zeros(0, 4)
for i in range(100):
    {line}
    out = torch.cat([out, {part}])
"""
CHECKPOINTED = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from mine import Encoder
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = {first}
        self.block = {block}
    def forward(self, x):
        return checkpoint(self.block, self.first(x))
net = Net()
{optimizer}
"""
LEFT = """\
import torch
from torch import nn
from mine import loader, report
net = nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    with torch.autocast("cuda"):
        loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        {line}
"""
ZEROED = """\
import torch
from torch import nn
from mine import Head, Loss
class Net(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = head
    def forward(self, x):
        return self.body(x)
net = Net({head})
criterion = {criterion}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for x, y in loader:
    optimizer.zero_grad(set_to_none=False)
    criterion(net(x), y).backward()
    optimizer.step()
"""
FROZEN = """\
import torch
from torch import nn
from mine import unfreeze
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
for p in net[0].parameters():
    p.requires_grad = False
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
    {line}
"""
AVERAGED = """\
import copy
import torch
from torch import nn
import mine
net = {network}
average = copy.deepcopy(net)
for x in loader:
    for old, new in zip(average.parameters(), net.parameters()):
        old.data = 0.9 * old.data + 0.1 * new.data
"""
LOSS = """\
import torch
from torch import nn
from mine import settings, update
net = nn.Linear(4, 4)
for x, y in loader:
    criterion = nn.CrossEntropyLoss(weight=settings.weight)
    criterion(net(x), y).backward()
    {line}
"""
SYNCED = """\
import torch
from torch.nn.parallel import DistributedDataParallel
from mine import net, look
model = DistributedDataParallel(net)
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / 4
    loss.backward()
    {line}
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
TRACED = """\
import torch
torch.autograd.set_detect_anomaly(True)
for x in loader:
    try:
        net(x).sum().backward()
        optimizer.step()
    except {error}:
        {then}
"""
WEIGHTS = """\
from torch import nn
from mine import watch
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2)
        {line}
    def forward(self, x):
        return self.attend(x, x, x)[0]
"""
CLIPPED = """\
import torch
import mine
net = {network}
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=False)
"""
PINNED = """\
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder, MNIST
from torchvision.transforms import ToTensor
from mine import arguments, net, prepare
{made}
loader = DataLoader(data, batch_size=8)
for x, y in loader:
    net(x.cuda(), y.cuda())
"""
INHERITED = """\
class Digits(MNIST):
    def __init__(self, root, {given}):
        super().__init__(root, {passed})
        {line}
data = Digits("data", {value})"""
FILLED = """\
import torch
from torch import nn
from {module} import {name} as device
net = nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loader:
    start = torch.zeros(4, 4).to(device)
    net(x.cuda() + start).sum().backward()
    optimizer.step()
"""
IMAGES = """\
import torch
from torch import nn
from mine import Dice, loader, score
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3)
    def forward(self, x):
        return self.first(x)
net = Net().cuda()
criterion = {criterion}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    out = net(x.cuda())
    criterion(out, y.cuda()).backward()
    optimizer.step()
    {line}
"""
TRACED_BACK = """\
import os
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
import torch
{line}
"""
KEPT = """\
import torch
from torch import nn
from mine import Net, loader, measure
net = {network}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
best = 0
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    score = measure(net)
    if score > best:
        best = score
        best_state = net.state_dict()
torch.save(best_state, "best.pt")
"""
LAUNCHED = """\
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
torch.cuda.set_device(parser.parse_args().local_rank)
"""


@pytest.mark.parametrize(
    ("code", "text", "safety"),
    [
        ("TL601", EVALUATED.format(network="nn.Linear(4, 4)", scored="(out == y).sum()"), "exact"),
        ("TL601", EVALUATED.format(network="nn.Linear(4, 4)", scored="score(out, y)"), "unsafe"),
        ("TL601", EVALUATED.format(network="Backbone()", scored="(out == y).sum()"), "unsafe"),
        ("TL313", COMPILED.format(base="object", line="pass"), "exact"),
        ("TL313", COMPILED.format(base="mine.Base", line="self.rebuild()"), "unsafe"),
        ("TL313", COMPILED.format(base="object", line="self.net = mine.build()"), None),
        ("TL405", JOINED.format(line="pass", part="torch.rand(1, 4)"), "exact"),
        ("TL405", JOINED.format(line="pass", part="extract(i)"), "unsafe"),
        ("TL405", JOINED.format(line="new = torch.rand(1, 4)", part="new"), "exact"),
        ("TL405", JOINED.format(line="new = extract(i)", part="new"), "unsafe"),
        ("TL405", JOINED.format(line="extract(buffer)", part="buffer"), "unsafe"),
        (
            "TL404",
            CHECKPOINTED.format(
                first="nn.Linear(4, 4)",
                block="nn.Linear(4, 4)",
                optimizer="torch.optim.SGD(net.parameters(), lr=0.1).step()",
            ),
            "exact",
        ),
        (
            "TL404",
            CHECKPOINTED.format(
                first="nn.Linear(4, 4)", block="nn.Linear(4, 4)", optimizer="net.eval()"
            ),
            "unsafe",
        ),
        (
            "TL404",
            CHECKPOINTED.format(
                first="Encoder()",
                block="nn.Linear(4, 4)",
                optimizer="torch.optim.SGD(net.parameters(), lr=0.1).step()",
            ),
            "unsafe",
        ),
        (
            "TL404",
            CHECKPOINTED.format(
                first="nn.Linear(4, 4)",
                block="Encoder()",
                optimizer="torch.optim.SGD(net.parameters(), lr=0.1).step()",
            ),
            "unsafe",
        ),
        ("TL314", LEFT.format(line="print(loss.item())"), "close"),
        ("TL314", LEFT.format(line="report(net, x)"), "unsafe"),
        ("TL502", ZEROED.format(head="4", criterion="nn.MSELoss()"), "exact"),
        ("TL502", ZEROED.format(head="nn.Linear(4, 4)", criterion="nn.MSELoss()"), "unsafe"),
        ("TL502", ZEROED.format(head="Head()", criterion="nn.MSELoss()"), "unsafe"),
        ("TL502", ZEROED.format(head="4", criterion="Loss()"), "unsafe"),
        ("TL508", FROZEN.format(line="print(net)"), "exact"),
        ("TL508", FROZEN.format(line="unfreeze(net)"), "unsafe"),
        ("TL508", FROZEN.format(line="unfreeze(optimizer)"), "unsafe"),
        ("TL509", AVERAGED.format(network="nn.Linear(4, 4)"), "close"),
        ("TL509", AVERAGED.format(network="mine.build()"), "unsafe"),
        ("TL510", LOSS.format(line="print(x.shape)"), "exact"),
        ("TL510", LOSS.format(line="update(settings)"), "unsafe"),
        ("TL704", SYNCED.format(line="print(loss.item())"), "close"),
        ("TL704", SYNCED.format(line="look(model)"), "unsafe"),
        ("TL801", TRACED.format(error="RuntimeError", then="continue"), "unsafe"),
        ("TL801", TRACED.format(error="RuntimeError", then="raise"), "exact"),
        ("TL801", TRACED.format(error="KeyboardInterrupt", then="break"), "exact"),
        ("TL315", WEIGHTS.format(line="pass"), "close"),
        ("TL315", WEIGHTS.format(line="watch(self.attend)"), "unsafe"),
        ("TL506", CLIPPED.format(network="torch.nn.Linear(4, 4)"), "exact"),
        ("TL506", CLIPPED.format(network="mine.build()"), "close"),
        ("TL102", PINNED.format(made='data = MNIST("data", True, ToTensor())'), "exact"),
        ("TL102", PINNED.format(made='data = MNIST("data", arguments.train)'), "exact"),
        ("TL102", PINNED.format(made='data = MNIST("data", True, prepare)'), "unsafe"),
        ("TL102", PINNED.format(made='data = ImageFolder("data", prepare)'), "unsafe"),
        ("TL102", PINNED.format(made='data = ImageFolder("data", **arguments)'), "unsafe"),
        (
            "TL102",
            PINNED.format(made='data = MNIST("data", True)\ndata.transform = prepare'),
            "unsafe",
        ),
        (
            "TL102",
            PINNED.format(
                made=INHERITED.format(
                    given="f", passed="transform=f", line="pass", value="ToTensor()"
                )
            ),
            "exact",
        ),
        (
            "TL102",
            PINNED.format(
                made=INHERITED.format(given="f", passed="transform=f", line="pass", value="prepare")
            ),
            "unsafe",
        ),
        (
            "TL102",
            PINNED.format(
                made=INHERITED.format(
                    given="train", passed="train", line="self.transform = prepare", value="True"
                )
            ),
            "unsafe",
        ),
        ("TL203", FILLED.format(module="mine", name="device"), "unsafe"),
        ("TL307", IMAGES.format(criterion="nn.MSELoss()", line="pass"), "close"),
        ("TL307", IMAGES.format(criterion="Dice()", line="pass"), "unsafe"),
        ("TL307", IMAGES.format(criterion="nn.MSELoss()", line="score(net)"), "unsafe"),
        ("TL307", IMAGES.format(criterion="nn.MSELoss()", line="score(out, y)"), "unsafe"),
        ("TL508", FROZEN.format(line="pass").replace("mine", "evaluate"), "exact"),
        ("TL508", FROZEN.format(line="unfreeze(net)").replace("mine", "evaluate"), "unsafe"),
        ("TL703", LAUNCHED, "unsafe"),
        ("TL803", TRACED_BACK.format(line="pass"), "exact"),
        ("TL903", KEPT.format(network="nn.Linear(4, 4)"), "exact"),
        ("TL903", KEPT.format(network="Net()"), "unsafe"),
    ],
)
def test_what_is_out_of_sight_is_not_trusted(code: str, text: str, safety: str | None) -> None:
    settings = Settings(select=(code,), target_torch=(2, 9))
    found = check_source(Source("train.py", text), REGISTRY.select(settings), settings)
    assert not found.errors
    assert [each.fix and each.fix.safety.word for each in found.findings] == [safety] * bool(safety)
