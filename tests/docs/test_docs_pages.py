"""The lists of rules and the sources of the site: their content, and keeping them fresh."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from checkouts import ROOT, Copy

from torchlint.docs.chart import picture, speed_chart
from torchlint.docs.lists import contradictions, evidence_of, files, rules_of
from torchlint.docs.site import anchor, settings, site
from torchlint.registry import load_registry
from torchlint.testing.checkout import Checkout

DOCS = ("-m", "torchlint.docs")
SVG = "{http://www.w3.org/2000/svg}"
LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#([^)]+))?\)")
MEASURED = [
    {
        "device": "NVIDIA H200",
        "torch": "2.11.0",
        "verdict": "FASTER",
        "speedup": {"ratio": 1.472, "low": 1.401, "high": 1.553},
    },
    {
        "device": "CPU",
        "torch": "2.13.0",
        "verdict": "SAME",
        "speedup": {"ratio": 1.0, "low": 0.99, "high": 1.01},
    },
]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Return the pages of the site by their path below its folder."""
    tree = Checkout(ROOT)
    return {path.relative_to(tree.site).as_posix(): text for path, text in site(tree).items()}


def test_every_rule_has_a_page_and_its_place_in_the_index(pages: dict[str, str]) -> None:
    for head in load_registry().rules:
        assert f"# {head.code} {head.name}\n" in pages[f"rules/{head.code}.md"]
        assert f"| [{head.code}]({head.code}.md) | **{head.name}**: " in pages["rules/index.md"]


def test_every_rule_is_in_the_navigation_of_the_site() -> None:
    listed = settings(Checkout(ROOT))
    for head in load_registry().rules:
        assert f'"{head.code} {head.name}" = "rules/{head.code}.md"' in listed
    assert 'docs_dir = "docs"' in listed


def test_examples_fold_out_and_the_first_one_is_open(pages: dict[str, str]) -> None:
    page = pages["rules/TL201.md"]
    assert page.count('\n???+ example "') == 1
    assert page.count('\n??? example "') > 10
    assert page.index("???+ example") < page.index("??? example")
    assert "](../pictures/tl201.svg)" in page


def test_every_picture_has_a_title_and_takes_nothing_from_elsewhere() -> None:
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        drawn = picture.read_text(encoding="utf-8")
        ElementTree.fromstring(drawn)
        assert "<title>" in drawn
        assert "http" not in drawn.replace(SVG.strip("{}"), "")


def test_links_lead_somewhere(pages: dict[str, str]) -> None:
    headings = {
        name: {anchor(line.lstrip("# ")) for line in text.splitlines() if line.startswith("#")}
        for name, text in pages.items()
    }
    for name, text in pages.items():
        for page, place in re.findall(LINK, text):
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(name), page))
            assert linked in pages, f"{name} links to {page}"
            assert not place or place in headings[linked]


def test_links_of_the_repository_lead_to_the_pages_beside_the_rules() -> None:
    linked = []
    for path, text in files(Checkout(ROOT)).items():
        for page, _ in re.findall(LINK, text):
            assert (path.parent / page).is_file(), f"{path} links to {page}"
            linked.append(posixpath.basename(page))
    for head in load_registry().rules:
        assert Path(head.page).name in linked


def test_a_page_has_versions_options_and_examples(pages: dict[str, str]) -> None:
    page = pages["rules/TL101.md"]
    assert "[tool.torchlint.rules.loader-without-workers]\nworkers = 4\n" in page
    assert "for every version of torch." in page
    assert "\n    ```diff\n" in page
    assert "for torch 1.7 and newer." in pages["rules/TL103.md"]


def test_tips_name_their_rules(pages: dict[str, str]) -> None:
    tips = pages["articles.md"].partition("## 16. ")[2].partition("## 17. ")
    assert "(rules/TL601.md)" in tips[0]
    assert "`torchlint audit`" in tips[2]


def test_no_page_names_a_place_on_this_machine(pages: dict[str, str]) -> None:
    assert not [
        name for name, text in pages.items() if str(ROOT) in text or str(Path.home()) in text
    ]


def test_a_stale_list_is_named_and_written_again(tmp_path: Path) -> None:
    tree = Copy.made_in(tmp_path)
    tree.passes(*DOCS)
    tree.passes(*DOCS, "--check")
    index = tmp_path / "docs/rules/index.md"
    fresh = index.read_text(encoding="utf-8")
    index.write_text(fresh + "More.\n", encoding="utf-8")
    done = tree.python(*DOCS, "--check")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "docs/rules/index.md is stale"
    tree.passes(*DOCS)
    assert index.read_text(encoding="utf-8") == fresh


def test_the_site_has_the_page_of_every_rule_and_nothing_of_before(tmp_path: Path) -> None:
    tree = Copy.made_in(tmp_path)
    tree.passes(*DOCS)
    gone = tmp_path / "build/docs/rules/TL199.md"
    gone.parent.mkdir(parents=True)
    gone.write_text("# TL199\n", encoding="utf-8")
    tree.passes(*DOCS, "--site")
    assert not gone.exists()
    page = (tmp_path / "build/docs/rules/TL101.md").read_text(encoding="utf-8")
    assert "Not measured yet.\n" in page
    assert "](TL101.md)" in (tmp_path / "build/docs/rules/index.md").read_text(encoding="utf-8")


