"""Which rules may have something to say of a text: decided by words alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchlint.mention import mentions_suppression
from torchlint.registry import RuleHead, Selection

__all__ = ["UNUSED", "matters", "relevant"]

UNUSED: Final = "TL002"
"""The code of the rule about suppressions."""


def matters(text: str, rules: Selection) -> bool:
    """Whether any rule may have something to say of a text."""
    return any(True for _ in relevant(text, rules))


def relevant(text: str, rules: Selection) -> Iterator[RuleHead]:
    """Yield the rules that may have something to say of a text."""
    words = _Words(text)
    for head in rules:
        if head.code == UNUSED:
            if _speaks_of_rules(text, rules):
                yield head
        elif words.any(head.about) and words.any(head.needs):
            yield head


class _Words:
    """Which words a text holds, each looked for once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._held: dict[str, bool] = {}

    def any(self, words: tuple[str, ...]) -> bool:
        """Whether the text holds one of some words."""
        held = self._held
        for word in words:
            found = held.get(word)
            if found is None:
                found = held[word] = word in self.text
            if found:
                return True
        return False


def _speaks_of_rules(text: str, rules: Selection) -> bool:
    if not mentions_suppression(text):
        return False
    from torchlint.suppress import speaks_of_rules

    return speaks_of_rules(text, rules.known)
