"""The language server, driven by a real client over its own standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities, make_test_lsp_client

from memlint.lsp.server import settings_of
from memlint.page import read
from memlint.registry import rules_folder

ROOT = Path(__file__).parent.parent
TRAIN = """\
import torch.nn.functional as F


def train(model, loader, optimizer):
    losses = []
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss)
        total += loss
    return [float(loss) for loss in losses], float(total)
"""
STEP = """\
import torch.nn.functional as F


def step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""
LOOP = """\
from step import step


def train(model, loader, optimizer):
    curve = []
    for images, labels in loader:
        curve.append(step(model, optimizer, images, labels))
    return [float(value) for value in curve]
"""
Start = Callable[..., Awaitable[LanguageClient]]


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a server on the test's folder; the client's capabilities can be changed first."""
    clients: list[LanguageClient] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MEMLINT_CACHE_DIR": str(tmp_path / "cache")}
    config = ClientServerConfig(
        server_command=[sys.executable, "-m", "memlint", "lsp"],
        server_env=environment,
        client_factory=make_test_lsp_client,
    )

    async def begin(
        change: Callable[[lsp.ClientCapabilities], None] | None = None, editor: str = "neovim", **settings: Any
    ) -> LanguageClient:
        capabilities = client_capabilities(editor)
        if capabilities.text_document is not None:
            capabilities.text_document.diagnostic = None
        if capabilities.workspace is not None:
            capabilities.workspace.configuration = None
        if change is not None:
            change(capabilities)
        client = await config.start()
        assert isinstance(client, LanguageClient)
        clients.append(client)
        folder = tmp_path / "project"
        await client.initialize_session(
            lsp.InitializeParams(
                capabilities=capabilities,
                root_uri=folder.as_uri(),
                workspace_folders=[lsp.WorkspaceFolder(folder.as_uri(), "project")],
                initialization_options=settings,
            )
        )
        return client

    yield begin
    for client in clients:
        await client.shutdown_session()
        await client.stop()  # type: ignore[no-untyped-call]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def opened(client: LanguageClient, path: Path, text: str, version: int = 1) -> str:
    uri = path.as_uri()
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "python", version, text)))
    return uri


def changed(client: LanguageClient, uri: str, text: str, version: int) -> None:
    whole = lsp.TextDocumentContentChangeWholeDocument(text)
    client.text_document_did_change(
        lsp.DidChangeTextDocumentParams(lsp.VersionedTextDocumentIdentifier(uri=uri, version=version), [whole])
    )


async def shown(client: LanguageClient, uri: str, *codes: str) -> list[lsp.Diagnostic]:
    """The diagnostics of a file, once they are of these codes."""
    for _ in range(400):
        found = client.diagnostics.get(uri)
        if found is not None and sorted(str(d.code) for d in found) == sorted(codes):
            return list(found)
        await asyncio.sleep(0.05)
    raise AssertionError(
        f"{uri}: {client.diagnostics.get(uri)} and not {codes}; {client.messages} {client.log_messages}"
    )


async def actions(
    client: LanguageClient, uri: str, at: lsp.Diagnostic | lsp.Range, *only: str
) -> dict[str, lsp.CodeAction]:
    place = at.range if isinstance(at, lsp.Diagnostic) else at
    context = lsp.CodeActionContext([], only=[lsp.CodeActionKind(kind) for kind in only] or None)
    found = await client.text_document_code_action_async(
        lsp.CodeActionParams(lsp.TextDocumentIdentifier(uri), place, context)
    )
    return {action.title: action for action in found or ()}  # type: ignore[misc]


def applied(text: str, edit: lsp.WorkspaceEdit | None, uri: str) -> str:
    """The text after an edit, whose positions count characters of one unit."""
    assert edit is not None
    edits: list[Any] = list((edit.changes or {}).get(uri, ()))
    for change in edit.document_changes or ():
        assert isinstance(change, lsp.TextDocumentEdit)
        edits += change.edits if change.text_document.uri == uri else []
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    places = [
        (starts[e.range.start.line] + e.range.start.character, starts[min(e.range.end.line, len(lines))], e)
        for e in edits
    ]
    for start, line_start, e in sorted(places, key=lambda p: p[0], reverse=True):
        text = text[:start] + e.new_text + text[line_start + e.range.end.character :]
    return text


@pytest.mark.asyncio
async def test_diagnostics_follow_the_buffer(start: Start, folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    client = await start()
    uri = opened(client, folder / "train.py", TRAIN)
    first, second = await shown(client, uri, "MEM103", "MEM102")
    assert (first.range.start.line, first.source, first.severity) == (11, "memlint", lsp.DiagnosticSeverity.Warning)
    assert second.range.start.line == 12
    assert first.code_description is not None and first.code_description.href.endswith("graph_tensor_append.md")
    fixed = TRAIN.replace("append(loss)", "append(loss.item())").replace("+= loss", "+= loss.item()")
    changed(client, uri, fixed, 2)
    await shown(client, uri)
    changed(client, uri, "x = (\n", 3)
    (broken,) = await shown(client, uri, "MEM000")
    assert broken.severity == lsp.DiagnosticSeverity.Error
    changed(client, uri, "\n\n" + TRAIN, 4)
    first, second = await shown(client, uri, "MEM103", "MEM102")
    assert first.range.start.line == 13
    client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))
    for _ in range(100):  # what the disk holds
        if client.diagnostics[uri][0].range.start.line == 11:
            break
        await asyncio.sleep(0.05)
    assert client.diagnostics[uri][0].range.start.line == 11


@pytest.mark.asyncio
async def test_a_change_elsewhere_is_seen(start: Start, folder: Path) -> None:
    (folder / "step.py").write_text(STEP)
    (folder / "loop.py").write_text(LOOP)
    client = await start()
    loop = (folder / "loop.py").as_uri()
    await shown(client, loop, "MEM103")  # a file that nobody has opened
    uri = opened(client, folder / "step.py", STEP)
    changed(client, uri, STEP.replace("return loss", "return loss.item()"), 2)
    await shown(client, loop)
    changed(client, uri, STEP, 3)
    await shown(client, loop, "MEM103")
    (folder / "more.py").write_text(TRAIN)
    event = lsp.FileEvent((folder / "more.py").as_uri(), lsp.FileChangeType.Created)
    client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([event]))
    await shown(client, (folder / "more.py").as_uri(), "MEM102", "MEM103")


@pytest.mark.asyncio
async def test_fixes(start: Start, folder: Path) -> None:
    text = TRAIN.replace("    return [", "        losses.append(loss + 1)\n    return [")
    (folder / "train.py").write_text(text)
    client = await start()
    uri = opened(client, folder / "train.py", text)
    found = await shown(client, uri, "MEM102", "MEM103", "MEM103")
    offered = await actions(client, uri, found[0])
    own = "memlint: write `loss.detach()`"
    assert own in offered and offered[own].is_preferred
    assert "losses.append(loss.detach())" in applied(text, offered[own].edit, uri)
    alike = applied(text, offered["memlint: fix all of graph-tensor-append in this file"].edit, uri)
    assert alike == text.replace("append(loss)", "append(loss.detach())").replace(
        "append(loss + 1)", "append((loss + 1).detach())"
    )
    every = applied(text, offered["memlint: fix all that is safe"].edit, uri)
    assert "total += loss.detach()" in every and "append((loss + 1).detach())" in every
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    (fix_all,) = (await actions(client, uri, whole, "source.fixAll")).values()
    assert fix_all.kind == "source.fixAll.memlint"
    assert applied(text, fix_all.edit, uri) == every
    changed(client, uri, every, 2)
    await shown(client, uri)
    assert not await actions(client, uri, whole, "source.fixAll")
    silent = applied(text, offered["memlint: ignore graph-tensor-append on this line"].edit, uri)
    assert "losses.append(loss)  # memlint: ignore[graph-tensor-append]\n" in silent
    changed(client, uri, silent, 3)
    await shown(client, uri, "MEM102", "MEM103")


@pytest.mark.asyncio
async def test_unsafe_fixes_are_named_so_and_stand_apart(start: Start, folder: Path) -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n\n\n"
        "def train(model, loader):\n    for images, labels in loader:\n"
        "        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n        optimizer.zero_grad()\n"
        "        F.cross_entropy(model(images), labels).backward()\n        optimizer.step()\n"
    )
    (folder / "a.py").write_text(text)
    client = await start()
    uri = opened(client, folder / "a.py", text)
    (found,) = await shown(client, uri, "MEM202")
    offered = await actions(client, uri, found)
    (unsafe,) = [title for title in offered if "(unsafe: " in title]
    assert not offered[unsafe].is_preferred
    assert not any("fix all" in title for title in offered)
    assert "    optimizer = torch" in applied(text, offered[unsafe].edit, uri)


@pytest.mark.asyncio
async def test_the_trail_is_related_information(start: Start, folder: Path) -> None:
    text = read(rules_folder() / "model_rebuilt_in_loop.md").finds[0].text
    (folder / "a.py").write_text(text)
    client = await start(select=["model-rebuilt-in-loop"])
    (found,) = await shown(client, (folder / "a.py").as_uri(), "MEM306")
    assert found.related_information
    location = found.related_information[0].location
    assert location.uri == (folder / "a.py").as_uri()
    assert text.splitlines()[location.range.start.line].strip().startswith("tried.append(")


@pytest.mark.asyncio
async def test_hover_shows_the_page_and_the_cost(start: Start, folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    client = await start()
    uri = opened(client, folder / "train.py", TRAIN)
    await shown(client, uri, "MEM102", "MEM103")

    async def hover(line: int, character: int) -> str:
        place = lsp.HoverParams(lsp.TextDocumentIdentifier(uri), lsp.Position(line, character))
        found = await client.text_document_hover_async(place)
        return found.contents.value if found and isinstance(found.contents, lsp.MarkupContent) else ""

    text = await hover(11, 23)
    assert "graph-tensor-append" in text and "### Why it costs" in text and "| losses | NVIDIA H200" in text
    assert "want:" not in text
    assert await hover(0, 0) == ""


@pytest.mark.asyncio
@pytest.mark.parametrize(("encoding", "units"), [("utf-8", 6), ("utf-16", 3), ("utf-32", 2)])
async def test_positions_count_in_what_the_client_asks_for(
    start: Start, folder: Path, encoding: str, units: int
) -> None:
    text = TRAIN.replace("        losses.append(loss)", "        '𝄞é'; losses.append(loss)\f")

    def ask(capabilities: lsp.ClientCapabilities) -> None:
        capabilities.general = lsp.GeneralClientCapabilities(position_encodings=[lsp.PositionEncodingKind(encoding)])

    (folder / "train.py").write_text(text)
    client = await start(ask)
    uri = opened(client, folder / "train.py", text)
    first, second = await shown(client, uri, "MEM103", "MEM102")
    assert first.range.start.character == 8 + len("'") + units + len("'; ")
    assert second.range.start.line == 12  # a form feed ends no line
    at = lsp.Position(11, first.range.end.character - 1)
    edit = lsp.TextDocumentContentChangePartial(lsp.Range(at, at), ".item()")
    client.text_document_did_change(
        lsp.DidChangeTextDocumentParams(lsp.VersionedTextDocumentIdentifier(uri=uri, version=2), [edit])
    )
    await shown(client, uri, "MEM102")


@pytest.mark.asyncio
async def test_diagnostics_can_be_pulled(start: Start, folder: Path) -> None:
    def ask(capabilities: lsp.ClientCapabilities) -> None:
        assert capabilities.text_document is not None
        capabilities.text_document.diagnostic = lsp.DiagnosticClientCapabilities()

    (folder / "train.py").write_text(TRAIN)
    client = await start(ask)
    uri = opened(client, folder / "train.py", TRAIN)

    async def pull(previous: str | None = None) -> Any:
        return await client.text_document_diagnostic_async(
            lsp.DocumentDiagnosticParams(lsp.TextDocumentIdentifier(uri), previous_result_id=previous)
        )

    report = await pull()
    assert [d.code for d in report.items] == ["MEM103", "MEM102"]
    assert (await pull(report.result_id)).kind == "unchanged"
    changed(client, uri, TRAIN.replace("append(loss)", "append(loss.item())"), 2)
    assert [d.code for d in (await pull(report.result_id)).items] == ["MEM102"]
    assert not client.diagnostics.get(uri)  # not pushed as well
    many = "\n\n".join(TRAIN.replace("def train", f"def train{n}") for n in range(200))
    changed(client, uri, many, 3)  # takes so long that it can be cancelled midway
    params = lsp.DocumentDiagnosticParams(lsp.TextDocumentIdentifier(uri))
    send: Any = client.protocol.send_request_async
    asked = asyncio.ensure_future(send("textDocument/diagnostic", params, "mine"))
    await asyncio.sleep(0)
    client.protocol.notify("$/cancelRequest", lsp.CancelParams("mine"))
    with pytest.raises(JsonRpcException):
        await asked
    changed(client, uri, TRAIN, 4)
    assert len((await pull()).items) == 2


@pytest.mark.asyncio
async def test_settings(start: Start, folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    client = await start(select=["loss-accumulation"])
    uri = opened(client, folder / "train.py", TRAIN)
    await shown(client, uri, "MEM102")
    client.workspace_did_change_configuration(
        lsp.DidChangeConfigurationParams({"memlint": {"ignore": ["MEM102"], "minLevel": "warning"}})
    )
    await shown(client, uri, "MEM103")
    (folder / "memlint.toml").write_text('ignore = ["graph-tensor-append"]\n')
    client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams({"memlint": {}}))
    await shown(client, uri, "MEM102")
    client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams({"memlint": {"select": ["no-rule"]}}))
    for _ in range(100):
        if any("no-rule" in message.message for message in client.messages):
            break
        await asyncio.sleep(0.05)
    assert any("no-rule" in message.message for message in client.messages)
    await shown(client, uri, "MEM102")  # as before


def test_settings_that_are_not_understood() -> None:
    wrong: list[Any] = [{"selekt": []}, {"minLevel": "loud"}, {"debounce": "x"}, {"targetTorch": "new"}, []]
    for given in wrong:
        with pytest.raises(ValueError):
            settings_of(given)
    assert settings_of(None) == settings_of({}) == settings_of({"memlint": {}})


@pytest.mark.asyncio
async def test_a_notebook_is_one_program(start: Start, folder: Path) -> None:
    client = await start()
    book = (folder / "a.ipynb").as_uri()
    texts = ["import torch.nn.functional as F", "# text", TRAIN.partition("\n\n\n")[2]]
    uris = [f"vscode-notebook-cell:{folder}/a.ipynb#{n}" for n in range(3)]
    kinds = [lsp.NotebookCellKind.Code, lsp.NotebookCellKind.Markup, lsp.NotebookCellKind.Code]
    cells = [lsp.NotebookCell(kind, uri) for kind, uri in zip(kinds, uris, strict=True)]
    items = [lsp.TextDocumentItem(uri, "python", 1, text) for uri, text in zip(uris, texts, strict=True)]
    document = lsp.NotebookDocument(book, "jupyter-notebook", 1, cells)
    client.notebook_document_did_open(lsp.DidOpenNotebookDocumentParams(document, items))
    first, _ = await shown(client, uris[2], "MEM103", "MEM102")
    assert first.range.start == lsp.Position(8, 8)
    assert not client.diagnostics.get(uris[0])
    offered = await actions(client, uris[2], first)
    fixed = applied(texts[2], offered["memlint: fix all that is safe"].edit, uris[2])
    assert fixed == texts[2].replace("append(loss)", "append(loss.detach())").replace("+= loss", "+= loss.detach()")
    change = lsp.NotebookDocumentCellContentChanges(
        lsp.VersionedTextDocumentIdentifier(uri=uris[2], version=2), [lsp.TextDocumentContentChangeWholeDocument(fixed)]
    )
    event = lsp.NotebookDocumentChangeEvent(cells=lsp.NotebookDocumentCellChanges(text_content=[change]))
    client.notebook_document_did_change(
        lsp.DidChangeNotebookDocumentParams(lsp.VersionedNotebookDocumentIdentifier(version=2, uri=book), event)
    )
    await shown(client, uris[2])


@pytest.mark.asyncio
async def test_a_finding_is_confirmed(start: Start, folder: Path) -> None:
    pytest.importorskip("torch")
    text = TRAIN.replace("        total += loss\n", "")
    (folder / "train.py").write_text(text)
    (folder / "memlint.toml").write_text("[confirm]\ndevice = 'fake'\nsteps = 4\n")
    client = await start()
    uri = opened(client, folder / "train.py", text)
    (found,) = await shown(client, uri, "MEM103")
    offered = await actions(client, uri, found)
    assert "memlint: confirm this finding" in offered
    command = lsp.ExecuteCommandParams("memlint.confirm", [uri, (found.data or {})["fingerprint"]])
    await client.workspace_execute_command_async(command)
    _, verdict = await shown(client, uri, "MEM103", "verdict")
    assert verdict.message.startswith(("confirmed", "refuted", "undecided"))
    assert verdict.severity == lsp.DiagnosticSeverity.Information
    changed(client, uri, text + "\n# more\n", 2)
    answer = await client.workspace_execute_command_async(command)
    assert "save" in str(answer)


@pytest.mark.asyncio
async def test_a_crash_in_one_request_leaves_the_server(start: Start, folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    client = await start()
    uri = opened(client, folder / "train.py", TRAIN)
    await shown(client, uri, "MEM102", "MEM103")
    with pytest.raises(JsonRpcException):
        await client.workspace_execute_command_async(lsp.ExecuteCommandParams("memlint.confirm", [1, 2, 3]))
    client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem("nonsense:\0", "python", 1, "x = \ud800"))
    )
    changed(client, uri, "def f(:\n", 2)
    await shown(client, uri, "MEM000")
    changed(client, uri, TRAIN, 3)
    await shown(client, uri, "MEM102", "MEM103")


def test_the_server_starts_without_torch_and_libcst() -> None:
    code = "import sys, memlint.lsp.server as s; s.make(); print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True)
    assert not {"torch", "libcst"} & {name.split(".")[0] for name in json.loads(out.stdout)}
