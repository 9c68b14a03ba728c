"""``memlint lsp``: diagnostics, fixes, hovers and trials for editors that speak the Language Server Protocol."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument

from memlint import __version__
from memlint.apply import chosen, edited
from memlint.check import Options
from memlint.config import level
from memlint.files import shown
from memlint.lsp.analyst import Analyst, Settings, State
from memlint.lsp.pages import hover_text
from memlint.report import lsp as form
from memlint.rule import Applicability, Edit, Finding, Level, Span
from memlint.source import Source, lines_of
from memlint.suppress import ignoring
from memlint.target import parse

CONFIRM, FIX_ALL, RESTART = "memlint.confirm", "source.fixAll.memlint", "memlint.recheck"
_STRUCTURE = default_converter().structure  # type: ignore[no-untyped-call]
_NOTEBOOKS = lsp.NotebookDocumentSyncOptions(
    notebook_selector=[
        lsp.NotebookDocumentFilterWithCells(
            notebook=lsp.NotebookDocumentFilterNotebookType(notebook_type="jupyter-notebook"),
            cells=[lsp.NotebookCellLanguage(language="python")],
        )
    ],
    save=True,
)


class Document(TextDocument):
    """A buffer whose lines end where the protocol says that they do: a form feed ends none."""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(lines_of(self.source))


class Server(LanguageServer):
    """The server. What it says of a file is made anew from the analyst's findings each time."""

    def __init__(self) -> None:
        super().__init__("memlint", __version__, notebook_document_sync=_NOTEBOOKS)
        self.analyst: Analyst | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.verdicts: dict[str, dict[str, Any]] = {}
        self._published: dict[str, str] = {}
        self._uris: dict[str, str] = {}
        self._trials: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ the client

    @property
    def encoding(self) -> str:
        """The units in which positions count on their line."""
        return str(lsp.PositionEncodingKind(self.workspace.position_encoding or "utf-16").value)

    def asks(self, *path: str) -> bool:
        """Whether the client has a capability."""
        found: Any = self.client_capabilities
        for name in path:
            found = getattr(found, name, None)
        return bool(found)

    @property
    def pulls(self) -> bool:
        """Whether the client asks for the diagnostics of what it has open."""
        return self.asks("text_document", "diagnostic")

    def say(self, message: str, kind: lsp.MessageType = lsp.MessageType.Error) -> None:
        """Tell the user. May be called from any thread."""
        params = lsp.ShowMessageParams(type=kind, message=f"memlint: {message}")
        self.later(lambda: self.window_show_message(params))

    def later(self, call: Callable[[], Any]) -> None:
        """Call in the server's own thread."""
        if self.loop is not None:
            with suppress(RuntimeError):  # closed
                self.loop.call_soon_threadsafe(call)

    # ------------------------------------------------------------------ files and buffers

    def path(self, uri: str) -> str:
        """The path, as shown, of a buffer: its file's, or one made up where it has none."""
        path = to_fs_path(uri) or f"{uri.rpartition('/')[2].rpartition(':')[2]}.py"
        found = shown(path)
        self._uris[found] = uri
        return found

    def uri(self, path: str) -> str:
        """The address of a file, as the client spells it."""
        return self._uris.get(path) or from_fs_path(os.path.abspath(path)) or path

    def text_changed(self, uri: str) -> None:
        """Take in what a buffer holds, the cells of its notebook included."""
        book = self.workspace.get_notebook_document(cell_uri=uri)
        if book is not None:
            return self.notebook_changed(book)
        text = self.workspace.get_text_document(uri).source
        if self.analyst is not None:
            self.analyst.change(self.path(uri), text.encode("utf-8", "surrogatepass"))

    def notebook_changed(self, book: lsp.NotebookDocument) -> None:
        """Take in what a notebook holds: as the file that it would be saved to, one line of it for one of a cell."""
        cells = []
        for cell in book.cells:
            document = self.workspace.text_documents.get(cell.document)
            code = cell.kind == lsp.NotebookCellKind.Code and document is not None
            source = list(lines_of(document.source)) if code and document is not None else []
            cells.append({"cell_type": "code" if code else "markdown", "source": source})
        text = json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}, indent=1)
        if self.analyst is not None:
            self.analyst.change(self.path(book.uri), text.encode("utf-8", "surrogatepass"))

    def book(self, uri: str) -> lsp.NotebookDocument | None:
        """The notebook that a cell or a notebook's address belongs to."""
        return self.workspace.get_notebook_document(cell_uri=uri) or self.workspace.get_notebook_document(
            notebook_uri=uri
        )

    def state(self, uri: str) -> State | None:
        """What is known of a buffer, or of the notebook that it is a cell of."""
        book = self.book(uri)
        return self.analyst.states.get(self.path(book.uri if book else uri)) if self.analyst is not None else None

    # ------------------------------------------------------------------ diagnostics

    def told(self, path: str) -> None:
        """There are new findings in a file: say so. Called from the analyst's thread."""
        self.later(lambda: self.publish(path))

    def publish(self, path: str) -> None:
        """Push the diagnostics of a file, unless the client asks for them itself."""
        uri = self.uri(path)
        book = self.book(uri)
        if book is not None:
            for cell in book.cells:
                self._push(cell.document, self.diagnostics(cell.document))
        elif self.pulls and uri in self.workspace.text_documents:
            self._push(uri, [], version=None)
            if self.asks("workspace", "diagnostics", "refresh_support") and self._changed(f"pull {uri}", uri):
                self.workspace_diagnostic_refresh(None)
        else:
            self._push(uri, self.diagnostics(uri))

    def _changed(self, key: str, uri: str) -> bool:
        digest = self.result_id(self.diagnostics(uri))
        before, self._published[key] = self._published.get(key), digest
        return before is not None and before != digest

    def _push(self, uri: str, items: list[lsp.Diagnostic], version: int | None = -1) -> None:
        digest = self.result_id(items)
        document = self.workspace.text_documents.get(uri)
        if self._published.get(uri, self.result_id([]) if document is None else "") == digest:
            return
        self._published[uri] = digest
        number = document.version if document is not None and version is not None else None
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, items, number))

    def result_id(self, items: list[lsp.Diagnostic]) -> str:
        """A digest of what diagnostics say."""
        return hashlib.sha256(repr(items).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def findings(self, uri: str) -> list[Finding]:
        """The findings to show in a buffer, or in all cells of a notebook."""
        state, analyst = self.state(uri), self.analyst
        if state is None or analyst is None:
            return []
        return [finding for finding in state.findings if finding.level.rank >= analyst.min_level.rank]

    def diagnostics(self, uri: str) -> list[lsp.Diagnostic]:
        """What to show in a buffer."""
        state = self.state(uri)
        if state is None or self.analyst is None or self.analyst.workspace is None:
            return []
        sources = self.analyst.workspace.sources
        found: list[lsp.Diagnostic] = []
        for finding in self.findings(uri):
            place = self.range(uri, state.source, finding.span)
            if place is None:
                continue
            data = form.diagnostic(finding, sources, self.encoding)
            item = _STRUCTURE({**data, "range": {"start": _ORIGIN, "end": _ORIGIN}}, lsp.Diagnostic)
            item.range = place
            if not self.asks("text_document", "publish_diagnostics", "related_information"):
                item.related_information = None
            for related in item.related_information or ():
                related.location.uri = self.uri(shown(to_fs_path(related.location.uri) or ""))
            found.append(item)
            if verdict := self.verdicts.get(finding.fingerprint):
                found.append(self._verdict(verdict, place))
        return found

    def _verdict(self, verdict: dict[str, Any], place: lsp.Range) -> lsp.Diagnostic:
        return lsp.Diagnostic(
            place, verdict["message"], severity=lsp.DiagnosticSeverity.Information, source="memlint", code="verdict"
        )

    # ------------------------------------------------------------------ positions

    def range(self, uri: str, source: Source | None, span: Span) -> lsp.Range | None:
        """A stretch of a file in a buffer; None where it lies in another cell of the notebook."""
        book = self.book(uri)
        if book is None or source is None or source.code is None:
            return _range(form.span_range(span, source.file if source else None, self.encoding))
        code = source.code_span(span)
        number = source.cell_of(code.line)
        if number is None or number > len(book.cells) or book.cells[number - 1].document != uri:
            return None
        shift = source.code.cell_line(code.line) - code.line
        units = form.span_range(code, source, self.encoding)
        for end in units.values():
            end["line"] += shift
        return _range(units)

    def edits(self, uri: str, source: Source, edits: Iterable[Edit]) -> lsp.WorkspaceEdit:
        """Edits of a file as the client makes them: in its buffer, or in the cells of its notebook."""
        book = self.book(uri)
        by_uri: dict[str, list[lsp.TextEdit]] = {}
        if book is None:
            for edit in edits:
                place = _range(form.span_range(edit.span, source.file, self.encoding))
                by_uri.setdefault(uri, []).append(lsp.TextEdit(place, edit.text))
        else:
            new = json.loads(edited(source, edits))["cells"]
            for cell, after in zip(book.cells, new, strict=True):
                text = "".join(after["source"])
                document = self.workspace.text_documents.get(cell.document)
                if cell.kind == lsp.NotebookCellKind.Code and document is not None and document.source != text:
                    end = lsp.Position(len(document.lines) + 1, 0)
                    by_uri[cell.document] = [lsp.TextEdit(lsp.Range(lsp.Position(0, 0), end), text)]
        if self.asks("workspace", "workspace_edit", "document_changes"):
            changes = []
            for each, new in by_uri.items():
                document = self.workspace.text_documents.get(each)
                identifier = lsp.OptionalVersionedTextDocumentIdentifier(each, document.version if document else None)
                changes.append(lsp.TextDocumentEdit(identifier, new))
            return lsp.WorkspaceEdit(document_changes=changes)
        return lsp.WorkspaceEdit(changes=by_uri)

    # ------------------------------------------------------------------ trials

    def confirm(self, uri: str, fingerprint: str) -> str:
        """Run a trial of a finding in the background."""
        state = self.state(uri)
        finding = next((f for f in state.findings if f.fingerprint == fingerprint), None) if state else None
        if finding is None:
            return "the finding is no longer there"
        document = self.workspace.text_documents.get(uri)
        if self.book(uri) is not None:
            return "a finding in a notebook cannot be confirmed"
        path = to_fs_path(uri)
        if path is None or document is None or _saved(path) != document.source.encode("utf-8", "surrogatepass"):
            return "save the file first: the trial runs what is on the disk"
        task = asyncio.get_running_loop().create_task(self._trial(finding, path))
        self._trials.add(task)
        task.add_done_callback(self._trials.discard)
        return "the trial runs"

    async def _trial(self, finding: Finding, path: str) -> None:
        token = f"memlint-{finding.fingerprint}"
        shows = self.asks("window", "work_done_progress")
        if shows:
            await self.work_done_progress.create_async(token)
            title = f"Confirming {finding.name} at line {finding.span.line}"
            self.work_done_progress.begin(token, lsp.WorkDoneProgressBegin(title, cancellable=True))
        command = [sys.executable, "-m", "memlint", "confirm", "--output-format", "json", "--select", finding.name]
        process = await asyncio.create_subprocess_exec(
            *command, f"{path}:{finding.span.line}", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            waiting = asyncio.ensure_future(process.communicate())
            while not waiting.done():
                await asyncio.wait([waiting], timeout=0.2)
                if shows and self.work_done_progress.tokens[token].cancelled():
                    self.say("the trial is stopped", lsp.MessageType.Info)
                    return
            out, err = waiting.result()
            self._judged(finding, out, err)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, 15) if hasattr(os, "killpg") else process.terminate()
            if shows:
                self.work_done_progress.end(token, lsp.WorkDoneProgressEnd())

    def _judged(self, finding: Finding, out: bytes, err: bytes) -> None:
        try:
            found = json.loads(out)["findings"]
            verdict = next(f["verdict"] for f in found if f["line"] == finding.span.line)
        except (ValueError, KeyError, StopIteration):
            return self.say(f"the trial has failed: {err.decode('utf-8', 'replace').strip()[-300:] or 'no verdict'}")
        self.verdicts[finding.fingerprint] = {"message": _told(verdict)}
        self._published.pop(self.uri(finding.path), None)
        self.publish(finding.path)


_ORIGIN = {"line": 0, "character": 0}


def _range(given: dict[str, Any]) -> lsp.Range:
    start, end = (lsp.Position(given[key]["line"], given[key]["character"]) for key in ("start", "end"))
    return lsp.Range(start, end)


def _saved(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _told(verdict: dict[str, Any]) -> str:
    """A verdict in a sentence: what was measured, before and after."""
    parts = [f"{verdict['status']} ({verdict.get('tier', '')} on {verdict.get('device', '')})"]
    before, after = verdict.get("before") or {}, verdict.get("after") or {}
    for key, what in (
        ("device_peak", "peak"),
        ("device_growth", "growth an iteration"),
        ("host_growth", "on the host"),
    ):
        if key in before and (before[key] or after.get(key)):
            now = f" → {_size(after[key])}" if key in after else ""
            parts.append(f"{what} {_size(before[key])}{now}")
    if verdict.get("reason"):
        parts.append(str(verdict["reason"]))
    return "; ".join(parts)


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(number) < 1024:
            return f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"


def settings_of(given: Any) -> Settings:
    """The client's settings. Raises ValueError, naming the key, where one is not understood."""
    if given is None:
        return Settings()
    if not isinstance(given, dict):
        raise ValueError("the settings are no table")
    given = given.get("memlint", given) if isinstance(given.get("memlint", {}), dict) else given
    known = {"select", "extendSelect", "ignore", "targetTorch", "minLevel", "debounce", "wholeWorkspace"}
    for key in given:
        if key not in known:
            raise ValueError(f"unknown setting {key!r}; known are {', '.join(sorted(known))}")
    try:
        names = {key: tuple(map(str, given[key])) for key in ("select", "extendSelect", "ignore") if given.get(key)}
        options = Options(
            select=names.get("select"),
            extend_select=names.get("extendSelect", ()),
            ignore=names.get("ignore", ()),
            target=parse(str(given["targetTorch"])) if given.get("targetTorch") else None,
        )
        return Settings(
            options,
            level(given["minLevel"]) if given.get("minLevel") else Level.NOTE,
            max(0.0, float(given.get("debounce", 10)) / 1000),
            bool(given.get("wholeWorkspace", True)),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from None


def make() -> Server:
    """A server with all its features."""
    server = Server()

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        server.loop = asyncio.get_running_loop()
        folders = [path for folder in server.workspace.folders.values() if (path := to_fs_path(folder.uri))]
        if not folders and server.workspace.root_path:
            folders = [server.workspace.root_path]
        folders = [folder for folder in folders if os.path.isdir(folder)]
        if folders:
            os.chdir(folders[0])  # paths are shown as from there, and mean the same in every run
        server.analyst = Analyst(folders, _understood(server, params.initialization_options), server.told, server.say)
        make_document = server.workspace._create_text_document

        def document(*args: Any, **kwargs: Any) -> TextDocument:
            made = make_document(*args, **kwargs)
            made.__class__ = Document
            return made

        server.workspace._create_text_document = document  # type: ignore[method-assign]

    @server.feature(lsp.INITIALIZED)
    async def initialized(params: lsp.InitializedParams) -> None:
        analyst = server.analyst
        assert analyst is not None
        if server.asks("workspace", "configuration"):
            await configured(None)
        analyst.start()
        if server.asks("workspace", "did_change_watched_files", "dynamic_registration"):
            watchers = [lsp.FileSystemWatcher(f"**/{name}") for name in ("*.{py,ipynb}", "{pyproject,memlint}.toml")]
            options = lsp.DidChangeWatchedFilesRegistrationOptions(watchers)
            registration = lsp.Registration("memlint-files", lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            await server.client_register_capability_async(lsp.RegistrationParams([registration]))

    async def configured(given: Any) -> None:
        if server.asks("workspace", "configuration"):
            item = lsp.ConfigurationItem(section="memlint")
            answers = await server.workspace_configuration_async(lsp.ConfigurationParams([item]))
            given = answers[0] if answers else None
        if server.analyst is not None and given is not None:
            server.analyst.reload(settings=_understood(server, given))

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def change_configuration(params: lsp.DidChangeConfigurationParams) -> None:
        await configured(params.settings)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def change_folders(params: lsp.DidChangeWorkspaceFoldersParams) -> None:
        folders = [path for folder in server.workspace.folders.values() if (path := to_fs_path(folder.uri))]
        if server.analyst is not None:
            server.analyst.reload(folders)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def change_files(params: lsp.DidChangeWatchedFilesParams) -> None:
        for event in params.changes:
            path = to_fs_path(event.uri)
            if path is None or server.analyst is None:
                continue
            if path.endswith(".toml") or event.type != lsp.FileChangeType.Changed:
                return server.analyst.reload()
            if event.uri not in server.workspace.text_documents and server.book(event.uri) is None:
                server.analyst.change(path, None)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        server._published.pop(params.text_document.uri, None)
        server.text_changed(params.text_document.uri)
        if (state := server.state(params.text_document.uri)) is not None and state.findings:
            server.publish(server.path(params.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        server.text_changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        server.text_changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        if server.analyst is not None:
            server.analyst.change(server.path(params.text_document.uri), None)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_OPEN)
    def book_open(params: lsp.DidOpenNotebookDocumentParams) -> None:
        server.notebook_changed(params.notebook_document)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def book_change(params: lsp.DidChangeNotebookDocumentParams) -> None:
        if (book := server.book(params.notebook_document.uri)) is not None:
            server.notebook_changed(book)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_SAVE)
    def book_save(params: lsp.DidSaveNotebookDocumentParams) -> None:
        if (book := server.book(params.notebook_document.uri)) is not None:
            server.notebook_changed(book)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def book_close(params: lsp.DidCloseNotebookDocumentParams) -> None:
        if server.analyst is not None:
            server.analyst.change(server.path(params.notebook_document.uri), None)

    @server.feature(lsp.TEXT_DOCUMENT_DIAGNOSTIC, lsp.DiagnosticOptions(True, False, identifier="memlint"))
    async def diagnostic(params: lsp.DocumentDiagnosticParams) -> lsp.DocumentDiagnosticReport:
        uri = params.text_document.uri
        analyst, book = server.analyst, server.book(uri)
        if analyst is not None:
            current: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            analyst.when_current(
                server.path(book.uri if book else uri),
                lambda: server.later(lambda: None if current.done() else current.set_result(None)),
            )
            await current
        items = server.diagnostics(uri)
        result = server.result_id(items)
        server._published[f"pull {uri}"] = result
        if result == params.previous_result_id:
            return lsp.RelatedUnchangedDocumentDiagnosticReport(result)
        return lsp.RelatedFullDocumentDiagnosticReport(items, result_id=result)

    kinds = [lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.SourceFixAll, FIX_ALL]

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(kinds))
    def code_action(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        return actions(server, params)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        state = server.state(params.text_document.uri)
        for finding in server.findings(params.text_document.uri):
            place = server.range(params.text_document.uri, state.source if state else None, finding.span)
            if place is not None and _start(place) <= _tuple(params.position) <= _end(place):
                text = hover_text(finding, server.verdicts.get(finding.fingerprint))
                return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), place)
        return None

    @server.command(CONFIRM)
    def confirm(uri: str, fingerprint: str) -> str:
        answer = server.confirm(uri, fingerprint)
        if answer != "the trial runs":
            server.say(answer, lsp.MessageType.Warning)
        return answer

    @server.command(RESTART)
    def recheck() -> None:
        if server.analyst is not None:
            server.analyst.reload()

    @server.feature(lsp.SHUTDOWN)
    def shutdown(params: None) -> None:
        for task in server._trials:
            task.cancel()
        if server.analyst is not None:
            server.analyst.stop()

    return server


def _understood(server: Server, given: Any) -> Settings:
    try:
        return settings_of(given)
    except ValueError as error:
        server.say(f"settings: {error}")
        return Settings()


def _tuple(position: lsp.Position) -> tuple[int, int]:
    return position.line, position.character


def _start(place: lsp.Range) -> tuple[int, int]:
    return _tuple(place.start)


def _end(place: lsp.Range) -> tuple[int, int]:
    return _tuple(place.end)


# --- Code actions -----------------------------------------------------------------------------------------------------


def actions(server: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """The fixes for the findings that a range touches, and those for the whole file."""
    uri = params.text_document.uri
    state, analyst = server.state(uri), server.analyst
    if state is None or state.source is None or analyst is None or analyst.workspace is None:
        return []
    workspace, source = analyst.workspace, state.source
    only = tuple(params.context.only or ())

    def wanted(kind: str) -> bool:
        return not only or any(kind == each or kind.startswith(f"{each}.") for each in only)

    settled = [workspace.settled(finding) for finding in server.findings(uri)]
    found: list[lsp.CodeAction] = []
    if wanted(lsp.CodeActionKind.QuickFix):
        for finding in settled:
            place = server.range(uri, source, finding.span)
            if place is None or _end(place) < _start(params.range) or _end(params.range) < _start(place):
                continue
            found += _quick_fixes(server, uri, source, finding, settled)
    safe = [finding for finding in settled if _applies(finding, Applicability.SAFE)]
    edits, count = chosen(source, safe)
    if count and wanted(FIX_ALL):
        edit = server.edits(uri, source, edits)
        found.append(lsp.CodeAction("Fix all that is safe (memlint)", kind=FIX_ALL, edit=edit))
    if count and wanted(lsp.CodeActionKind.QuickFix) and any(a.kind == lsp.CodeActionKind.QuickFix for a in found):
        edit = server.edits(uri, source, edits)
        found.append(lsp.CodeAction("memlint: fix all that is safe", kind=lsp.CodeActionKind.QuickFix, edit=edit))
    return found


def _quick_fixes(
    server: Server, uri: str, source: Source, finding: Finding, all_findings: list[Finding]
) -> list[lsp.CodeAction]:
    items = [d for d in server.diagnostics(uri) if d.data and d.data["fingerprint"] == finding.fingerprint]
    kind = lsp.CodeActionKind.QuickFix
    found: list[lsp.CodeAction] = []
    fix = finding.fix
    safe = _applies(finding, Applicability.SAFE)
    if fix and (safe or _applies(finding, Applicability.UNSAFE)):
        title = fix.title if safe else f"{fix.title} (unsafe: {fix.reason})"
        edit = server.edits(uri, source, fix.edits)
        found.append(
            lsp.CodeAction(f"memlint: {title}", kind=kind, diagnostics=items, edit=edit, is_preferred=safe or None)
        )
    alike = [f for f in all_findings if f.name == finding.name and _applies(f, Applicability.SAFE)]
    edits, count = chosen(source, alike)
    if safe and count > 1:
        edit = server.edits(uri, source, edits)
        found.append(lsp.CodeAction(f"memlint: fix all of {finding.name} in this file", kind=kind, edit=edit))
    silenced = ignoring(source, source.code_span(finding.span), finding.name)
    if silenced is not None and finding.code != "MEM000":
        title = f"memlint: ignore {finding.name} on this line"
        edit = server.edits(uri, source, [Edit(source.raw_span(silenced.span), silenced.text)])
        found.append(lsp.CodeAction(title, kind=kind, diagnostics=items, edit=edit))
    if finding.claim is not None and server.book(uri) is None:
        command = lsp.Command("Confirm this finding", CONFIRM, arguments=[uri, finding.fingerprint])
        found.append(lsp.CodeAction("memlint: confirm this finding", kind=kind, diagnostics=items, command=command))
    return found


def _applies(finding: Finding, applicability: Applicability) -> bool:
    return finding.fix is not None and bool(finding.fix.edits) and finding.fix.applicability is applicability
