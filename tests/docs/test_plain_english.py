"""Words that docstrings, messages and pages avoid, because there are plainer ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest
from checkouts import ROOT

BANNED: Final = re.compile(
    r"\b(?:anew|whoever|nobody|dear|fates?|outflows?"
    r"|let go of|lets go of|speaks? of|what there is to|there and back)\b",
    re.IGNORECASE,
)
"""Plainer words: again, the caller, no one, expensive, uses, free, cover, findings, in turns."""
_FIRST: Final = re.compile(r"Gives?\b")
"""Words with which no docstring of a function begins: "Return" says what a function does."""
_CODE: Final = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)

SOURCES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("torchlint", "rules")
    for path in (ROOT / folder).rglob("*.py")
)
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "rules").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    )
)


def in_source(text: str) -> Iterator[str]:
    """Yield `row: word` for each banned word in docstrings, messages and other sentences."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from _banned(_CODE.sub(_blank, node.value), node.lineno)
        if isinstance(node, _FUNCTIONS):
            found = _FIRST.match(ast.get_docstring(node) or "")
            if found is not None:
                yield f"{node.lineno}: {found.group()} at the start"


def in_page(text: str) -> Iterator[str]:
    """Yield `row: word` for each banned word outside of code and links."""
    return _banned(_CODE.sub(_blank, text), 1)


def _banned(text: str, first: int) -> Iterator[str]:
    for found in BANNED.finditer(text):
        yield f"{first + text.count(chr(10), 0, found.start())}: {found.group()}"


def _blank(code: re.Match[str]) -> str:
    return "\n" * code.group().count("\n")


@pytest.mark.parametrize("name", SOURCES)
def test_docstrings_and_messages_use_plain_words(name: str) -> None:
    assert not list(in_source((ROOT / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", PAGES)
def test_pages_use_plain_words(name: str) -> None:
    assert not list(in_page((ROOT / name).read_text(encoding="utf-8")))


def test_banned_words_are_found_where_they_stand() -> None:
    source = '"""Fine."""\n\n\ndef f():\n    """Give it.\n\n    Nobody does `anew`.\n    """\n'
    assert sorted(in_source(source)) == ["4: Give at the start", "7: Nobody"]
    assert list(in_page("ok\n\n```\nanew\n```\nwrite it anew\n")) == ["6: anew"]
