"""`memlint confirm` on rules' pages: what the rules say it costs, measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from memlint.page import read
from memlint.source import Source
from memlint.trial.command import confirm
from memlint.trial.harness import own_harness

RULES = Path(__file__).parents[1] / "rules"
MIB, KIB = 2**20, 2**10
PEAK, GROWTH = ("device_peak", MIB), ("device_growth", KIB)

MEASURED = {
    # trial: the number, as written and as repaired on fake tensors. Where each comes from is a measurement made before
    # there was a memlint, with plain scripts on a GPU and on fake tensors
    "eval-without-no-grad evaluate": (PEAK, 404.6, 148.2),
    "eval-without-no-grad total": (GROWTH, 332_192.5, 0),
    "eval-without-no-grad features": (GROWTH, 266_640.5, 0.5),
    "loss-accumulation trained": (GROWTH, 0, 0),
    "graph-tensor-append losses": (GROWTH, 0.5, 0.5),
    "graph-tensor-append outputs": (GROWTH, 65_536, 65_536),
    "retain-graph with-adamw": (PEAK, 953.2, 692.8),
    "hidden-state-not-detached with-gru": (GROWTH, 7_680, 0),
    "zero-grad-zeroes train": (PEAK, 1_509.3, 1_060.8),
    "zero-grad-before-backward-only train": (PEAK, 1_477.3, 1_060.8),
    "optimizer-in-loop train": (PEAK, 532.5, 692.8),
    "device-tensor-hoard logits": (GROWTH, 65_536, 0),
    "cat-in-loop cat-in-loop": (("churn", MIB), None, None),
    "repeat-not-expand table": (PEAK, 516.0, 4.25),
    "naive-attention whole-decoder": (PEAK, 1_496.5, 985.0),
    "pairwise-broadcast same-points": (PEAK, 4_113, 33.0),
    "state-dict-on-device weights-alone": (PEAK, 240.4, 80.1),
    "grad-accumulation-sum micro-batches": (PEAK, 1_505.8, 612.7),
    "foreach-optimizer-peak small-batch": (PEAK, 2_242.2, 1_795.8),
    "ema-with-graph ema-with-graph": (GROWTH, 0, 0),
}


def page(rule: str) -> Path:
    return RULES / f"{rule.replace('-', '_')}.md"


def lines(rule: str) -> dict[str, tuple[int, int]]:
    """The first and the last line of each trial in a rule's page."""
    found = read(page(rule))
    return {found.trial(b): (b.line, b.line + b.text.count("\n")) for b in found.trials}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Any]:
    """By rule and trial, from one call of the command."""
    pages = dict.fromkeys(str(page(trial.split()[0])) for trial in MEASURED)
    result = CliRunner().invoke(confirm, ["--device", "fake", "--steps", "5", "--json", *pages], standalone_mode=False)
    assert result.return_value == 1, result
    found = {}
    for finding in json.loads(result.stdout)["findings"]:
        where = lines(finding["name"]).items()
        trial = next(name for name, (first, last) in where if first <= finding["line"] <= last)
        found[f"{finding['name']} {trial}"] = finding["verdict"]
    return found


@pytest.mark.parametrize("trial", MEASURED)
def test_a_page_s_trial_says_what_was_measured_before(verdicts: dict[str, Any], trial: str) -> None:
    (name, unit), *wanted = MEASURED[trial]
    verdict = verdicts[trial]
    assert (verdict["status"], verdict["tier"]) == ("confirmed", "harness")
    near = 0.05 if name == "device_peak" else 0.01
    for arm, value in zip(("before", "after"), wanted, strict=True):
        if value is not None:
            assert verdict[arm][name] / unit == pytest.approx(value, rel=near, abs=0.5)
    if wanted == [0, 0] or wanted[0] == wanted[1]:
        assert verdict["before"]["host_growth"] > 10 * verdict["after"]["host_growth"], "nodes of spent graphs"


def test_no_other_trial_of_these_pages_is_refuted(verdicts: dict[str, Any]) -> None:
    assert {v["status"] for v in verdicts.values()} <= {"confirmed", "undecided"}
    assert len(verdicts) == sum(len(lines(rule)) for rule in {trial.split()[0] for trial in MEASURED})


