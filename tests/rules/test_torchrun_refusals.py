"""What the message of TL701 says where the script is not rewritten: the line, and why."""

from __future__ import annotations

import pytest

from torchlint.config import Settings
from torchlint.engine import fix_bytes
from torchlint.registry import load_registry

SCRIPT = """\
import json
import pickle
import torch
from torch import nn
from torch.utils.data import DataLoader
from elsewhere import count, data, net, criterion
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.DataParallel(net).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total = seen = 0
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        @IN@
    @BEHIND@
"""
REFUSED = {
    ("total += (out.argmax(1) == y).sum(); seen += count(y)", "print(total / seen)"): (
        "line 17, `seen += count(y)`: `seen` is made of one process's samples"
    ),
    ("total = max(total, loss.item())", "print(total)"): (
        "line 17, `total = max(total, loss.item())`: `total` is made of one process's samples"
    ),
    ("print((out.argmax(1) == y).sum() / len(data))", "pass"): (
        "line 17, `(out.argmax(1) == y).sum() / len(data)`: it divides a sum"
    ),
    ("pass", "torch.save(model.cpu(), 'a')"): (
        "line 18, `torch.save(model.cpu(), 'a')`: it would store the wrapper"
    ),
    ("pass", "count(model, loader)"): (
        "line 18, `count(model, loader)`: it would read the share of one process"
    ),
}
STORED = {
    "torch.save({'net': model}, 'a')": "nn.DataParallel(model.module) if DISTRIBUTED else model",
    "torch.save(model.state_dict(), 'a')": "if RANK == 0:\n        torch.save(model.state_dict",
    "with open('a', 'w') as f: json.dump({'loss': loss.item()}, f)": (
        "    loss = sum_over_ranks(loss) / WORLD_SIZE\n    if RANK == 0:\n        with open"
    ),
    "with open('a', 'wb') as f:\n        pickle.dump([model], f)": (
        "            pickle.dump([nn.DataParallel(model.module) if DISTRIBUTED else model], f)"
    ),
}


def fixed(inside: str, behind: str) -> tuple[str, str]:
    """Fix the script, and return its text and what is still said of it."""
    settings = Settings(select=("TL701",), unsafe_fixes=True)
    source = SCRIPT.replace("@IN@", inside).replace("@BEHIND@", behind)
    result = fix_bytes(source.encode(), "train.py", load_registry().select(settings), settings)
    assert not result.errors
    return result.after.to_bytes().decode(), " ".join(each.message for each in result.left)


@pytest.mark.parametrize(("inside", "behind"), list(REFUSED))
def test_the_line_that_is_in_the_way_is_named(inside: str, behind: str) -> None:
    text, said = fixed(inside, behind)
    assert "sum_over_ranks" not in text
    assert f"Not rewritten: {REFUSED[inside, behind]}" in said


@pytest.mark.parametrize("behind", list(STORED))
def test_what_is_stored_is_what_was_stored_before(behind: str) -> None:
    text, said = fixed("pass", behind)
    assert not said
    assert STORED[behind] in text
