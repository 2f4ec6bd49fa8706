"""The page of one rule, its examples shown as diffs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchlint.report.card import card_of
from torchlint.report.paint import Paint

if TYPE_CHECKING:
    from torchlint.rule import Rule

__all__ = ["page"]


def page(rule: type[Rule], paint: Paint) -> str:
    """Give the page in Markdown: what, why, when not, how safe, and examples."""
    return "\n".join(_lines(rule, paint)) + "\n"


def _lines(rule: type[Rule], paint: Paint) -> Iterator[str]:
    card = card_of(rule)
    yield paint.strong(f"# {card.code} {card.name}")
    yield ""
    yield card.summary
    yield ""
    yield f"Impact {card.impact}, {_fixes(card.safety)}, {_default(card.default)}."
    yield ""
    for line in card.page.splitlines():
        yield paint.strong(line) if line.startswith("## ") else line
    yield ""
    yield paint.strong("## Reported")
    for sentence, snippet in rule.invalid.items():
        yield from ("", f"{sentence}:", "", *_snippet(snippet, paint))
    yield ""
    yield paint.strong("## Not reported")
    for sentence, snippet in rule.valid.items():
        yield from ("", f"{sentence}:", "", *_snippet(snippet, paint))


def _fixes(safety: str | None) -> str:
    if safety is None:
        return "no automatic fix"
    return f"{'an' if safety[0] in 'aeiou' else 'a'} {safety} fix at best"


def _default(default: bool) -> str:
    return "on by default" if default else "off by default"


def _snippet(snippet: str, paint: Paint) -> Iterator[str]:
    yield "```diff"
    for line in textwrap.dedent(snippet).strip("\n").splitlines():
        if line.startswith("+ "):
            yield paint.added(line)
        elif line.startswith(("- ", "! ")):
            yield paint.removed(line)
        else:
            yield line
    yield "```"
