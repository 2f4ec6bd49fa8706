"""Suppression comments: finding them, applying them, and reporting unused ones."""

from __future__ import annotations

import bisect
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from torchlint.edit import Edit, Span
from torchlint.finding import Finding
from torchlint.source import Source
from torchlint.suppressionwords import has_suppression_word

_MARK: Final = re.compile(
    r"""
    (?P<noqa> \# \s* noqa \b (?P<colon> \s* : \s* )? )
    | (?P<own> \# \s* torchlint \s* : \s* (?P<kind> ignore-file | ignore ) (?![\w-])
        (?: \s* \[ (?P<list> [^\]\#]* ) \] )? )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_WORD: Final = re.compile(r"(?P<word>[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)")
_NOQA_WORD: Final = re.compile(r"(?P<gap>[\s,]*)" + _WORD.pattern)
_CODE: Final = re.compile(r"[A-Za-z]+[0-9]+")

Kind = Literal["noqa", "ignore", "ignore-file"]


@dataclass(frozen=True)
class Comment:
    """A comment: its text, its span, and the rows of the statement around it."""

    span: Span
    text: str
    row: int
    rows: range


@dataclass(frozen=True)
class Word:
    """One code or rule name in the list of a suppression."""

    span: Span
    text: str
    codes: frozenset[str]
    """The codes of the catalogue that it covers; empty for a code of another tool."""


@dataclass(frozen=True)
class Suppression:
    """A suppression: what it silences, and on which rows (None: in the whole file)."""

    kind: Kind
    span: Span
    words: tuple[Word, ...]
    bare: bool
    rows: range | None

    def silences(self, code: str) -> bool:
        """Return whether it covers `code`; a bare one covers every code except TL002."""
        if self.bare:
            return code != "TL002"
        return any(code in word.codes for word in self.words)


@dataclass
class Suppressions:
    """All suppressions of a file; records which of them silenced a finding."""

    source: Source
    all: tuple[Suppression, ...]
    known: Mapping[str, str]
    _used: dict[Span, set[str]] = field(default_factory=dict)
    """The codes that a mark silenced, by its place."""

    def silence(self, finding: Finding) -> bool:
        """Return whether a comment silences `finding`, and mark such comments as used."""
        return bool(self.all) and self._silences(finding.code, finding.span.start)

    def holds_back(self, finding: Finding) -> bool:
        """Return whether a comment silences another place that a finding is about.

        Such comments are marked as used.
        """
        if not self.all:
            return False
        notes = (note.span.start for note in finding.notes if not note.path)
        edits = (edit.span.start for edit in (finding.fix.edits if finding.fix else ()))
        held = [start for start in {*notes, *edits} if self._silences(finding.code, start)]
        return bool(held)

    def _silences(self, code: str, offset: int) -> bool:
        """Return whether a comment silences a code at an offset, and mark such comments as used."""
        row = self.source.position(offset).row
        found = [each for each in self._about(row) if each.silences(code)]
        for each in found:
            self._used.setdefault(each.span, set()).add(code)
        return bool(found)

    def _about(self, row: int) -> Iterator[Suppression]:
        """Yield the suppressions that cover a row: of the file, and of the statement there."""
        yield from self._by_rows.get(None, ())
        before = bisect.bisect_right(self._starts, row)
        if before:
            marks = self._by_rows[self._starts[before - 1]]
            yield from (each for each in marks if each.rows is None or row in each.rows)

    @cached_property
    def _by_rows(self) -> dict[int | None, list[Suppression]]:
        """The suppressions by the first row of their statement; None holds those of the file."""
        found: dict[int | None, list[Suppression]] = {}
        for each in self.all:
            if each.rows is None:
                found.setdefault(None, []).append(each)
            elif each.rows:
                found.setdefault(each.rows.start, []).append(each)
        return found

    @cached_property
    def _starts(self) -> list[int]:
        return sorted(row for row in self._by_rows if row is not None)

    def unused(self, ran: Iterable[str], complete: bool) -> Iterator[Unused]:
        """Yield the suppressions of rules in `ran` that silenced nothing.

        A bare suppression covers every rule, so it is judged only if the run was `complete`. A
        bare `# noqa` is never reported: it may be meant for another tool.
        """
        ran = frozenset(ran)
        for each in self.all:
            used = self._used.get(each.span, set())
            if each.bare:
                if each.kind != "noqa" and complete and not used:
                    yield Unused(self.source, each, ())
                continue
            idle = tuple(word for word in each.words if self._idle(word, used, ran))
            if idle:
                yield Unused(self.source, each, idle)

    def _idle(self, word: Word, used: set[str], ran: frozenset[str]) -> bool:
        if word.codes:
            return word.codes <= ran - {"TL002"} and not word.codes & used
        return _is_ours(word.text, self.known)


@dataclass(frozen=True)
class Unused:
    """A suppression, or some of its codes, that silenced nothing."""

    source: Source
    mark: Suppression
    words: tuple[Word, ...]

    @property
    def span(self) -> Span:
        """The span to report: the unused codes, or the whole suppression."""
        if len(self.words) in (0, len(self.mark.words)):
            return self.mark.span
        return Span(self.words[0].span.start, self.words[-1].span.end)

    @property
    def what(self) -> str:
        """The suppression as the user wrote it."""
        if self.words:
            return ", ".join(f"`{word.text}`" for word in self.words)
        return f"`{self.source.text[self.mark.span.start : self.mark.span.end]}`"

    @property
    def edit(self) -> Edit:
        """The edit that removes it, with the whole comment if nothing else is left of that."""
        if self.words and len(self.words) < len(self.mark.words):
            return self._without_words()
        return self._without_mark()

    def _without_words(self) -> Edit:
        kept = [word.text for word in self.mark.words if word not in self.words]
        span = Span(self.mark.words[0].span.start, self.mark.words[-1].span.end)
        return Edit(span, ", ".join(kept))

    def _without_mark(self) -> Edit:
        """Remove the mark and the reason after it, up to the next `#` or the end of the line."""
        text, position = self.source.text, self.source.position(self.mark.span.start)
        line_start = self.source.line_starts[position.row - 1]
        line_end = line_start + len(self.source.line(position.row))
        start = self.mark.span.start
        following = text.find("#", self.mark.span.end, line_end)
        if following >= 0:
            return Edit(Span(start, following), "")
        before = text[line_start:start]
        if before.strip():
            return Edit(Span(line_start + len(before.rstrip()), line_end), "")
        rows = self.source.line_starts
        whole_end = rows[position.row] if position.row < len(rows) else len(text)
        return Edit(Span(line_start, whole_end), "")


def is_suppression(comment: str) -> bool:
    """Return whether a comment holds a suppression, ours or another tool's."""
    return has_suppression_word(comment) and _MARK.search(comment) is not None


def names_our_rules(text: str, known: Mapping[str, str]) -> bool:
    """Return whether a text may contain a suppression that is clearly meant for torchlint."""
    if not is_suppression(text):
        return False
    comment = Comment(Span(0, len(text)), text, 1, range(0))
    return any(
        mark.kind != "noqa" or any(_is_ours(word.text, known) for word in mark.words)
        for mark in _marks(comment, known)
    )


def silences_unparsed(text: str, code: str, known: Mapping[str, str]) -> bool:
    """Return whether a comment line silences `code` for the whole of an unparsable file."""
    return any(
        mark.kind == "ignore-file" and mark.silences(code)
        for line in re.findall(r"^[ \t]*(#.*)", text, re.MULTILINE)
        for mark in _marks(Comment(Span(0, len(line)), line, 1, range(0)), known)
    )


def find_suppressions(source: Source, known: Mapping[str, str]) -> Suppressions:
    """Return the suppressions in the comments of a text that parses."""
    if not is_suppression(source.text):
        return Suppressions(source, (), known)
    found = tuple(mark for comment in comments_of(source) for mark in _marks(comment, known))
    return Suppressions(source, found, known)


def comments_of(source: Source) -> Iterator[Comment]:
    """Yield the comments of a text that parses, each with the rows of its statement."""
    pending: list[tuple[int, int, str]] = []
    first: int | None = None
    for token in tokenize.generate_tokens(_lines(source)):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            pending.append((row, column, token.string))
        elif token.type == tokenize.NEWLINE:
            yield from _placed(source, pending, range(first or row, row + 1))
            pending, first = [], None
        elif token.type == tokenize.NL:
            if first is None:
                yield from _placed(source, pending, range(row, row + 1))
                pending = []
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            first = row if first is None else first
    yield from _placed(source, pending, range(0))


def _placed(
    source: Source, comments: Sequence[tuple[int, int, str]], rows: range
) -> Iterator[Comment]:
    for row, column, text in comments:
        start = source.line_starts[row - 1] + column
        yield Comment(Span(start, start + len(text)), text, row, rows)


def _lines(source: Source) -> Callable[[], str]:
    """Return the lines of a source as CPython splits them, all with the same line end."""
    rows = range(1, len(source.line_starts) + 1)
    lines = (source.line(row) + ("\n" if row < len(rows) else "") for row in rows)
    return lambda: next(lines, "")


def _marks(comment: Comment, known: Mapping[str, str]) -> Iterator[Suppression]:
    start = comment.span.start
    for match in _MARK.finditer(comment.text):
        kind: Kind = "noqa"
        if match["kind"]:
            kind = "ignore-file" if match["kind"].lower() == "ignore-file" else "ignore"
        if match["list"] is not None:
            words = [*_listed(comment, match.start("list"), match.end("list"), known)]
        elif match["colon"]:
            words = [*_after_noqa(comment, match.end(), known)]
        else:
            words = []
        end = start + match.end()
        if match["colon"]:
            end = words[-1].span.end if words else start + match.start("colon")
        yield Suppression(
            kind=kind,
            span=Span(start + match.start(), end),
            words=tuple(words),
            bare=not words and match["list"] is None,
            rows=None if kind == "ignore-file" else comment.rows,
        )


def _listed(comment: Comment, start: int, end: int, known: Mapping[str, str]) -> Iterator[Word]:
    """Return the codes and names between brackets."""
    for match in _WORD.finditer(comment.text, start, end):
        yield _word(comment, match, known)


def _after_noqa(comment: Comment, start: int, known: Mapping[str, str]) -> Iterator[Word]:
    """Return the codes and names that follow `noqa`, up to the first word of prose."""
    at = start
    while (match := _NOQA_WORD.match(comment.text, at)) is not None:
        may_be_name = at == start or match["gap"].strip() == ","
        is_name = may_be_name and match["word"].lower() in known.values()
        if not (_CODE.fullmatch(match["word"]) or is_name):
            return
        yield _word(comment, match, known)
        at = match.end()


def _word(comment: Comment, match: re.Match[str], known: Mapping[str, str]) -> Word:
    text = match["word"]
    start = comment.span.start
    named, begun = text.lower(), text.upper() if _CODE.fullmatch(text) else None
    codes = frozenset(
        code
        for code, name in known.items()
        if named == name or (begun is not None and code.startswith(begun))
    )
    return Word(Span(start + match.start("word"), start + match.end("word")), text, codes)


def _is_ours(text: str, known: Mapping[str, str]) -> bool:
    """Return whether a word is a rule's name, or looks like one of our codes."""
    if text.lower() in known.values():
        return True
    letters = {code.rstrip("0123456789") for code in known}
    return _CODE.fullmatch(text) is not None and text.upper().rstrip("0123456789") in letters
