"""The handlers of an editor's messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lsprotocol import types
from pygls.uris import to_fs_path

from torchlint.config import ConfigError
from torchlint.server.actions import FIX_ALL, Actions
from torchlint.server.checked import Checked
from torchlint.server.diagnostics import NAME
from torchlint.server.hover import hover
from torchlint.server.session import DELAY, Session

_READ: Final = (".py", ".json", ".yaml", ".yml")
"""The endings of files that are read with the one that is open."""
_WATCHED: Final = "**/{*.py,*.json,*.yaml,*.yml,pyproject.toml,torchlint.toml}"


def attach(session: Session) -> None:
    """Register a handler for every message."""
    for method, (handler, options) in _HANDLERS.items():
        session.feature(method, options)(handler)


def _initialize(ls: Session, params: types.InitializeParams) -> None:
    options = params.initialization_options
    ls.initial_settings = options.get("settings") if isinstance(options, dict) else None


async def _initialized(ls: Session, params: types.InitializedParams) -> None:
    for error in ls.registry.errors:
        ls.say(error)
    _set(ls, ls.initial_settings)
    await _ask_for_settings(ls)
    if _watches_files(ls.client_capabilities):
        watcher = types.FileSystemWatcher(_WATCHED)
        options = types.DidChangeWatchedFilesRegistrationOptions([watcher])
        wish = types.Registration(NAME, types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        await ls.client_register_capability_async(types.RegistrationParams([wish]))


def _opened(ls: Session, params: types.DidOpenTextDocumentParams) -> None:
    ls.reread(params.text_document.uri)


def _changed(ls: Session, params: types.DidChangeTextDocumentParams) -> None:
    ls.refresh(params.text_document.uri, DELAY)


def _saved(ls: Session, params: types.DidSaveTextDocumentParams) -> None:
    ls.reread(params.text_document.uri)


def _closed(ls: Session, params: types.DidCloseTextDocumentParams) -> None:
    ls.close(params.text_document.uri)


async def _code_actions(
    ls: Session, params: types.CodeActionParams
) -> list[types.CodeAction] | None:
    known = await ls.current(params.text_document.uri)
    if known is None:
        return None
    return await ls.off_the_loop(lambda: list(_actions(ls, known).offered(params)))


async def _resolve(ls: Session, action: types.CodeAction) -> types.CodeAction:
    """Add the edits to `source.fixAll`, unless the document has changed."""
    data = action.data if isinstance(action.data, dict) else {}
    known = await ls.current(str(data.get("uri")))
    if known is not None and known.version == data.get("version"):
        action.edit = await ls.off_the_loop(_actions(ls, known).edit_of_all)
    return action


async def _hover(ls: Session, params: types.HoverParams) -> types.Hover | None:
    known = await ls.current(params.text_document.uri)
    if known is None:
        return None
    place = (ls.positions(known), params.position)
    return await ls.off_the_loop(hover, known, *place, ls.registry)


async def _configured(ls: Session, params: types.DidChangeConfigurationParams) -> None:
    if _answers_for_settings(ls.client_capabilities):
        await _ask_for_settings(ls)
    elif isinstance(params.settings, dict):
        _set(ls, params.settings.get(NAME))
        ls.refresh_all()


def _files_changed(ls: Session, params: types.DidChangeWatchedFilesParams) -> None:
    if all(change.uri.endswith(_READ) for change in params.changes):
        ls.reread_modules()
    else:
        ls.refresh_all()


async def _folders_changed(ls: Session, params: types.DidChangeWorkspaceFoldersParams) -> None:
    await _ask_for_settings(ls)


def _shutdown(ls: Session, params: None) -> None:
    ls.ended_well = True


async def _ask_for_settings(ls: Session) -> None:
    """Request the editor's settings, for all folders and for each workspace folder."""
    if not _answers_for_settings(ls.client_capabilities):
        return
    folders = [(uri, Path(path)) for uri in ls.workspace.folders if (path := to_fs_path(uri))]
    items = [
        types.ConfigurationItem(section=NAME),
        *(types.ConfigurationItem(scope_uri=uri, section=NAME) for uri, _ in folders),
    ]
    tables = await ls.workspace_configuration_async(types.ConfigurationParams(items))
    for folder, table in zip((None, *(path for _, path in folders)), tables, strict=False):
        if table is not None:
            _set(ls, table, folder)
    ls.refresh_all()


def _set(ls: Session, table: Any, folder: Path | None = None) -> None:
    """Store settings of the editor; invalid ones are shown and ignored."""
    try:
        ls.preferences.set(table, folder)
    except ConfigError as error:
        ls.say(error.message)


def _actions(ls: Session, known: Checked) -> Actions:
    editor = ls.client_capabilities
    edits = editor.workspace and editor.workspace.workspace_edit
    asked = editor.text_document and editor.text_document.code_action
    lazily = asked and asked.resolve_support
    return Actions(
        known,
        ls.positions(known),
        versioned=bool(edits and edits.document_changes),
        resolves=bool(lazily and "edit" in lazily.properties and asked and asked.data_support),
    )


def _answers_for_settings(editor: types.ClientCapabilities) -> bool:
    return bool(editor.workspace and editor.workspace.configuration)


def _watches_files(editor: types.ClientCapabilities) -> bool:
    watching = editor.workspace and editor.workspace.did_change_watched_files
    return bool(watching and watching.dynamic_registration)


_HANDLERS: Final[dict[str, tuple[Callable[..., Any], Any]]] = {
    types.INITIALIZE: (_initialize, None),
    types.INITIALIZED: (_initialized, None),
    types.TEXT_DOCUMENT_DID_OPEN: (_opened, None),
    types.TEXT_DOCUMENT_DID_CHANGE: (_changed, None),
    types.TEXT_DOCUMENT_DID_SAVE: (_saved, None),
    types.TEXT_DOCUMENT_DID_CLOSE: (_closed, None),
    types.TEXT_DOCUMENT_CODE_ACTION: (
        _code_actions,
        types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL], resolve_provider=True),
    ),
    types.CODE_ACTION_RESOLVE: (_resolve, None),
    types.TEXT_DOCUMENT_HOVER: (_hover, None),
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: (_configured, None),
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: (_files_changed, None),
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: (_folders_changed, None),
    types.SHUTDOWN: (_shutdown, None),
}
