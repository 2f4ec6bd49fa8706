"""A fix that rests on all callers of a function is exact only if they are in view."""

from __future__ import annotations

import pytest
from linked_modules import parse

from torchlint.api import Safety
from torchlint.registry import load_registry
from torchlint.semantic.view import Symbol

STEPS = """\
from torch.utils.data import DataLoader


def load(images):
    return DataLoader(images, batch_size=4)


def train(net, loader, optimizer, device):
    for (x,) in loader:
        loss = net(x.to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
RUN = """\
import torch
from torch.utils.data import TensorDataset
from steps import load, train

if __name__ == "__main__":
    net = torch.nn.Linear(3, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, load(TensorDataset(torch.ones(9, 3))), optimizer, torch.device("cuda"))
"""
CALLED = "`train` may be called from other modules"
PASSED = (
    "what other modules pass as `images` is not visible here: it may hold tensors of the device, "
    "which cannot be pinned"
)


@pytest.mark.parametrize(
    ("code", "called", "because"),
    [
        ("TL102", "", ""),
        ("TL102", "load", PASSED),
        ("TL204", "", ""),
        ("TL204", "train", CALLED),
    ],
)
def test_unseen_callers_make_a_fix_unsafe(code: str, called: str, because: str) -> None:
    texts = {"steps.py": STEPS, "run.py": RUN}
    script = parse(texts, "steps.py", None, frozenset({Symbol("steps.py", called)}))
    rule = load_registry().find(code).load()
    (finding,) = (each for each in rule(None).check(script) if each.span.end <= len(STEPS))
    assert finding.fix is not None
    assert finding.fix.because == because
    assert finding.fix.safety is (Safety.UNSAFE if because else Safety.EXACT)
