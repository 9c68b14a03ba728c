"""The recorded figures agree with those measured before, and the pages take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memlint.trial import record

COSTS = Path(__file__).parent.parent / "fixtures" / "costs"
MIB, KIB = 2**20, 2**10

MEASURED = {
    # rule and trial: the number, its unit, as written and as repaired, on an NVIDIA H200
    ("eval-without-no-grad", "evaluate"): ("device_peak", MIB, 437.6, 148.2),
    ("eval-without-no-grad", "total"): ("device_growth", KIB, 332_192.5, 0),
    ("eval-without-no-grad", "features"): ("device_growth", KIB, 266_640.5, 0.5),
    ("loss-accumulation", "trained"): ("device_growth", KIB, 0, 0),
    ("graph-tensor-append", "losses"): ("device_growth", KIB, 0.5, 0.5),
    ("graph-tensor-append", "outputs"): ("device_growth", KIB, 65_536, 65_536),
    ("zero-grad-zeroes", "train"): ("device_peak", MIB, 1545.3, 1096.9),
    ("optimizer-in-loop", "train"): ("device_peak", MIB, 553.6, 714.8),
}


def rows(device: str) -> dict[tuple[str, str], dict]:  # type: ignore[type-arg]
    return {(row["rule"], row["trial"]): row for row in json.loads((COSTS / f"{device}.json").read_text())}


@pytest.mark.parametrize("trial", MEASURED)
def test_the_gpu_says_what_it_said_before(trial: tuple[str, str]) -> None:
    name, unit, before, after = MEASURED[trial]
    row = rows("nvidia-h200")[trial]
    assert row["status"] == "confirmed"
    near = 0.05 if name == "device_peak" else 0.01
    for arm, wanted in (("before", before), ("after", after)):
        # cuBLAS's workspace is counted apart; the earlier peak of the evaluation has it, the others' have not
        taken = row[arm]["workspace"] / unit if trial == ("eval-without-no-grad", "evaluate") else 0
        assert row[arm][name] / unit + taken == pytest.approx(wanted, rel=near, abs=0.01)


@pytest.mark.parametrize("trial", MEASURED)
def test_fake_tensors_predict_the_gpu(trial: tuple[str, str]) -> None:
    fake, gpu = rows("fake")[trial], rows("nvidia-h200")[trial]
    assert (fake["status"], fake["measure"]) == (gpu["status"], gpu["measure"])
    for arm in ("before", "after"):
        assert fake[arm]["device_growth"] == pytest.approx(gpu[arm]["device_growth"], rel=0.001, abs=1)
        assert fake[arm]["device_peak"] == pytest.approx(gpu[arm]["device_peak"], rel=0.05)


def test_repairs_of_a_spent_graph_are_confirmed_by_the_host() -> None:
    for device in ("fake", "nvidia-h200"):
        row = rows(device)["loss-accumulation", "trained"]
        assert row["measure"] == "host_growth"
        assert row["before"]["host_growth"] > 20 * row["after"]["host_growth"]


def test_a_page_takes_its_figures_once(tmp_path: Path) -> None:
    figures = record.table("eval-without-no-grad", COSTS)
    assert figures.count("\n") == 1 + 2 * 3
    assert "| 404.6 / 148.2 MiB (and once 33.0 MiB of cuBLAS workspace) |" in figures
    page = "# eval-without-no-grad (MEM101)\n\n## Trial\n"
    once = record.with_table(page, figures)
    assert figures in once
    assert record.with_table(once, "new figures") == record.with_table(page, "new figures")
    assert record.table("no-such-rule", COSTS) == ""


def test_a_trial_without_its_finding_is_an_error() -> None:
    with pytest.raises(record.RecordError, match="0 findings in place of one"):
        record.plan_one("loss-accumulation", "empty", "x = 1\n")
