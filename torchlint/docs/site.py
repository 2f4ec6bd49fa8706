"""All pages, as text by file name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from torchlint.docs.articles import ARTICLES, BONUS, TIPS, tip_of
from torchlint.docs.claims import contradictions
from torchlint.docs.links import article_link
from torchlint.measurement import EVIDENCE, measurements
from torchlint.registry import RegistryError, load_registry
from torchlint.report.card import Card, card_of
from torchlint.report.page import page
from torchlint.report.paint import Paint
from torchlint.rule import Rule
from torchlint.testing.checkout import Checkout

__all__ = ["files", "leftovers", "refuted"]

_GENERATED: Final = "<!-- Written by `python -m torchlint.docs` from the rules: change those. -->"
_LAST: Final = "S3"


def files(tree: Checkout) -> dict[Path, str]:
    """Give what every generated file should hold; raises `RegistryError`."""
    rules = _rules(tree)
    evidence = _evidence(tree)
    made = {tree.rules / EVIDENCE: json.dumps(evidence, indent=2) + "\n"}
    for rule in rules:
        made[tree.docs / "rules" / f"{rule.code}.md"] = _page(rule, evidence.get(rule.code, ()))
    made[tree.docs / "rules" / "index.md"] = _text(_index([card_of(rule) for rule in rules]))
    made[tree.docs / "articles.md"] = _text(_articles(rules))
    return made


def refuted(tree: Checkout) -> list[str]:
    """Say which claims of rules the measurements of this tree refute."""
    return list(contradictions(_rules(tree), _evidence(tree)))


def leftovers(tree: Checkout, made: Iterable[Path]) -> list[Path]:
    """Give the pages of rules that are no more."""
    return sorted(set((tree.docs / "rules").glob("*.md")) - set(made))


def _rules(tree: Checkout) -> list[type[Rule]]:
    """Import the rules of this tree, whatever other packs there are."""
    heads = load_registry().rules
    own = [head for head in heads if Path(head.file).parent.resolve() == tree.rules.resolve()]
    if not own:
        raise RegistryError("the torchlint that runs is not the one of this source tree")
    return [head.load() for head in own]


def _evidence(tree: Checkout) -> dict[str, Any]:
    """Gather what was measured on the fixtures, by code."""
    return {
        file.parent.name.partition("_")[0].upper(): json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(tree.fixtures.glob(f"*/{EVIDENCE}"))
    }


def _page(rule: type[Rule], evidence: Sequence[Mapping[str, Any]]) -> str:
    text = f"{_GENERATED}\n\n{page(rule, Paint(), measurements(evidence))}"
    if rule.articles:
        links = (f"- {article_link(source, '../articles.md')}" for source in rule.articles)
        text += "\n".join(("", "## Advised by", *links, ""))
    return text


def _index(cards: Sequence[Card]) -> Iterator[str]:
    on = sum(card.default for card in cards)
    yield "# Rules"
    yield ""
    yield f"{len(cards)} rules, {on} of them on by default. By article: [articles](../articles.md)."
    for category, group in groupby(cards, key=lambda card: card.category or ""):
        members = list(group)
        yield from ("", f"## {category.capitalize()} ({members[0].code[:3]})", "")
        yield "| code | name | what it finds | best fix | impact | torch | |"
        yield "|---|---|---|---|---|---|---|"
        yield from map(_row, members)


def _row(card: Card) -> str:
    summary = card.summary.replace("|", "\\|")
    since = ".".join(map(str, card.since)) if card.since > (1, 0) else ""
    cells = (
        f"[{card.code}]({card.code}.md)",
        card.name,
        summary,
        card.safety or "",
        card.impact,
        since,
        "" if card.default else "off by default",
    )
    return f"| {' | '.join(cells)} |"


def _articles(rules: Sequence[type[Rule]]) -> Iterator[str]:
    yield "# Rules by article"
    yield ""
    yield "torchlint grew from four articles. What they advise, and the rule that looks for it:"
    for key, title in ARTICLES.items():
        yield from ("", f"## {title}")
        if key == _LAST:
            yield from _tips(rules)
        else:
            yield from ("", *_advised(key, rules))


def _tips(rules: Sequence[type[Rule]]) -> Iterator[str]:
    for number in (*range(1, len(TIPS) + 1), BONUS):
        source = f"{_LAST}.{number}"
        yield from ("", f"### {tip_of(source)}", "")
        found = list(_advised(source, rules))
        yield from found or ("No rule demands it; `torchlint audit` looks whether it is in use.",)


def _advised(source: str, rules: Sequence[type[Rule]]) -> Iterator[str]:
    for rule in rules:
        if source in rule.articles:
            yield f"- [{rule.code}](rules/{rule.code}.md) {rule.name}: {rule.summary}"


def _text(lines: Iterable[str]) -> str:
    return "\n".join((_GENERATED, "", *lines, ""))
