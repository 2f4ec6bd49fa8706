"""Fixes of a file with very many findings do not outgrow the file."""

from __future__ import annotations

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.registry import load_registry
from torchlint.source import Source

MANY = 300


def test_places_whose_imports_go_together_are_not_all_in_every_fix() -> None:
    settings = Settings(select=("TL801",))
    rules = load_registry().select(settings)
    text = "import torch\n" + "torch.autograd.set_detect_anomaly(True)\n" * MANY
    found = check_source(Source("train.py", text), rules, settings).findings
    assert len(found) == MANY
    assert sum(len(each.fix.edits) for each in found if each.fix) == MANY
    assert fix_source(Source("train.py", text), rules, settings).after.text == ""
