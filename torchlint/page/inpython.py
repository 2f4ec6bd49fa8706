"""Rule pages written in the class of a rule: a deprecated format."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from typing import Final

from torchlint.page.document import SETTINGS, Snippet

_HEADING: Final = re.compile(r"^ *## (.+?) *$", re.MULTILINE)
_SETTING: Final = re.compile(rf"# ({'|'.join(SETTINGS)}): *(.*)")


def headings(doc: str) -> tuple[str, ...]:
    """Return the headings of a docstring, in order."""
    return tuple(_HEADING.findall(doc))


def sections(doc: str) -> Mapping[str, str]:
    """Return the sections of a docstring, by heading."""
    _, *parts = _HEADING.split(cleandoc(doc))
    return {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


def snippets(examples: Mapping[str, str]) -> Iterator[Snippet]:
    """Yield examples from a dictionary; comments at the top of the code are its settings."""
    for title, written in examples.items():
        lines = textwrap.dedent(written.lstrip("\n")).rstrip().split("\n")
        settings: dict[str, str] = {}
        while lines and (match := _SETTING.fullmatch(lines[0].strip())) is not None:
            settings[match[1]] = match[2]
            del lines[0]
        code = "\n".join(lines)
        yield Snippet(title, textwrap.dedent(code) if settings else code, settings)
