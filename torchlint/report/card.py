"""A rule as reports name it: what is printed of a rule, without its code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torchlint.measurement import Measurement, measurements_of
from torchlint.record import Record

if TYPE_CHECKING:
    from torchlint.rule import Rule

__all__ = ["Card", "brief_card", "card_of"]

_CATEGORIES: Final = {
    "TL0": "torchlint",
    "TL1": "input pipeline",
    "TL2": "host and device",
    "TL3": "precision and kernels",
    "TL4": "model and memory",
    "TL5": "optimisation step",
    "TL6": "evaluation",
    "TL7": "distributed",
    "TL8": "left on",
    "TL9": "checkpoints",
}


class Card(Record):
    """The words of one rule."""

    code: str
    name: str
    summary: str = ""
    impact: str = ""
    safety: str | None = None
    """The best class that a fix of the rule can earn, None where it only reports."""
    default: bool = True
    since: tuple[int, int] = (1, 0)
    page: str = ""
    """The rule's page in Markdown."""
    link: str | None = None
    """Where a terminal opens the page."""
    evidence: Measurement | None = None
    """What the fix of the rule gained where its pack measured it."""

    @property
    def category(self) -> str | None:
        """The heading of the catalogue that the rule stands under, None outside of it."""
        return _CATEGORIES.get(self.code[:3])


def brief_card(code: str, name: str, file: str) -> Card:
    """Give what is known of a rule before it is imported: enough for the formats for people."""
    return Card(code, name, link=_link(file))


def card_of(rule: type[Rule]) -> Card:
    """Give the words of a rule class."""
    from inspect import cleandoc

    return Card(
        code=rule.code,
        name=rule.name,
        summary=rule.summary,
        impact=rule.impact,
        safety=None if rule.safety is None else rule.safety.word,
        default=rule.default,
        since=rule.since,
        page=cleandoc(rule.__doc__ or ""),
        link=_link(getattr(sys.modules.get(rule.__module__), "__file__", None)),
        evidence=next(iter(measurements_of(rule)), None),
    )


def _link(file: str | None) -> str | None:
    return Path(file).absolute().as_uri() if file else None
