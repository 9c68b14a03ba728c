"""Several GPUs are several workers; the outcomes come in the order of the findings."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from memlint.rule import Applicability, Claim, Edit, Finding, Fix, Level, Span
from memlint.source import Source
from memlint.trial.confirm import Confirmer, Outcome, Settings, alone
from memlint.trial.judge import Verdict, undecided
from memlint.trial.run import TrialError
from memlint.trial.workers import ALONE, devices, outcomes, workers

FINDINGS = [
    (Finding("MEM103", "graph-tensor-append", Level.ERROR, "a.py", Span(n, 1, n, 2), "it grows"), Source("a.py", ""))
    for n in range(1, 7)
]


class Named(Confirmer):
    """A worker that runs nothing and says where it would have."""

    together = threading.Barrier(2)
    fails = False

    def gpus(self) -> int:
        return 2

    def outcome(self, finding: Finding, source: Source) -> Outcome:
        if self.fails:
            raise TrialError("no torch")
        if len(devices(self.settings.device, 1)) == 1 and self.settings.device.startswith("cuda:"):
            self.together.wait(10)  # both workers are at work at once, or this breaks
        return Outcome(finding, undecided(Claim.GROWTH, "called", self.settings.device, ""))


def test_cuda_is_every_gpu_and_cuda_n_is_one() -> None:
    assert devices("cuda", 3) == devices("auto", 3) == ["cuda:0", "cuda:1", "cuda:2"]
    assert devices("cuda:1", 3) == ["cuda:1"] and devices("fake", 3) == ["fake"] and devices("auto", 0) == ["auto"]


def test_two_gpus_work_at_once_and_in_order() -> None:
    begun: list[int] = []
    with workers(Settings("cuda"), Named) as confirmers:
        made = outcomes(confirmers, FINDINGS, lambda finding: begun.append(finding.span.line))
    assert [outcome.finding.span.line for outcome in made] == [1, 2, 3, 4, 5, 6]
    assert sorted(begun) == [1, 2, 3, 4, 5, 6]
    assert {outcome.verdict.device for outcome in made} == {"cuda:0", "cuda:1"}


@pytest.mark.parametrize("device", ["fake", "cuda"])
def test_that_no_trial_can_run_ends_them_all(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(Named, "fails", True)
    with workers(Settings(device), Named) as confirmers, pytest.raises(TrialError, match="no torch"):
        outcomes(confirmers, FINDINGS)


def test_an_interrupt_ends_the_trials_of_all_workers() -> None:
    closed = threading.Event()

    class Long(Confirmer):
        def outcome(self, finding: Finding, source: Source) -> Outcome:
            if finding.span.line == 1:
                raise KeyboardInterrupt
            assert closed.wait(10), "the pool waits for it"
            raise TrialError("closed")

        def close(self) -> None:
            closed.set()

    with pytest.raises(KeyboardInterrupt):
        outcomes([Long(Settings("cpu")), Long(Settings("cpu"))], FINDINGS)


def finding(line: int, old: str, new: str) -> Finding:
    fix = Fix("detach it", applicability=Applicability.SAFE, edits=(Edit(Span(line, 6, line, 6 + len(old)), new),))
    return Finding("MEM103", "graph-tensor-append", Level.ERROR, "a.py", Span(line, 1, line, 9), "it grows", fix)


PAIR = Source("a.py", "a += loss\nb += loss\n")
ONE, OTHER = (finding(line, "loss", "loss.detach()") for line in (1, 2))


def test_the_other_findings_of_a_function_can_be_repaired_in_both_arms() -> None:
    rest = alone(ONE, PAIR, [ONE, OTHER])
    assert rest is not None and rest.text == "a += loss\nb += loss.detach()\n"
    assert alone(ONE, PAIR, [ONE]) is None
    assert alone(ONE, PAIR, [ONE, replace(OTHER, function="elsewhere")]) is None
    assert alone(ONE, PAIR, [ONE, finding(1, "loss", "other")]) is None, "it would move what is flagged"
    assert alone(ONE, PAIR, [ONE, finding(2, "loss", "loss\n")]) is None, "so would a new line"


def test_what_another_finding_hides_is_tried_again_without_it() -> None:
    class Hidden(Confirmer):
        def outcome(self, finding: Finding, source: Source) -> Outcome:
            status = "confirmed" if source.text != PAIR.text else "refuted"
            return Outcome(finding, Verdict(status, Claim.GROWTH, "called", "cpu", measure="host_growth"))

    made = outcomes([Hidden(Settings("cpu"))], [(ONE, PAIR), (OTHER, PAIR)])
    assert [(o.verdict.status, o.verdict.reason) for o in made] == [("confirmed", ALONE)] * 2
    (single,) = outcomes([Hidden(Settings("cpu"))], [(ONE, PAIR)])
    assert single.verdict.status == "refuted"
