"""The words of a file: what it speaks of, comments left out."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

__all__ = ["Vocabulary"]

_COMMENT: Final = re.compile(r"#[^\r\n]*")
_WORD: Final = re.compile(r"[\w.]+")


class Vocabulary:
    """Answers whether a file speaks of something, by patterns over its distinct dotted words."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _words(self) -> str:
        return "\n".join(sorted(set(_WORD.findall(_COMMENT.sub("", self._text)))))

    @cached_property
    def _lowered(self) -> str:
        return self._words.lower()

    def has(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern is found in a word (`^` and `$` want `re.MULTILINE`)."""
        return pattern.search(self._words) is not None

    def has_lowered(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern of small letters is found in a word, whatever its case."""
        return pattern.search(self._lowered) is not None
