"""Findings to verdicts: tries harnesses on a finding until one decides, on the device that was asked for."""

from __future__ import annotations

import ast
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from memlint.edits import apply_edits
from memlint.rule import Applicability, Claim, Finding
from memlint.source import Source
from memlint.target import UNKNOWN, Finder, Target, of_header
from memlint.trial import harness
from memlint.trial.evidence import Origin, origin
from memlint.trial.guess import known, refined
from memlint.trial.judge import (
    ABSENT,
    CONFIRMED,
    FEW,
    IDLE,
    NO_DIFFERENCE,
    OTHER_SIZES,
    REFUTED,
    SAY,
    SIZES,
    STUMBLED,
    UNDECIDED,
    Verdict,
    judge,
    undecided,
)
from memlint.trial.run import AGAIN, Limits, Runner, Spec, TrialError, Trials

ATTEMPTS = 14  # guesses at the batches on one way to run a finding
HASTE = 5.0  # seconds that a guess gets however many went before it
_ABSENT = re.compile("FileNotFoundError|ModuleNotFoundError|ImportError")
_CHOSEN = re.compile(r"\b(COUNT|WIDTH|TOKENS)\b")  # numbers in a harness that may well be others
PATIENCE = 0.3  # of a trial's time, that one arm's iterations may take before they end early
SMALL = 2  # examples in a batch where the usual number takes too long
OTHERS = (2, 256)  # examples in a batch, beside the usual number, where it hangs on that what a repair saves
SAME = 2  # times that a run may end as one before it did until guesses at the batches are given up
NO_DEVICE = "on a CPU there is no device to leave, so a repair that moves to the host shows nothing: use --device cuda"
UP_TO = "from the flagged statement up to where its result is used"
FREES_GRADIENTS = "2.0"  # the first torch whose ``zero_grad`` frees gradients unless told to fill them
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


@dataclass(frozen=True)
class _Case:
    """A finding to try: its file as written and, where there is an edit, repaired, its claim, and whose bytes count.

    ``fills`` says whether it is for a torch that fills gradients with zeros unless told to free them.
    """

    finding: Finding
    source: Source
    repaired: str | None
    claim: Claim
    origin: Origin
    fills: bool

    @property
    def leaves_the_device(self) -> bool:
        """Whether the repair is that something goes to the host."""
        fix = self.finding.fix
        return fix is not None and any("cpu" in edit.text for edit in fix.edits)

    @property
    def stays(self) -> bool:
        """Whether the repair changes nothing that runs before the flagged statement."""
        edits = self.finding.fix.edits if self.finding.fix else ()
        return all(edit.span.line >= self.finding.span.line for edit in edits)


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
        edits = finding.fix.edits if finding.fix else ()
        repaired = apply_edits(source, edits) if edits else None
        fills = target_of(source).before(FREES_GRADIENTS)
        case = _Case(finding, source, repaired, finding.claim or Claim.GROWTH, origin(finding, source), fills)
        best: Outcome | None = None
        devices, start = self._chosen_devices(), time.monotonic()
        for number, device in enumerate(devices, 1):
            deadline = start + self.settings.limits.timeout * number / len(devices)
            for text, verdict in self._tried(case, device, deadline):
                found = Outcome(finding, verdict, text)
                best = found if best is None or _further(verdict, best.verdict) else best
                if verdict.status != UNDECIDED:
                    return found
        assert best is not None
        reason = best.verdict.reason
        says_how = "--" in reason or "run memlint in" in reason or best.verdict.measure
        hint = "" if says_how or self.settings.harness is not None else f"; {SUPPLY}"
        return replace(best, verdict=replace(best.verdict, reason=reason + hint))

    def _tried(self, case: _Case, device: str, deadline: float) -> Iterator[tuple[str, Verdict]]:
        """Runs of a finding, each a harness with its verdict, until none that is left can help or it is too late."""
        steps = self.settings.steps
        finding, source = case.finding, case.source
        given = self.settings.harness
        text = given if given is not None else harness.own_harness(source)
        if text is not None:
            spec = harness.spec(finding, source, case.repaired, text, device, steps)
            verdict, _ = self._verdict(case, spec, "harness", self.settings.limits.timeout)
            yield text, verdict
            if given is not None or (verdict.before and verdict.before.iterations >= FEW):
                return
        imports, first = True, True
        half = (time.monotonic() + deadline) / 2  # until then the function may be called as it stands
        for draft in harness.drafts(finding, source, steps):
            if not imports and not draft.chain:
                continue
            waiting, tried, batch = list(draft.guesses), 0, None
            seen = set(waiting)
            complaints: Counter[str] = Counter()
            unclear: tuple[str, Spec] | None = None  # the first that is
            while waiting and tried < ATTEMPTS and complaints.total() < SAME + len(complaints):
                left = (deadline if draft.chain else half) - time.monotonic()
                if left < 0 and not first:
                    break
                seconds = min(self.settings.limits.timeout, max(HASTE, 0.6 * left))
                first = False
                guess = waiting.pop(0)
                tried += 1
                text = draft.write(guess)
                spec = replace(harness.spec(finding, source, case.repaired, text, device, steps, draft), batch=batch)
                once = bool(draft.chain) and draft.place.loop is None and case.claim in (Claim.PEAK, Claim.KEPT)
                spec = replace(spec, begins=once and case.stays)
                verdict, complaint = self._verdict(case, replace(spec, ends=once), draft.tier, seconds)
                helps = _unclear(verdict) or refined(guess, complaint)  # another batch may
                if once and verdict.status == CONFIRMED:
                    verdict = replace(verdict, reason=UP_TO)
                elif once and (verdict.status == REFUTED or (_alike(verdict) and not helps)):
                    # what it costs may come later
                    verdict, complaint = self._verdict(case, spec, draft.tier, seconds)
                if verdict.status == REFUTED and case.claim is Claim.PEAK and device.startswith("cuda"):
                    counted, _ = self._verdict(case, replace(spec, device="fake"), draft.tier, seconds)
                    if counted.status == CONFIRMED or counted.reason == SIZES:  # which CUDA's allocator cannot tell
                        verdict = replace(verdict, status=UNDECIDED, reason=SIZES)
                if verdict.reason == SIZES:
                    verdict = self._other_sizes(case, spec, draft.tier, seconds, verdict)
                unclear = unclear or ((text, replace(spec, ends=once)) if _unclear(verdict) else None)
                yield text, verdict
                if verdict.reason.endswith(AGAIN):
                    return  # nothing was wrong with it: another way to run it would tell less
                if verdict.before is None and verdict.reason == SAY["timeout"] and batch is None:
                    waiting.insert(0, guess)  # once more, with less to do
                    batch = SMALL
                    continue
                imports = imports and not (verdict.before and verdict.before.failure.startswith("import: "))
                better = [new for new in refined(guess, complaint) if new not in seen]
                if _hopeless(verdict) and not better:
                    break
                complaints[complaint] += 1
                waiting[:0] = better
                seen.update(better)
            if draft.chain and unclear and time.monotonic() < deadline:  # activations may hide what weights take
                text, spec = unclear
                verdict, _ = self._verdict(case, replace(spec, batch=SMALL), draft.tier, HASTE)
                if verdict.status == CONFIRMED:
                    yield text, replace(verdict, reason=f"with batches of {SMALL} examples")

    def _other_sizes(self, case: _Case, spec: Spec, tier: str, seconds: float, verdict: Verdict) -> Verdict:
        """``verdict``, which hangs on sizes that memlint chose, or what other sizes of the batch make of it.

        Refuted is only what no size bears out, with the program's own model and numbers.
        """
        for examples in OTHERS:
            other, _ = self._verdict(case, replace(spec, batch=examples), tier, seconds)
            if other.status == CONFIRMED:
                return replace(other, reason=f"with batches of {examples} examples")
            if other.reason not in (SIZES, NO_DIFFERENCE):
                return verdict
        if not verdict.own or _CHOSEN.search(spec.harness or ""):
            return verdict
        sizes = " or ".join(map(str, OTHERS))
        return replace(
            verdict, status=REFUTED, reason=f"the repair does not lower the peak, nor with batches of {sizes}"
        )

    def _verdict(self, case: _Case, spec: Spec, tier: str, seconds: float) -> tuple[Verdict, str]:
        """The verdict on one trial of at most so many ``seconds``, and what the run ended with."""
        spec = replace(spec, patience=seconds * PATIENCE, fills=case.fills)
        answer = self._trials.run(spec, replace(self.settings.limits, timeout=seconds))
        judged = judge(case.claim, answer, tier, spec.device, case.origin)
        if judged.status == REFUTED and spec.device == "cpu" and case.leaves_the_device:
            judged = replace(judged, status=UNDECIDED, measure="", reason=NO_DEVICE)
        arms = [answer.data.get(arm, {}) for arm in ("before", "after")]
        said = [str(arm["message"]) for arm in arms if arm.get("message")]
        said += [text for arm in arms for text in arm.get("failures", ())]
        complaint = next((text for text in said if known(text)), said[0] if said else "")
        return on_target(judged, case.source, self._trials.torch), complaint

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


