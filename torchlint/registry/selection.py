"""Selecting rules by words: a code, the beginning of codes, a name, or ALL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchlint.registry.heads import RuleHead

if TYPE_CHECKING:
    from torchlint.rule import Rule

__all__ = ["ALL", "Selection", "covers", "specificity", "winners"]

ALL = "ALL"


@dataclass(frozen=True)
class Selection:
    """The rules that a run applies, and the catalogue that they were selected from."""

    rules: tuple[RuleHead, ...]
    known: Mapping[str, str]
    """The name of every rule of the catalogue by its code."""
    complete: bool = True
    """Whether every rule that is on by default is among them."""

    @classmethod
    def of(cls, *rules: type[Rule]) -> Selection:
        """Return a selection of exactly these rule classes."""
        heads = tuple(RuleHead.of(rule) for rule in sorted(rules, key=lambda rule: rule.code))
        return cls(heads, {head.code: head.name for head in heads})

    def __iter__(self) -> Iterator[RuleHead]:
        return iter(self.rules)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the selected rules."""
        return tuple(head.code for head in self.rules)

    def without(self, codes: Iterable[str]) -> Selection:
        """Return the selection without some codes."""
        dropped = frozenset(codes)
        kept = tuple(head for head in self.rules if head.code not in dropped)
        return self if len(kept) == len(self.rules) else replace(self, rules=kept, complete=False)


def covers(word: str, code: str, name: str) -> bool:
    """Return whether a word of a selection covers a rule."""
    return word in (ALL, name) or code.startswith(word)


def specificity(word: str, name: str) -> int:
    """Return how specific a word is that covers a rule; a name counts as much as a full code."""
    if word == ALL:
        return 0
    return 1_000 if word == name else len(word)


def winners(
    known: Mapping[str, str], chosen: Sequence[str], dropped: Sequence[str], start: Iterable[str]
) -> frozenset[str]:
    """Return the codes that are chosen; the most specific word wins, and `dropped` wins ties."""
    codes = set(start)
    for code, name in known.items():
        length = len(code)
        votes = [
            (min(specificity(word, name), length), not choose, choose)
            for words, choose in ((chosen, True), (dropped, False))
            for word in words
            if covers(word, code, name)
        ]
        if votes:
            (codes.add if max(votes)[2] else codes.discard)(code)
    return frozenset(codes)
