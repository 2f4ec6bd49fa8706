from __future__ import annotations

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source
from torchlint.registry import load_registry
from torchlint.source import Source

SETTINGS = Settings(select=("TL210",))
RULES = load_registry().select(SETTINGS)
SCRIPT = """\
{line}
net.cuda()
for x, y in loader:
    loss = net(x.cuda(), {made})
    loss.mean().backward()
"""


@pytest.mark.parametrize(
    ("line", "made", "advice"),
    [
        (
            "import torch",
            "torch.tensor(0.5, device=x.device)",
            "torch.full((), 0.5, device=x.device)",
        ),
        ("import torch as th", "th.tensor(2, device=x.device)", "th.full((), 2, device=x.device)"),
    ],
)
def test_the_advice_is_spelled_as_the_script_spells_torch(
    line: str, made: str, advice: str
) -> None:
    source = Source("train.py", SCRIPT.format(line=line, made=made))
    (found,) = check_source(source, RULES, SETTINGS).findings
    assert found.message.endswith(f"`{advice}` makes it on the device")
