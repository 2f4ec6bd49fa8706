"""The patterns of a `.gitignore` as regular expressions that no pattern makes slow.

Where stars stand between texts, the first place that fits is as good as any later one: each is
looked for once, in a lookahead that never goes back. With plain stars in their place a line such as
`*a*a*a*a*a*b` would take years on a name of many `a`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from torchlint.record import Record

__all__ = ["Line", "lines_of"]

_ANYWHERE: Final = "**"
_STARS: Final = re.compile(r"\*{2,}")
_NEVER: Final = "(?!)"
_TOKEN: Final = re.compile(
    r"\\(?P<plain>.)|(?P<stars>\*+)|(?P<one>\?)"
    r"|\[(?P<negated>[!^]?)(?P<set>\]?(?:\[:\w+:\]|\\.|[^]\\])*)\]|(?P<broken>[\\[])",
    re.DOTALL,
)
_MEMBER: Final = re.compile(
    r"\[:(?P<kind>\w+):\]|(?P<low>\\.|[^\\])-(?P<high>\\.|[^]\\])|(?P<single>\\.|[^\\])", re.DOTALL
)
_KINDS: Final = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


class Line(Record):
    """A line that holds a pattern: what it speaks of, and what it says of that."""

    path: re.Pattern[str]
    folders_only: bool
    leaves_out: bool

    def matches(self, path: str, is_folder: bool) -> bool:
        """Whether the line speaks of a path, which counts from the folder of its file."""
        return (is_folder or not self.folders_only) and self.path.fullmatch(path) is not None


def lines_of(text: str) -> Iterator[Line]:
    """Yield the lines of a `.gitignore` that say something, in their order."""
    for line in text.split("\n"):
        pattern = re.sub(r"(?<!\\) +$", "", line.removesuffix("\r"))
        if pattern.startswith("#"):
            continue
        bare = pattern.removeprefix("!")
        folders_only = bare.endswith("/")
        if whole := bare.removesuffix("/"):
            yield Line(re.compile(_expression(whole)), folders_only, not pattern.startswith("!"))


def _expression(pattern: str) -> str:
    """Translate a pattern: one without a slash speaks of names at any depth."""
    parts = _parts(pattern) if "/" in pattern else [_ANYWHERE, pattern]
    if pattern.startswith("/"):
        del parts[0]
    parts = [_ANYWHERE if _STARS.fullmatch(part) else part for part in parts]
    if parts[-1] == _ANYWHERE:
        parts.append("*")
    numbers = count()
    named = [part if part == _ANYWHERE else _name(part, numbers) for part in parts]
    *before, last = _split(named, _ANYWHERE)
    if not before:
        return "/".join(last)
    first, *middle = ("".join(f"{part}/" for part in run) for run in before)
    searched = (_first(f"(?:[^/]*/)*?{run}", numbers) for run in middle if run)
    return f"{first}{''.join(searched)}(?:[^/]*/)*{'/'.join(last)}"


def _parts(pattern: str) -> list[str]:
    """Cut a pattern at its slashes, but for those between square brackets."""
    parts = [""]
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        text = token[0] if token else pattern[at]
        at += len(text)
        if text in ("/", r"\/"):
            parts.append("")
        else:
            parts[-1] += text
    return parts


def _name(pattern: str, numbers: Iterator[int]) -> str:
    """Translate what stands between two slashes."""
    *before, last = _split(list(_tokens(pattern)), "*")
    if not before:
        return "".join(last)
    first, *middle = map("".join, before)
    searched = (_first(f"[^/]*?{run}", numbers) for run in middle if run)
    return f"{first}{''.join(searched)}[^/]*{''.join(last)}"


def _first(expression: str, numbers: Iterator[int]) -> str:
    """Give what matches as an expression first does, and in no other way."""
    name = f"g{next(numbers)}"
    return f"(?=(?P<{name}>{expression}))(?P={name})"


def _split(parts: Sequence[str], separator: str) -> Iterator[list[str]]:
    run: list[str] = []
    for part in parts:
        if part == separator:
            yield run
            run = []
        else:
            run.append(part)
    yield run


def _tokens(pattern: str) -> Iterator[str]:
    """Yield an expression for each character of a name, and `*` for any number of any."""
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            yield re.escape(pattern[at])
            at += 1
            continue
        at = token.end()
        if token["stars"]:
            yield "*"
        elif token["plain"]:
            yield re.escape(token["plain"])
        elif token["one"]:
            yield "[^/]"
        else:
            yield _NEVER if token["broken"] else _set(token["set"], bool(token["negated"]))


def _set(members: str, negated: bool) -> str:
    """Translate what stands between square brackets, which never is a slash."""
    inside = "".join(map(_member, _MEMBER.finditer(members)))
    if negated:
        return f"[^/{inside}]"
    return f"(?!/)[{inside}]" if inside else _NEVER


def _member(found: re.Match[str]) -> str:
    if found["kind"]:
        return _KINDS.get(found["kind"], "")
    if found["single"]:
        return re.escape(found["single"][-1])
    low, high = found["low"][-1], found["high"][-1]
    return re.escape(low) + (f"-{re.escape(high)}" if low <= high else "")
