"""The handlers of an editor's messages."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from lsprotocol import types
from pygls.uris import to_fs_path

from torchlint.config import ConfigError
from torchlint.edit import Span
from torchlint.engine.project import CONFIGURATION
from torchlint.measurement import measurements_of
from torchlint.registry import Registry, RegistryError
from torchlint.report.page import hover_page
from torchlint.server.actions import FIX_ALL, NAME, Actions
from torchlint.server.checked import Checked
from torchlint.server.protocol import BoundedInput
from torchlint.server.session import DELAY, Session
from torchlint.server.subject import Positions
from torchlint.suppress import find_suppressions

_READ: Final = (".py", ".json", ".yaml", ".yml")
"""The endings of files that are read with the one that is open."""
_WATCHED: Final = f"**/{{{','.join(f'*{end}' for end in _READ)},{','.join(CONFIGURATION)}}}"


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
    ls.close(params.text_document.uri, [params.text_document.uri])


def _notebook_opened(ls: Session, params: types.DidOpenNotebookDocumentParams) -> None:
    ls.notebooks.open(params)
    ls.reread(params.notebook_document.uri)


def _notebook_changed(ls: Session, params: types.DidChangeNotebookDocumentParams) -> None:
    ls.clear(ls.notebooks.change(params, ls.encoding))
    ls.refresh(params.notebook_document.uri, DELAY)


def _notebook_saved(ls: Session, params: types.DidSaveNotebookDocumentParams) -> None:
    ls.reread(params.notebook_document.uri)


def _notebook_closed(ls: Session, params: types.DidCloseNotebookDocumentParams) -> None:
    ls.notebooks.close(params.notebook_document.uri)
    ls.close(params.notebook_document.uri, [each.uri for each in params.cell_text_documents])


async def _diagnostic(
    ls: Session, params: types.DocumentDiagnosticParams
) -> types.DocumentDiagnosticReport:
    found = await ls.pulled(params.text_document.uri)
    if found is None and params.previous_result_id is not None:
        return types.RelatedUnchangedDocumentDiagnosticReport(params.previous_result_id)
    name = _result_id(found)
    if name == params.previous_result_id:
        return types.RelatedUnchangedDocumentDiagnosticReport(name)
    return types.RelatedFullDocumentDiagnosticReport(found or [], result_id=name)


async def _workspace_diagnostic(
    ls: Session, params: types.WorkspaceDiagnosticParams
) -> types.WorkspaceDiagnosticReport:
    """Answer at once what the editor does not know, else when something may have changed."""
    before = {each.uri: each.value for each in params.previous_result_ids}
    if before:
        await ls.news.wait()
    ls.news.clear()
    reports: list[types.WorkspaceDocumentDiagnosticReport] = []
    async for uri, version, found in ls.everywhere():
        name = _result_id(found)
        if before.pop(uri, None) == name:
            reports.append(types.WorkspaceUnchangedDocumentDiagnosticReport(uri, name, version))
        else:
            reports.append(
                types.WorkspaceFullDocumentDiagnosticReport(uri, found, version, result_id=name)
            )
    reports += [types.WorkspaceFullDocumentDiagnosticReport(uri, []) for uri in before]
    return types.WorkspaceDiagnosticReport(reports)


def _result_id(found: Sequence[types.Diagnostic] | None) -> str:
    return blake2b(repr(found).encode("utf-8", "replace"), digest_size=8).hexdigest()


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
    if known is not None and known.subject.versions == data.get("versions"):
        action.edit = await ls.off_the_loop(_actions(ls, known).edit_of_all)
    return action


async def _hover(ls: Session, params: types.HoverParams) -> types.Hover | None:
    known = await ls.current(params.text_document.uri)
    if known is None:
        return None
    return await ls.off_the_loop(hover, known, ls.positions(known), params, ls.registry)


async def _configured(ls: Session, params: types.DidChangeConfigurationParams) -> None:
    if _answers_for_settings(ls.client_capabilities):
        await _ask_for_settings(ls)
    elif isinstance(params.settings, dict):
        _set(ls, params.settings.get(NAME))
        ls.refresh_all()


def _files_changed(ls: Session, params: types.DidChangeWatchedFilesParams) -> None:
    if any(change.uri.rpartition("/")[2] in CONFIGURATION for change in params.changes):
        ls.refresh_all()
    else:
        ls.reread_modules()


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
    types.NOTEBOOK_DOCUMENT_DID_OPEN: (_notebook_opened, None),
    types.NOTEBOOK_DOCUMENT_DID_CHANGE: (_notebook_changed, None),
    types.NOTEBOOK_DOCUMENT_DID_SAVE: (_notebook_saved, None),
    types.NOTEBOOK_DOCUMENT_DID_CLOSE: (_notebook_closed, None),
    types.TEXT_DOCUMENT_DIAGNOSTIC: (
        _diagnostic,
        types.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=True),
    ),
    types.WORKSPACE_DIAGNOSTIC: (_workspace_diagnostic, None),
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


def hover(
    checked: Checked, positions: Positions, params: types.HoverParams, registry: Registry
) -> types.Hover | None:
    """Return the pages of the rules at a position, None where there is none."""
    at = positions.offset(params.text_document.uri, params.position)
    if at is None:
        return None
    found = {**_codes_in_comments(checked, at), **_codes_of_findings(checked, at)}
    if not found:
        return None
    pages = "\n---\n\n".join(_page(registry, code) for code in found)
    span = Span(min(each.start for each in found.values()), max(e.end for e in found.values()))
    return types.Hover(
        contents=types.MarkupContent(types.MarkupKind.Markdown, pages),
        range=positions.place(span).range,
    )


def _codes_of_findings(checked: Checked, at: int) -> dict[str, Span]:
    return {
        finding.code: finding.span
        for finding in checked.findings
        if finding.span.start <= at <= finding.span.end
    }


def _codes_in_comments(checked: Checked, at: int) -> dict[str, Span]:
    if "#" not in checked.source.line(checked.source.position(at).row):
        return {}
    return {
        code: word.span
        for mark in find_suppressions(checked.source, checked.rules.known).all
        for word in mark.words
        for code in sorted(word.codes)
        if word.span.start <= at <= word.span.end and len(word.codes) == 1
    }


def _page(registry: Registry, code: str) -> str:
    try:
        rule = registry.find(code).load()
    except RegistryError as error:
        return str(error)
    return hover_page(rule, measurements_of(rule))


def serve(registry: Registry) -> int:
    """Serve one editor over standard input and output, and return the exit code.

    It is 0 when the editor shut the server down, else 1. Whatever rules print goes to standard
    error.
    """
    if not sys.flags.dev_mode:
        logging.getLogger("pygls").setLevel(logging.CRITICAL)
    # The reading thread cannot be interrupted, and there is nothing to clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    session = Session(registry)
    attach(session)
    session.start_io(BoundedInput(sys.stdin.buffer), out)  # type: ignore[arg-type]
    return 0 if session.ended_well else 1
