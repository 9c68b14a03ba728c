"""Neovim, headless, with memlint as its language server: a file is opened, its findings seen, one fixed, and saved."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "fixtures" / "editors" / "neovim.json"
"""What was done and what Neovim's buffer held; ``UPDATE_RECORD=1`` writes it anew."""

NVIM = shutil.which("nvim")
BEFORE = """\
import torch.nn.functional as F


def train(model, loader, optimizer):
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return [float(loss) for loss in losses]
"""
SCRIPT = """
local steps = {}
local function note(what, value) table.insert(steps, {what = what, value = value}) end
local function lines() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n') .. '\\n' end
local function seen()
  local found = {}
  for _, d in ipairs(vim.diagnostic.get(0)) do
    table.insert(found, {line = d.lnum + 1, column = d.col + 1, code = d.code, message = d.message})
  end
  return found
end
local function diagnostics(count)
  vim.wait(30000, function() return #vim.diagnostic.get(0) == count end, 20)
  return seen()
end

vim.cmd('edit train.py')
local id = vim.lsp.start_client({name = 'memlint', cmd = {PYTHON, '-m', 'memlint', 'lsp'}, root_dir = vim.fn.getcwd()})
vim.lsp.buf_attach_client(0, id)
note('opened train.py', lines())
note('diagnostics', diagnostics(1))

vim.api.nvim_buf_set_lines(0, 10, 11, false, {'        losses.append(loss.item())'})
note('typed losses.append(loss.item()) on line 11: diagnostics', diagnostics(0))
vim.cmd('undo')
note('undone: diagnostics', diagnostics(1))

local first = vim.diagnostic.get(0)[1]
local place = {line = first.lnum, character = first.col}
local answers = vim.lsp.buf_request_sync(0, 'textDocument/codeAction', {
  textDocument = vim.lsp.util.make_text_document_params(),
  range = {start = place, ['end'] = place},
  context = {diagnostics = {}},
}, 30000)
local titles, preferred = {}, nil
for _, answer in pairs(answers or {}) do
  for _, action in ipairs(answer.result or {}) do
    table.insert(titles, action.title)
    if action.isPreferred then preferred = action end
  end
end
note('code actions', titles)
vim.lsp.util.apply_workspace_edit(preferred.edit, vim.lsp.get_client_by_id(id).offset_encoding)
note('applied: ' .. preferred.title, lines())
note('diagnostics', diagnostics(0))
vim.cmd('write')
note('saved', table.concat(vim.fn.readfile('train.py'), '\\n') .. '\\n')
local file = io.open(RECORD, 'w')
file:write(vim.fn.json_encode(steps))
file:close()
vim.lsp.stop_client(id)
vim.cmd('qall!')
"""


@pytest.mark.skipif(NVIM is None, reason="there is no Neovim")
def test_neovim_shows_applies_and_saves(tmp_path: Path) -> None:
    folder, record = tmp_path / "project", tmp_path / "record.json"
    folder.mkdir()
    (folder / "train.py").write_text(BEFORE)
    script = tmp_path / "session.lua"
    script.write_text(f"local PYTHON, RECORD = {json.dumps(sys.executable)}, {json.dumps(str(record))}\n{SCRIPT}")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "MEMLINT_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [str(NVIM), "--headless", "--clean", "-n", "-c", f"luafile {script}", "-c", "cquit 3"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180)
    assert record.exists(), run.stderr
    steps = json.loads(record.read_text())
    if os.environ.get("UPDATE_RECORD"):
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(steps, indent=1) + "\n")
    assert steps == json.loads(RECORD.read_text())
    values = [step["value"] for step in steps]
    after = BEFORE.replace("append(loss)", "append(loss.detach())")
    (found,) = values[1]
    assert (found["line"], found["column"], found["code"]) == (11, 9, "MEM103")
    assert values[0] == BEFORE
    assert values[2] == []
    assert [d["code"] for d in values[3]] == ["MEM103"]
    assert "memlint: write `loss.detach()`" in values[4]
    assert steps[5]["what"] == "applied: memlint: write `loss.detach()`"
    assert values[5] == after
    assert values[6] == []
    assert values[7] == after == (folder / "train.py").read_text()
    assert run.returncode == 0, run.stderr
