"""A comment counts for its own line also where one finding is about several."""

from __future__ import annotations

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.registry import load_registry
from torchlint.source import Source

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
def train(model, dataset, optimizer):
    loader = DataLoader(dataset, pin_memory=True)
    for x, y in loader:
        x = x.to("cuda")
        y = y.to("cuda"){comment}
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SETTINGS = Settings(select=("TL002", "TL204"), unsafe_fixes=True)
RULES = load_registry().select(SETTINGS)


def _script(comment: str) -> Source:
    return Source("train.py", SCRIPT.format(comment=comment))


def test_without_a_comment_both_lines_are_fixed() -> None:
    assert fix_source(_script(""), RULES, SETTINGS).after.text.count("non_blocking=True") == 2


@pytest.mark.parametrize("comment", ["  # noqa: TL204", "  # torchlint: ignore[TL204] y is small"])
def test_a_line_with_a_comment_is_not_changed(comment: str) -> None:
    source = _script(comment)
    assert fix_source(source, RULES, SETTINGS).after.text == source.text


def test_the_comment_is_used_and_the_other_line_is_reported() -> None:
    found = check_source(_script("  # noqa: TL204"), RULES, SETTINGS).findings
    assert [each.code for each in found] == ["TL204"]
    assert found[0].fix is None


def test_a_comment_about_another_rule_changes_nothing() -> None:
    fixed = fix_source(_script("  # noqa: TL201"), RULES, SETTINGS)
    assert fixed.after.text.count("non_blocking=True") == 2