def target_of(source: Source) -> Target:
    """The torch that ``source`` is for: its project's, or what it says itself."""
    target = Finder().of(source.path)
    return of_header(ast.get_docstring(source.tree) or "") if target == UNKNOWN else target


def on_target(verdict: Verdict, source: Source, torch: str) -> Verdict:
    """``verdict``, but no refutation by a torch newer than any that ``source`` or its project is meant for."""
    target = target_of(source)
    if verdict.status != REFUTED or not target.before(torch):
        return verdict
    reason = f"it is about torch {target}, which it asks for, and this Python has {torch.partition('+')[0]}"
    return replace(
        verdict, status=UNDECIDED, measure="", reason=f"{reason}: run memlint in the project's own environment"
    )


def _further(one: Verdict, other: Verdict) -> bool:
    """Whether ``one`` got further than ``other``, so that its reason tells more."""

    def progress(verdict: Verdict) -> tuple[int, int, bool]:
        before = verdict.before
        if before is None:
            return 0, 0, False
        stage = 1 if before.failure.startswith(("import: ", "setup: ")) else 2
        return stage, before.iterations, verdict.reason != IDLE

    return progress(one) > progress(other)


def _alike(verdict: Verdict) -> bool:
    """Whether both arms allocated the same: what the repair changes was not reached."""
    before, after = verdict.before, verdict.after
    if before is None or after is None or min(before.iterations, after.iterations) < FEW:
        return False
    return (before.churn, before.kept) == (after.churn, after.kept)


def _unclear(verdict: Verdict) -> bool:
    """Whether the claimed peak was measured on what is partly not there, and is no lower once repaired."""
    if verdict.status != UNDECIDED or verdict.claim is not Claim.PEAK or verdict.after is None:
        return False
    return verdict.reason == OTHER_SIZES or verdict.reason.startswith((STUMBLED, ABSENT))


def _hopeless(verdict: Verdict) -> bool:
    """Whether another harness would fare no better: the import fails, the run takes too long or too much, or it ran."""
    if verdict.before is None:
        return True
    fails = verdict.before.failure.startswith("import: ") or bool(_ABSENT.search(verdict.before.failure))
    return fails or (verdict.before.iterations >= FEW and not verdict.reason.startswith((STUMBLED, ABSENT)))
