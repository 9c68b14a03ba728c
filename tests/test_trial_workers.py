"""Several GPUs are several workers; the outcomes come in the order of the findings."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

from memlint.rule import Claim, Finding, Level, Span
from memlint.source import Source
from memlint.trial.confirm import Confirmer, Outcome, Settings
from memlint.trial.judge import undecided
from memlint.trial.run import TrialError
from memlint.trial.workers import devices, outcomes, workers

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
