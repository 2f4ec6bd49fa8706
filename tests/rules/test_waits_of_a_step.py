"""No fix takes one wait out of a step, or drops records, while another wait of that step stays."""

from __future__ import annotations

from itertools import combinations

import pytest

from torchlint.config import Settings
from torchlint.engine import fix_source
from torchlint.registry import load_registry
from torchlint.source import Source

READS = {
    "print": "print(i, loss.item())",
    "formatted": 'print(f"{loss:.3f}")',
    "postfix": "bar.set_postfix(loss=loss.item())",
    "wandb": 'wandb.log({"accuracy": right.float().mean().item()})',
    "sum": "total += loss.item()",
    "count": "hits += right.sum().item()",
    "shown sum": "print(total / (i + 1))",
    "append": "kept.append(loss.item())",
    "pairs": "pairs.append((i, loss.item()))",
    "meter": "meter.update(loss.item(), len(x))",
    "guard": "if loss.item() > 100:\n            raise ValueError(i)",
    "branch": "if right.any():\n            hits += 1",
    "kept": "self.last = loss.item()",
    "clock": "torch.cuda.synchronize()",
}
STEP = """\
import torch
import torch.nn.functional as F
import wandb


def train(self, model, loader, optimizer, meter, bar):
    total, hits, kept, pairs = 0.0, 0, [], []
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        out = model(x.cuda())
        y = y.cuda()
        loss = F.cross_entropy(out, y)
        right = out.argmax(1) == y
        loss.backward()
        optimizer.step()
{reads}    return total, hits, kept, pairs
"""
WAITS = (".item()", "float(", "{loss", "if right", "synchronize")
RULES = ("TL201", "TL202", "TL207")


def _scripts() -> list[tuple[str, ...]]:
    others = [name for name in READS if name != "print"]
    some = [*combinations(READS, 1), *combinations(READS, 2)]
    return [*some, *(("print", *two) for two in combinations(others, 2))]


def _fixed(names: tuple[str, ...], unsafe: bool) -> tuple[str, str]:
    settings = Settings(select=RULES, unsafe_fixes=unsafe)
    text = STEP.format(reads="".join(f"        {READS[name]}\n" for name in names))
    source = Source("train.py", text)
    return text, fix_source(source, load_registry().select(settings), settings).after.text


def _waiting(text: str) -> list[str]:
    """Return the lines of the loop that wait in every pass."""
    body = text.partition("optimizer.step()\n")[2].splitlines()
    return [
        line
        for line in body
        if line.startswith("        ") and line[8] != " " and any(word in line for word in WAITS)
    ]


@pytest.mark.parametrize("unsafe", [True, False], ids=["unsafe", "exact"])
def test_a_step_waits_no_more_or_stays_as_it_is(unsafe: bool) -> None:
    mended = 0
    for names in _scripts():
        before, after = _fixed(names, unsafe)
        if after == before:
            continue
        mended += 1
        assert not _waiting(after), f"{names}:\n{after}"
    assert mended


def test_every_kind_of_log_line_is_mended_with_every_kind_of_sum() -> None:
    for names in combinations(("print", "formatted", "postfix", "wandb", "sum", "count"), 2):
        before, after = _fixed(names, unsafe=True)
        assert after != before, names
