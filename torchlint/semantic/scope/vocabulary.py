"""Vocabulary: the words of a file, comments and docstrings left out."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from torchlint.semantic.syntax.tree import Tree

_PROSE: Final = re.compile(
    r"#[^\r\n]*|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}", re.DOTALL
)
"""A comment or a string in three quotes, which is a docstring where it starts its line."""
_WORD: Final = re.compile(r"[\w.]+")
_ASCII: Final = map(chr, range(128))
_SPLITTING: Final = "".join(each if each.isalnum() or each in "._" else " " for each in _ASCII)
"""The translation of each ASCII character: itself, or a space if it separates words."""


class Vocabulary:
    """Searches the distinct dotted words of a file by patterns."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def _words(self) -> frozenset[str]:
        code = _PROSE.sub(_kept, self.tree.own_text)
        if code.isascii():
            return frozenset(code.translate(_SPLITTING).split())
        return frozenset(_WORD.findall(code))

    @cached_property
    def _lowered(self) -> frozenset[str]:
        return frozenset("\n".join(self._words).lower().split("\n"))

    def has(self, pattern: re.Pattern[str]) -> bool:
        """Return whether a pattern matches in a word; `^` and `$` are the ends of the word."""
        return _judgement(pattern).any(self._words)

    def has_lowered(self, pattern: re.Pattern[str]) -> bool:
        """Return whether a lower-case pattern matches in a word, ignoring its case."""
        return _judgement(pattern).any(self._lowered)


class _Judgement:
    """Cached matches of a pattern by word: files share most of their words."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.found: set[str] = set()
        self.missed: set[str] = set()

    def any(self, words: frozenset[str]) -> bool:
        """Return whether the pattern matches in one of some words."""
        if not self.found.isdisjoint(words):
            return True
        fresh = words - self.missed
        search = self.pattern.search
        for word in fresh:
            if search(word) is not None:
                self.found.add(word)
                return True
        if len(self.missed) > _REMEMBERED:
            self.missed.clear()
        self.missed |= fresh
        return False


def _kept(prose: re.Match[str]) -> str:
    """Return what code says in a comment, which is nothing, or in a string in three quotes."""
    text, start = prose.string, prose.start()
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return prose[0] if text[start] != "#" and before.strip(" \trRuU") else ""


_REMEMBERED: Final = 20_000
_JUDGEMENTS: Final[dict[re.Pattern[str], _Judgement]] = {}


def _judgement(pattern: re.Pattern[str]) -> _Judgement:
    found = _JUDGEMENTS.get(pattern)
    if found is None:
        found = _JUDGEMENTS[pattern] = _Judgement(pattern)
    return found
