"""The page of one rule, with its examples as diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from torchlint.measurement import Measurement
from torchlint.page.document import Page, Snippet
from torchlint.report.card import Card, card_of
from torchlint.report.paint import Paint
from torchlint.report.settings import toml
from torchlint.report.text import wrapped

if TYPE_CHECKING:
    from torchlint.rule import Rule

_GAINS: Final = {
    "memory": "memory",
    "results": "what is learned or measured",
    "upkeep": "code that newer versions of torch still run",
}
_WIDTH: Final = 100
_MARKS: Final = ("- ", "+ ", "! ")
_CHANGE: Final = re.compile(r"^[-+] ", re.MULTILINE)
_EXAMPLE: Final = 22
"""The most lines of the example."""
_IN_HOVER: Final = 8
_WHY_IN_HOVER: Final = 5
_AS_IT_IS: Final = ("- ", "* ", "|", "```", "    ")


def page(rule: type[Rule], paint: Paint, measured: Sequence[Measurement]) -> str:
    """Return the page in Markdown: header, sections, measurements and examples."""
    return "\n".join((*prose(rule, paint, measured), *_examples(rule, paint))) + "\n"


def prose(rule: type[Rule], paint: Paint, measured: Sequence[Measurement]) -> Iterator[str]:
    """Yield the lines of a page down to its examples."""
    card = card_of(rule)
    yield paint.strong(f"# {card.code} {card.name}")
    yield ""
    yield card.summary
    yield ""
    yield facts(card)
    yield ""
    for line in rule.page().prose.splitlines():
        yield paint.strong(line) if line.startswith("## ") else line
    yield from _measured(rule, measured, paint)
    if rule.options:
        yield from _options(rule.name, rule.options, paint)


def _examples(rule: type[Rule], paint: Paint) -> Iterator[str]:
    written = rule.page()
    yield from ("", paint.strong("## Reported"))
    for snippet in written.reported:
        yield from ("", *_title(snippet), "", *_blocks(snippet, "diff", paint))
    yield from ("", paint.strong("## Not reported"))
    for snippet in written.quiet:
        yield from ("", *_title(snippet), "", *_blocks(snippet, "python", paint))


def facts(card: Card) -> str:
    """Return impact, fix, default and versions of a rule in one sentence."""
    default = "on by default" if card.default else "preview (off by default)"
    return f"Impact {card.impact}, {_fixes(card.safety)}, {default}, {_versions(card.since)}."


def _title(snippet: Snippet) -> Iterator[str]:
    """Yield the title of an example, and the settings for it."""
    yield f"{snippet.title}:"
    if snippet.settings:
        settings = ", ".join(f"`{key}: {value}`" for key, value in snippet.settings.items())
        yield from ("", f"With {settings}:")


def _fixes(safety: str | None) -> str:
    if safety is None:
        return "no automatic fix"
    return f"{'an' if safety[0] in 'aeiou' else 'a'} {safety} fix at best"


def _versions(since: tuple[int, int]) -> str:
    if since <= (1, 0):
        return "for every version of torch"
    return f"for torch {since[0]}.{since[1]} and newer"


def _measured(rule: type[Rule], measured: Sequence[Measurement], paint: Paint) -> Iterator[str]:
    yield from ("", paint.strong("## Measured"))
    if measured and rule.gain != "speed":
        yield from (f"The gain is {_GAINS[rule.gain]}, not a faster step. The time of a step:", "")
    elif rule.device == "accelerator" and any(each.on_cpu for each in measured):
        yield from ("The gain is on an accelerator; a CPU only shows what the change costs.", "")
    yield from gains(measured)


def gains(measured: Sequence[Measurement]) -> Iterator[str]:
    """Yield a line for each measured gain."""
    if not measured:
        yield "Not measured yet."
    for each in measured:
        yield f"- {each.words}"


def _options(name: str, options: Mapping[str, Any], paint: Paint) -> Iterator[str]:
    yield from ("", paint.strong("## Options"))
    yield from ("With their defaults:", "", "```toml", f"[tool.torchlint.rules.{name}]")
    for key, value in options.items():
        yield f"{key} = {toml(value)}"
    yield "```"


def _blocks(snippet: Snippet, language: str, paint: Paint) -> Iterator[str]:
    """Yield the files of an example, each in its fence."""
    for info, code in snippet.blocks(language):
        lines = code.split("\n")
        if info.startswith("diff"):
            lines = [painted(line, paint) for line in lines]
        yield from (f"```{info}", *lines, "```")


def painted(line: str, paint: Paint) -> str:
    """Style a line of an example by its mark."""
    if line.startswith("+ "):
        return paint.added(line)
    return paint.removed(line) if line.startswith(("- ", "! ")) else line


def brief_page(rule: type[Rule], paint: Paint, measured: Sequence[Measurement]) -> str:
    """Return the page as text for a terminal, without the rest of its examples."""
    return "\n".join(_on_a_screen(rule, paint, measured)) + "\n"


def _on_a_screen(rule: type[Rule], paint: Paint, measured: Sequence[Measurement]) -> Iterator[str]:
    card, written = card_of(rule), rule.page()
    width = min(paint.width or _WIDTH, _WIDTH)
    first, *rest = wrapped(f"{card.code} {card.name}: {card.summary}", width, 0)
    yield first.replace(
        f"{card.code} {card.name}", f"{paint.code(card.code)} {paint.strong(card.name)}", 1
    )
    yield from rest
    for line in wrapped(f"{facts(card)} Groups: {', '.join(card.groups)}.", width, 0):
        yield paint.gutter(line)
    for heading in ("What it does", "Why it is slow"):
        yield from _section(heading, written, paint)
    example, more = _typical(written), len(written.reported) + len(written.quiet) - 1
    if example is not None:
        yield ""
        yield from map(paint.strong, wrapped(f"Example: {example.title}", width, 0))
        yield from (f"  {painted(line, paint)}" for line in _cut(example, _EXAMPLE))
    yield from ("", paint.strong("Measured"), *gains(measured))
    if rule.options:
        options = ", ".join(f"{key} = {toml(value)}" for key, value in rule.options.items())
        yield from ("", f"{paint.strong('Options')}: {options}")
    yield from _section("When not to", written, paint)
    yield ""
    if card.url is not None:
        yield card.url
    yield f"`torchlint explain {card.code} --examples` prints the whole page, with {more} more."


def hover_page(rule: type[Rule], measured: Sequence[Measurement]) -> str:
    """Return the page in Markdown for the hover of an editor."""
    card, written = card_of(rule), rule.page()
    title = f"**{card.code} {card.name}**: {card.summary}"
    why = " ".join(written.sections["Why it is slow"].split("\n\n")[0].split())
    lines = [title, "", *wrapped(why, _WIDTH, 0)[:_WHY_IN_HOVER]]
    example = _typical(written)
    if example is not None:
        lines += ["", "```diff", *_cut(example, _IN_HOVER), "```"]
    lines += ["", f"{facts(card)} {next(gains(measured)).removeprefix('- ')}"]
    if card.link is not None:
        lines += ["", f"[The whole page]({card.link})"]
    return "\n".join(lines) + "\n"


def _section(heading: str, written: Page, paint: Paint) -> Iterator[str]:
    yield from ("", paint.strong(heading))
    for paragraph in written.sections[heading].split("\n\n"):
        if any(line.startswith(_AS_IT_IS) for line in paragraph.split("\n")):
            yield from paragraph.split("\n")
        else:
            yield from wrapped(" ".join(paragraph.split()), min(paint.width or _WIDTH, _WIDTH), 0)


def _typical(written: Page) -> Snippet | None:
    """Return the first example of one file with a fix that fits, else the first one of all."""
    alone = [each for each in written.reported if not each.others]
    fixed = [each for each in alone if _CHANGE.search(each.code)] or alone
    short = [each for each in fixed if each.code.count("\n") < _EXAMPLE]
    return next(iter(short or fixed), None)


def _cut(example: Snippet, most: int) -> list[str]:
    """Return the lines of an example; if there are too many, those around its first change."""
    lines = example.code.split("\n")
    if len(lines) <= most:
        return lines
    first = next((row for row, line in enumerate(lines) if line.startswith(_MARKS)), 0)
    start = min(max(first - 2, 0), len(lines) - most + 2)
    shown = lines[start : start + most - 2]
    return [
        *(["  ..."] if start else []),
        *shown,
        *(["  ..."] if start + most - 2 < len(lines) else []),
    ]
