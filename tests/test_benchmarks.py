"""The benchmarks are commands whose results are recorded, not timed tests: here only that they run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SPEED = Path(__file__).parent / "benchmarks" / "speed.py"
FUZZ = SPEED.with_name("fuzz.py")
MUTATE = SPEED.with_name("mutate.py")
MUTATION = Path(__file__).parents[1] / "fixtures" / "mutation.json"
REASONS = {"speed", "type", "same", "open"}
"""Why no test notices a change: see the house's own README."""


def test_speed_runs_on_a_small_tree(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n\n\ndef f(x):\n    return x\n")
    command = [sys.executable, str(SPEED), "--runs=1", "--only=memlint", f"small={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "| small (1 files, 5 lines) | ast.parse | 1.00 |" in result.stdout
    for row in ("cold", "warm", "a file changed"):
        assert f"memlint check, {row}" in result.stdout


def test_fuzz_counts_what_it_tries() -> None:
    command = [sys.executable, str(FUZZ), "--inputs=8", "--generated=0", "--seed=1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout
    assert "8 inputs tried, 0 failures, seed 1" in result.stdout


def test_slowdown_keeps_each_row_and_begins_no_round_without_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    predicted_peak = importlib.import_module("tests.benchmarks.predicted_peak")
    slowdown = importlib.import_module("tests.benchmarks.slowdown")

    small = (lambda: torch.nn.Linear(8, 4), lambda device: (torch.ones(4, 8), torch.zeros(4, dtype=torch.long)))
    other = "from tests.benchmarks.predicted_peak import MODELS\n"
    model = 'MODELS["small"] = (lambda: torch.nn.Linear(8, 4), '
    model += "lambda device: (torch.ones(4, 8), torch.zeros(4, dtype=torch.long)))\n"
    monkeypatch.setattr(slowdown, "PROGRAM", slowdown.PROGRAM.replace(other, other + model))
    monkeypatch.setattr(predicted_peak, "MODELS", {"small": small, "absent": small})
    monkeypatch.setenv("PYTHONPATH", "")
    file, began = tmp_path / "slowdown.json", time.monotonic()
    arguments = ["--steps", "14", "--rounds", "1000000", "--seconds", "24", "--write", str(file)]
    assert slowdown.main(arguments) == 1, "one of them is not there"
    assert time.monotonic() - began < 90
    said = capsys.readouterr().out
    assert "absent" in said and "not measured" in said and "ms plain" in said
    kept: dict[str, Any] = json.loads(file.read_text())
    assert (kept["device"], kept["torch"]) == ("cpu", torch.__version__)
    (row,) = kept["rows"]
    assert (row["model"], row["steps"]) == ("small", 14) and row["rounds"] >= 1
    assert row["plain"] > 0 and row["watched"] > 0 and row["before"]["device_growth"] == 512


def test_mutants_are_noticed() -> None:
    pytest.importorskip("mutmut")
    pytest.importorskip("coverage")
    command = [sys.executable, str(MUTATE), "--jobs=1", "--sample=12", "rules/hook_leak.py", "memlint/baseline.py"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=MUTATION.parents[1])
    lines = [line for line in result.stdout.splitlines() if " mutants, " in line]
    assert [line.split(",")[0] for line in lines] == [
        "rules/hook_leak.py: 12 mutants",
        "memlint/baseline.py: 12 mutants",
    ]
    assert all(int(line.split()[3]) <= 6 for line in lines), result.stdout


def test_each_recorded_survivor_has_its_reason() -> None:
    record = json.loads(MUTATION.read_text(encoding="utf-8"))
    survivors = [(entry["file"], survivor) for entry in record["files"] for survivor in entry["survivors"]]
    assert record["tried"] == sum(entry["tried"] for entry in record["files"])
    assert record["survived"] == len(survivors) == record["tried"] - record["killed"]
    assert not [(name, s["before"]) for name, s in survivors if s.get("reason", "").split(":")[0] not in REASONS]
