"""Masking IPython syntax in a code cell by Python of the same length."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from torchlint.edit import Span

_PASSING: Final = frozenset({"capture", "debug", "ipytest", "prun", "time"})
"""The cell magics whose cell runs as Python in the notebook's own namespace."""

_CELL_MAGIC: Final = re.compile(r"%%(?P<name>[\w.]*)(?P<help>\??)[^\r\n]*")
_BLANK: Final = re.compile(r"(?:[ \t\f]*(?:\r\n|\r|\n))*")
_INDENT: Final = re.compile(r"[ \t\f]*")
_ESCAPES: Final = frozenset("%!?,;/")
"""Characters that begin lines of IPython, and never lines of Python."""
_COMMAND: Final = re.compile(r"(?:[^\r\n]*\\(?:\r\n|\r|\n))*[^\r\n]*")
"""The rest of a line, with the lines that a backslash adds to it."""
_TIMED: Final = re.compile(r"%time[ \t]+(?P<code>[^\r\n]*)")
_AUTOMAGIC: Final = re.compile(
    r"\s*(?:\#|(?:pip|pip3|conda|mamba|uv|cd|ls|ll|pwd|cat|cp|mv|rm|mkdir|rmdir|man|more|less|env|run"
    r"|time|timeit|matplotlib|load_ext|reload_ext|autoreload|who|whos|history|git|wget|curl|unzip|tar"
    r"|apt|apt-get|sudo|python|python3|bash|sh|export|source|kaggle|torchrun|accelerate)(?:\s|\Z))"
)
"""The start of a line that IPython takes as a magic without `%`, or that a shell would run."""
_TOKEN: Final = re.compile(
    r"""
    (?P<comment> \#[^\r\n]* )
    | (?P<string> \"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z) | '''(?:\\.|[^\\])*?(?:'''|\Z)
        | "(?:\\(?:\r\n|.)|[^"\\\r\n])*"? | '(?:\\(?:\r\n|.)|[^'\\\r\n])*'? )
    | (?P<open> [(\[{] )
    | (?P<close> [)\]}] )
    | (?P<joined> \\(?:\r\n|\r|\n) )
    | (?P<newline> \r\n|\r|\n )
    | (?P<assigned> =[ \t]*(?=[%!]) )
    | (?P<space> [ \t\f]+ )
    | (?P<other> [^\#"'()\[\]{}\\\r\n=\ \t\f]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Masked:
    """The text of a cell as Python, and the spans in it that were masked."""

    code: str
    masks: tuple[Span, ...] = ()


def masked(text: str) -> Masked | None:
    """Return a cell as Python of the same length, None for one in another language.

    A command becomes `0`, the target that one is assigned to becomes `__`, and of `%time f()` only
    the magic is masked. The lines stay the same.
    """
    start = _behind_cell_magics(text)
    if start is None:
        return None
    masks = [(Span(0, start), "0")] if start else []
    if not start and _is_automagic(text):
        masks = [(Span(0, len(text)), "0")]
    else:
        masks += _commands(text, start)
    parts: list[str] = []
    at = 0
    for span, word in masks:
        parts += (text[at : span.start], blanked(text[span.start : span.end], word))
        at = span.end
    return Masked("".join([*parts, text[at:]]), tuple(span for span, _ in masks))


def parsed(code: str) -> ast.Module | None:
    """Parse code with CPython; return None if it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _behind_cell_magics(text: str) -> int | None:
    """Return where Python begins after cell magics; None if a magic makes the cell no Python."""
    start = 0
    while True:
        found = _CELL_MAGIC.match(text, _ends(_BLANK, text, start))
        if found is None:
            return start
        if found["name"] not in _PASSING or found["help"]:
            return None
        start = found.end()


def _is_automagic(text: str) -> bool:
    lines = filter(str.strip, text.splitlines())
    return all(map(_AUTOMAGIC.match, lines)) and parsed(text.strip()) is None


def _commands(text: str, at: int) -> Iterator[tuple[Span, str]]:
    """Yield each span that is not Python, with its replacement, by logical line."""
    while at < len(text):
        start = _ends(_INDENT, text, at)
        if text[start : start + 1] in _ESCAPES and start < len(text):
            end = _ends(_COMMAND, text, start)
            yield _line_magic(text, start, end)
        else:
            end = yield from _statement(text, start)
        at = _behind_newline(text, end)


def _line_magic(text: str, start: int, end: int) -> tuple[Span, str]:
    timed = _TIMED.fullmatch(text, start, end)
    if timed is not None and _is_simple(timed["code"]):
        return Span(start, timed.start("code")), "0;"
    return Span(start, end), "0"


def _is_simple(code: str) -> bool:
    """Return whether code may follow a semicolon."""
    tree = parsed(code)
    body = tree.body if tree is not None else []
    return bool(body) and not any(hasattr(statement, "body") for statement in body)


def _statement(text: str, start: int) -> Generator[tuple[Span, str], None, int]:
    """Yield the spans that are not Python in one logical line, and return where that ends."""
    depth = 0
    at, last = start, ""
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        kind = token.lastgroup
        if kind == "newline" and not depth:
            break
        if kind == "assigned" and not depth:
            end = _ends(_COMMAND, text, token.end())
            yield Span(token.end(), end), "__"
            return end
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(depth - 1, 0)
        if kind != "space":
            last = token.group() if kind == "other" else ""
        at = token.end()
    if last.endswith("?") and "\n" not in text[start:at]:
        yield Span(start, at), "0"
    return at


def blanked(text: str, word: str) -> str:
    """Return `word` padded to the length of a text, with its line breaks kept."""
    lead = len(text) - len(text.lstrip("\r\n \t\f"))
    rest = re.sub(r"[^\r\n]", " ", text[lead:])
    return text[:lead] + word[: len(rest)] + rest[len(word) :]


def _ends(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


def _behind_newline(text: str, at: int) -> int:
    return at + (2 if text.startswith("\r\n", at) else 1)
