"""A rule that has parts of its own lies in a folder: `rule.py`, `page.md` and the parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pack_pages import page

from torchlint.measurement import measurements_beside
from torchlint.registry import RegistryError
from torchlint.registry.packs import rules_of

RULE = """
from torchlint.api import Rule
from xyz.xyz101_slow_thing.words import WORDS

class SlowThing(Rule):
    words = WORDS

    def check(self, script):
        yield from ()
"""
MEASURED = {
    "device": "CPU (2 cores)",
    "torch": "2.13.0",
    "verdict": "FASTER",
    "speedup": {"ratio": 2.0, "low": 1.9, "high": 2.1},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a rule in a package that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    rule = tmp_path / "xyz" / "xyz101_slow_thing"
    rule.mkdir(parents=True)
    (tmp_path / "xyz" / "__init__.py").touch()
    (tmp_path / "xyz" / "evidence.json").write_text(json.dumps({"XYZ101": [MEASURED]}))
    (rule / "__init__.py").touch()
    (rule / "rule.py").write_text(RULE)
    (rule / "page.md").write_text(page("XYZ101", "slow-thing"))
    (rule / "words.py").write_text('WORDS = ("slow",)\n')
    yield rule
    for name in [name for name in sys.modules if name.partition(".")[0] == "xyz"]:
        del sys.modules[name]


def test_a_rule_in_a_folder_is_found_by_the_name_of_the_folder(folder: Path) -> None:
    (head,) = rules_of("xyz", "xyz")
    assert (head.code, head.name) == ("XYZ101", "slow-thing")
    assert head.module == "xyz.xyz101_slow_thing.rule"
    assert head.page == str(folder / "page.md")
    head.read()
    rule = head.load()
    assert rule.page().header.summary == "slow-thing"
    assert vars(rule)["words"] == ("slow",)


def test_its_measurements_are_those_of_the_pack(folder: Path) -> None:
    (head,) = rules_of("xyz", "xyz")
    assert [each.ratio for each in measurements_beside(head.file, head.code)] == [2.0]


def test_a_folder_without_a_rule_is_none(folder: Path) -> None:
    (folder / "rule.py").rename(folder / "other.py")
    assert list(rules_of("xyz", "xyz")) == []


def test_a_page_of_another_rule_is_an_error(folder: Path) -> None:
    (folder / "page.md").write_text(page("XYZ102", "slow-thing"))
    (head,) = rules_of("xyz", "xyz")
    with pytest.raises(RegistryError, match=r"page\.md is the page of XYZ102 slow-thing"):
        head.read()
