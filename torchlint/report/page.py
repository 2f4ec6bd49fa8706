"""The page of one rule, with its examples as diffs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from torchlint.measurement import Measurement
from torchlint.page.document import Snippet
from torchlint.report.card import Card, card_of
from torchlint.report.paint import Paint
from torchlint.report.toml import toml

if TYPE_CHECKING:
    from torchlint.rule import Rule

_GAINS: Final = {
    "memory": "memory",
    "results": "what is learned or measured",
    "upkeep": "code that newer versions of torch still run",
}


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
    if since == (1, 0):
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
