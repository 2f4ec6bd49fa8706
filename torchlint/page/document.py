"""A whole page of a rule: header, prose and examples.

Reading a page and writing it back gives the same bytes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Final, NamedTuple

from torchlint.page.header import (
    CONTROL,
    FENCE,
    Header,
    PageError,
    decoded,
    read_header_lines,
    write_header,
)

HEADINGS: Final = ("What it does", "Why it is slow", "When not to", "Fix safety")
"""The headings of what a page says, in order."""
REPORTED: Final = "Reported"
QUIET: Final = "Not reported"
"""The headings of the examples, which stand behind the others."""
SETTINGS: Final = ("target-torch", "target-device", "options", "select")
"""What may be set for an example."""

_ALL: Final = (*HEADINGS, REPORTED, QUIET)
_LANGUAGES: Final = {REPORTED: "diff", QUIET: "python"}
_SECOND: Final = "## "
_THIRD: Final = "### "
_HEADING: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_TICKS: Final = re.compile(r" {0,3}(`{3,})(.*)")
_BLOCK: Final = re.compile(
    r'(`{3,})([a-z]+)(?: title="((?:[\w-]+/)*[\w-]+(\.(?:py|json|yaml|sh)))")?'
)
"""The first line of an example's code, or of another file of it."""
_OTHERS: Final = {".py": "python", ".json": "json", ".yaml": "yaml", ".sh": "sh"}
"""The languages of the other files, by the ends of their names."""
_UNTITLED: Final = 'each file of several has a title of its own, such as title="data.py"'
_SETTING: Final = re.compile(r"([a-z-]+): (\S.*)")
_IN_DOCSTRING: Final = re.compile(r"^ *## (.+?) *$", re.MULTILINE)
_COMMENTED: Final = re.compile(rf"# ({'|'.join(SETTINGS)}): *(.*)")


class Snippet(NamedTuple):
    """One example: its title, its code, and the settings it is checked with."""

    title: str
    code: str
    """Lines without a line end behind the last; those of a reported one begin with a mark."""
    settings: Mapping[str, str] = {}
    path: str = ""
    """The path of the code, where other files are judged with it."""
    others: Mapping[str, str] = {}
    """The code of the other files, by path."""

    def blocks(self, language: str) -> Iterator[tuple[str, str]]:
        """Yield what stands behind the fence of each file, and its code; the example comes last."""
        for path, code in self.others.items():
            yield f'{_OTHERS[Path(path).suffix]} title="{path}"', code
        yield f'{language} title="{self.path}"' if self.path else language, self.code


class Page(NamedTuple):
    """The content of one page."""

    header: Header
    sections: Mapping[str, str]
    """What the page says, by heading."""
    reported: tuple[Snippet, ...]
    quiet: tuple[Snippet, ...]

    @property
    def prose(self) -> str:
        """The prose of the page, in Markdown, without the examples."""
        return "\n\n".join(f"{_SECOND}{name}\n{text}" for name, text in self.sections.items())


def read_page(file: str) -> Page:
    """Read the page in a file; raises `PageError`."""
    return parse_page(_read(file), file)


def check_page(file: str) -> Header:
    """Return the header of a complete page; raise `PageError` if a part is missing.

    The parts are parsed only if one seems to be missing.
    """
    text = _read(file)
    has_examples = all(f"\n{_SECOND}{each}\n\n{_THIRD}" in text for each in (REPORTED, QUIET))
    if not has_examples or tuple(_HEADING.findall(text)) != _ALL:
        return parse_page(text, file).header
    head = text.partition(f"\n{FENCE}\n")[0]
    return _header([*head.split("\n"), FENCE], file)


