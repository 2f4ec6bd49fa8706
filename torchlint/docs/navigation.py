"""The settings of the site, with every rule in its navigation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from torchlint.docs.lists import rules_of
from torchlint.report.card import card_of
from torchlint.rule import Rule
from torchlint.testing.checkout import Checkout

_LAST: Final = '{ "By tip" = "articles.md" },'
"""The entry of the navigation after which the rules follow."""


def settings(tree: Checkout) -> str:
    """Return `zensical.toml` as a file of the build folder, with the rules by family."""
    text = (tree.root / "zensical.toml").read_text(encoding="utf-8")
    text = text.replace(f'"{tree.site.parent.name}/', '"')
    return text.replace(_LAST, "\n        ".join((_LAST, *_families(rules_of(tree)))))


def _families(rules: Sequence[type[Rule]]) -> Iterator[str]:
    for category, members in groupby(rules, key=lambda rule: card_of(rule).category or ""):
        yield f'{{ "{category.capitalize()}" = ['
        yield from (
            f'    {{ "{rule.code} {rule.name}" = "rules/{rule.code}.md" }},' for rule in members
        )
        yield "] },"
