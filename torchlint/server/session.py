"""One editor: its documents, their results, and the messages to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path, uri_scheme

from torchlint import __version__
from torchlint.config import ConfigError
from torchlint.engine.programs import Programs
from torchlint.registry import Registry
from torchlint.server.checked import Checked, checked, unchecked
from torchlint.server.diagnostics import NAME, diagnostics
from torchlint.server.positions import Positions
from torchlint.server.preferences import Preferences
from torchlint.server.protocol import Protocol
from torchlint.source import Source

if TYPE_CHECKING:
    from pygls.workspace import TextDocument

DELAY: Final = 0.05
"""Seconds without changes before a text is checked."""

Result = TypeVar("Result")


class Session(LanguageServer):
    """Checks the open documents one at a time, and publishes the findings."""

    protocol: Protocol

    def __init__(self, registry: Registry) -> None:
        super().__init__(NAME, __version__, types.TextDocumentSyncKind.Full, protocol_cls=Protocol)
        self.registry = registry
        self.preferences = Preferences(registry)
        self.programs = Programs(settings_of=self.preferences.settings)
        self.initial_settings: Any = None
        self.ended_well = False
        self._worker = ThreadPoolExecutor(1, NAME)
        self._known: dict[str, Checked] = {}
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
        document = self._document(uri)
        if document is None:
            return None
        known = self._known.get(uri)
        if known is not None and _is_about(known, document):
            return known
        before = self._round
        found = await self._checked(document)
        if self._document(uri) is not document or not _is_about(found, document):
            return None
        if self._round == before:
            self._known[uri] = found
        return found

    def refresh(self, uri: str, delay: float = 0) -> None:
        """Publish the findings of a document after a delay, unless it changes before."""
        waiting = self._refreshing.get(uri)
        if waiting is not None:
            waiting.cancel()
        self._refreshing[uri] = asyncio.create_task(self._published(uri, delay))

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

    def refresh_all(self) -> None:
        """Publish all open documents again, after settings changed."""
        self.preferences.forget()
        self._known.clear()
        self._round += 1
        for document in list(self.workspace.text_documents.values()):
            self.refresh(document.uri)

    def close(self, uri: str) -> None:
        """Forget a document, and clear its findings in the editor."""
        waiting = self._refreshing.pop(uri, None)
        if waiting is not None:
            waiting.cancel()
        self._known.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        path = to_fs_path(uri)
        if path is not None:
            self._worker.submit(self.programs.change, path, None)
            self._refresh_stale()

    def positions(self, known: Checked) -> Positions:
        """Return the positions of a document in the columns that the editor counts."""
        encoding = self.workspace.position_encoding
        word = encoding.value if isinstance(encoding, types.PositionEncodingKind) else encoding
        return Positions(known.source, word or types.PositionEncodingKind.Utf16.value)

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
                found = await self.off_the_loop(diagnostics, known, self.positions(known))
                self.text_document_publish_diagnostics(
                    types.PublishDiagnosticsParams(uri, found, known.version)
                )
        except Exception as error:
            self.say(f"internal error: {type(error).__name__}: {error} (please report it)")

    async def _tell_programs(self, uri: str) -> None:
        """Show the text of a document to the others, and publish those that it changes."""
        document, path = self._document(uri), to_fs_path(uri)
        if document is not None and path is not None:
            await self.off_the_loop(self.programs.change, path, Source(path, document.source))
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

    async def _checked(self, document: TextDocument) -> Checked:
        path = self._path(document)
        version = (document.uri, document.version, document.source, path)
        try:
            found = await self.off_the_loop(checked, *version, self.preferences, self.programs)
        except ConfigError as error:
            self.say(error.message)
            return unchecked(*version)
        for line in found.result.errors:
            self.say(line)
        for line in found.result.warnings:
            self.say(line, types.MessageType.Warning)
        return found

    def _document(self, uri: str) -> TextDocument | None:
        document = self.workspace.text_documents.get(unquote(uri))
        return document if document is not None and _is_python(document) else None

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


def _is_about(known: Checked, document: TextDocument) -> bool:
    return known.version == document.version and known.source.text == document.source
