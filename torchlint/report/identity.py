"""What a finding is known by when lines move: its file, its code and the statement it is in."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchlint.finding import Finding
from torchlint.report.entry import Entry
from torchlint.source import Source

__all__ = ["Identities", "Identity", "Statements", "fingerprints", "relative_path"]

_LONGEST: Final = 160
_HEAD: Final = 60
_AROUND_SIGNS: Final = re.compile(r"\s*([^\w\s])\s*")
_LAST_COMMA: Final = re.compile(r",([)\]}])")


@dataclass(frozen=True, order=True)
class Identity:
    """A finding without its place: alike ones of one file are told apart by their number only."""

    path: str
    code: str
    statement: str


class Identities:
    """Gives findings their identities, paths as they are seen from `folder`.

    The statements of the last file are at hand: findings come file by file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._source: Source | None = None

    def of(self, entry: Entry) -> Identity:
        """Give the identity of a finding."""
        if entry.source is not self._source:
            self._source, self._statements = entry.source, Statements(entry.source)
            self._path = relative_path(entry.path, self._folder)
        return Identity(self._path, entry.finding.code, self._statements.of(entry.finding))


def fingerprints(entries: Iterable[Entry], folder: Path) -> list[str]:
    """Give a hash for each finding that other lines of the file do not change."""
    seen: Counter[Identity] = Counter()
    hashes = []
    for each in map(Identities(folder).of, entries):
        seen[each] += 1
        parts = (each.path, each.code, each.statement, str(seen[each]))
        data = "\0".join(parts).encode(errors="surrogatepass")
        hashes.append(hashlib.sha256(data).hexdigest()[:32])
    return hashes


def relative_path(path: str, folder: Path) -> str:
    """Give a path as it is seen from a folder, with slashes."""
    if path == "-":
        return path
    try:
        return os.path.relpath(path, folder).replace(os.sep, "/")
    except ValueError:  # another drive
        return Path(path).as_posix()


class Statements:
    """The logical lines of a source, without comments and layout."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._by_row: dict[int, str] = {}
        for rows, text in _logical_lines(source):
            self._by_row.update(dict.fromkeys(rows, text))

    def of(self, finding: Finding) -> str:
        """Give the statement in which a finding begins, of a compound one the head.

        Of a long one this is the beginning and what the finding is about: the rest may change.
        """
        source = self._source
        row = source.position(finding.span.start).row
        statement = _normal(self._by_row.get(row, source.line(row)))
        if len(statement) <= _LONGEST:
            return statement
        about = _normal(source.text[finding.span.start : finding.span.end])
        return f"{statement[:_HEAD]} … {_shortened(about)}"


def _logical_lines(source: Source) -> Iterator[tuple[range, str]]:
    """Yield the rows and the text of each logical line, up to what is no Python."""
    first: int | None = None
    comments: list[tuple[int, int]] = []
    try:
        lines = io.StringIO(source.text, newline=None).readline
        for token in tokenize.generate_tokens(lines):
            row, column = token.start
            if token.type == tokenize.COMMENT:
                comments.append((row, column))
            elif token.type == tokenize.NEWLINE and first is not None:
                rows = range(first, row + 1)
                yield rows, _without(source, rows, comments)
                first, comments = None, []
            elif token.type not in _LAYOUT and first is None:
                first, comments = row, []
    except (tokenize.TokenError, SyntaxError):
        return


_LAYOUT: Final = frozenset({tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})


def _without(source: Source, rows: range, comments: list[tuple[int, int]]) -> str:
    ends = dict(comments)
    lines = (source.line(row)[: ends.get(row)].removesuffix("\\") for row in rows)
    return "\n".join(lines)


def _normal(text: str) -> str:
    """Leave out what a formatter changes: layout, the last comma in brackets, kinds of quotes."""
    return _LAST_COMMA.sub(r"\1", _AROUND_SIGNS.sub(r"\1", " ".join(text.split()))).replace(
        '"', "'"
    )


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{text[:_LONGEST]}… {digest}"
