"""The option `--since`: only findings on lines that differ from a git revision."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from torchlint.caching import cached_method
from torchlint.cli.options import flag
from torchlint.report.summary import plural

if TYPE_CHECKING:
    from torchlint.edit import Span
    from torchlint.report.entry import Entry

_OPTION: Final = "--since"
_DIFF: Final = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--unified=0"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--diff-filter=d"),
)
_HUNK: Final = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_NEW_FILE: Final = "+++ "
_READ_ONLY: Final = ("add_ignore", "write_baseline", "fix", "fix_only", "diff")


since_option = click.option(
    "--since", metavar="REF", help="Report only findings on lines that differ from a git revision."
)
_QUIET: Final = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotePath=false"),
)
"""Settings with which git starts no other program."""


class Hunk(NamedTuple):
    """A run of changed lines of a file; empty where lines were only deleted after `first`."""

    first: int
    size: int

    def touches(self, start: int, end: int) -> bool:
        """Return whether rows from `start` to `end` include a changed or deleted line."""
        if self.size == 0:
            return start <= self.first < end
        return start < self.first + self.size and self.first <= end


class ChangedLines:
    """The lines of a repository that differ from where its branch left a revision."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self._root = git(_OPTION, "rev-parse", "--show-toplevel").rstrip("\n")
        self._base = _merge_base(ref)
        self.left_out = 0
        """How many findings are on lines that did not change."""

    def kept(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the findings that touch a changed line, themselves or by a note."""
        entries = list(entries)
        kept = [entry for entry in entries if self._has(entry)]
        self.left_out += len(entries) - len(kept)
        return kept

    @property
    def hidden(self) -> list[str]:
        """The line about the findings that were left out, if any."""
        if not self.left_out:
            return []
        left_out = plural(self.left_out, "finding")
        return [f"{left_out} hidden: not on a line changed since {self.ref}"]

    def _has(self, entry: Entry) -> bool:
        path = os.path.realpath(entry.path)
        if path in self._untracked:
            return True
        notes = entry.finding.notes
        if any(self._has_line(note.path, note.row) for note in notes if note.path):
            return True
        changed = self._changed.get(path)
        if changed is None:
            return False
        spans = (entry.finding.span, *(note.span for note in notes if not note.path))
        if entry.source.is_notebook:
            return any(self._is_new_cell(path, entry, span) for span in spans)
        rows = (_rows(entry, span) for span in spans)
        return any(lines.touches(*each) for each in rows for lines in changed)

    def _has_line(self, name: str, row: int) -> bool:
        """Return whether a line of another file has changed."""
        path = os.path.realpath(name)
        changed = self._changed.get(path, ())
        return path in self._untracked or any(lines.touches(row, row) for lines in changed)

    def _is_new_cell(self, path: str, entry: Entry, span: Span) -> bool:
        """Return whether the cell of a span is not in the notebook of the base."""
        before = self._cells_before(path)
        return before is None or entry.source.part(span).source.text.rstrip() not in before

    @cached_method
    def _cells_before(self, path: str) -> frozenset[str] | None:
        """Return the texts of the cells of a notebook in the base, None if it has none there."""
        name = os.path.relpath(path, self._root).replace(os.sep, "/")
        try:
            notebook = json.loads(git(_OPTION, "show", f"{self._base}:{name}"))
            return frozenset("".join(cell["source"]).rstrip() for cell in notebook["cells"])
        except (click.ClickException, ValueError, LookupError, TypeError):
            return None

    @cached_property
    def _changed(self) -> Mapping[str, list[Hunk]]:
        found: dict[str, list[Hunk]] = {}
        for name, lines in _hunks(git(_OPTION, *_DIFF, self._base, "--", cwd=self._root)):
            found.setdefault(self._path(name), []).append(lines)
        return found

    @cached_property
    def _untracked(self) -> frozenset[str]:
        listed = git(_OPTION, "ls-files", "--others", "--exclude-standard", "-z", cwd=self._root)
        return frozenset(self._path(name) for name in listed.split("\0") if name)

    def _path(self, name: str) -> str:
        return os.path.realpath(os.path.join(self._root, name))  # noqa: PTH118


def changed_since(options: Mapping[str, Any]) -> ChangedLines | None:
    """Return the lines that `--since` asks for, None without it; raises a usage error."""
    if options["since"] is None:
        return None
    for name in _READ_ONLY:
        if options[name]:
            raise click.UsageError(f"`--since` and `{flag(name)}` cannot go together")
    return ChangedLines(options["since"])


def _rows(entry: Entry, span: Span) -> tuple[int, int]:
    source = entry.source
    last = max(span.start, span.end - 1)
    return source.position(span.start).row, source.position(last).row


def _hunks(diff: str) -> Iterator[tuple[str, Hunk]]:
    """Yield the file and the changed lines of every hunk of a diff."""
    name = ""
    for line in diff.split("\n"):
        if line.startswith(_NEW_FILE):
            name = _unquoted(line[len(_NEW_FILE) :].rstrip("\t")).removeprefix("b/")
        elif (match := _HUNK.match(line)) is not None:
            yield name, Hunk(int(match[1]), int(match[2] or 1))


def _unquoted(name: str) -> str:
    """Return a file name without the quotes and escapes that git writes for rare characters."""
    if not name.startswith('"'):
        return name
    raw = name[1:-1].encode("utf-8", "surrogateescape").decode("unicode_escape")
    return raw.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def _merge_base(ref: str) -> str:
    """Return where the branch left `ref`; raises a usage error."""
    try:
        wanted = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        commit = git(_OPTION, *wanted)
    except click.ClickException:
        raise click.UsageError(f"`--since {ref}`: git knows no such revision") from None
    try:
        return git(_OPTION, "merge-base", commit.strip(), "HEAD").strip()
    except click.ClickException:
        raise click.UsageError(
            f"`--since {ref}`: no common ancestor with HEAD: fetch more history"
        ) from None


def git(option: str, *arguments: str, cwd: str | None = None) -> str:
    """Return what a git command prints; raises a click error that names the option."""
    return git_bytes(option, *arguments, cwd=cwd).decode("utf-8", "surrogateescape")


def git_bytes(option: str, *arguments: str, cwd: str | None = None) -> bytes:
    """Return the bytes that a git command prints; raises a click error that names the option."""
    try:
        done = subprocess.run(
            ["git", *_QUIET, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise click.ClickException(f"`{option}` needs git, which is not installed") from None
    except OSError as error:
        raise click.ClickException(f"`{option}` needs git: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise click.ClickException(f"`{option}`: git: {said.removeprefix('fatal: ')}")
    return done.stdout
