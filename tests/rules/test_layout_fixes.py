"""The rules on what happens to a batch on its way to the device meet in one call."""

from __future__ import annotations

import pytest

from torchlint.config import Settings
from torchlint.engine import fix_source
from torchlint.registry import load_registry
from torchlint.source import Source

BEFORE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

from mine import Images

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(72, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Images(), batch_size=8, pin_memory=True):
    {moves}
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SHORT = "x, y = x.cuda(), y.cuda()"
LONG = "x, y = x.cuda(torch.cuda.current_device()), y.cuda(torch.cuda.current_device())"


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        (
            SHORT,
            [
                "x, y = x.cuda(non_blocking=True, memory_format=torch.channels_last), "
                "y.cuda(non_blocking=True)",
            ],
        ),
        (
            LONG,
            [
                "x = x.cuda(torch.cuda.current_device(), non_blocking=True, "
                "memory_format=torch.channels_last)",
                "y = y.cuda(torch.cuda.current_device(), non_blocking=True)",
            ],
        ),
        (
            "x = x.to('cuda')",
            ["x = x.to('cuda', non_blocking=True, memory_format=torch.channels_last)"],
        ),
    ],
    ids=["two on a line", "two on a long line", "one"],
)
def test_waiting_and_layout_are_one_clean_call(moves: str, expected: list[str]) -> None:
    settings = Settings(select=("TL204", "TL307"), unsafe_fixes=True)
    rules = load_registry().select(settings)
    result = fix_source(Source("train.py", BEFORE.format(moves=moves)), rules, settings)
    assert result.is_whole
    made = result.after.text
    assert "\n    ".join(expected) + "\n    loss" in made
    assert not fix_source(result.after, rules, settings).changed
