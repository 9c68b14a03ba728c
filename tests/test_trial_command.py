"""`memlint confirm` from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from click.testing import CliRunner

pytest.importorskip("torch")

from memlint.config import ConfigError
from memlint.rule import Applicability, Claim, Edit, Finding, Fix, Level, Span
from memlint.trial.command import confirm
from memlint.trial.confirm import Outcome
from memlint.trial.judge import Verdict

CODE = """\
import torch
import torch.nn.functional as F


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss
    return float(total)
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "train.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLINT_CACHE_DIR", str(tmp_path / "cache"))

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(confirm, [*arguments], standalone_mode=False)

    return invoke


def test_json_has_a_verdict_for_each_finding_and_harnesses_are_written(call: Any, tmp_path: Path) -> None:
    result = call("train.py", "--device", "cpu", "--output-format", "json", "--write-harness", "kept")
    assert result.return_value == 1
    document = json.loads(result.stdout)
    assert document["version"] == 1
    verdicts = {finding["code"]: finding["verdict"] for finding in document["findings"]}
    assert {code: v["status"] for code, v in verdicts.items()} == {"MEM102": "confirmed", "MEM201": "confirmed"}
    assert all(v["tier"] == "called" and v["device"] == "cpu" and v["iterations"] == 8 for v in verdicts.values())
    assert all(v["results"] == "identical" for v in verdicts.values())
    assert verdicts["MEM102"]["before"]["host_growth"] > 1000 > verdicts["MEM102"]["after"]["host_growth"]
    assert verdicts["MEM201"]["before"]["device_peak"] > verdicts["MEM201"]["after"]["device_peak"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["train_12_mem102.py", "train_8_mem201.py"]
    again = call("train.py:8", "--device", "fake", "--harness", "kept/train_8_mem201.py")
    assert again.return_value == 1
    assert "MEM201" in again.stdout and "MEM102" not in again.stdout
    assert "tier harness" in again.stdout and "confirmed: peak" in again.stdout and "█" in again.stdout


def test_a_place_without_a_finding_and_a_file_that_cannot_be_read_are_told(call: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = (\n")
    result = call("train.py:999", "broken.py", "--device", "fake")
    assert result.return_value == 0
    parsed, nothing = result.stderr.splitlines()
    assert parsed.startswith("memlint: broken.py:1: the file cannot be parsed as Python")
    assert nothing == "memlint: train.py:999: no finding stands there"
    assert "No findings to confirm." in result.stdout


def test_an_import_that_fails_leaves_the_function_to_run_alone(call: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import no_such_package\n" + CODE)
    result = call("train.py:9", "--device", "cpu")
    assert result.return_value == 1
    assert "confirmed: peak" in result.stdout and "tier isolated" in result.stdout


def test_an_undecided_finding_says_what_to_supply(call: Any, tmp_path: Path) -> None:
    text = CODE.replace("F.cross_entropy(model(x), y)", "F.cross_entropy(model(x) + int('x'), y)")
    (tmp_path / "train.py").write_text(text)
    result = call("train.py:8", "--device", "cpu")
    assert result.return_value == 0
    assert "undecided" in result.stdout
    assert "ValueError: invalid literal for int()" in result.stdout and "--harness" in result.stdout


def test_a_gpu_that_is_not_there_is_said_at_once(call: Any) -> None:
    result = call("train.py", "--device", "cuda:99")
    assert isinstance(result.exception, ClickException) and "cuda:99: torch sees" in result.exception.format_message()


def test_files_that_cannot_be_read_or_written_are_said(call: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe\x00")
    result = call("train.py", "--harness", "bad.py")
    assert isinstance(result.exception, ClickException) and "bad.py cannot be read" in result.exception.format_message()
    (tmp_path / "file").write_text("")
    result = call("train.py:8", "--device", "cpu", "--write-harness", "file/folder")
    assert isinstance(result.exception, ClickException) and "cannot be written" in result.exception.format_message()


def test_nothing_to_confirm(call: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    result = call("train.py")
    assert (result.return_value, result.stdout) == (0, "No findings to confirm.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "tpu"), "none of auto, fake, cpu"),
        (("--memory-limit", "lots"), "is no size"),
        (("--steps", "1"), "--steps"),
        (("--harness", "absent.py"), "absent.py"),
    ],
)
def test_misuse_is_one_clear_message(call: Any, arguments: tuple[str, ...], words: str) -> None:
    result = call("train.py", *arguments)
    assert result.exception is not None and words in result.exception.format_message()


def test_the_configuration_stands_behind_the_options(call: Any, tmp_path: Path) -> None:
    table = "[tool.memlint.confirm]\ndevice = 'cpu'\nsteps = 5\nharness = 'mine.py'\n"
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "mine.py").write_text("def setup(device):\n    raise ValueError('mine')\n")
    result = call("train.py:8", "--device", "fake")
    assert "(fake, tier harness)" in result.stdout and "setup: <harness>:2: ValueError: mine" in result.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [("stepz = 3", "unknown key 'stepz'; did you mean 'steps'"), ("device = 'tpu'", "device: 'tpu' is none of auto")],
)
def test_a_wrong_configuration_is_said(call: Any, tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.memlint.confirm]\n{line}\n")
    result = call("train.py")
    assert isinstance(result.exception, ConfigError) and words in str(result.exception)


def test_a_report_is_written_and_proven_fixes_applied(call: Any, tmp_path: Path) -> None:
    result = call("train.py", "--device", "cpu", "--report", "report.html", "--fix-confirmed", "--json")
    document = json.loads(result.stdout)
    assert document["summary"]["fixed"] == 2
    text = (tmp_path / "train.py").read_text()
    assert text == CODE.replace("set_to_none=False", "").replace("total += loss", "total += loss.detach()")
    page = (tmp_path / "report.html").read_text()
    assert "<title>memlint: 2 confirmed</title>" in page
    assert "gradients</td>" in page and "-         optimizer.zero_grad(set_to_none=False)" in page
    assert "2 of 2 proven fixes applied" in result.stderr


def test_what_is_not_proven_is_not_fixed(call: Any, tmp_path: Path) -> None:
    result = call("train.py", "--device", "fake", "--fix-confirmed")
    assert result.return_value == 1
    assert (tmp_path / "train.py").read_text() == CODE
    assert "fake tensors hold no numbers to compare: --fix-confirmed needs --device cpu or cuda" in result.stderr


@pytest.mark.parametrize(
    ("applicability", "results", "proven"),
    [
        (Applicability.SAFE, "identical", True),
        (Applicability.SAFE, "close", False),
        (Applicability.UNSAFE, "close", True),
        (Applicability.UNSAFE, "different", False),
        (Applicability.HINT, "identical", False),
        (Applicability.SAFE, "not compared", False),
    ],
)
def test_what_proves_a_fix(applicability: Applicability, results: str, proven: bool) -> None:
    span = Span(1, 1, 1, 2)
    fix = Fix("write it", applicability=applicability, edits=(Edit(span, "b"),))
    finding = Finding("MEM103", "graph-tensor-append", Level.ERROR, "a.py", span, "it stays", fix)
    verdict = Verdict("confirmed", Claim.GROWTH, "called", "cpu", results=results)
    assert Outcome(finding, verdict).proven is proven
    assert not Outcome(finding, replace(verdict, status="refuted")).proven


def test_a_report_that_cannot_be_written_is_told_before_the_trials(call: Any) -> None:
    error = call("train.py", "--report", "no/where.html", "--steps", "10000", "--device", "cpu").exception
    assert isinstance(error, ClickException)
    assert error.message == "the report no/where.html cannot be written"
