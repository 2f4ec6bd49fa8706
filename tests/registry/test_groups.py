"""Groups of rules: words that select several families, and rules that are off by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlint import check
from torchlint.config import Settings
from torchlint.engine.grading import Grades
from torchlint.engine.patterns import ignored_here
from torchlint.page.header import GROUPS, PageError, read_header
from torchlint.registry import load_registry

REGISTRY = load_registry()


def codes(**settings: object) -> set[str]:
    return set(REGISTRY.select(Settings(**settings)).codes)  # type: ignore[arg-type]


def test_a_group_selects_its_rules_and_nothing_else() -> None:
    assert codes(select=("distributed",)) == REGISTRY.groups["distributed"] | {"TL001"}
    assert "TL701" in codes(select=("distributed",))
    assert not codes(select=("gpu",)) & {"TL101", "TL701"}


@pytest.mark.parametrize(
    ("select", "ignore", "code", "is_on"),
    [
        (("perf",), ("TL2",), "TL201", False),
        (("TL2",), ("perf",), "TL201", True),
        (("ALL",), ("gpu",), "TL201", False),
        (("gpu",), ("ALL",), "TL201", True),
        (("perf",), ("gpu",), "TL201", False),
        (("sync-in-training-loop",), ("gpu",), "TL201", True),
        (("compile",), (), "TL308", True),
        (("frameworks",), (), "TL201", False),
    ],
)
def test_the_more_specific_word_wins(
    select: tuple[str, ...], ignore: tuple[str, ...], code: str, is_on: bool
) -> None:
    assert (code in codes(select=select, ignore=ignore)) == is_on


def test_groups_stand_wherever_codes_do() -> None:
    settings = Settings(unfixable=("distributed",), per_file_ignores={"*": ("data",)})
    grades = Grades.of(settings, REGISTRY.known, REGISTRY.groups)
    assert "TL701" not in grades.fixable
    assert "TL201" in grades.fixable
    ignored = ignored_here("a.py", settings, REGISTRY.known, REGISTRY.groups)
    assert ignored == REGISTRY.groups["data"]
    text = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
    assert not check(text, select=["data"])


def test_groups_and_names_never_collide() -> None:
    assert not set(GROUPS) & {*REGISTRY.known, *REGISTRY.known.values()}
    assert all(set(head.groups) <= set(GROUPS) for head in REGISTRY.rules)


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_has_rules_of_ours(group: str) -> None:
    assert [head.code for head in REGISTRY.rules if group in head.groups]


def test_preview_switches_on_what_is_off_by_default() -> None:
    off = {head.code for head in REGISTRY.rules if not head.default}
    assert "TL308" in off
    assert codes() & off == set()
    assert codes(preview=True) == set(REGISTRY.known)
    assert codes(preview=True, select=("TL101",)) == {"TL001", "TL101"}


def test_a_page_with_an_unknown_group_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "xy101_slow.md"
    page.write_text(
        "---\ncode: XY101\nname: slow\nsummary: it is slow\nimpact: low\ngroups: [prf]\n"
        "safety: none\nneeds: [x]\n---\n"
    )
    with pytest.raises(PageError, match="`groups` must be a list of some of perf"):
        read_header(str(page))
