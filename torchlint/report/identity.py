"""Identities of findings that survive moved lines: file, code and statement."""

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
from urllib.parse import quote

from torchlint.finding import Finding
from torchlint.report.entry import Entry
from torchlint.source import Source

_LONGEST: Final = 160
_HEAD: Final = 60
_AROUND_SIGNS: Final = re.compile(r"\s*([^\w\s])\s*")
_LAST_COMMA: Final = re.compile(r",([)\]}])")


@dataclass(frozen=True, order=True)
class Identity:
    """A finding without its place; equal ones of one file are numbered."""

    path: str
    code: str
    statement: str


class Identities:
    """Computes identities, with paths relative to `folder`.

    Only the statements of the last file are kept, since findings come file by file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._source: Source | None = None

    def of(self, entry: Entry) -> Identity:
        """Return the identity of a finding."""
        if entry.source is not self._source:
            self._source, self._statements = entry.source, Statements(entry.source)
            self._path = relative_path(entry.path, self._folder)
        return Identity(self._path, entry.finding.code, self._statements.of(entry.finding))


def fingerprints(entries: Iterable[Entry], folder: Path) -> list[str]:
    """Return a hash per finding that edits of other lines do not change."""
    seen: Counter[Identity] = Counter()
    hashes = []
    for each in map(Identities(folder).of, entries):
        seen[each] += 1
        parts = (each.path, each.code, each.statement, str(seen[each]))
        data = "\0".join(parts).encode(errors="surrogatepass")
        hashes.append(hashlib.sha256(data).hexdigest()[:32])
    return hashes


def relative_path(path: str, folder: Path) -> str:
    """Return a path relative to a folder, with slashes."""
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
        """Return the statement in which a finding begins, the head of a compound one.

        Of a long statement only its start and the code of the finding count; the rest may
        change.
        """
        source = self._source
        row = source.position(finding.span.start).row
        statement = _normal(self._by_row.get(row, source.line(row)))
        if len(statement) <= _LONGEST:
            return statement
        about = _normal(source.text[finding.span.start : finding.span.end])
        return f"{statement[:_HEAD]} … {_shortened(about)}"


def _logical_lines(source: Source) -> Iterator[tuple[range, str]]:
    """Yield rows and text of each logical line, up to the first syntax error."""
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
    """Remove what a formatter changes: layout, trailing commas, kinds of quotes."""
    return _LAST_COMMA.sub(r"\1", _AROUND_SIGNS.sub(r"\1", " ".join(text.split()))).replace(
        '"', "'"
    )


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{text[:_LONGEST]}… {digest}"


def repository_root() -> Path:
    """Return the folder that CI's paths are relative to, else the current one."""
    given = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR")
    return Path(given) if given else Path.cwd()


def in_workspace() -> bool:
    """Return whether this is a job on GitHub, whose paths count from its workspace."""
    return bool(os.environ.get("GITHUB_WORKSPACE"))


def repository_path(path: str) -> str:
    """Return a path relative to the root of the repository if it lies in it."""
    if path == "-" or not in_workspace():
        return path
    relative = relative_path(path, repository_root())
    return path if relative.startswith("../") else relative


def line_link(path: str, row: int) -> str | None:
    """Return the address of a line of the checked commit on GitHub or GitLab, None elsewhere."""
    relative = relative_path(path, repository_root())
    place = f"{quote(relative)}#L{row}"
    server, name, commit = (
        os.environ.get(f"GITHUB_{part}", "") for part in ("SERVER_URL", "REPOSITORY", "SHA")
    )
    if server and name and commit:
        return f"{server}/{name}/blob/{commit}/{place}"
    project, commit = (os.environ.get(f"CI_{part}", "") for part in ("PROJECT_URL", "COMMIT_SHA"))
    return f"{project}/-/blob/{commit}/{place}" if project and commit else None
