"""One editor: its documents, their results, and the messages to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path, uri_scheme
from pygls.workspace import PositionCodec

from torchlint import __version__
from torchlint.config import ConfigError
from torchlint.engine import discover
from torchlint.engine.programs import Programs
from torchlint.engine.project import SettingsOf
from torchlint.notebook import read_source
from torchlint.registry import Registry
from torchlint.server.actions import NAME, diagnostics
from torchlint.server.checked import Checked, Preferences, checked, unchecked
from torchlint.server.protocol import Protocol
from torchlint.server.subject import Document, Positions, Subject, offset_in
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    from pygls.workspace import TextDocument

DELAY: Final = 0.05
"""Seconds without changes before a text is checked."""

Result = TypeVar("Result")
_PYTHON = "python"


class Session(LanguageServer):
    """Checks the open documents one at a time, and publishes the findings."""

    protocol: Protocol

    def __init__(self, registry: Registry) -> None:
        cells = types.NotebookDocumentFilterWithCells([types.NotebookCellLanguage("python")])
        super().__init__(
            NAME,
            __version__,
            types.TextDocumentSyncKind.Full,
            types.NotebookDocumentSyncOptions([cells], save=True),
            protocol_cls=Protocol,
        )
        self.notebooks = Notebooks()
        self.registry = registry
        self.preferences = Preferences(registry)
        self.programs = Programs(settings_of=self.preferences.settings)
        self.initial_settings: Any = None
        self.ended_well = False
        self._worker = ThreadPoolExecutor(1, NAME)
        self._known: dict[str, Checked] = {}
        self._pulled: dict[str, Checked] = {}
        """What an editor that asks for diagnostics has been answered last."""
        self._on_disk: dict[Path, tuple[tuple[int, ...], Checked]] = {}
        """The results for files that are not open, with what they were made from."""
        self.news = asyncio.Event()
        """Set when the findings of some file may have changed."""
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._looking: set[asyncio.Task[None]] = set()
        """The searches for documents to publish again."""
        self._round = 0
        self._shown: set[str] = set()

    async def off_the_loop(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run slow work in the single thread that may use the engine."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, work, *arguments)

    async def current(self, uri: str) -> Checked | None:
        """Return the results for the current version of a document, checking it if needed.

        The result is None for a document that is not checked, is closed, or changed in the
        meantime.
        """
        subject = self._subject(uri)
        if subject is None:
            return None
        known = self._known.get(subject.uri)
        if known is not None and known.subject == subject:
            return known
        before = self._round
        found = await self._checked(subject)
        if self._subject(uri) != subject:
            return None
        if self._round == before:
            self._known[subject.uri] = found
        return found

    def refresh(self, uri: str, delay: float = 0) -> None:
        """Publish the findings of a document after a delay, unless it changes before."""
        waiting = self._refreshing.get(uri)
        if waiting is not None:
            waiting.cancel()
        self._refreshing[uri] = asyncio.create_task(self._published(uri, delay))
        self.news.set()

    def reread(self, uri: str) -> None:
        """Publish the findings of a document with the settings from its files."""
        self.preferences.forget()
        self._known.pop(uri, None)
        self.refresh(uri)
        self.reread_modules()

    def reread_modules(self) -> None:
        """Publish the open documents for which modules on the disk have changed."""
        self._worker.submit(self.programs.refresh)
        self._refresh_stale()
        self.news.set()

    def refresh_all(self) -> None:
        """Publish all open documents again, after settings changed."""
        self.preferences.forget()
        self._known.clear()
        self._round += 1
        documents = [document.uri for document in self.workspace.text_documents.values()]
        scripts = [uri for uri in documents if self.notebooks.subject(uri) is None]
        for uri in (*scripts, *self.notebooks.uris()):
            self.refresh(uri)
        self.news.set()

    def clear(self, uris: Iterable[str]) -> None:
        """Clear the findings of documents in the editor."""
        for uri in uris:
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def close(self, uri: str, documents: Iterable[str]) -> None:
        """Forget a script or notebook, and clear the findings of its documents in the editor."""
        waiting = self._refreshing.pop(uri, None)
        if waiting is not None:
            waiting.cancel()
        self._known.pop(uri, None)
        self._pulled.pop(uri, None)
        self.clear(documents)
        self.news.set()
        path = to_fs_path(uri)
        if path is not None:
            self._worker.submit(self.programs.change, path, None)
            self._refresh_stale()

    def positions(self, known: Checked) -> Positions:
        """Return the positions of a document in the columns that the editor counts."""
        return Positions(known.subject, self.encoding)

    @property
    def encoding(self) -> str:
        """The units in which the editor counts columns."""
        encoding = self.workspace.position_encoding
        word = encoding.value if isinstance(encoding, types.PositionEncodingKind) else encoding
        return word or types.PositionEncodingKind.Utf16.value

    def say(self, message: str, kind: types.MessageType = types.MessageType.Error) -> None:
        """Show a message, once."""
        if message not in self._shown:
            self._shown.add(message)
            self.window_show_message(types.ShowMessageParams(kind, f"{NAME}: {message}"))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Answer bytes that are not a message, and log errors outside of requests."""
        if source is JsonRpcException:
            self.protocol.refuse_unreadable(error)
        elif source is not FeatureRequestError:
            text = f"{type(error).__name__}: {error}"
            self.window_log_message(types.LogMessageParams(types.MessageType.Error, text))

    async def _published(self, uri: str, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            await self._tell_programs(uri)
            known = await self.current(uri)
            if known is not None:
                await self._show(known)
        except Exception as error:
            self.say(f"internal error: {type(error).__name__}: {error} (please report it)")

    async def pulled(self, uri: str) -> list[types.Diagnostic] | None:
        """Return the diagnostics of a script or cell, None if it is closed or changed meanwhile.

        Those of a notebook are published until the editor asks for a cell: VS Code never does.
        """
        known = await self.current(uri)
        if known is None:
            return None
        subject = known.subject
        if subject.is_notebook and subject.uri not in self._pulled:
            self.clear(document.uri for document in subject.documents)
        self._pulled[subject.uri] = known
        return await self._diagnostics(known, subject.cell(uri))

    async def everywhere(self) -> AsyncIterator[tuple[str, int | None, list[types.Diagnostic]]]:
        """Yield URI, version and diagnostics of each script of the workspace, open or not."""
        folders = [Path(each) for each in map(to_fs_path, self.workspace.folders) if each]
        for path in await self.off_the_loop(scripts_in, folders, self.preferences.settings):
            uri = path.as_uri()
            is_open = self._subject(uri) is not None
            known = await (self.current(uri) if is_open else self._read(path))
            if known is not None:
                yield uri, known.subject.versions[0], await self._diagnostics(known)

    async def _read(self, path: Path) -> Checked | None:
        """Return the results for a file as it is on the disk, None if it cannot be read."""
        made_from = (self._round, *stamp_of(path))
        before, known = self._on_disk.get(path, (None, None))
        if known is not None and before == made_from:
            if not await self.off_the_loop(known.is_stale):
                return known
        subject = await self.off_the_loop(subject_of, path)
        if subject is None:
            return None
        known = await self._checked(subject)
        self._on_disk[path] = (made_from, known)
        return known

    async def _diagnostics(self, known: Checked, cell: int | None = None) -> list[types.Diagnostic]:
        """Return the diagnostics of a script, or of one cell of a notebook."""
        found = await self.off_the_loop(diagnostics, known, self.positions(known))
        return list(found[0 if cell is None else cell - 1].diagnostics)

    async def _show(self, known: Checked) -> None:
        """Publish findings; an editor that asks for them is told to ask, if they are news."""
        editor, subject = self.client_capabilities, known.subject
        asks = editor.text_document and editor.text_document.diagnostic
        if asks and (subject.uri in self._pulled or not subject.is_notebook):
            told = editor.workspace and editor.workspace.diagnostics
            if told and told.refresh_support and self._pulled.get(subject.uri) is not known:
                await self.workspace_diagnostic_refresh_async(None)
            return
        for found in await self.off_the_loop(diagnostics, known, self.positions(known)):
            self.text_document_publish_diagnostics(found)

    async def _tell_programs(self, uri: str) -> None:
        """Show the text of a document to the others, and publish those that it changes."""
        subject, path = self._subject(uri), to_fs_path(uri)
        if subject is not None and path is not None:
            await self.off_the_loop(self.programs.change, path, subject.source)
            self._refresh_stale(uri)

    def _refresh_stale(self, besides: str = "") -> None:
        """Publish the open documents that were judged with definitions that have changed."""
        task = asyncio.create_task(self._stale_refreshed(besides))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _stale_refreshed(self, besides: str) -> None:
        for uri, known in list(self._known.items()):
            if uri != besides and await self.off_the_loop(known.is_stale):
                if self._known.get(uri) is known:
                    del self._known[uri]
                    self.refresh(uri)

    async def _checked(self, subject: Subject) -> Checked:
        try:
            found = await self.off_the_loop(checked, subject, self.preferences, self.programs)
        except ConfigError as error:
            self.say(error.message)
            return unchecked(subject)
        for line in found.result.errors:
            self.say(line)
        for line in found.result.warnings:
            self.say(line, types.MessageType.Warning)
        return found

    def _subject(self, uri: str) -> Subject | None:
        """Return what to check for a document or a notebook, None for what is no Python."""
        notebook = self.notebooks.subject(uri)
        if notebook is not None:
            return notebook
        document = self.workspace.text_documents.get(unquote(uri))
        if document is None or not _is_python(document):
            return None
        own = Document(document.uri, document.version, document.source)
        return Subject(document.uri, self._path(document), (own,))

    def _path(self, document: TextDocument) -> Path:
        """Return the path of a document; an unsaved one counts as a file in the first folder."""
        path = to_fs_path(document.uri)
        if path is not None:
            return Path(path)
        roots = [to_fs_path(uri) for uri in self.workspace.folders] or [self.workspace.root_path]
        return Path(roots[0] or "", "untitled.py").absolute()


def _is_python(document: TextDocument) -> bool:
    if uri_scheme(document.uri) not in ("file", "untitled"):
        return False
    return document.language_id == "python" or document.uri.endswith(".py")


def scripts_in(folders: Iterable[Path], settings_of: SettingsOf) -> list[Path]:
    """Return the scripts below folders; notebooks are left out, because their cells have no URI."""
    found = discover((each for each in folders if each.is_dir()), settings_of)
    return [path for path in found.files if path.suffix == ".py"]


def stamp_of(path: Path) -> tuple[int, int]:
    """Return what differs between two versions of a file, zeros where there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def subject_of(path: Path) -> Subject | None:
    """Return what to check for a file, None if it cannot be read."""
    try:
        text = read_source(path.read_bytes(), str(path)).text
    except (OSError, SourceError):
        return None
    return Subject(path.as_uri(), path, (Document(path.as_uri(), None, text),))


class Notebooks:
    """The open notebooks: the cells of each in their order, and the text of each cell."""

    def __init__(self) -> None:
        self._cells: dict[str, list[str]] = {}
        self._items: dict[str, types.TextDocumentItem] = {}

    def open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        """Take a notebook in."""
        notebook = params.notebook_document
        self._cells[notebook.uri] = [cell.document for cell in notebook.cells]
        self._items.update((item.uri, item) for item in params.cell_text_documents)

    def change(self, params: types.DidChangeNotebookDocumentParams, encoding: str) -> list[str]:
        """Change a notebook, and return its cells that were closed."""
        changes = params.change.cells
        if changes is None:
            return []
        gone: list[str] = []
        if changes.structure is not None:
            array = changes.structure.array
            first, last = array.start, array.start + array.delete_count
            added = [cell.document for cell in array.cells or ()]
            self._cells[params.notebook_document.uri][first:last] = added
            self._items.update((item.uri, item) for item in changes.structure.did_open or ())
            gone = [each.uri for each in changes.structure.did_close or ()]
            for uri in gone:
                self._items.pop(uri, None)
        for content in changes.text_content or ():
            item = self._items[content.document.uri]
            item.version = content.document.version
            for change in content.changes:
                item.text = _changed(item.text, change, encoding)
        return gone

    def close(self, uri: str) -> None:
        """Forget a notebook and its cells."""
        for cell in self._cells.pop(uri, ()):
            self._items.pop(cell, None)

    def subject(self, uri: str) -> Subject | None:
        """Return what to check for a notebook, or for one of its cells."""
        notebook = next((key for key, cells in self._cells.items() if uri in (key, *cells)), None)
        if notebook is None:
            return None
        items = [self._items[cell] for cell in self._cells[notebook] if cell in self._items]
        documents = (
            Document(item.uri, item.version, item.text if item.language_id == _PYTHON else "")
            for item in items
        )
        path = Path(to_fs_path(notebook) or "untitled.ipynb").absolute()
        return Subject(notebook, path, tuple(documents), is_notebook=True)

    def uris(self) -> list[str]:
        """Return the open notebooks."""
        return list(self._cells)


def _changed(text: str, change: types.TextDocumentContentChangeEvent, encoding: str) -> str:
    """Return the text of a cell after one change of it."""
    if not isinstance(change, types.TextDocumentContentChangePartial):
        return change.text
    source, codec = Source("", text), PositionCodec(encoding)
    start, end = (
        offset_in(source, codec, place) for place in (change.range.start, change.range.end)
    )
    return f"{text[:start]}{change.text}{text[end:]}"