def parse_page(text: str, file: str) -> Page:
    """Parse the text of a page; raise `PageError` with `file` and line if it is malformed."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if CONTROL.search(line):
            raise PageError(file, number, "a tab or another control character")
    if lines.pop():
        raise PageError(file, len(lines) + 1, "the last line has no end")
    header = _header(lines, file)
    parts = _Parts(file, lines, lines.index(FENCE, 1) + 1)
    sections = {name: parts.prose(name) for name in HEADINGS}
    page = Page(header, sections, parts.examples(REPORTED), parts.examples(QUIET))
    parts.end()
    return page


def write_page(page: Page) -> str:
    """Return the text of a page."""
    return "\n".join(_lines(page)) + "\n"


def _header(lines: Sequence[str], file: str) -> Header:
    """Parse the header at the start of the lines."""
    header = read_header_lines(lines, file)
    try:
        _ = header.defaults
    except ValueError as error:
        line = next(at for at, line in enumerate(lines, 1) if line.startswith("options: "))
        raise PageError(file, line, str(error)) from None
    return header


def _read(file: str) -> str:
    return decoded(Path(file).read_bytes(), file)


def _lines(page: Page) -> Iterator[str]:
    yield from write_header(page.header)
    for name, text in page.sections.items():
        yield from ("", f"{_SECOND}{name}", text)
    for name, snippets in ((REPORTED, page.reported), (QUIET, page.quiet)):
        yield from ("", f"{_SECOND}{name}")
        for snippet in snippets:
            yield from ("", f"{_THIRD}{snippet.title}")
            yield from (f"{key}: {value}" for key, value in snippet.settings.items())
            for info, code in snippet.blocks(_LANGUAGES[name]):
                ticks = _ticks(code)
                yield from (f"{ticks}{info}", code, ticks)


def _ticks(code: str) -> str:
    """Return a code fence that is longer than any run of backticks in the code."""
    inside = [len(match[1]) for match in map(_TICKS.fullmatch, code.split("\n")) if match]
    return "`" * max([3, *(each + 1 for each in inside)])


class _Parts:
    """The parts of a page after its header, read in order."""

    def __init__(self, file: str, lines: Sequence[str], start: int) -> None:
        self._file = file
        self._lines = lines
        self._at = start
        """The index of the next line."""

    def prose(self, name: str) -> str:
        """Read the prose under a heading."""
        start = self._heading(name)
        while self._at < len(self._lines) and not self._line.startswith(_SECOND):
            match = _TICKS.fullmatch(self._line)
            if match is None:
                self._at += 1
            else:
                self._block(match[1])
        text = "\n".join(self._lines[start : self._at]).strip("\n")
        if not text.strip():
            raise self._error(f"nothing stands under `{_SECOND}{name}`", start - 1)
        return text

    def examples(self, name: str) -> tuple[Snippet, ...]:
        """Read the examples under a heading."""
        start = self._heading(name)
        found: dict[str, Snippet] = {}
        while True:
            self._skip_blank()
            if self._at == len(self._lines) or self._line.startswith(_SECOND):
                break
            at = self._at
            snippet = self._example(_LANGUAGES[name])
            if snippet.title in found:
                raise self._error("another example has this title", at)
            found[snippet.title] = snippet
        if not found:
            raise self._error(f"no example stands under `{_SECOND}{name}`", start - 1)
        return tuple(found.values())

    def end(self) -> None:
        """Raise `PageError` if a heading is left over."""
        if self._at < len(self._lines):
            raise self._error(f"no page has the heading `{self._line}`", self._at)

    @property
    def _line(self) -> str:
        return self._lines[self._at] if self._at < len(self._lines) else ""

    def _heading(self, name: str) -> int:
        """Read a heading and return the index of the next line."""
        self._skip_blank()
        if self._line != f"{_SECOND}{name}":
            raise self._error(f"`{_SECOND}{name}` must stand here", self._at)
        self._at += 1
        return self._at

    def _example(self, language: str) -> Snippet:
        title = self._line.removeprefix(_THIRD)
        if title == self._line or not title.strip() or title != title.strip():
            raise self._error(f"an example begins with `{_THIRD}` and a title", self._at)
        self._at += 1
        settings = dict(self._settings())
        others: dict[str, str] = {}
        while True:
            match = _BLOCK.fullmatch(self._line)
            if match is None or match[2] not in (language, _OTHERS.get(match[4] or ".py")):
                raise self._error(f"the code of this example begins with ```{language}", self._at)
            start, path = self._at, match[3] or ""
            block = self._block(match[1])
            if not any(line.strip() for line in block):
                raise self._error("this example is empty", start)
            code = "\n".join(block)
            if not self._line.startswith("```"):
                break
            if not path or path in others:
                raise self._error(_UNTITLED, start)
            others[path] = code
        if match[2] != language:
            which = "last file" if path else "code"
            raise self._error(f"the {which} of this example begins with ```{language}", start)
        if bool(path) != bool(others) or path in others:
            raise self._error(_UNTITLED, start)
        return Snippet(title, code, settings, path, others)

    def _settings(self) -> Iterator[tuple[str, str]]:
        seen = set()
        while match := _SETTING.fullmatch(self._line):
            if match[1] not in SETTINGS or match[1] in seen:
                known = ", ".join(SETTINGS)
                raise self._error(f"what may be set here, and once, is {known}", self._at)
            seen.add(match[1])
            yield match[1], match[2]
            self._at += 1

    def _block(self, ticks: str) -> Sequence[str]:
        """Read a fenced code block and return its lines."""
        opened = self._at
        for at in range(opened + 1, len(self._lines)):
            if self._lines[at] == ticks:
                self._at = at + 1
                return self._lines[opened + 1 : at]
            match = _TICKS.fullmatch(self._lines[at])
            if match is not None and len(match[1]) >= len(ticks):
                raise self._error(f"a fence within that of line {opened + 1}", at)
        raise self._error(f"nothing ends what {ticks} begins", opened)

    def _skip_blank(self) -> None:
        while self._at < len(self._lines) and not self._line.strip():
            self._at += 1

    def _error(self, said: str, at: int) -> PageError:
        return PageError(self._file, at + 1, said)


def headings(doc: str) -> tuple[str, ...]:
    """Return the headings of a docstring, in order."""
    return tuple(_IN_DOCSTRING.findall(doc))


def sections(doc: str) -> Mapping[str, str]:
    """Return the sections of a docstring, by heading."""
    _, *parts = _IN_DOCSTRING.split(cleandoc(doc))
    return {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


def snippets(examples: Mapping[str, str]) -> Iterator[Snippet]:
    """Yield examples from a dictionary; comments at the top of the code are its settings."""
    for title, written in examples.items():
        lines = textwrap.dedent(written.lstrip("\n")).rstrip().split("\n")
        settings: dict[str, str] = {}
        while lines and (match := _COMMENTED.fullmatch(lines[0].strip())) is not None:
            settings[match[1]] = match[2]
            del lines[0]
        code = "\n".join(lines)
        yield Snippet(title, textwrap.dedent(code) if settings else code, settings)
