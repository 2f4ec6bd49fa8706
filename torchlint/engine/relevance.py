"""Which rules may have something to say of a text: decided by words alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
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
        elif words.names(head.about) and words.holds(head.needs):
            yield head


class _Words:
    """Which words a text holds, each looked for once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._named: dict[tuple[str, ...], bool] = {}
        self._held: dict[str, bool] = {}

    @cached_property
    def _distinct(self) -> str:
        """What stands between white space, each once: little more than half of a text."""
        return " ".join(set(self.text.split()))

    def names(self, libraries: tuple[str, ...]) -> bool:
        """Whether the text names one of some libraries, as few texts do."""
        found = self._named.get(libraries)
        if found is None:
            found = self._named[libraries] = any(word in self.text for word in libraries)
        return found

    def holds(self, words: tuple[str, ...]) -> bool:
        """Whether the text holds one of some words; often the first that is asked for decides."""
        held = self._held
        for word in words:
            found = held.get(word)
            if found is None:
                where = self._distinct if held and _is_unbroken(word) else self.text
                found = held[word] = word in where
            if found:
                return True
        return False


@cache
def _is_unbroken(word: str) -> bool:
    return word.split() == [word]


def _speaks_of_rules(text: str, rules: Selection) -> bool:
    if not mentions_suppression(text):
        return False
    from torchlint.suppress import speaks_of_rules

    return speaks_of_rules(text, rules.known)
