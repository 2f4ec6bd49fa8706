"""What reports print about a rule, available without importing it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from torchlint.measurement import Measurement, gain_of

if TYPE_CHECKING:
    from torchlint.rule import Rule

__all__ = ["Card", "brief_card", "card_of"]

_CATEGORIES: Final = {
    "TL0": "torchlint",
    "TL1": "input pipeline",
    "TL2": "host and device",
    "TL3": "precision and kernels",
    "TL4": "model and memory",
    "TL5": "optimization step",
    "TL6": "evaluation",
    "TL7": "distributed",
    "TL8": "left on",
    "TL9": "checkpoints",
}


class Card(NamedTuple):
    """The texts of one rule."""

    code: str
    name: str
    summary: str = ""
    impact: str = ""
    safety: str | None = None
    """The best class that a fix of the rule can have, None where it only reports."""
    default: bool = True
    since: tuple[int, int] = (1, 0)
    page: str = ""
    """The rule's page in Markdown."""
    link: str | None = None
    """The link that a terminal opens."""
    evidence: Measurement | None = None
    """The measured gain of the rule's fix, where its pack has one that counts."""

    @property
    def category(self) -> str | None:
        """The heading of the rule in the catalogue, None for rules outside of it."""
        return _CATEGORIES.get(self.code[:3])


def brief_card(code: str, name: str, file: str) -> Card:
    """Return the texts that are known before a rule is imported, enough for formats for people."""
    return Card(code, name, link=_link(file))


def card_of(rule: type[Rule]) -> Card:
    """Return the texts of a rule class."""
    return Card(
        code=rule.code,
        name=rule.name,
        summary=rule.summary,
        impact=rule.impact,
        safety=None if rule.safety is None else rule.safety.word,
        default=rule.default,
        since=rule.since,
        page=rule.page().prose,
        link=_link(rule.page_file or getattr(sys.modules.get(rule.__module__), "__file__", None)),
        evidence=gain_of(rule),
    )


def _link(file: str | None) -> str | None:
    return Path(file).absolute().as_uri() if file else None
