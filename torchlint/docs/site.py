"""The pages of the site: those in `docs/`, and one per rule with its measurements."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from torchlint.docs.lists import LAST, TITLE, evidence_of, rules_of, tip_of
from torchlint.measurement import measurements
from torchlint.page.document import Snippet
from torchlint.report.card import card_of
from torchlint.report.page import prose
from torchlint.report.paint import Paint
from torchlint.rule import Rule
from torchlint.testing.checkout import Checkout

_LINK: Final = re.compile(
    r"(?<=\]\()[./]*rules/torchlint_rules/([a-z0-9]+)_[a-z0-9_]+(?:/page)?\.md"
)
"""Matches a link from a page in `docs/` to the page beside a rule."""


_LEGEND: Final = (
    "The lines `-` and `+` are the fix; a line `!` is reported without a fix. "
    "Every example is a test."
)
_LAST: Final = '{ "By tip" = "articles.md" },'
"""The entry of the navigation after which the rules follow."""


def site(tree: Checkout) -> dict[Path, str]:
    """Return the expected content of every page of the site; raises `RegistryError`."""
    evidence = evidence_of(tree)
    made = {
        tree.site / file.relative_to(tree.docs): _linked(tree, file)
        for file in sorted(tree.docs.rglob("*.md"))
    }
    for rule in rules_of(tree):
        made[tree.site / _name(rule.code)] = _page(tree, rule, evidence.get(rule.code, ()))
    return made


def _name(code: str) -> str:
    return f"rules/{code.upper()}.md"


def _linked(tree: Checkout, file: Path) -> str:
    """Return a page of `docs/` with links to the site's pages of rules."""
    folder = file.relative_to(tree.docs).parent.as_posix()
    return _LINK.sub(
        lambda match: posixpath.relpath(_name(match[1]), folder),
        file.read_text(encoding="utf-8"),
    )


def _page(tree: Checkout, rule: type[Rule], evidence: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of a rule: its picture, its prose, and its examples to fold out."""
    title, _, summary, *lines = prose(rule, Paint(), measurements(evidence))
    written = rule.page()
    text = [title, "", summary[0].upper() + summary[1:] + ".", *lines[:3]]
    picture = tree.docs / "pictures" / f"{rule.code.lower()}.svg"
    if picture.is_file():
        text += ["", f"![{_title(picture)}](../pictures/{picture.name})", ""]
    text += [*lines[3:], "", "## Reported", "", _LEGEND]
    for number, snippet in enumerate(written.reported):
        text += _folded(snippet, "diff", is_open=number == 0)
    text += ["", "## Not reported"]
    for snippet in written.quiet:
        text += _folded(snippet, "python", is_open=False)
    tips = [source for source in rule.articles if source.startswith(f"{LAST}.")]
    if tips:
        links = (f"- {tip_link(source, '../articles.md')}" for source in tips)
        text += ["", "## Advised by", "", *links]
    return "\n".join(text) + "\n"


def _title(picture: Path) -> str:
    """Return the title of an SVG, which says what it shows."""
    found = re.search("<title>(.*?)</title>", picture.read_text(encoding="utf-8"))
    return found[1] if found else ""


def _folded(snippet: Snippet, language: str, is_open: bool) -> Iterator[str]:
    """Yield an example as a block that folds out."""
    title = (snippet.title[0].upper() + snippet.title[1:]).replace('"', "'")
    yield from ("", f'???{"+" if is_open else ""} example "{title}"', "")
    if snippet.settings:
        settings = ", ".join(f"`{key}: {value}`" for key, value in snippet.settings.items())
        yield from (f"    With {settings}:", "")
    for info, code in snippet.blocks(language):
        yield f"    ```{info}"
        yield from (f"    {line}".rstrip() for line in code.split("\n"))
        yield "    ```"


def anchor(heading: str) -> str:
    """Return the anchor that Markdown renderers make for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def tip_link(source: str, page: str) -> str:
    """Return a link to the tip of `S3.7` on the page of tips."""
    tip = tip_of(source)
    return f"[{TITLE}: {tip}]({page}#{anchor(tip)})"


def settings(tree: Checkout) -> str:
    """Return `zensical.toml` as a file of the build folder, with the rules by family."""
    text = (tree.root / "zensical.toml").read_text(encoding="utf-8")
    text = text.replace(f'"{tree.site.parent.name}/', '"')
    return text.replace(_LAST, "\n        ".join((_LAST, *_families(rules_of(tree)))))


def _families(rules: Sequence[type[Rule]]) -> Iterator[str]:
    for category, members in groupby(rules, key=lambda rule: card_of(rule).category or ""):
        yield f'{{ "{category.capitalize()}" = ['
        yield from (
            f'    {{ "{rule.code} {rule.name}" = "rules/{rule.code}.md" }},' for rule in members
        )
        yield "] },"
