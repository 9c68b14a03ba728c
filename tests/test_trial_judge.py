"""A claim and two measurements to a verdict, case by case."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from memlint.rule import Claim
from memlint.trial.evidence import Origin
from memlint.trial.judge import AS_WRITTEN, BLOCK, PRETENDED, Measurement, grows, judge, undecided
from memlint.trial.run import Answer

MIB = 2**20


def arm(
    n: int = 12,
    *,
    live: float = 0,
    peak: float = 10 * MIB,
    churn: float = MIB,
    host: Any = 0,
    seconds: float = 0.01,
    **more: Any,
) -> dict[str, Any]:
    """An arm whose numbers grow by these much an iteration; ``host`` may be a list."""
    hosts = host if isinstance(host, list) else [host * i for i in range(n + 1)]
    readings = [
        {"live": live * i, "peak": peak, "churn": churn * i, "host": 1e8 + hosts[i], "seconds": seconds}
        for i in range(n + 1)
    ]
    return {"ended": "returned", "readings": readings, **more}


def verdict(claim: Claim, before: dict[str, Any], after: dict[str, Any], **more: Any) -> Any:
    device = "a GPU" if claim is Claim.TIME else "cpu"
    return judge(claim, Answer("ended", {"before": before, "after": after, "device": device, **more}), "called", "cpu")


def test_time_on_a_cpu_says_nothing_of_a_device() -> None:
    data = {"before": arm(seconds=0.02), "after": arm(), "device": "cpu"}
    found = judge(Claim.TIME, Answer("ended", data), "called", "cpu")
    assert found.status == "undecided" and "--device cuda" in found.reason


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hits": 0}, "not reached"),
        ({"hits": 8, "absent": ["linear"]}, "torch is to compute with what is not there (linear)"),
        ({"hits": 8, "stood": ["loader"]}, "with these sizes"),
        ({"hits": 8, "stood": [], "whole": True}, "runs once in its script"),
        ({"hits": 8, "stood": []}, "does not lower the peak"),
    ],
)
def test_what_stands_in_keeps_a_finding_from_being_refuted(more: dict[str, Any], words: str) -> None:
    before, after = arm() | more, arm()
    for number, reading in enumerate(before["readings"]):
        reading["area"] = 1000 * number
    found = verdict(Claim.PEAK, before, after)
    assert words in found.reason and (found.status == "refuted") == (words == "does not lower the peak")


@pytest.mark.parametrize(
    ("claim", "before", "after", "status", "measure"),
    [
        (Claim.GROWTH, {"live": MIB}, {}, "confirmed", "device_growth"),
        (Claim.GROWTH, {"live": BLOCK}, {}, "refuted", "device_growth"),
        (Claim.GROWTH, {"live": BLOCK + 1}, {}, "confirmed", "device_growth"),
        (Claim.GROWTH, {"live": MIB}, {"live": MIB}, "refuted", "device_growth"),
        (Claim.GROWTH, {"host": 8000}, {"host": 100}, "confirmed", "host_growth"),
        (Claim.GROWTH, {"host": 300}, {}, "refuted", "device_growth"),
        (Claim.GROWTH, {}, {"live": MIB}, "refuted", "device_growth"),
        (Claim.PEAK, {"peak": 11 * MIB}, {}, "confirmed", "device_peak"),
        (Claim.PEAK, {"peak": 10 * MIB + BLOCK}, {}, "refuted", "device_peak"),
        (Claim.PEAK, {"peak": 40 * MIB, "workspace": 30 * MIB}, {}, "refuted", "device_peak"),
        (Claim.PEAK, {"peak": 41 * MIB, "workspace": 30 * MIB}, {}, "confirmed", "device_peak"),
        (Claim.CHURN, {"churn": 3 * MIB}, {}, "confirmed", "churn"),
        (Claim.CHURN, {}, {"churn": 3 * MIB}, "refuted", "churn"),
        (Claim.KEPT, {"live": MIB}, {}, "confirmed", "kept"),
        (Claim.EQUAL, {}, {}, "confirmed", "device_peak"),
        (Claim.EQUAL, {"peak": 11 * MIB}, {"peak": 12 * MIB}, "refuted", "device_peak"),
        (Claim.EQUAL, {}, {"live": MIB}, "refuted", "device_peak"),
        (Claim.TIME, {"seconds": 0.02}, {}, "confirmed", "seconds"),
        (Claim.TIME, {"seconds": 0.0101}, {}, "refuted", "seconds"),
    ],
)
def test_what_each_claim_asks_for(
    claim: Claim, before: dict[str, Any], after: dict[str, Any], status: str, measure: str
) -> None:
    found = verdict(claim, arm(**before), arm(**after))
    assert (found.status, found.measure) == (status, measure)
    assert found.reason if status == "refuted" else not found.reason


def test_fake_tensors_take_no_time_to_speak_of() -> None:
    found = verdict(Claim.TIME, arm(seconds=0.02), arm(), device="fake")
    assert (found.status, found.measure, found.reason) == ("undecided", "", PRETENDED)
    assert verdict(Claim.PEAK, arm(peak=20 * MIB), arm(), device="fake").status == "confirmed"


NOISY = [0.0, 9e4, 1e3, 2e5, 4e4, 9e3, 2e5, 1e5, 3e3, 2e5, 5e4, 8e4, 2e5]


def test_what_is_not_clear_of_noise_is_undecided() -> None:
    found = verdict(Claim.GROWTH, arm(host=[noise + 2000 * i for i, noise in enumerate(NOISY)]), arm())
    assert found.status == "undecided" and "give or take" in found.reason and "--steps" in found.reason
    quiet = [noise / 1e3 for noise in NOISY]
    assert verdict(Claim.GROWTH, arm(host=quiet), arm()).status == "refuted"


def test_no_growth_is_seldom_taken_for_one() -> None:
    """Of 400 runs without growth, about one in 700 a kind of noise may be taken for growth; more would be no test."""
    chance = random.Random(7)
    wrong = 0
    for _ in range(200):
        white = [chance.gauss(0, 1e5) for _ in range(21)]
        walk = list(itertools.accumulate(chance.gauss(0, 1e5) for _ in range(21)))
        wrong += sum(grows(Measurement.of(arm(20, host=values))) for values in (white, walk))
    assert wrong <= 8
    steady = [[8000 * i + chance.gauss(0, 1e3) for i in range(21)] for _ in range(50)]
    assert all(grows(Measurement.of(arm(20, host=values))) for values in steady)


def test_batches_of_other_shapes_are_no_saving() -> None:
    shapes = [3, 9, 4, 7, 1, 8, 2, 9, 5, 6, 3, 8, 4]
    before, after = arm(), arm()
    for i, shape in enumerate(shapes):
        before["readings"][i] |= {"live": shape * MIB, "peak": (10 + shape) * MIB}
        after["readings"][i] |= {"live": shapes[-i] * MIB, "peak": (9 + shapes[-i]) * MIB}
    assert verdict(Claim.GROWTH, before, after).status == "refuted"
    assert verdict(Claim.PEAK, before, after).status == "refuted"


def test_a_peak_that_rises_steadily_is_not_noise() -> None:
    before = arm()
    for i, reading in enumerate(before["readings"]):
        reading["peak"] += i * MIB
    found = verdict(Claim.PEAK, before, arm())
    assert found.status == "confirmed" and found.before.peak_noise == 0


def test_a_peak_that_is_met_again_and_again_is_no_chance() -> None:
    before = arm()
    for i, reading in enumerate(before["readings"]):
        reading["peak"] += (i % 3) * MIB
    found = verdict(Claim.PEAK, before, arm(peak=11 * MIB))
    assert found.status == "confirmed" and found.before.peak_noise == 0


def test_growth_is_that_of_the_iterations_and_not_of_what_comes_between() -> None:
    readings = arm(8, live=MIB, host=8000)
    for i, reading in enumerate(readings["readings"]):
        if i >= 5:
            reading["live"] -= 4 * MIB
            reading["host"] -= 32_000
        if i == 5:
            reading |= {"from": 0, "host_from": 1e8}
    found = Measurement.of(readings)
    assert found.device_growth == MIB and found.host_growth == 8000
    assert found.curve[5] == MIB


@pytest.mark.parametrize("at", range(1, 13))
def test_one_jump_on_the_host_is_no_growth(at: int) -> None:
    jump = [1e6 if i >= at else 0.0 for i in range(13)]
    assert verdict(Claim.GROWTH, arm(host=jump), arm()).status == "refuted"
    growth = [jumped + 8000 * i for i, jumped in enumerate(jump)]
    assert Measurement.of(arm(host=growth)).host_growth == pytest.approx(8000, rel=0.01)


def test_growth_leaves_the_warm_up_out() -> None:
    readings = arm(live=0)
    for i, reading in enumerate(readings["readings"]):
        reading["live"] = MIB if i >= 2 else 0
    assert Measurement.of(readings).device_growth == 0


def test_out_of_memory_as_written_and_not_repaired_confirms() -> None:
    before = arm(2, peak=5 * MIB) | {"ended": "out of memory", "message": "CUDA out of memory", "peak": 90 * MIB}
    found = verdict(Claim.GROWTH, before, arm())
    assert found.status == "confirmed" and found.before.device_peak == 90 * MIB and "out of memory" in found.reason


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (arm(2), arm(), "as written, the loop made 2 iterations"),
        (arm(), arm(1), "repaired, the loop made 1 iterations"),
        (
            {"ended": "failed", "stage": "import", "message": "No module named 'x'"},
            arm(),
            "import: No module named 'x'",
        ),
        (arm(doubt="a branch depends on a value"), arm(), "use --device cpu"),
        (arm(), {"ended": "out of memory", "message": "too much"}, "repaired, too much"),
    ],
)
def test_what_cannot_be_judged_is_undecided_and_says_why(before: Any, after: Any, words: str) -> None:
    found = verdict(Claim.PEAK, before, after)
    assert found.status == "undecided" and words in found.reason


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("timeout"), "--timeout"),
        (Answer("memory"), "--memory-limit"),
        (Answer("was killed by SIGSEGV"), "the trial was killed by SIGSEGV"),
        (Answer("ended", {"error": "broken"}), "broken"),
    ],
)
def test_a_child_that_gave_no_answer(answer: Answer, words: str) -> None:
    found = judge(Claim.PEAK, answer, "called", "fake")
    assert found.status == "undecided" and words in found.reason


def test_the_json_contract() -> None:
    document = verdict(Claim.PEAK, arm(peak=11 * MIB), arm(), results="identical").as_json()
    words = "status tier device claim iterations before after results reason evidence"
    assert list(document) == words.split()
    assert list(document["before"]) == ["device_peak", "device_growth", "host_growth", "churn", "seconds"]
    assert document["iterations"] == 12 and document["before"]["device_peak"] == 11 * MIB
    assert undecided(Claim.PEAK, "called", "fake", "why").as_json()["before"] is None


def test_a_finding_without_an_edit_is_measured_as_written() -> None:
    found = judge(Claim.GROWTH, Answer("ended", {"before": arm(live=MIB), "device": "fake"}), "called", "fake")
    assert (found.status, found.measure) == ("undecided", "device_growth")
    assert found.before is not None and found.before.device_growth == MIB and found.after is None
    assert "no edit" in found.reason
    assert found.as_json()["after"] is None
    host = judge(Claim.GROWTH, Answer("ended", {"before": arm(host=9000)}), "called", "fake")
    assert host.measure == "host_growth"
    failed = judge(Claim.PEAK, Answer("ended", {"before": arm(1)}), "called", "fake")
    assert failed.measure == "" and "made 1 iterations" in failed.reason


@pytest.mark.parametrize(
    ("line", "size", "anywhere", "claim", "status"),
    [
        (7, MIB, False, Claim.GROWTH, "confirmed"),
        (7, 0.4 * MIB, False, Claim.GROWTH, "undecided"),  # most of it was allocated elsewhere
        (9, MIB, False, Claim.GROWTH, "undecided"),
        (9, MIB, True, Claim.GROWTH, "undecided"),  # what may come from anywhere proves nothing
        (7, MIB, True, Claim.GROWTH, "confirmed"),
        (7, MIB, False, Claim.KEPT, "undecided"),  # a comparison, for which there is nothing
        (7, MIB, False, Claim.PEAK, "undecided"),
    ],
)
def test_growth_that_leads_to_the_finding_needs_no_repair(
    line: int, size: float, anywhere: bool, claim: Claim, status: str
) -> None:
    rows = [{"frames": [["/a.py", line]], "bytes": size}]
    before = arm(live=MIB, evidence={"growth": rows, "peak": rows})
    where = Origin("/a.py", frozenset({7}), False, anywhere)
    found = judge(claim, Answer("ended", {"before": before, "device": "fake"}), "called", "fake", where)
    assert found.status == status
    assert (found.reason == AS_WRITTEN) == (status == "confirmed")
    unreached = judge(
        claim, Answer("ended", {"before": before | {"hits": 0}, "device": "fake"}), "isolated", "fake", where
    )
    asked = judge(
        claim, Answer("ended", {"before": before, "device": "fake"}), "traced", "fake", where, "not asked for"
    )
    assert (unreached.status, asked.status) == ("undecided", "undecided")


def test_what_allocates_nothing_refutes_nothing() -> None:
    idle = arm(churn=0)
    found = verdict(Claim.PEAK, idle, idle)
    assert (found.status, found.measure) == ("undecided", "")
    assert "allocates nothing" in found.reason
    assert verdict(Claim.PEAK, arm(churn=MIB), arm(churn=MIB)).status == "refuted"
