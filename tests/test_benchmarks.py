"""The benchmarks are commands whose results are recorded, not timed tests: here only that they run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SPEED = Path(__file__).parent / "benchmarks" / "speed.py"
FUZZ = SPEED.with_name("fuzz.py")


def test_speed_runs_on_a_small_tree(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n\n\ndef f(x):\n    return x\n")
    command = [sys.executable, str(SPEED), "--runs=1", "--only=memlint", f"small={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "| small (1 files, 5 lines) | ast.parse | 1.00 |" in result.stdout
    assert "memlint check, cold" in result.stdout and "memlint check, warm" in result.stdout


def test_fuzz_counts_what_it_tries() -> None:
    command = [sys.executable, str(FUZZ), "--inputs=8", "--generated=0", "--seed=1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout
    assert "8 inputs tried, 0 failures, seed 1" in result.stdout
