"""Regular expressions that are compiled when they are first asked for something.

A check of one script imports many expressions and uses few, and compiling one takes longer than
importing a small module.
"""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["regex"]


class _Regex:
    """Stands for a compiled expression, whose methods it takes over one by one."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """Give a regular expression like `re.compile`; a wrong one is refused at its first use."""
    return cast("re.Pattern[str]", _Regex(text, flags))
