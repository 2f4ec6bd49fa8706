"""The rules on mixed precision meet in one training step."""

from __future__ import annotations

from torchlint.config import Settings
from torchlint.engine import fix_source
from torchlint.registry import load_registry
from torchlint.source import Source

BEFORE = """\
import torch
from torch.cuda.amp import autocast, GradScaler


def train(model, loader, optimizer):
    for epoch in range(3):
        scaler = GradScaler()
        for x, y in loader:
            with autocast():
                loss = model(x.cuda(), y.cuda())
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
"""
AFTER = """\
import torch
from torch.amp import autocast, GradScaler


def train(model, loader, optimizer):
    scaler = GradScaler("cuda")
    for epoch in range(3):
        for x, y in loader:
            with autocast("cuda"):
                loss = model(x.cuda(), y.cuda())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
"""


def test_four_rules_make_one_clean_step() -> None:
    settings = Settings(select=("TL302", "TL303", "TL304", "TL314"), unsafe_fixes=True)
    rules = load_registry().select(settings)
    result = fix_source(Source("train.py", BEFORE), rules, settings)
    assert result.is_whole
    assert result.after.text == AFTER
