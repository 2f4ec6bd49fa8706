"""The outlines of a project's files, and the view of each file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from torchlint.notebook import read_source
from torchlint.program.folder import MOST_BYTES, MOST_FILES, Stamp, files_below
from torchlint.program.graph import Graph, WholeGraph
from torchlint.program.imports import Imports
from torchlint.program.outline import Outline, outline_of
from torchlint.program.search import SearchedGraph
from torchlint.program.selection import select
from torchlint.program.texts import Texts
from torchlint.semantic.view import ALONE, View
from torchlint.source import Source, SourceError

__all__ = ["Index", "digest", "outline_at"]

_SCRIPT: Final = re.compile(r"=\s*[\"']([\w.]+)\s*:\s*[\w.]+[\"']")
"""An entry point in `pyproject.toml`."""


class Index:
    """The files of a project below its root; paths inside are relative to it, with `/`."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        self._outlines: dict[str, Outline | None] = {}
        self._stamps: dict[str, Stamp] = {}
        self._graph: WholeGraph | None = None
        self._texts: Texts | None = None
        self._imports = Imports(())
        self._scripts = frozenset[str]()
        self._sources: dict[str, Source] = {}
        self.left_out = ""
        """A line on why files of the project are analyzed alone, "" if they are not."""
        self.refresh()

    def refresh(self) -> None:
        """Look for files that are new, changed or gone."""
        stamps = files_below(str(self.root))
        self.left_out = _left_out(stamps)
        if self.left_out:
            stamps = {}
        self._outlines = {
            path: outline
            for path, outline in self._outlines.items()
            if stamps.get(path) == self._stamps[path]
        }
        self._stamps = stamps
        self._graph = self._texts = None
        self._imports = Imports(stamps)
        self._scripts = _scripts(self.root, self._imports)
        self._sources.clear()

    def view(self, path: Path, source: Source | None = None) -> View:
        """Return the view of a file, whose text may be given.

        If outlines are missing, only those that the view needs are made: call `build` first if the
        views of many files are wanted.
        """
        name = self.name(path)
        if name is None or name not in self._stamps:
            return ALONE
        if source is not None and source.text != self._source(name).text:
            return select(self._with(name, source), name, self._lines)
        return select(self._searched() if self.missing() else self._whole(), name, self._lines)

    def build(self) -> None:
        """Make the outlines of all files."""
        self.learn((path, outline_at(self.root, path)) for path in self.missing())

    def name(self, path: Path) -> str | None:
        """Return the path of a file relative to the root, None if it is not below it."""
        place = path.resolve()
        return place.relative_to(self.root).as_posix() if self.root in place.parents else None

    def missing(self) -> list[str]:
        """Return the files whose outlines are not known."""
        return [path for path in self._stamps if path not in self._outlines]

    def learn(self, outlines: Iterable[tuple[str, Outline | None]]) -> None:
        """Take outlines that were made elsewhere, such as in another process."""
        self._outlines.update(outlines)
        self._graph = None

    def _whole(self) -> Graph:
        if self._graph is None:
            self._graph = WholeGraph(self._imports, self._outlines, self._scripts)
        return self._graph

    def _searched(self) -> Graph:
        return SearchedGraph(self._imports, self._read(), self._outline, self._scripts)

    def _with(self, name: str, source: Source) -> Graph:
        """Return the graph with another text for a file."""
        own = outline_of(source)
        text = source.text.encode("utf-8", "surrogatepass")
        return SearchedGraph(
            self._imports,
            self._read().with_text(name, text),
            lambda path: own if path == name else self._outline(path),
            self._scripts,
        )

    def _outline(self, path: str) -> Outline | None:
        if path not in self._outlines:
            self._outlines[path] = outline_at(self.root, path)
        return self._outlines[path]

    def _read(self) -> Texts:
        """Return the bytes of all files."""
        if self._texts is None:
            self._texts = Texts({path: _bytes_at(self.root, path) for path in self._stamps})
        return self._texts

    def _source(self, path: str) -> Source:
        if path not in self._sources:
            self._sources[path] = _source_at(self.root, path) or Source(path, "")
        return self._sources[path]

    def _lines(self, path: str, first: int, last: int) -> str:
        source = self._source(path)
        starts = [*source.line_starts, len(source.text)]
        return source.text[starts[first - 1] : starts[last]]


def _scripts(root: Path, imports: Imports) -> frozenset[str]:
    """Return the modules that `pyproject.toml` names as scripts."""
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return frozenset()
    homes = (imports.module("", 0, found[1]) for found in _SCRIPT.finditer(text))
    return frozenset(home.path for home in homes if home is not None)


def outline_at(root: Path, path: str) -> Outline | None:
    """Return the outline of a file, None if it cannot be read or does not parse."""
    source = _source_at(root, path)
    return outline_of(source) if source is not None else None


def digest(view: View) -> bytes:
    """Return a digest of all that a view shows."""
    parts = (
        view.path,
        [
            (each.path, each.excerpts, sorted(each.names.items()), sorted(each.stars.items()))
            for each in view.modules
        ],
        sorted(view.names.items()),
        sorted(view.stars.items()),
        sorted(view.unseen),
        sorted(view.called_unseen),
    )
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _left_out(stamps: dict[str, Stamp]) -> str:
    """Return why a project is too large, "" if it is not."""
    if len(stamps) > MOST_FILES:
        return f"each file is analyzed alone: the project has more than {MOST_FILES:,} files"
    if sum(each.size for each in stamps.values()) > MOST_BYTES:
        return f"each file is analyzed alone: the project has more than {MOST_BYTES:,} bytes"
    return ""


def _bytes_at(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError:
        return b""


def _source_at(root: Path, path: str) -> Source | None:
    try:
        return read_source(_bytes_at(root, path), path)
    except SourceError:
        return None
