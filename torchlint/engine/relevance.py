"""Which rules may apply to a text, decided by the words in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from torchlint.caching import cached_method
from torchlint.engine.newersyntax import parses
from torchlint.program.argumentfiles import NAMING
from torchlint.registry import RuleHead, Selection
from torchlint.source import Source
from torchlint.suppressionwords import has_suppression_word

if TYPE_CHECKING:
    from torchlint.engine.programs import Linked

UNPARSABLE: Final = "TL001"
"""The code of the rule about files that do not parse; it applies to every text."""

UNUSED: Final = "TL002"
"""The code of the rule about suppressions."""


def relevant(text: str, rules: Selection, linked: Linked | None = None) -> Iterator[RuleHead]:
    """Yield the rules that may find something in a text, judged with what is linked to it."""
    words = _Around(_Words(text), linked)
    for head in rules:
        if head.code == UNPARSABLE:
            yield head
        elif head.code == UNUSED:
            if _names_our_rules(text, rules):
                yield head
        elif words.names(head.about) and words.need(head.needs):
            if not head.elsewhere or words.hold(head.elsewhere):
                yield head


def is_clean(source: Source, asked: Sequence[RuleHead]) -> bool:
    """Return whether a quick test shows that a text has no findings."""
    if [head.code for head in asked] == [UNPARSABLE]:
        return not source.broken_parts() and parses(source.text)
    return not asked


class _Words:
    """A cache of which words a text contains."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._held: dict[str, bool] = {}

    @cached_property
    def _distinct(self) -> str:
        """The distinct words between white space, a little over half the size of the text."""
        return " ".join(set(self.text.split()))

    @cached_method
    def names(self, libraries: tuple[str, ...]) -> bool:
        """Return whether the text mentions one of these libraries."""
        return any(word in self.text for word in libraries)

    def holds(self, words: tuple[str, ...]) -> bool:
        """Return whether the text contains one of these words."""
        held = self._held
        for word in words:
            found = held.get(word)
            if found is None:
                found = held[word] = self._has(word)
            if found:
                return True
        return False

    def _has(self, word: str) -> bool:
        """Return whether the text contains a word; with a space before it, where a name begins."""
        if word.startswith(" "):
            return re.search(rf"\b{re.escape(word[1:])}", self.text) is not None
        return word in (self._distinct if self._held and _is_unbroken(word) else self.text)


class _Around:
    """The words of a text, and of what is linked to it."""

    def __init__(self, own: _Words, linked: Linked | None) -> None:
        self.own = own
        self._linked = linked

    @cached_property
    def _others(self) -> _Words | None:
        modules = () if self._linked is None else self._linked.view.modules
        texts = [excerpt.text for module in modules for excerpt in module.excerpts]
        return _Words("\n".join(texts)) if texts else None

    def names(self, libraries: tuple[str, ...]) -> bool:
        """Return whether the text, or what is linked to it, mentions one of these libraries."""
        if self.own.names(libraries):
            return True
        return self._others is not None and self._others.names(libraries)

    def need(self, words: tuple[str, ...]) -> bool:
        """Return whether the text, or an argument file that it names, contains one of the words."""
        return self.own.holds(words) or (self.own.holds(NAMING) and self.hold(words))

    def hold(self, words: tuple[str, ...]) -> bool:
        """Return whether the text, or what is linked to it, contains one of these words."""
        return self.own.holds(words) or (self._others is not None and self._others.holds(words))


@cache
def _is_unbroken(word: str) -> bool:
    return word.split() == [word]


def _names_our_rules(text: str, rules: Selection) -> bool:
    if not has_suppression_word(text):
        return False
    from torchlint.suppress import names_our_rules

    return names_our_rules(text, rules.known)
