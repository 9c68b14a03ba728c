"""Findings to verdicts: tries harnesses on a finding until one decides, on the device that was asked for."""

from __future__ import annotations

import ast
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from memlint.edits import apply_edits
from memlint.rule import Applicability, Claim, Finding
from memlint.source import Source
from memlint.target import UNKNOWN, Finder, of_header
from memlint.trial import harness
from memlint.trial.evidence import Origin, origin
from memlint.trial.guess import refined
from memlint.trial.judge import CONFIRMED, FEW, REFUTED, SIZES, UNDECIDED, Verdict, judge, undecided
from memlint.trial.run import Limits, Runner, Spec, TrialError, Trials

ATTEMPTS = 14  # guesses at the batches on one way to run a finding
BUDGET = 30.0  # seconds after which no further guess is tried on one finding and device
OTHERS = (2, 256)  # examples in a batch, beside the usual number, where it hangs on that what a repair saves
SAME = 2  # times that a run may end as one before it did until guesses at the batches are given up
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

    def __init__(self, settings: Settings, trials: Runner | None = None) -> None:
        self.settings = settings
        self._trials: Runner = trials or Trials(settings.limits)
        self._devices: list[str] = []

    def __enter__(self) -> Confirmer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs, from whichever thread; nothing is confirmed any more."""
        self._trials.close()

    @property
    def torch(self) -> str:
        """The torch that ran the trials, "" where none did."""
        return self._trials.torch

    def gpus(self) -> int:
        """How many CUDA devices there are. Raises `run.TrialError` where no trial can run at all."""
        return self._trials.gpus()

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
            return replace(self._outcome(*harness.as_script(finding, source), tier), finding=finding)
        claim = finding.claim or Claim.GROWTH
        edits = finding.fix.edits if finding.fix else ()
        repaired = apply_edits(source, edits) if edits else None
        best: Outcome | None = None
        source_of_bytes = origin(finding, source)
        for device in self._chosen_devices():
            for text, verdict in self._tried(finding, source, repaired, claim, device, source_of_bytes):
                found = Outcome(finding, verdict, text)
                best = found if best is None or _further(verdict, best.verdict) else best
                if verdict.status != UNDECIDED:
                    return found
        assert best is not None
        reason = best.verdict.reason
        says_how = "--" in reason or "run memlint in" in reason or best.verdict.measure
        hint = "" if says_how or self.settings.harness is not None else f"; {SUPPLY}"
        return replace(best, verdict=replace(best.verdict, reason=reason + hint))

    def _tried(
        self,
        finding: Finding,
        source: Source,
        repaired: str | None,
        claim: Claim,
        device: str,
        origin: Origin | None,
    ) -> Iterator[tuple[str, Verdict]]:
        """Runs of ``finding``, each a harness with its verdict, until none that is left can help."""
        steps = self.settings.steps
        given = self.settings.harness
        text = given if given is not None else harness.own_harness(source)
        if text is not None:
            spec = harness.spec(finding, source, repaired, text, device, steps)
            verdict, _ = self._verdict(spec, claim, "harness", source, origin)
            yield text, verdict
            if given is not None or (verdict.before and verdict.before.iterations >= FEW):
                return
        imports, deadline = True, time.monotonic() + BUDGET
        for draft in harness.drafts(finding, source, steps):
            if not imports and not draft.chain:
                continue
            waiting, tried = list(draft.guesses), 0
            seen = set(waiting)
            complaints: Counter[str] = Counter()
            while waiting and tried < ATTEMPTS and complaints.total() < SAME + len(complaints):
                if tried and time.monotonic() > deadline:
                    break
                guess = waiting.pop(0)
                tried += 1
                text = draft.write(guess)
                spec = harness.spec(finding, source, repaired, text, device, steps, draft)
                verdict, complaint = self._verdict(spec, claim, draft.tier, source, origin)
                if verdict.status == REFUTED and claim is Claim.PEAK and device.startswith("cuda"):
                    counted, _ = self._verdict(replace(spec, device="fake"), claim, draft.tier, source, origin)
                    if counted.status == CONFIRMED or counted.reason == SIZES:  # which CUDA's allocator cannot tell
                        verdict = replace(verdict, status=UNDECIDED, reason=SIZES)
                if verdict.reason == SIZES:
                    verdict = self._other_sizes(spec, claim, draft.tier, source, origin, verdict)
                yield text, verdict
                if verdict.before is None:
                    return
                imports = imports and not verdict.before.failure.startswith("import: ")
                if _hopeless(verdict):
                    break
                complaints[complaint] += 1
                better = [new for new in refined(guess, complaint) if new not in seen]
                waiting[:0] = better
                seen.update(better)

    def _other_sizes(
        self, spec: Spec, claim: Claim, tier: str, source: Source, origin: Origin | None, verdict: Verdict
    ) -> Verdict:
        """``verdict``, which hangs on sizes that memlint chose, or what other sizes of the batch make of it.

        Refuted is only what no size bears out, with the program's own model.
        """
        for examples in OTHERS:
            other, _ = self._verdict(replace(spec, batch=examples), claim, tier, source, origin)
            if other.status == CONFIRMED:
                return replace(other, reason=f"with batches of {examples} examples")
            if other.reason != SIZES:
                return verdict
        if not verdict.own:
            return verdict
        sizes = " or ".join(map(str, OTHERS))
        return replace(
            verdict, status=REFUTED, reason=f"the repair does not lower the peak, nor with batches of {sizes}"
        )

    def _verdict(
        self, spec: Spec, claim: Claim, tier: str, source: Source, origin: Origin | None
    ) -> tuple[Verdict, str]:
        """The verdict on one trial, and what the run ended with."""
        answer = self._trials.run(spec)
        verdict = on_target(judge(claim, answer, tier, spec.device, origin), source, self._trials.torch)
        arms = [answer.data.get(arm, {}) for arm in ("before", "after")]
        return verdict, next((str(arm["message"]) for arm in arms if arm.get("message")), "")

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


def alone(finding: Finding, source: Source, findings: Iterable[Finding]) -> Source | None:
    """``source`` with the repairs of the other findings of the function, so that ``finding`` is the only one left.

    Two that hold the same graphs hide each other: with one of them repaired, the other still keeps everything. None
    where there are no others, or where their repairs would move the finding.
    """
    own = finding.fix.edits if finding.fix else ()
    lines = {n for span in (finding.span, *(e.span for e in own)) for n in range(span.line, span.end_line + 1)}
    edits = [
        edit
        for other in findings
        if other is not finding and (other.path, other.function) == (finding.path, finding.function) and other.fix
        for edit in other.fix.edits
    ]
    if not edits or any(e.span.line in lines or e.span.line != e.span.end_line or "\n" in e.text for e in edits):
        return None
    try:
        return Source(source.path, apply_edits(source, dict.fromkeys(edits)))
    except ValueError:  # two of them overlap
        return None


def on_target(verdict: Verdict, source: Source, torch: str) -> Verdict:
    """``verdict``, but no refutation by a torch newer than any that ``source`` or its project is meant for."""
    target = Finder().of(source.path)
    if target == UNKNOWN:
        target = of_header(ast.get_docstring(source.tree) or "")
    if verdict.status != REFUTED or not target.before(torch):
        return verdict
    reason = f"it is about torch {target}, which it asks for, and this Python has {torch.partition('+')[0]}"
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
