"""How long a network stays in evaluation mode is said as it is."""

from __future__ import annotations

import pytest

from torchlint import check

TRAINING = """\
import torch
from torch import nn
from mine import loader, optimizer, show
net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))
BEFORE
for epoch in range(9):
    EPOCH
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
        if step % 100 == 0:
            net.eval()
            show(net)
"""


@pytest.mark.parametrize(
    ("before", "epoch", "said"),
    [
        ("net.train()", "pass", "`net.train()` after this: from here on `net`"),
        ("pass", "net.train()", "`net.train()` before the next epoch: until then `net`"),
    ],
)
def test_an_epoch_may_switch_back(before: str, epoch: str, said: str) -> None:
    text = TRAINING.replace("BEFORE", before).replace("EPOCH", epoch)
    (found,) = [each for each in check(text) if each.code == "TL604"]
    assert f"nothing calls {said} trains in evaluation mode" in found.message