def test_the_picture_of_the_readme_is_what_check_prints_now() -> None:
    """`python -m torchlint.docs` writes it again."""
    made = picture(Checkout(ROOT))
    assert (ROOT / "docs" / "check.svg").read_text(encoding="utf-8") == made
    assert "(docs/check.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    tree = ElementTree.fromstring(made)
    text = "\n".join("".join(line.itertext()) for line in tree.iter(f"{SVG}text"))
    assert "TL201 [sync-in-training-loop] high:" in text
    assert "Most worth: " in text
    assert "http" not in made.replace(SVG.strip("{}"), "")


def test_the_chart_of_the_readme_has_a_bar_for_each_decided_measurement() -> None:
    tree = Checkout(ROOT)
    made = speed_chart(rules_of(tree), evidence_of(tree))
    assert (ROOT / "docs" / "speed.svg").read_text(encoding="utf-8") == made
    assert "(docs/speed.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "http" not in made.replace(SVG.strip("{}"), "")
    drawn = ElementTree.fromstring(made)
    names = {
        str(text.text).split()[0]
        for text in drawn.iter(f"{SVG}text")
        if str(text.text).startswith("TL")
    }
    assert names == {
        code
        for code, written in evidence_of(tree).items()
        if any(each["verdict"] in ("FASTER", "SAME", "SLOWER") for each in written)
    }
    widths = {rect.get("class"): float(rect.get("width") or 0) for rect in drawn.iter(f"{SVG}rect")}
    assert widths["faster"] < widths["track"] < widths["slower"] <= 1.2 * widths["track"]


def test_what_was_measured_is_on_the_page_and_in_explain(tmp_path: Path) -> None:
    tree = Copy.made_in(tmp_path)
    evidence = tmp_path / "fixtures/rules/tl101_loader_without_workers/evidence.json"
    evidence.parent.mkdir(parents=True)
    evidence.write_text(json.dumps(MEASURED), encoding="utf-8")
    tree.passes(*DOCS)
    measured = (
        "## Measured\n"
        "- 1.47 times as fast (1.40 to 1.55) on NVIDIA H200, torch 2.11.0\n"
        "- no measurable difference on CPU, torch 2.13.0\n"
    )
    tree.passes(*DOCS, "--site")
    assert measured in (tmp_path / "build/docs/rules/TL101.md").read_text(encoding="utf-8")
    assert measured in tree.python("-m", "torchlint", "explain", "--examples", "TL101").stdout
    brief = tree.python("-m", "torchlint", "explain", "TL101").stdout
    assert measured.removeprefix("## ") in brief


def entry(device: str, verdict: str) -> dict[str, object]:
    speedup = {"ratio": 1.0, "low": 0.99, "high": 1.01}
    return {"device": device, "torch": "2.11.0", "verdict": verdict, "speedup": speedup}


@pytest.mark.parametrize(
    ("code", "device", "verdict", "holds"),
    [
        ("TL101", "CPU (2 cores)", "FASTER", True),
        ("TL101", "CPU (2 cores)", "UNSURE", True),
        ("TL101", "CPU (2 cores)", "SAME", False),
        ("TL201", "CPU (2 cores)", "SLOWER", True),
        ("TL201", "NVIDIA H200", "SAME", False),
        ("TL401", "NVIDIA H200", "SAME", True),
        ("TL401", "NVIDIA H200", "SLOWER", False),
        ("TL308", "NVIDIA H200", "SLOWER", True),
        ("TL504", "NVIDIA H200", "SAME", True),
    ],
    ids=[
        "a gain that is there",
        "a measurement that says nothing",
        "a gain that is not there",
        "a rule for accelerators on a CPU",
        "a rule for accelerators on one",
        "a small gain that is too small to see",
        "a small gain that is a loss",
        "a rule that is off by default",
        "a rule that claims fewer epochs, no faster step",
    ],
)
def test_what_a_rule_claims_is_held_against_what_was_measured(
    code: str, device: str, verdict: str, holds: bool
) -> None:
    rules = [head.load() for head in load_registry().rules]
    claims = list(contradictions(rules, {code: [entry(device, verdict)]}))
    assert [line.partition(" ")[0] for line in claims] == ([] if holds else [code])


def test_no_page_is_written_in_peace_while_a_claim_does_not_hold(tmp_path: Path) -> None:
    tree = Copy.made_in(tmp_path)
    evidence = tmp_path / "fixtures/rules/tl101_loader_without_workers/evidence.json"
    evidence.parent.mkdir(parents=True)
    evidence.write_text(json.dumps([entry("CPU (2 cores)", "SAME")]), encoding="utf-8")
    done = tree.python(*DOCS)
    assert done.returncode == 1
    assert done.stderr == (
        "TL101 claims impact high, but was measured SAME on CPU (2 cores), torch 2.11.0: "
        "write `default: false`, or claim less\n"
    )
    assert (
        "no measurable difference on CPU (2 cores)"
        in tree.python("-m", "torchlint", "explain", "TL101").stdout
    )
