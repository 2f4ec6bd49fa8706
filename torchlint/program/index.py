"""The outlines of a project's files, and the view of each file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from torchlint.notebook import read_source
from torchlint.program.argumentfiles import targets, with_argument_files
from torchlint.program.folder import MOST_BYTES, MOST_FILES, Stamp, Walk, is_built, is_foreign, walk
from torchlint.program.graph import Graph, WholeGraph
from torchlint.program.imports import Imports, folder_of
from torchlint.program.kept import Kept, dump
from torchlint.program.outline import Import, Outline, is_test, outline_of
from torchlint.program.search import SearchedGraph, Texts
from torchlint.program.selection import select
from torchlint.semantic.view import ALONE, View
from torchlint.source import Source, SourceError

_SCRIPT: Final = re.compile(r"=\s*[\"']([\w.]+)\s*:\s*[\w.]+[\"']")
"""An entry point in `pyproject.toml`."""

_BUILT_BY: Final = ("pyproject.toml", "setup.py")
"""The files at the root that say how a project is built."""

_MOST_SOURCES: Final = 200
"""How many texts are held for excerpts."""
_MOST_MODULES: Final = 200
"""How many modules of a program are looked at."""
_PLAIN: Final = re.compile(r"^(?:from|import)[ \t]+([.\w]+)", re.MULTILINE)
"""An import that runs whenever its module is imported, and what it names."""
_MADE: Final = re.compile(r"_.*|.*(?:version|generated|_pb2\w*)")
"""Names of modules that a build makes."""
_PATH: Final = "sys.path"


class Index:
    """The files of a project below its root; paths inside are relative to it, with `/`.

    `sources` are folders in which imports are looked up as well, each with its last `/`.
    """

    def __init__(self, root: str | Path, sources: tuple[str, ...] = ()) -> None:
        self.root = Path(root).resolve()
        self._bases = sources
        self.left_out = ""
        """A line on why all files of the project are analyzed alone, "" if they are not."""
        self._walk = Walk({}, ())
        self._outlines: dict[str, Outline | None] = {}
        """The outlines of files as they are on the disk."""
        self._kept = Kept()
        self._changed: dict[str, Source] = {}
        """The texts that count instead of those on the disk."""
        self._changed_outlines: dict[str, Outline | None] = {}
        self._sources: dict[str, Source] = {}
        self._texts: Texts | None = None
        self._whole: WholeGraph | None = None
        self._searched: SearchedGraph | None = None
        self._targets: dict[str, list[str]] | None = None
        self.refresh()

    # -- the files ----------------------------------------------------------------

    @property
    def files(self) -> tuple[str, ...]:
        """The absolute paths of the files that were found."""
        return tuple(str(self.root / path) for path in (*self._walk.files, *self._walk.arguments))

    @property
    def folders(self) -> tuple[str, ...]:
        """The absolute paths of the folders that were searched."""
        return self._walk.folders

    def name(self, path: Path) -> str | None:
        """Return the path of a file relative to the root, None if it is not below it."""
        place = path.resolve()
        return place.relative_to(self.root).as_posix() if self.root in place.parents else None

    def refresh(self) -> None:
        """Look for files that are new, changed or gone."""
        before = self._walk.files
        self._walk = walk(str(self.root))
        self.left_out = _left_out(self._walk.files)
        if self.left_out:
            self._walk = self._walk._replace(files={}, arguments=())
        now = self._walk.files
        self._outlines = {
            path: outline
            for path, outline in self._outlines.items()
            if path in now and now[path] == before.get(path)
        }
        self._sources.clear()
        self._texts = None
        self._forget()

    def change(self, path: Path, source: Source | None) -> None:
        """Let a text count instead of the file on the disk; None takes that back."""
        name = self.name(path)
        if name is None:
            return
        if source is not None:
            self._changed[name] = source
            self._changed_outlines[name] = outline_of(source)
        elif name in self._changed:
            del self._changed[name], self._changed_outlines[name]
        self._forget()

    def _forget(self) -> None:
        """Forget what depends on the set of files and on their texts."""
        self._whole = self._searched = self._targets = None
        self._imports = self._imports_among(self._walk.files.keys() | self._changed.keys())
        built_by = [each for each in _BUILT_BY if (self.root / each).is_file()]
        self._settings = "\n".join(_text_at(self.root, each) for each in built_by)
        self._scripts = _scripts(self._settings, self._imports)
        builds = "[build-system]" in self._settings
        self._is_installed = builds or is_built(self.root)

    def _imports_among(self, paths: Iterable[str]) -> Imports:
        return Imports(paths, self._bases, self.root.name)

    # -- outlines -----------------------------------------------------------------

    def missing(self) -> list[str]:
        """Return the files whose outlines are not known."""
        return [
            path
            for path, stamp in self._walk.files.items()
            if path not in self._outlines and not self._kept.has(path, stamp)
        ]

    def learn(self, outlines: Iterable[tuple[str, Outline | None]]) -> None:
        """Take outlines that were made elsewhere, such as in another process."""
        self._outlines.update(outlines)
        self._whole = None

    def build(self) -> None:
        """Make the outlines of all files, and find out who uses what."""
        for path in self._walk.files:
            self._on_disk(path)
        self._whole_graph().prepare()

    def load(self, data: bytes) -> None:
        """Take the outlines that `dump` returned in an earlier run; damaged data counts as none."""
        self._kept = Kept(data)

    def dump(self) -> bytes:
        """Return the outlines known so far, to be kept for later runs."""
        missing = set(self.missing())
        known = [path for path in self._walk.files if path not in missing]
        return dump(((path, self._on_disk(path)) for path in known), self._walk.files)

    def _on_disk(self, path: str) -> Outline | None:
        """Return the outline of a file as it is on the disk."""
        if path not in self._outlines:
            self._outlines[path] = self._kept_outline(path)
        return self._outlines[path]

    def _kept_outline(self, path: str) -> Outline | None:
        if self._kept.has(path, self._walk.files[path]):
            try:
                return self._kept.outline(path)
            except ValueError:
                pass
        return outline_at(self.root, path)

    def _outline(self, path: str) -> Outline | None:
        """Return the outline of a file."""
        if path in self._changed:
            return self._changed_outlines[path]
        return self._on_disk(path) if path in self._walk.files else None

    # -- views --------------------------------------------------------------------

    def view(self, path: Path, source: Source | None = None) -> View:
        """Return the view of a file, whose text may be given, also if it is not on the disk.

        If outlines are missing, only those that the view needs are made: call `build` first if the
        views of many files are wanted.
        """
        name = self.name(path)
        if name is None or self.left_out or self._is_foreign(name):
            return ALONE
        is_known = name in self._walk.files or name in self._changed
        if source is not None and not (is_known and source.text == self._source(name).text):
            return self._completed(self._with(name, source), name, source)
        return self._completed(self._graph(), name, self._source(name)) if is_known else ALONE

    def _completed(self, graph: Graph, name: str, source: Source) -> View:
        """Return the view of a file with its files of arguments, and whether it can run."""
        view, known = select(graph, name, self._lines), self._walk.arguments
        if Absent(graph, self.root, self._settings, self._source).breaks(name, source.text):
            view = view._replace(is_broken=True)
        return with_argument_files(view, source.text, known, self._text, self._making)

    def _code(self, path: str) -> str:
        return self._source(path).text or self._text(path)

    def _text(self, path: str) -> str:
        return _text_at(self.root, path)

    def _making(self) -> dict[str, list[str]]:
        """Return the files that Hydra makes an object from, by the class that they name."""
        if self._targets is None:
            self._targets = targets(self._walk.arguments, self._text)
        return self._targets

    def program(self, path: Path) -> tuple[str, ...]:
        """Return the modules of the program that a file starts, the nearest to it first."""
        name = self.name(path)
        if name is None or self.left_out or self._is_foreign(name) or name not in self._walk.files:
            return ()
        graph = self._graph()
        found = (each for each in graph.reached(name) if graph.outline(each) is not None)
        return (name, *islice(found, _MOST_MODULES))

    def views_within(self, program: Iterable[str]) -> Callable[[Path], View]:
        """Return a function that finds the view of a file among the modules of a program."""
        outlines = {each: self._outline(each) for each in program}
        graph = WholeGraph(self._imports, outlines, self._code, self._scripts, self._is_installed)

        def view(path: Path) -> View:
            name = self.name(path) or ""
            return self._completed(graph, name, self._source(name))

        return view

    def started_by(self, path: Path) -> tuple[str, ...]:
        """Return the modules that start a program with a file in it, none for one that starts."""
        name = self.name(path)
        if name is None or self.left_out or name not in self._walk.files:
            return ()
        graph = self._graph()
        if graph.is_start(name) or graph.outline(name) is None:
            return ()
        starts = self.starts(self.root)
        return tuple(each for each in starts if name in self._whole_graph().reached(each))

    def starts(self, folder: Path) -> tuple[str, ...]:
        """Return the modules in a folder that are run as the main module, and train."""
        if self.left_out:
            return ()
        self.build()
        graph = self._whole_graph()
        below = folder.resolve()
        return tuple(
            path
            for path in sorted(self._walk.files)
            if below in (self.root / path).parents
            and graph.is_start(path)
            and graph.trains_below(path)
        )

    def _is_foreign(self, name: str) -> bool:
        head, slash, _ = name.removeprefix("src/").partition("/")
        prefix = f"{'src/' if name.startswith('src/') else ''}{head}{slash}"
        return is_foreign(prefix, ["__init__.py"] * (self.root / prefix / "__init__.py").exists())

    def _graph(self) -> Graph:
        """Return the graph of the whole project if all outlines are known, else one by search."""
        if self._whole is not None or self._outlines.keys() >= self._walk.files.keys():
            return self._whole_graph()
        if self._searched is None:
            self._searched = SearchedGraph(
                self._imports, self._all_texts(), self._outline, self._scripts, self._is_installed
            )
        return self._searched

    def _whole_graph(self) -> WholeGraph:
        if self._whole is None:
            outlines = {**self._outlines, **self._changed_outlines}
            self._whole = WholeGraph(
                self._imports, outlines, self._code, self._scripts, self._is_installed
            )
        return self._whole

    def _with(self, name: str, source: Source) -> Graph:
        """Return the graph with another text for a file."""
        own = outline_of(source)
        return SearchedGraph(
            self._imports_among({*self._walk.files, *self._changed, name}),
            self._all_texts().with_texts({name: _encoded(source)}),
            lambda path: own if path == name else self._outline(path),
            self._scripts,
            self._is_installed,
        )

    def _all_texts(self) -> Texts:
        """Return the bytes of all files."""
        if self._texts is None:
            self._texts = Texts({path: _bytes_at(self.root, path) for path in self._walk.files})
        if not self._changed:
            return self._texts
        return self._texts.with_texts(
            {path: _encoded(each) for path, each in self._changed.items()}
        )

    def _source(self, path: str) -> Source:
        if path in self._changed:
            return self._changed[path]
        if path not in self._sources:
            while len(self._sources) >= _MOST_SOURCES:
                del self._sources[next(iter(self._sources))]
            self._sources[path] = _source_at(self.root, path) or Source(path, "")
        return self._sources[path]

    def _lines(self, path: str, first: int, last: int) -> str:
        source = self._source(path)
        starts = source.line_starts
        end = starts[last] if last < len(starts) else len(source.text)
        return source.text[starts[first - 1] : end] if first <= len(starts) else ""


def outline_at(root: Path, path: str) -> Outline | None:
    """Return the outline of a file, None if it cannot be read or does not parse."""
    source = _source_at(root, path)
    return outline_of(source) if source is not None else None


def digest(view: View) -> bytes:
    """Return a digest of all that a view shows."""
    from hashlib import blake2b

    modules = [
        (each.path, each.excerpts, sorted(each.names.items()), sorted(each.stars.items()))
        for each in view.modules
    ]
    parts = (
        view.path,
        modules,
        sorted(view.names.items()),
        sorted(view.stars.items()),
        sorted(view.unseen),
        sorted(view.called_unseen),
        sorted(view.idle),
        view.is_beside_training,
        view.is_on_accelerator,
        view.has_device_rows,
        view.is_broken,
        sorted(view.files.items()),
    )
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _scripts(settings: str, imports: Imports) -> frozenset[str]:
    """Return the modules that `pyproject.toml` names as scripts."""
    homes = (imports.module("", 0, found[1]) for found in _SCRIPT.finditer(settings))
    return frozenset(home.path for home in homes if home is not None)


def _left_out(files: dict[str, Stamp]) -> str:
    """Return why a project is too large, "" if it is not."""
    if len(files) > MOST_FILES:
        return f"each file is analyzed alone: the project has more than {MOST_FILES:,} files"
    if sum(each.size for each in files.values()) > MOST_BYTES:
        return f"each file is analyzed alone: the project has more than {MOST_BYTES:,} bytes"
    return ""


def _encoded(source: Source) -> bytes:
    return source.text.encode("utf-8", "surrogatepass")


def _text_at(root: Path, path: str) -> str:
    return _bytes_at(root, path).decode("utf-8", "replace")


def _bytes_at(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError:
        return b""


def _source_at(root: Path, path: str) -> Source | None:
    try:
        return read_source((root / path).read_bytes(), path)
    except (OSError, SourceError):
        return None


class Absent:
    """Tells which files always raise when they are started: programs that were left behind.

    `settings` is the text that says how the project is built, where it may name what a build makes.
    `source` returns the text of a file as the project has it now, such as that in an editor.
    """

    def __init__(
        self, graph: Graph, root: Path, settings: str, source: Callable[[str], Source]
    ) -> None:
        self._graph = graph
        self._root = root
        self._settings = settings
        self._source = source

    def breaks(self, path: str, text: str) -> bool:
        """Return whether an import at the top of a file, which no other imports, always raises."""
        outline = self._graph.outline(path)
        if outline is None or _PATH in text or self._graph.importers(path):
            return False
        spelled = set(_PLAIN.findall(text))
        plain = [each for each in outline.imports if ("." * each.level + each.module) in spelled]
        below = (each for each in plain if "." in each.module)  # a package of the project
        own = {_head(each) for each in below if self._graph.target(path, each) is not None}
        return any(
            self._lacks_module(path, each) or self._lacks_name(path, each)
            for each in plain
            if each.level or _head(each) in own
        )

    def _lacks_module(self, path: str, entry: Import) -> bool:
        """Return whether the module of an import is missing in a package that is here."""
        parts = entry.module.split(".") if entry.module else []
        if self._graph.imports.module(path, entry.level, entry.module) is not None:
            return False
        while parts:
            *parts, last = parts
            home = self._graph.imports.module(path, entry.level, ".".join(parts))
            if home is not None and (parts or entry.level):
                is_package = home.path.endswith(("/", "__init__.py"))
                folder = home.path if home.path.endswith("/") else folder_of(home.path)
                is_made = _MADE.fullmatch(last) or last in self._settings
                return is_package and not is_made and not self._has(folder, last)
        return False

    def _has(self, folder: str, name: str) -> bool:
        """Return whether a folder has a module or folder of a name, in whatever form."""
        try:
            entries = list((self._root / folder).iterdir())
        except OSError:
            return True
        return any(each.name.partition(".")[0] == name for each in entries)

    def _lacks_name(self, path: str, entry: Import) -> bool:
        """Return whether a module that is here has no word of what is imported from it."""
        home = self._graph.imports.module(path, entry.level, entry.module)
        if entry.name is None or home is None or not home.is_sure or is_test(home.path):
            return False
        outline = self._graph.outline(home.path)
        if outline is None or self._graph.export(home.path, entry.name) is not None:
            return False
        words = {word for each in outline.definitions for word in each.lookups}
        if words or outline.looks_modules_up or "__getattr__" in self._graph.numbers(home.path):
            return False
        if any(self._graph.imports.module(home.path, *each) is None for each in outline.stars):
            return False
        is_package = home.path.endswith("__init__.py")
        is_beside = is_package and self._has(folder_of(home.path), entry.name)
        return not is_beside and not re.search(rf"\b{entry.name}\b", self._source(home.path).text)


def _head(entry: Import) -> str:
    return entry.module.partition(".")[0]
