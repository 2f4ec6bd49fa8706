"""The sources of the site: the pages in `docs/`, and one per rule with its measurements."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from torchlint.docs.links import article_link
from torchlint.docs.lists import evidence_of, rules_of
from torchlint.measurement import measurements
from torchlint.report.page import page
from torchlint.report.paint import Paint
from torchlint.rule import Rule
from torchlint.testing.checkout import Checkout

__all__ = ["site"]

_LINK: Final = re.compile(r"(?<=\]\()[./]*rules/torchlint_rules/([a-z0-9]+)_[a-z0-9_]+(?:/page)?\.md")
"""Matches a link from a page in `docs/` to the page beside a rule."""


def site(tree: Checkout) -> dict[Path, str]:
    """Return the expected content of every source of the site; raises `RegistryError`."""
    evidence = evidence_of(tree)
    made = {
        tree.site / file.relative_to(tree.docs): _linked(tree, file)
        for file in sorted(tree.docs.rglob("*.md"))
    }
    for rule in rules_of(tree):
        made[tree.site / _name(rule.code)] = _page(rule, evidence.get(rule.code, ()))
    return made


def _name(code: str) -> str:
    return f"rules/{code.upper()}.md"


def _linked(tree: Checkout, file: Path) -> str:
    """Return a page of `docs/` with links to the site's pages of rules."""
    folder = file.relative_to(tree.docs).parent.as_posix()
    return _LINK.sub(
        lambda match: posixpath.relpath(_name(match[1]), folder),
        file.read_text(encoding="utf-8"),
    )


def _page(rule: type[Rule], evidence: Sequence[Mapping[str, Any]]) -> str:
    text = page(rule, Paint(), measurements(evidence))
    if rule.articles:
        links = (f"- {article_link(source, '../articles.md')}" for source in rule.articles)
        text += "\n".join(("", "## Advised by", *links, ""))
    return text
