"""What `explain` and a hover show of a rule, and where its links lead."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import report_of

from torchlint.links import DOCUMENTATION, REPOSITORY
from torchlint.measurement import measurements_of
from torchlint.registry import load_registry
from torchlint.report.card import brief_card, card_of
from torchlint.report.formats import render
from torchlint.report.page import brief_page, hover_page
from torchlint.report.paint import Paint
from torchlint.rule import Rule

ROOT = Path(__file__).parents[2]
RULES = [head.load() for head in load_registry().rules]
SCREEN = 60
HOVER = 25


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_page_fits_a_screen_and_a_hover(rule: type[Rule]) -> None:
    page = brief_page(rule, Paint(width=80), measurements_of(rule))
    assert page.count("\n") <= SCREEN
    prose = [line for line in page.splitlines() if not re.match(r"  |[-*|`]|https:", line)]
    assert max(map(len, prose)) <= 80
    for part in ("Why it is slow", "Example: ", "Measured", "When not to", "--examples"):
        assert f"\n{part}" in page or part in page.splitlines()[-1]
    assert f"{DOCUMENTATION}/rules/{rule.code}/" in page
    hover = hover_page(rule, measurements_of(rule))
    assert hover.count("\n") <= HOVER
    assert f"]({DOCUMENTATION}/rules/{rule.code}/)" in hover
    assert "\n```diff\n" in hover


def test_an_example_with_a_fix_shows_it() -> None:
    for rule in RULES:
        if rule.safety is not None:
            assert re.search(r"^  [-+] ", brief_page(rule, Paint(), ()), re.MULTILINE), rule.code


def test_no_link_leads_to_python_source() -> None:
    for head in load_registry().rules:
        for card in (card_of(head.load()), brief_card(head)):
            assert card.url == card.link == f"{DOCUMENTATION}/rules/{head.code}/"


def test_a_rule_of_another_pack_links_to_its_own_page() -> None:
    head = replace(load_registry().rules[0], pack="theirs", module="theirs.rules")
    card = brief_card(head)
    assert card.url is None
    assert card.link == Path(head.page).as_uri()
    assert brief_card(replace(head, page="", rule=RULES[0])).link is None


def test_machines_get_the_address_too() -> None:
    driver = json.loads(render(report_of(), Paint(), "sarif"))["runs"][0]["tool"]["driver"]
    assert driver["informationUri"] == DOCUMENTATION
    assert {"url"} <= set(json.loads(render(report_of(), Paint(), "json"))[0])


def test_every_file_names_the_same_addresses() -> None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert (urls["Documentation"], urls["Repository"]) == (DOCUMENTATION, REPOSITORY)
    for page in (ROOT / "docs").rglob("*.md"):
        for found in re.findall(r"https://github\.com/torchlint/[\w-]+", page.read_text()):
            assert found == REPOSITORY
