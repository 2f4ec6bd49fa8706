"""One cause is told once: by the rule that reports the loop."""

from __future__ import annotations

from torchlint import check

NORM = """\
import torch
from torch import nn
def norm_of(parameters):
    total = 0.0
    for p in parameters:
        total += p.grad.data.norm(2).item() ** 2
    return total ** 0.5
net = nn.Linear(8, 8).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in loader:
    opt.zero_grad()
    net(x.cuda()).mean().backward()
    norms.append(norm_of(net.parameters()))
    opt.step()
"""
LOADER = """\
import torch
from torch.utils.data import DataLoader
from mine import Images
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
for x, y in DataLoader(Images(), batch_size=2, pin_memory=torch.cuda.is_available()):
    print(x.to(device).tolist())
"""
SHARED = """\
import torch.nn.functional as F
def report(loss, logger):
    logger.log_metric("loss", loss.item())
def train(model, loader, optimizer, logger):
    for x, y in loader:
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        report(loss, logger)
def tune(model, loader, optimizer, logger):
    for x, y in loader:
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        norms = [p.grad.norm().item() for p in model.parameters()]
        if sum(norms) < 9:
            optimizer.step()
        report(loss, logger)
"""
"""Two loops, of which one waits elsewhere as well, run one function."""


def _codes(*select: str, text: str = NORM) -> set[str]:
    return {each.code for each in check(text, select=select)}


def test_a_wait_in_a_loop_that_another_rule_reports_is_told_once() -> None:
    assert _codes("TL201") == {"TL201"}
    assert _codes("TL201", "TL506") == {"TL506"}


def test_a_loader_made_in_the_head_of_a_loop_says_nothing_about_its_copies() -> None:
    assert _codes("TL101", "TL204", text=LOADER) == {"TL101", "TL204"}


def test_a_line_that_two_loops_run_is_told_once() -> None:
    assert len(check(SHARED, select=("TL207",))) == 1
