"""Expectations written as trailing comments on the lines of a case file.

Several on a line are separated by `;`. `role`, `kind`, `name`, `frequency`, `grad` are about the
line; `kind x` is about the first `x` on it, `arg x` about an argument of its outermost call.
`accelerator` and `framework` are on lines of their own and are about the file.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ON_A_LINE = ("role", "kind", "name", "frequency", "grad", "arg")
OF_THE_FILE = ("accelerator", "framework")
WITH_SUBJECT = ("kind", "arg")

_EXPECTATION = re.compile(r"(?P<notion>[a-z]+)(?: (?P<subject>[\w.]+))?: (?P<expected>\S.*)")


@dataclass(frozen=True)
class Expectation:
    """What one comment says of one line."""

    path: Path
    row: int
    notion: str
    subject: str
    expected: str

    def __str__(self) -> str:
        what = f"{self.notion} {self.subject}".strip()
        return f"{self.path.stem}:{self.row} {what} {self.expected}"


def expectations(path: Path) -> Iterator[Expectation]:
    """Yield what the comments of a case file expect; one that expects nothing is an error."""
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        row, column = token.start
        trailing = bool(token.line[:column].strip())
        comment = token.string.lstrip("#").strip()
        if not trailing and not comment.startswith(OF_THE_FILE):
            continue
        for part in comment.split(";"):
            found = _EXPECTATION.fullmatch(part.strip())
            if found is None or found["notion"] not in (ON_A_LINE if trailing else OF_THE_FILE):
                raise ValueError(f"{path}:{row}: no expectation: {part.strip()!r}")
            if found["subject"] and found["notion"] not in WITH_SUBJECT:
                raise ValueError(f"{path}:{row}: {found['notion']} has no subject")
            yield Expectation(
                path, row, found["notion"], found["subject"] or "", found["expected"].strip()
            )
