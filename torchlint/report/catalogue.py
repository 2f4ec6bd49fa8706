"""The list of all rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from torchlint.report.card import Card
from torchlint.report.paint import Paint
from torchlint.report.ruffjson import dumps
from torchlint.report.text import wrapped

_WIDTH: Final = 96
_OFF: Final = " (preview: off by default)"
_COLUMNS: Final = 22
"""The room of the classes of fixes, of the impact, and between the columns."""


def catalogue(cards: Sequence[Card], paint: Paint) -> str:
    """Return a line per rule: code, name, best class of a fix, impact, summary."""
    code = max(len(card.code) for card in cards)
    name = max(len(card.name) for card in cards)
    widest = max(len(card.summary) + (0 if card.default else len(_OFF)) for card in cards)
    narrow = paint.width is not None and code + name + widest + _COLUMNS > paint.width
    blocks = []
    for category, group in groupby(cards, key=lambda card: card.category):
        lines = [paint.strong(category or "other packs") + "\n"]
        for card in group:
            label = paint.code(card.code, card.link) + " " * (code - len(card.code))
            grade = card.safety or "-"
            said = _said(card, paint, narrow, code + 4)
            lines.append(f"  {label}  {card.name:<{name}}  {grade:<6}  {card.impact:<6}{said}\n")
        blocks.append("".join(lines))
    blocks.append("".join(_groups(cards, paint)))
    return "\n".join(blocks)


def _said(card: Card, paint: Paint, below: bool, indent: int) -> str:
    """Return what a rule reports, in a column of its own or in lines below the others."""
    off = "" if card.default else _OFF
    if not below:
        return f"  {card.summary}{paint.warn(off)}"
    lines = wrapped(card.summary + off, paint.width or _WIDTH, indent)
    return "".join(f"\n{line}" for line in lines)


def _groups(cards: Sequence[Card], paint: Paint) -> Iterator[str]:
    """Yield the groups of rules, which stand where codes do, with how many rules they have."""
    counts = Counter(group for card in cards for group in card.groups)
    if counts:
        yield paint.strong("groups, for --select, --ignore, --fixable and the settings") + "\n"
        listed = ", ".join(f"{group} ({counts[group]})" for group in sorted(counts))
        width = min(paint.width or _WIDTH, _WIDTH) - 2
        yield from (f"  {line}\n" for line in wrapped(listed, width, 0))


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
