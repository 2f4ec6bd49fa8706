"""How what a batch loop makes of its samples adds up over processes that have a share each."""

from __future__ import annotations

import pytest

from torchlint.semantic.script import Script
from torchlint.semantic.training.share import Share
from torchlint.semantic.training.shares import Shares
from torchlint.source import Source

SCRIPT = """\
import math
import numpy as np
import torch
from torch.utils.data import DataLoader
from elsewhere import f1

loader = DataLoader(data, 32)
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
criterion = torch.nn.CrossEntropyLoss()

def top(output, target, topk=(1,)):
    batch_size = target.size(0)
    _, pred = output.topk(max(topk), 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    res = []
    for k in topk:
        correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
        res.append(correct_k.mul_(100.0 / batch_size))
    return res

def mixed(p, a):
    return p.eq(a).cpu().sum().float(), len(a)

total, hits = 0.0, 0
for i, (x, y) in enumerate(loader):
    x = x.cuda()
    out = net(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    p = torch.max(out.data, 1)[1]
    acc1, acc5 = top(out, y, topk=(1, 5))
    right, count = mixed(p, y)
    total = total + loss.item() * x.size(0)
    if loss.item() > 1:
        hits += 1
    asked = @
"""
CASES = {
    "i + 1": Share.SAME,
    "len(loader)": Share.SAME,
    "optimizer.param_groups[0]['lr']": Share.SAME,
    "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)": Share.SAME,
    "x.shape[1]": Share.SAME,
    "0.0": Share.NOTHING,
    "x": Share.ROWS,
    "(out.argmax(1) == y).float()": Share.ROWS,
    "((out - y) ** 2).sum(1)": Share.ROWS,
    "out.t()": Share.COLUMNS,
    "len(y)": Share.SIZE,
    "x.size(0)": Share.SIZE,
    "y.shape[0]": Share.SIZE,
    "100.0 / len(y)": Share.PER_SAMPLE,
    "(p == y).sum().item()": Share.SUM,
    "p.eq(y.data).cpu().sum().float()": Share.SUM,
    "torch.sum(p == y)": Share.SUM,
    "0.3 * p.eq(y).sum() + 0.7 * p.eq(x).sum()": Share.SUM,
    "loss.item() * x.size(0)": Share.SUM,
    "float(loss) * len(x)": Share.SUM,
    "np.sum(p.cpu().numpy() == y.numpy())": Share.SUM,
    "right": Share.SUM,
    "count": Share.SIZE,
    "total": Share.SUM,
    "loss": Share.MEAN,
    "loss.detach().cpu() / 4": Share.MEAN,
    "(p == y).float().mean()": Share.MEAN,
    "(p == y).sum().item() / len(y)": Share.MEAN,
    "acc1[0].item()": Share.MEAN,
    "0.5 * loss + 1": Share.MEAN,
    "math.exp(loss.item())": Share.OWN,
    "loss ** 2": Share.OWN,
    "max(loss.item(), 1)": Share.OWN,
    "loss.item() + (p == y).sum().item()": Share.OWN,
    "(p == y).sum() + 1": Share.OWN,
    "(p == y).sum() / (p == p).sum()": Share.OWN,
    "f1(p, y)": Share.OWN,
    "p[0]": Share.OWN,
    "p[:5].sum()": Share.OWN,
    "out.max()": Share.OWN,
    "hits": Share.OWN,
}


def shares_of(expression: str) -> tuple[Script, Shares]:
    script = Script.parse(Source("train.py", SCRIPT.replace("@", expression)))
    return script, script.program.shares(script.program.training_loops()[0])


@pytest.mark.parametrize("expression", list(CASES))
def test_a_value_is_known_by_how_it_is_made(expression: str) -> None:
    script, shares = shares_of(expression)
    asked = next(each for each in script.scopes.bindings() if each.name == "asked")
    assert shares.bound(asked) is CASES[expression]
