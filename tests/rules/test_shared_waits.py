"""Reads that share a wait are one finding, with one fix and a note for each other read."""

from __future__ import annotations

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.registry import load_registry
from torchlint.source import Source

SUMS = """import torch.nn.functional as F
def train(model, loader, optimizer):
    running, correct, seen = 0.0, 0, 0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        running += loss.item()
        correct += (out.argmax(1) == y).sum().item()
        seen += (out.argmax(1) == 0).sum().item()
    return running, correct, seen
"""


def test_one_fix_takes_every_read_of_a_step_out_of_the_loop() -> None:
    settings = Settings(select=("TL201",))
    rules = load_registry().select(settings)
    source = Source("train.py", SUMS)
    (found,) = check_source(source, rules, settings).findings
    assert len(found.notes) == 2
    assert found.fix is not None
    assert found.fix.title.endswith("and 2 more")
    assert ".item()" not in fix_source(source, rules, settings).after.text


UNUSED = """import torch
def boxes_of(out):
    boxes = out.tolist()
    return {"rows": len(out)}
def evaluate(model, loader):
    with torch.no_grad():
        for x in loader:
            boxes_of(model(x.cuda()))
"""


def test_a_value_that_nothing_uses_has_no_last_one() -> None:
    settings = Settings(select=("TL202",))
    rules = load_registry().select(settings)
    (found,) = check_source(Source("train.py", UNUSED), rules, settings).findings
    assert "nothing uses the value" in found.message
