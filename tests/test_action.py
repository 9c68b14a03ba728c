"""The GitHub action: the scripts of its steps, run as a runner would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
DEFECT = (
    "y = 0.0\nfor x, t in loader:\n    loss = model(x).sum()\n    loss.backward()\n    y += loss\nprint(float(y))\n"
)


class Outcome(NamedTuple):
    status: int
    out: str
    outputs: str


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner's temporary folder, with this Python's memlint where the action installs it, and a checkout."""
    tools = tmp_path / "memlint" / "bin"
    tools.mkdir(parents=True)
    (tools / "memlint").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memlint "$@"\n')
    (tools / "memlint").chmod(0o755)
    (tmp_path / "checkout" / "my code").mkdir(parents=True)
    (tmp_path / "checkout" / "my code" / "train.py").write_text(f"import torch\n{DEFECT}")
    (tmp_path / "checkout" / "clean.py").write_text("import torch\n")
    return tmp_path


def check(runner: Path, **inputs: str) -> Outcome:
    """Run the step that checks, its expressions replaced as the runner replaces them."""
    values = {name: str(spec.get("default", "")) for name, spec in ACTION["inputs"].items()} | inputs
    known = {f"inputs.{name}": value for name, value in values.items()} | {"runner.temp": str(runner)}
    step = STEPS["Check"]
    environment = {
        name: re.sub(r"\$\{\{ (.+?) \}\}", lambda match: known[match[1]], text) for name, text in step["env"].items()
    }
    outputs = runner / "outputs"
    outputs.touch()
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=runner / "checkout",
        env={
            **os.environ,
            **environment,
            "RUNNER_TEMP": str(runner),
            "GITHUB_OUTPUT": str(outputs),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout + done.stderr, outputs.read_text())


def test_no_expression_stands_in_a_script() -> None:
    for step in STEPS.values():
        assert "${{" not in step["run"]  # what an input holds must never be read as code


def test_findings_become_annotations_and_fail_the_job(runner: Path) -> None:
    outcome = check(runner)
    assert outcome.status == 1
    assert outcome.out.startswith("::warning file=my code/train.py,line=6,")
    assert outcome.outputs == "findings=1\n"


def test_paths_and_options_are_one_a_line(runner: Path) -> None:
    assert check(runner, paths="clean.py").outputs == "findings=0\n"
    outcome = check(runner, paths="clean.py\nmy code\n", args="--fail-on=error\n")
    assert (outcome.status, outcome.outputs) == (0, "findings=0\nfindings=1\n")
    assert check(runner, paths="$(touch pwned)").status == 2
    assert not (runner / "checkout" / "pwned").exists()


def test_sarif_is_written_where_it_is_uploaded_from(runner: Path) -> None:
    outcome = check(runner, sarif="memlint.sarif")
    assert outcome.status == 1
    log = json.loads((runner / "checkout" / "memlint.sarif").read_text())
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == ["MEM102"]
    (upload,) = (step for step in ACTION["runs"]["steps"] if "upload-sarif" in step.get("uses", ""))
    assert upload["with"]["sarif_file"] == "${{ inputs.working-directory }}/${{ inputs.sarif }}"


def test_a_wrong_option_is_told_and_fails(runner: Path) -> None:
    outcome = check(runner, args="--selct=MEM1")
    assert outcome.status == 2
    assert "--selct" in outcome.out