PAGE = """\
# graph-tensor-append (MEM103)

A page of one's own.

Level: warning. Fix: safe.

## What it finds
## Why it costs
## The fix
## What it leaves alone
## Trial

```python trial first
import torch


def train(model, loader):
    kept = []
    for x in loader:
        loss = model(x).pow(2).mean()
        loss.backward()
        kept.append(loss)
    return kept


def setup(device):
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(30))).to(device)
    return {"model": model, "loader": [torch.ones(32, 8, device=device)] * 12}
```

```python trial second
import torch


def train(model, loader):
    kept = []
    for x in loader:
        loss = model(x).pow(2).mean(1)
        loss.sum().backward()
        kept.append(loss)
    return kept


def setup(device):
    return {"model": torch.nn.Linear(8, 64).to(device), "loader": [torch.ones(1024, 8, device=device)] * 12}


target = "train"
```

```python repaired second
import torch


def train(model, loader):
    for x in loader:
        model(x).pow(2).mean().backward()
    return []


def setup(device):
    return {"model": torch.nn.Linear(8, 64).to(device), "loader": [torch.ones(1024, 8, device=device)] * 12}


target = "train"
```
"""


def confirmed(*arguments: str) -> Any:
    return CliRunner().invoke(confirm, [*arguments], standalone_mode=False)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLINT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "mine.md").write_text(PAGE)
    return tmp_path


def test_a_page_of_one_s_own_is_reported_where_it_says_so(own: Path) -> None:
    result = confirmed("mine.md", "--device", "cpu", "--steps", "12", "--json", "--report", "mine.html")
    first, second = json.loads(result.stdout)["findings"]
    assert [PAGE.splitlines()[f["line"] - 1].strip() for f in (first, second)] == ["kept.append(loss)"] * 2
    assert first["fix"]["applicability"] == "safe" and first["verdict"]["results"] == "identical"
    assert (second["fix"]["applicability"], len(second["fix"]["edits"])) == ("hint", 1)
    assert second["verdict"]["status"] == first["verdict"]["status"] == "confirmed"
    assert second["verdict"]["before"]["device_growth"] == 4096 and second["verdict"]["after"]["device_growth"] == 0
    shown = (own / "mine.html").read_text()
    assert "kept.append(loss.detach())" in shown and "mine.md" in shown
    assert (own / "mine.md").read_text() == PAGE
    only = confirmed(f"mine.md:{first['line']}", "--device", "cpu", "--json")
    assert [f["line"] for f in json.loads(only.stdout)["findings"]] == [first["line"]]


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (("# graph-tensor-append (MEM103)", "# Notes"), (), "mine.md:1: the title is not"),
        (("kept.append(loss)", "kept.append(loss.item())"), (), "mine.md:14: the trial has 0 findings"),
        (("", ""), ("absent.md",), "the page absent.md cannot be read: No such file"),
        (("", ""), ("--fix-confirmed",), "are for code"),
        (("", ""), ("--select", "MEM103"), "are for code"),
    ],
)
def test_what_is_no_page_or_not_for_one_is_one_line(
    own: Path, change: tuple[str, str], arguments: tuple[str, ...], words: str
) -> None:
    (own / "mine.md").write_text(PAGE.replace(*change))
    error = confirmed("mine.md", "--device", "fake", *arguments).exception
    assert words in error.format_message() and "\n" not in error.format_message()


@pytest.mark.parametrize(
    ("text", "harness"),
    [
        ("def setup(device):\n    return {}\n", "setup = module.setup\n"),
        ("target = 'f'\ndef setup(device):\n    return {}\n", 'setup = module.setup\ntarget = "f"\n'),
        ("def setup(device):\n    torch.cuda.set_device(device)\n", None),
        ("def setup(device):\n    def inner():\n        return 1\n", None),
        ("def setup(rank, device):\n    return {}\n", None),
        ("def setup(device, *more):\n    return {}\n", None),
        ("class A:\n    def setup(device):\n        return {}\n", None),
    ],
)
def test_a_file_may_be_its_own_harness(text: str, harness: str | None) -> None:
    assert own_harness(Source("a.py", text)) == harness


def test_a_set_up_that_is_none_is_passed_over(own: Path) -> None:
    code = """\
import torch
from torch.nn import functional as F


def setup(device):
    return torch.device(device)


def train(model, loader, optimizer):
    kept = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        kept.append(loss)
    return kept
"""
    (own / "train.py").write_text(code)
    verdict = json.loads(confirmed("train.py", "--device", "cpu", "--json").stdout)["findings"][0]["verdict"]
    assert (verdict["status"], verdict["tier"]) == ("confirmed", "called")
