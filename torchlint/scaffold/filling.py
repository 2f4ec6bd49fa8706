"""Templates and the words that fill them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from torchlint.scaffold.refusal import ScaffoldError

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TEMPLATES: Final = Path(__file__).parent


def filled(template: str, words: Mapping[str, str]) -> str:
    """Return the text of a template with its words filled in."""
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    return Template(text).substitute(words)


def name_words(name: str, code: str) -> dict[str, str]:
    """Return the words for the name and the code of a rule; raises `ScaffoldError`."""
    if not _NAME.fullmatch(name):
        raise ScaffoldError(
            f"`{name}` is not a rule name: use lower-case words with hyphens, such as `slow-thing`"
        )
    return {
        "code": code,
        "name": name,
        "class_name": name.title().replace("-", ""),
        "stem": f"{code.lower()}_{name.replace('-', '_')}",
    }
