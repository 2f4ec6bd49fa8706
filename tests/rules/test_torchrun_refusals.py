"""What the message of TL701 says where the script is not rewritten: the line, and why."""

from __future__ import annotations

import pytest

from torchlint.config import Settings
from torchlint.engine import fix_bytes
from torchlint.registry import load_registry

SCRIPT = """\
import json
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
    ("total = max(total, loss.item())", "if total > 9: break"): (
        "line 17, `total > 9`: it depends on one process's samples, but all must agree"
    ),
    ("seen += 1", "torch.save(model.cpu(), 'a')"): (
        "line 17, `torch.save(model.cpu(), 'a')`: it would store the wrapper"
    ),
    ("pass", "torch.save({'net': model}, 'a')"): (
        "line 17, `torch.save({'net': model}, 'a')`: it would store the wrapper"
    ),
    ("pass", "count(model, loader)"): (
        "line 17, `count(model, loader)`: it would read the share of one process"
    ),
}
KEPT = {
    ("seen += 1", "if seen > 9: break"): "if seen > 9: break",
    ("total += loss.item()", "print(total / len(data))"): "print(total / len(loader.sampler))",
    ("pass", "torch.save(model.state_dict(), 'a')"): (
        "if RANK == 0:\n        torch.save(model.state_dict"
    ),
    ("pass", "with open('a', 'w') as f: json.dump({'loss': loss.item()}, f)"): (
        "    if RANK == 0:\n        with open"
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
    assert "DISTRIBUTED" not in text
    assert f"Not rewritten: {REFUSED[inside, behind]}" in said


@pytest.mark.parametrize(("inside", "behind"), list(KEPT))
def test_the_rest_of_the_script_is_kept(inside: str, behind: str) -> None:
    text, said = fixed(inside, behind)
    assert not said
    assert KEPT[inside, behind] in text
