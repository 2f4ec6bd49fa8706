"""Selecting rules by words: a code, the beginning of codes, a name, a group, or ALL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from torchlint.registry.heads import RuleHead

if TYPE_CHECKING:
    from torchlint.rule import Rule

ALL: Final = "ALL"

Groups: TypeAlias = Mapping[str, frozenset[str]]
"""The codes of each group of rules."""

_NO_GROUPS: Final[Groups] = {}


@dataclass(frozen=True)
class Selection:
    """The rules that a run applies, and the catalogue that they were selected from."""

    rules: tuple[RuleHead, ...]
    known: Mapping[str, str]
    """The name of every rule of the catalogue by its code."""
    complete: bool = True
    """Whether every rule that is on by default is among them."""
    groups: Groups = field(default_factory=dict)
    """The groups of the rules of the catalogue."""

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


def covers(word: str, code: str, name: str, groups: Groups = _NO_GROUPS) -> bool:
    """Return whether a word of a selection covers a rule."""
    return word in (ALL, name) or code.startswith(word) or code in groups.get(word, ())


def specificity(word: str, name: str, groups: Groups = _NO_GROUPS) -> int:
    """Return how specific a word is that covers a rule; a name counts as much as a full code.

    Every beginning of a code is more specific than a group.
    """
    if word == ALL:
        return 0
    if word in groups:
        return 1
    return 1_000 if word == name else 1 + len(word)


def values(
    known: Mapping[str, str], by_word: Mapping[str, str], groups: Groups = _NO_GROUPS
) -> dict[str, str]:
    """Return the value of every code that a word of a table covers; the most specific word wins."""
    found: dict[str, str] = {}
    for code, name in known.items():
        words = [word for word in by_word if covers(word, code, name, groups)]
        if words:
            found[code] = by_word[max(words, key=lambda word: specificity(word, name, groups))]
    return found


def winners(
    known: Mapping[str, str],
    chosen: Sequence[str],
    dropped: Sequence[str],
    start: Iterable[str],
    groups: Groups = _NO_GROUPS,
) -> frozenset[str]:
    """Return the codes that are chosen; the most specific word wins, and `dropped` wins ties."""
    codes = set(start)
    for code, name in known.items():
        length = 1 + len(code)
        votes = [
            (min(specificity(word, name, groups), length), not choose, choose)
            for words, choose in ((chosen, True), (dropped, False))
            for word in words
            if covers(word, code, name, groups)
        ]
        if votes:
            (codes.add if max(votes)[2] else codes.discard)(code)
    return frozenset(codes)
