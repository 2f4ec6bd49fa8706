"""What reports print about a rule, available without importing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from torchlint.links import rule_url
from torchlint.measurement import Measurement, conclusive, gain_of, measurements_beside

if TYPE_CHECKING:
    from torchlint.registry import RuleHead
    from torchlint.rule import Rule

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
    since: tuple[int, int] = (0, 4)
    page: str = ""
    """The rule's page in Markdown."""
    link: str | None = None
    """The link that a terminal or an editor opens: the address of the page, or its file."""
    url: str | None = None
    """The address of the page, None if it has none."""
    evidence: Measurement | None = None
    """The measured gain of the rule's fix, where its pack has one that counts."""
    groups: tuple[str, ...] = ()

    @property
    def category(self) -> str | None:
        """The heading of the rule in the catalogue, None for rules outside of it."""
        return _CATEGORIES.get(self.code[:3])


def brief_card(head: RuleHead, device: str = "auto") -> Card:
    """Return what is known before a rule is imported, enough for formats for people.

    Its evidence is that for `device`, a value of `target-device`.
    """
    measured = measurements_beside(head.file, head.code)
    shown = conclusive(measured, head.gain, head.device)
    fitting = (each for each in shown if device == "auto" or each.on_cpu == (device == "cpu"))
    return Card(
        head.code,
        head.name,
        impact=head.impact,
        link=_link(head.code, head.module, head.page),
        url=rule_url(head.code, head.module),
        evidence=next(fitting, None),
    )


def card_of(rule: type[Rule]) -> Card:
    """Return the texts of a rule class."""
    return Card(
        code=rule.code,
        name=rule.name,
        summary=rule.summary,
        impact=rule.impact,
        groups=rule.groups,
        safety=None if rule.safety is None else rule.safety.word,
        default=rule.default,
        since=rule.since,
        page=rule.page().prose,
        link=_link(rule.code, rule.__module__, rule.page_file),
        url=rule_url(rule.code, rule.__module__),
        evidence=gain_of(rule),
    )


def _link(code: str, module: str, page: str) -> str | None:
    """Return the address of the page of a rule, else its file, never one of Python."""
    return rule_url(code, module) or (Path(page).absolute().as_uri() if page else None)
