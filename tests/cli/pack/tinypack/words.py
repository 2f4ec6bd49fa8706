"""Finding words in a script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchlint.edit import Span
from torchlint.semantic.script import Script


def places(script: Script, word: str) -> Iterator[Span]:
    """Yield where a word stands."""
    for match in re.finditer(rf"\b{word}\b", script.source.text):
        yield Span(*match.span())
