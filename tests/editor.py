"""An editor: pygls's own client and a server process, in step with the test."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

Result = TypeVar("Result")
PATIENCE = 60


class Editor:
    """A client over standard input and output; its methods wait for the answer."""

    def __init__(self, settings: Mapping[str | None, Any] | None = None) -> None:
        self.client = LanguageClient("editor", "1")
        self.published: Queue[types.PublishDiagnosticsParams] = Queue()
        self.messages: Queue[str] = Queue()
        self.registered: Queue[str] = Queue()
        self.refreshes: Queue[None] = Queue()
        self.settings = dict(settings or {})
        self.folders: list[types.WorkspaceFolder] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listen()

    def start(
        self,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "torchlint"),
    ) -> None:
        """Start the server."""
        env = {**os.environ, **(environment or {})}
        self.wait(self.client.start_io(sys.executable, *program, "server", env=env))

    def initialize(
        self,
        *folders: Path,
        options: Any = None,
        encodings: tuple[str, ...] | None = None,
        **capabilities: Any,
    ) -> types.InitializeResult:
        """Introduce the editor, whose capabilities are those of VS Code unless said otherwise."""
        general = types.GeneralClientCapabilities(
            position_encodings=[types.PositionEncodingKind(each) for each in encodings or ()]
            or None
        )
        self.folders = [types.WorkspaceFolder(each.as_uri(), each.name) for each in folders]
        workspace = types.WorkspaceClientCapabilities(
            configuration=bool(self.settings),
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(True),
        )
        actions = types.CodeActionClientCapabilities(
            data_support=True,
            resolve_support=types.ClientCodeActionResolveOptions(["edit"]),
        )
        made = types.ClientCapabilities(
            workspace=capabilities.get("workspace", workspace),
            text_document=types.TextDocumentClientCapabilities(
                code_action=capabilities.get("code_action", actions),
                diagnostic=capabilities.get("diagnostic"),
            ),
            general=general,
        )
        parameters = types.InitializeParams(
            made, workspace_folders=self.folders or None, initialization_options=options
        )
        result = self.wait(self.client.initialize_async(parameters))
        self.call(self.client.initialized, types.InitializedParams())
        return result

    def open(self, uri: str, text: str, language: str = "python", version: int = 1) -> None:
        """Open a document."""
        item = types.TextDocumentItem(uri, language, version, text)
        self.call(self.client.text_document_did_open, types.DidOpenTextDocumentParams(item))

    def change(self, uri: str, text: str, version: int) -> None:
        """Replace the text of a document."""
        self.type(uri, {version: text})

    def type(self, uri: str, texts: Mapping[int, str]) -> None:
        """Replace the text of a document again and again, without a pause between the versions."""

        def typed() -> None:
            for version, text in texts.items():
                document = types.VersionedTextDocumentIdentifier(version, uri)
                change = types.TextDocumentContentChangeWholeDocument(text)
                parameters = types.DidChangeTextDocumentParams(document, [change])
                self.client.text_document_did_change(parameters)

        self.call(typed)

    def save(self, uri: str) -> None:
        """Tell that a document was saved."""
        document = types.TextDocumentIdentifier(uri)
        self.call(self.client.text_document_did_save, types.DidSaveTextDocumentParams(document))

    def close(self, uri: str) -> None:
        """Close a document."""
        document = types.TextDocumentIdentifier(uri)
        self.call(self.client.text_document_did_close, types.DidCloseTextDocumentParams(document))

    def diagnostics(self, uri: str) -> types.PublishDiagnosticsParams:
        """Wait for what is published next of a document."""
        while True:
            published = self.published.get(timeout=PATIENCE)
            if published.uri == uri:
                return published

    def is_quiet(self, uri: str, seconds: float = 1) -> bool:
        """Return whether nothing is published of a document for a while."""
        try:
            while self.published.get(timeout=seconds).uri != uri:
                pass
        except Empty:
            return True
        return False

    def actions(self, uri: str, place: types.Range, *only: str) -> list[types.CodeAction]:
        """Ask for the actions at a range."""
        context = types.CodeActionContext([], list(only) or None)
        parameters = types.CodeActionParams(types.TextDocumentIdentifier(uri), place, context)
        found = self.wait(self.client.text_document_code_action_async(parameters))
        return [each for each in found or () if isinstance(each, types.CodeAction)]

    def hover(self, uri: str, position: types.Position) -> types.Hover | None:
        """Ask for what is shown at a position."""
        parameters = types.HoverParams(types.TextDocumentIdentifier(uri), position)
        return self.wait(self.client.text_document_hover_async(parameters))

    def call(self, function: Any, *arguments: Any) -> None:
        """Call a function of the client in the client's thread."""

        async def called() -> None:
            function(*arguments)

        self.wait(called())

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run something of the client to its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def leave(self) -> int | None:
        """Take leave of the server, and give its exit code."""
        process = self.client._server
        assert process is not None
        if process.returncode is None:
            self.wait(self.client.shutdown_async(None))
            self.call(self.client.exit, None)
        stop: Any = self.client.stop
        self.wait(stop())
        return process.returncode

    def kill(self) -> None:
        """End a server that has not taken leave."""
        process = self.client._server
        if process is not None and process.returncode is None:
            self._loop.call_soon_threadsafe(process.kill)

    def end(self) -> None:
        """End the client's thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _listen(self) -> None:
        def published(parameters: types.PublishDiagnosticsParams) -> None:
            self.published.put(parameters)

        def shown(parameters: types.ShowMessageParams) -> None:
            self.messages.put(parameters.message)

        def registered(parameters: types.RegistrationParams) -> None:
            for each in parameters.registrations:
                self.registered.put(each.method)

        def configuration(parameters: types.ConfigurationParams) -> list[Any]:
            return [self.settings.get(item.scope_uri) for item in parameters.items]

        def refreshed(_: None) -> None:
            self.refreshes.put(None)

        for method, handler in {
            types.WORKSPACE_DIAGNOSTIC_REFRESH: refreshed,
            types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: published,
            types.WINDOW_SHOW_MESSAGE: shown,
            types.CLIENT_REGISTER_CAPABILITY: registered,
            types.WORKSPACE_CONFIGURATION: configuration,
        }.items():
            self.client.feature(method)(handler)


@contextmanager
def editor(
    settings: Mapping[str | None, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = ("-m", "torchlint"),
) -> Iterator[Editor]:
    """Return an editor with a server that it has not spoken to yet, and end both."""
    made = Editor(settings)
    try:
        made.start(environment, program)
        try:
            yield made
        finally:
            made.leave()
    finally:
        made.kill()
        made.end()
