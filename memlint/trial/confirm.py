"""Findings to verdicts: tries harnesses on a finding until one decides, on the device that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from memlint.edits import apply_edits
from memlint.rule import Applicability, Claim, Finding
from memlint.source import Source
from memlint.target import Finder
from memlint.trial import harness
from memlint.trial.evidence import origin
from memlint.trial.judge import CONFIRMED, FEW, REFUTED, UNDECIDED, Verdict, judge, undecided
from memlint.trial.run import Limits, TrialError, Trials

ATTEMPTS = 8  # harnesses tried on one finding at most
SUPPLY = "supply --harness FILE with setup(device)"


@dataclass(frozen=True)
class Settings:
    """How to confirm: ``device`` is auto, fake, cpu, cuda or cuda:N; ``harness`` the text of the user's own."""

    device: str = "auto"
    steps: int = 12
    limits: Limits = field(default_factory=Limits)
    harness: str | None = None


@dataclass(frozen=True)
class Outcome:
    """A finding's verdict and the harness that led to it ("" where none was made)."""

    finding: Finding
    verdict: Verdict
    harness: str = ""

    @property
    def proven(self) -> bool:
        """Whether the fix may be applied on the strength of the trial: it saves what it claims and computes the same.

        A safe fix must leave the results identical bit for bit; an unsafe one may round otherwise.
        """
        fix = self.finding.fix
        if fix is None or not fix.edits or self.verdict.status != CONFIRMED:
            return False
        enough = {Applicability.SAFE: ("identical",), Applicability.UNSAFE: ("identical", "close")}
        return self.verdict.results in enough.get(fix.applicability, ())


class Confirmer:
    """A context that confirms findings one by one, in children of one process. Without torch: `run.TrialError`."""

    def __init__(self, settings: Settings, trials: Trials | None = None) -> None:
        self.settings = settings
        self._trials = trials or Trials(settings.limits)
        self._devices: list[str] = []

    def __enter__(self) -> Confirmer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._trials.close()

    @property
    def torch(self) -> str:
        """The torch that ran the trials, "" where none did."""
        return self._trials.torch

    def outcome(self, finding: Finding, source: Source) -> Outcome:
        """Run what ``finding`` flags as written and as repaired, and judge; what cannot be run is undecided.

        Raises `run.TrialError` where no trial can run at all.
        """
        tier = "called" if self.settings.harness is None else "harness"
        try:
            return self._outcome(finding, source, tier)
        except harness.CannotRun as error:
            reason = str(error)
        except TrialError:
            raise
        except Exception as error:  # no finding may take the others along
            reason = f"memlint fails to run it: {type(error).__name__}: {error}; {SUPPLY}"
        claim = finding.claim or Claim.GROWTH
        return Outcome(finding, undecided(claim, tier, self._chosen_devices()[0], reason))

    def _outcome(self, finding: Finding, source: Source, tier: str) -> Outcome:
        if source.is_notebook:
            raise harness.CannotRun("it stands in a notebook, which cannot be called")
        claim = finding.claim or Claim.GROWTH
        edits = finding.fix.edits if finding.fix else ()
        repaired = apply_edits(source, edits) if edits else None
        harnesses = [self.settings.harness] if self.settings.harness is not None else self._written(finding, source)
        best: Outcome | None = None
        source_of_bytes = origin(finding, source)
        for device in self._chosen_devices():
            for text in harnesses:
                spec = harness.spec(finding, source, repaired, text, device, self.settings.steps)
                judged = judge(claim, self._trials.run(spec), tier, device, source_of_bytes)
                verdict = _on_target(judged, source.path, self._trials.torch)
                found = Outcome(finding, verdict, text)
                best = found if best is None or _further(verdict, best.verdict) else best
                if verdict.status != UNDECIDED:
                    return found
                if _hopeless(verdict):
                    break
        assert best is not None
        reason = best.verdict.reason
        says_how = "--" in reason or "run memlint in" in reason or best.verdict.measure
        hint = "" if says_how or self.settings.harness is not None else f"; {SUPPLY}"
        return replace(best, verdict=replace(best.verdict, reason=reason + hint))

    def _written(self, finding: Finding, source: Source) -> list[str]:
        return list(harness.written(finding, source, self.settings.steps))[:ATTEMPTS]

    def _chosen_devices(self) -> list[str]:
        """The devices to try in turn: what was asked for, else a GPU, else fake tensors and then the CPU."""
        if not self._devices:
            asked = self.settings.device
            if asked == "auto":
                self._devices = ["cuda:0"] if self._trials.gpus() else ["fake", "cpu"]
            else:
                self._devices = ["cuda:0" if asked == "cuda" else asked]
                number = int(self._devices[0].partition(":")[2] or 0)
                if asked.startswith("cuda") and number >= (count := self._trials.gpus()):
                    there = f"{count} CUDA devices" if count else "no CUDA device"
                    raise TrialError(f"--device {asked}: torch sees {there} here; fake and cpu need none")
        return self._devices


def _on_target(verdict: Verdict, path: str, torch: str) -> Verdict:
    """``verdict``, but no refutation by a torch newer than any that the project is meant for."""
    target = Finder().of(path)
    if verdict.status != REFUTED or not target.before(torch):
        return verdict
    reason = f"it is about torch {target}, which the project asks for, and this Python has {torch.partition('+')[0]}"
    return replace(
        verdict, status=UNDECIDED, measure="", reason=f"{reason}: run memlint in the project's own environment"
    )


def _further(one: Verdict, other: Verdict) -> bool:
    """Whether ``one`` got further than ``other``, so that its reason tells more."""

    def progress(verdict: Verdict) -> tuple[int, int]:
        before = verdict.before
        if before is None:
            return 0, 0
        stage = 1 if before.failure.startswith(("import: ", "setup: ")) else 2
        return stage, before.iterations

    return progress(one) > progress(other)


def _hopeless(verdict: Verdict) -> bool:
    """Whether another harness would fare no better: the import fails, or the run takes too long or too much."""
    if verdict.before is None:
        return True
    return verdict.before.failure.startswith("import: ") or verdict.before.iterations >= FEW
