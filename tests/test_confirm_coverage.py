"""The benchmark of how many findings get a verdict is a command: here that it runs, and what it recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COVERAGE = Path(__file__).parent / "benchmarks" / "confirm_coverage.py"
RECORDED = Path(__file__).parents[1] / "fixtures" / "confirm_coverage.tsv"
COLUMNS = ("repository", "commit", "path", "line", "rule", "status", "tier", "device", "reason", "seconds")


def test_coverage_confirms_what_a_small_project_has(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    project = tmp_path / "small"
    project.mkdir()
    (project / "train.py").write_text(
        "import torch\n\n\ndef train(model, loader, optimizer, kept):\n    for x in loader:\n"
        "        loss = model(x).sum()\n        optimizer.zero_grad()\n        loss.backward()\n"
        "        optimizer.step()\n        kept.append(loss)\n    return len(kept)\n"
    )
    (project / "other.py").write_text("import torch\n\n\ndef load(path):\n    return torch.tensor([1.0]).to('cuda')\n")
    rows = tmp_path / "rows.tsv"
    rows.write_text("# earlier\n" + "\t".join(COLUMNS) + "\n" + "\t".join(["another", *COLUMNS[1:-1], "1.0"]) + "\n")
    command = [sys.executable, str(COVERAGE), "--device=fake", f"--out={rows}", f"owner/small@abc={project}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    head, columns, *body = rows.read_text().splitlines()
    assert head.startswith("# ") and "torch " in head and "--device fake --seed 0" in head
    assert tuple(columns.split("\t")) == COLUMNS
    assert [row.split("\t")[0] for row in body] == ["another", "owner/small"], "one of a file, none of time alone"
    found = dict(zip(COLUMNS, body[1].split("\t"), strict=True))
    assert (found["commit"], found["path"], found["device"]) == ("abc", "train.py", "fake")
    assert found["status"] in ("confirmed", "refuted") and not found["reason"]
    assert f"| {found['tier']} | " in result.stdout and "| all | " in result.stdout
    again = subprocess.run([*command[:2], f"--table={rows}"], capture_output=True, text=True, timeout=60)
    assert again.stdout.splitlines()[0] == result.stdout.splitlines()[0]


def test_the_recorded_coverage_keeps_to_its_rule() -> None:
    head, columns, *lines = RECORDED.read_text(encoding="utf-8").splitlines()
    assert "torch " in head and "--seed 0" in head and tuple(columns.split("\t")) == COLUMNS
    rows = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines]
    assert len(rows) >= 60
    assert len({(row["repository"], row["rule"]) for row in rows}) == len(rows), "at most one of a rule in a project"
    assert len({(row["repository"], row["path"]) for row in rows}) == len(rows), "and one of a file"
    for row in rows:
        assert not row["path"].startswith("/") and row["commit"] and int(row["line"]) > 0
        assert row["status"] in ("confirmed", "refuted", "undecided")
        assert bool(row["reason"]) == (row["status"] == "undecided"), row
