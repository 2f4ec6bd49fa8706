"""A fix changes what `check` says and nothing else: made by hand from the JSON, it is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.finding import Safety
from torchlint.registry import Registry, Selection, load_registry
from torchlint.report.card import brief_card
from torchlint.report.entry import Entry
from torchlint.report.formats import render
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.source import Source
from torchlint.testing import Golden, goldens

ROOT = Path(__file__).parents[2] / "fixtures"
GOLDENS = [golden for golden in goldens(ROOT) if golden.after.name == "fast.py"]
"""Those of one rule each: where several meet, which goes first is not said."""
ROUNDS = 20

Place = tuple[int, int]
Said = tuple[Place, Place, str]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry()


def _said(
    source: Source, rules: Selection, settings: Settings, registry: Registry
) -> list[list[Said]]:
    """Return the edits of each fix that is due, as the JSON of a check has them."""
    gate = Safety.UNSAFE if settings.unsafe_fixes else Safety.CLOSE
    found = check_source(source, rules, settings).findings
    heads = {each.code: registry.find(each.code) for each in found}
    entries = tuple(
        Entry(
            source.path,
            source,
            each,
            brief_card(heads[each.code]),
            gate,
        )
        for each in found
        if each.fix is not None and each.fix.safety >= gate
    )
    told = json.loads(render(Report(entries, 1), Paint(), name="json", statistics=False))
    return [list(map(_edit, each["fix"]["edits"])) for each in told]


def _edit(told: dict[str, Any]) -> Said:
    start, end = (
        (told[place]["row"], told[place]["column"]) for place in ("location", "end_location")
    )
    return start, end, told["content"]


def _by_hand(text: str, fixes: list[list[Said]]) -> str:
    """Make the fixes that do not meet, as rows and columns alone say it."""
    made: list[Said] = []
    for fix in fixes:
        fresh = [edit for edit in fix if edit not in made]
        if not any(_meet(edit, other) for edit in fresh for other in made):
            made += fresh
    lines = text.split("\n")
    for (row, column), (end_row, end_column), content in sorted(made, key=_place)[::-1]:
        kept = lines[row - 1][: column - 1] + content + lines[end_row - 1][end_column - 1 :]
        lines[row - 1 : end_row] = kept.split("\n")
    return "\n".join(lines)


def _meet(edit: Said, other: Said) -> bool:
    """Return whether edits meet: whole lines that are put into one place do not."""
    if edit[:2] == other[:2] and edit[0] == edit[1]:
        return not (edit[2].endswith("\n") and other[2].endswith("\n"))
    return edit[0] <= other[1] and other[0] <= edit[1]


def _place(edit: Said) -> tuple[Place, Place]:
    return edit[:2]


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.folder.name)
def test_what_is_said_makes_what_is_made(golden: Golden, registry: Registry) -> None:
    settings = golden.settings
    rules = registry.select(settings)
    source = Source.from_bytes(golden.before.read_bytes(), golden.before.name)
    by_hand = source
    for _ in range(ROUNDS):
        fixes = _said(by_hand, rules, settings, registry)
        if not fixes:
            break
        by_hand = by_hand.with_text(_by_hand(by_hand.text, fixes))
    assert by_hand.text == fix_source(source, rules, settings).after.text
