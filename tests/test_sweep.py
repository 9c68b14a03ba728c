"""The sweep over real code counts, leaves what it reads alone, and sees each thing that a fix must not do."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memlint.rule import Edit, Span
from memlint.source import Source

SWEEP = Path(__file__).parent / "benchmarks" / "sweep.py"
TRAIN = """\
import torch.nn.functional as F


def train(model, loader, optimizer):
    losses = []
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=False)  # as ever
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return [float(loss) for loss in losses]
"""
OLD = "def f(x):\n    a = g(x)  # why\n    if a:\n        b(a)\n    return a\n"


def test_a_small_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "train.py").write_bytes(TRAIN.replace("\n", "\r\n").encode())
    (tree / "sub" / "old.py").write_text("print 'two'\n")
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}
    command = [sys.executable, str(SWEEP), f"--write={tmp_path / 'rows.json'}", f"small={tree}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("1 trees, 2 files, 0 breaches\n")
    row = json.loads((tmp_path / "rows.json").read_text())["trees"]["small"]
    assert (row["files"], row["unreadable"], row["findings"]) == (2, 1, {"error": 1, "warning": 2, "note": 0})
    assert row["safe"] == {"repairable": 2, "fixes": 2, "files": 1, "lines": 2, "comments": 1, "statements": 8}
    assert row["cpu_seconds"] > 0 and row["peak_mib"] > 10 and row["breaches"] == []
    assert {path: path.read_bytes() for path in tree.rglob("*.py")} == before


@pytest.fixture(scope="module")
def sweep() -> Any:
    spec = importlib.util.spec_from_file_location("sweep", SWEEP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("change", "edit", "breach"),
    [
        ({"g(x)": "g(y)"}, Edit(Span(2, 9, 2, 13), "g(y)"), ""),
        ({"    return a\n": ""}, Edit(Span(5, 1, 6, 1), ""), ""),
        (
            {"    if a": "    with c:\n        pass\n    if a"},
            Edit(Span(3, 1, 3, 1), "    with c:\n        pass\n"),
            "",
        ),
        ({"g(x)": "g(y)", "return a": "return b"}, Edit(Span(2, 9, 2, 13), "g(y)"), "lines changed"),
        ({"g(x)": "g(y)", "        b(a)": "       b(a)"}, Edit(Span(2, 9, 2, 13), "g(y)"), "lines changed"),
        ({"  # why": ""}, Edit(Span(2, 13, 2, 20), ""), "lost ['# why']"),
        (
            {"        b(a)": "        with c:\n                b(a)"},
            Edit(Span(4, 1, 4, 9), "        with c:\n                "),
            "blocks are indented by",
        ),
        (
            {"    a = g(x)  # why\n": "    '''  # why\n", "    return a\n": "    return a\n    '''\n"},
            Edit(Span(2, 1, 2, 20), "    '''  # why"),
            "lines changed",
        ),
    ],
)
def test_what_a_fix_must_not_do(sweep: Any, change: dict[str, str], edit: Edit, breach: str) -> None:
    new = OLD
    for old, instead in change.items():
        new = new.replace(old, instead)
    found = list(sweep.one_step(Source("a.py", OLD), Source("a.py", new), [edit], Counter()))
    assert any(breach in each for each in found) if breach else not found, found


def test_statements_whose_lines_stayed_must_mean_the_same(sweep: Any) -> None:
    old, new = ("{}\nimport torch\nx = 1\n{}\n".format(*marks) for marks in (("y = 0", "z = 0"), ("'''", "'''")))
    edits = [Edit(Span(1, 1, 1, 6), "'''"), Edit(Span(4, 1, 4, 6), "'''")]
    assert list(sweep.one_step(Source("a.py", old), Source("a.py", new), edits, Counter())) == [
        "statements mean something else that no fix speaks of"
    ]


def test_bytes_that_must_stay(sweep: Any, tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    for old, new, breach in (
        (b"x = 1\r\n", b"x = 2\n", "has line ends"),
        (b"x = 1", b"x = 2\n", "ends otherwise"),
        (b"\xef\xbb\xbfx = 1\n", b"x = 2\n", "another encoding"),
        (b"x = 1\n", b"x = = 2\n", "does not parse"),
    ):
        before.write_bytes(old)
        after.write_bytes(new)
        assert any(breach in each for each in sweep.kept(before, after)), breach
    after.write_bytes(b"x = 1\n")
    after.chmod(0o700)
    assert list(sweep.kept(before, after)) == ["has another mode"]
