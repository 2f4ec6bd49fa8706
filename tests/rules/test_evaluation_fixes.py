"""What a fix of an evaluation promises of the numbers."""

from __future__ import annotations

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.finding import Fix
from torchlint.registry import load_registry
from torchlint.source import Source

SCRIPT = """\
import torch
from torch import nn

model = {network}.cuda()
model.eval()
for x, y in loader:
    print((model(x.cuda()) - y.cuda()).abs().sum())
"""


def _fix(network: str) -> Fix:
    rules = load_registry().select(Settings(select=("TL601",)))
    source = Source("evaluate.py", SCRIPT.format(network=network))
    (finding,) = check_source(source, rules, Settings()).findings
    assert finding.fix is not None
    return finding.fix


def test_numbers_are_the_same_without_a_graph() -> None:
    assert _fix("nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))").safety.word == "exact"


@pytest.mark.parametrize("layer", ["LSTM(4, 4)", "TransformerEncoderLayer(4, 1)"])
def test_some_layers_round_otherwise_without_a_graph(layer: str) -> None:
    fix = _fix(f"nn.Sequential(nn.{layer}, nn.Identity())")
    assert fix.safety.word == "close"
    assert f"`{layer.partition('(')[0]}` takes another kernel" in fix.because
