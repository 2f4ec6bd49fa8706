"""The list of all rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torchlint.report.card import Card
from torchlint.report.paint import Paint
from torchlint.report.ruffjson import dumps

__all__ = ["catalogue", "catalogue_json"]


def catalogue(cards: Sequence[Card], paint: Paint) -> str:
    """Return a line per rule: code, name, best class of a fix, impact, summary."""
    code = max(len(card.code) for card in cards)
    name = max(len(card.name) for card in cards)
    blocks = []
    for category, group in groupby(cards, key=lambda card: card.category):
        lines = [paint.strong(category or "other packs") + "\n"]
        for card in group:
            off = "" if card.default else paint.warn(" (off by default)")
            label = paint.code(card.code, card.link) + " " * (code - len(card.code))
            grade = card.safety or "-"
            lines.append(
                f"  {label}  {card.name:<{name}}  {grade:<6}  {card.impact:<6}"
                f"  {card.summary}{off}\n"
            )
        blocks.append("".join(lines))
    return "\n".join(blocks)


def catalogue_json(cards: Sequence[Card]) -> str:
    """Return an object per rule."""
    return dumps([_rule(card) for card in cards], indent=2) + "\n"


def _rule(card: Card) -> dict[str, object]:
    return {
        "code": card.code,
        "name": card.name,
        "summary": card.summary,
        "category": card.category,
        "groups": card.groups,
        "impact": card.impact,
        "safety": card.safety,
        "default": card.default,
        "since": ".".join(map(str, card.since)),
        "url": card.url,
        "page": card.page,
    }
