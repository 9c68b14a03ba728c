"""A claim and two measurements to a verdict."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import Any

from memlint.rule import Claim
from memlint.trial.evidence import Evidence, Origin, weigh
from memlint.trial.run import Answer

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
BLOCK = 512  # bytes: what the allocator hands out at least, so no smaller difference is one
SIGMAS = 3  # standard errors: what exceeds them is not noise
UNCLEAR = 4096  # bytes: where the host's growth is not known any better, nothing is refuted
SLIGHT = 0.01  # of what is held over time: a repair that changes no more was not run, or its effect is elsewhere
FEW = 3  # iterations without which nothing is judged
AS_WRITTEN = (
    "as written it grows, and what grows was allocated where the finding says; there is no edit to compare with"
)
NO_EDIT = "memlint has no edit to compare with"
PRETENDED = "fake tensors do no work, so how long they take says nothing: use --device cpu or cuda"
ELSEWHERE = "less is used once repaired, but what allocates it leads neither to the finding nor to what it keeps"
FREES = "without the line more is alive: it does free something"
NO_DIFFERENCE = "what is called does the same once repaired: its cost shows elsewhere, or never here"
OTHER_SIZES = "the peak is no lower once repaired, but with sizes that memlint has chosen"
ABSENT = "in the loop torch is to compute with what is not there"
STUMBLED = "statements of the loop failed with what stands for what is not there, and were passed over"
OTHER_WAY = "repaired, the run went another way, past the flagged line"
IDLE = "what is called allocates nothing on the device, so it can show no cost"
ON_CPU = "on a CPU there is no device to wait for, so the time says nothing: use --device cuda"
WHOLE = "it runs once in its script, which from there to its end takes no less once repaired"
SIZES = "repaired, less is held in between, but with these sizes the peak lies elsewhere"
MEASURES = {
    Claim.GROWTH: "device_growth",
    Claim.PEAK: "device_peak",
    Claim.KEPT: "kept",
    Claim.CHURN: "churn",
    Claim.TIME: "seconds",
    Claim.COUNT: "churn",
    Claim.EQUAL: "device_peak",
}
SAY = {
    "timeout": "the trial did not end in time: raise --timeout, lower --steps, or give a smaller --harness",
    "memory": "the trial passed the limit of host memory: raise --memory-limit or give a smaller --harness",
}


@dataclass(frozen=True)
class Measurement:
    """One arm: bytes and seconds an iteration, the peak in bytes above what was alive before the set-up.

    Attributes:
        curve: live device bytes after each iteration, the state before the first one first.
        device_noise, host_noise: the standard errors of the growths, in bytes an iteration.
        peak_noise: bytes by which the peak might as well have been another, had the batches been others.
        workspace: bytes that cuBLAS took once for the whole process while this arm ran; not in `device_peak`.
        failure: why the arm did not run to its end, or "".
        exhausted: it ended out of memory.
        alive: bytes at the peak of the last iteration by what they are for (`stacks.KINDS`), where somebody noted it.
    """

    device_peak: float = 0.0
    device_growth: float = 0.0
    host_growth: float = 0.0
    churn: float = 0.0
    seconds: float = 0.0
    iterations: int = 0
    kept: float = 0.0
    curve: tuple[float, ...] = ()
    device_noise: float = 0.0
    host_noise: float = 0.0
    peak_noise: float = 0.0
    workspace: float = 0.0
    failure: str = ""
    exhausted: bool = False
    alive: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, arm: dict[str, Any]) -> Measurement:
        """What the readings of one arm come to; the first third of the iterations warms up."""
        readings = arm.get("readings") or []
        count = len(readings) - 1
        ended = arm.get("ended", "failed")
        stage = f"{arm['stage']}: " if arm.get("stage") in ("import", "setup") else ""
        workspace = arm.get("workspace", 0.0)
        base = cls(
            iterations=max(count, 0),
            workspace=workspace,
            failure="" if ended in ("returned", "cut short") else stage + arm.get("message", "it gave no answer"),
            exhausted=ended == "out of memory",
            alive=(arm.get("evidence") or {}).get("alive", {}),
            device_peak=max([r["peak"] for r in readings[1:]] + [arm.get("peak", 0.0)]) - workspace,
        )
        if count < 1:
            return base
        warm = min(max(1, count // 3), count - 1) if count > 1 else 0
        steady = readings[warm:]
        span = len(steady) - 1
        host, noise = _slope(_within(steady, "host", "host_from"))
        live = _within(steady, "live", "from")
        return replace(
            base,
            device_growth=(live[-1] - live[0]) / span,
            churn=(steady[-1]["churn"] - steady[0]["churn"]) / span,
            host_growth=host,
            device_noise=_slope(live)[1],
            host_noise=noise,
            peak_noise=_doubt_of_top([r["peak"] for r in steady[1:]]),
            seconds=statistics.median(r["seconds"] for r in steady[1:]),
            kept=readings[-1]["live"],
            curve=tuple(r["live"] for r in readings),
        )

    def as_json(self) -> dict[str, float]:
        """The five numbers of the JSON contract."""
        return {
            "device_peak": round(self.device_peak),
            "device_growth": round(self.device_growth, 1),
            "host_growth": round(self.host_growth, 1),
            "churn": round(self.churn, 1),
            "seconds": round(self.seconds, 6),
        }


@dataclass(frozen=True)
class Verdict:
    """Whether the fix takes the claimed cost away. ``measure`` names the number that the claim is about.

    ``evidence`` says who allocated the bytes of the arm as written, where somebody noted it.
    """

    status: str
    claim: Claim
    tier: str
    device: str
    reason: str = ""
    before: Measurement | None = None
    after: Measurement | None = None
    results: str = "not compared"
    measure: str = ""
    own: bool = False
    evidence: Evidence | None = None

    def as_json(self) -> dict[str, Any]:
        """The verdict as PRODUCT's JSON contract has it."""
        return {
            "status": self.status,
            "tier": self.tier,
            "device": self.device,
            "claim": self.claim.value,
            "iterations": self.before.iterations if self.before else 0,
            "before": self.before.as_json() if self.before else None,
            "after": self.after.as_json() if self.after else None,
            "results": self.results,
            "reason": self.reason,
            "evidence": self.evidence.as_json() if self.evidence else None,
        }


def undecided(claim: Claim, tier: str, device: str, reason: str) -> Verdict:
    """A verdict for a finding that no trial could be made for; ``reason`` says what the user could supply."""
    return Verdict(UNDECIDED, claim, tier, device, reason)


def judge(
    claim: Claim, answer: Answer, tier: str, device: str, origin: Origin | None = None, alone: str = NO_EDIT
) -> Verdict:
    """The verdict on what came back from a trial of one finding, whose bytes must come from ``origin``.

    ``alone`` says why no repair was run, where none was.
    """
    data = answer.data
    if "before" in data and "after" not in data:
        return _alone(claim, data, tier, device, origin, alone)
    if "before" not in data:
        reason = SAY.get(answer.fate) or data.get("error") or f"the trial {answer.fate}"
        return undecided(claim, tier, device, reason)
    before, after = Measurement.of(data["before"]), Measurement.of(data["after"])
    name = data.get("device", device)
    verdict = Verdict(UNDECIDED, claim, tier, name, "", before, after, data.get("results", "not compared"))
    if before.exhausted and not after.failure:
        return replace(verdict, status=CONFIRMED, measure="device_peak", reason=f"as written: {before.failure}")
    doubt = data["before"].get("doubt") or data["after"].get("doubt")
    for arm, which in ((before, "as written"), (after, "repaired")):
        if arm.iterations < FEW:
            fault = arm.failure or few(arm.iterations)
            return replace(verdict, reason=f"{which}, {fault}")
    if doubt:
        return replace(verdict, reason=f"{doubt}: use --device cpu or cuda")
    if claim is Claim.TIME and name == "fake":
        return replace(verdict, reason=PRETENDED)
    if claim is Claim.TIME and name == "cpu" and tier in ("called", "isolated"):
        return replace(verdict, reason=ON_CPU)
    measure, saved = _saving(claim, before, after)
    weighed = measure != "host_growth" and claim is not Claim.EQUAL
    evidence = weigh(claim, data["before"].get("evidence"), origin) if weighed else None
    verdict = replace(verdict, measure=measure, evidence=evidence)
    if saved and evidence and not evidence.supports(getattr(before, measure) - getattr(after, measure)):
        return replace(verdict, reason=ELSEWHERE)
    if saved and data["before"].get("hits") and not data["after"].get("hits", 1):
        return replace(verdict, measure="", reason=OTHER_WAY)
    if saved:
        return replace(verdict, status=CONFIRMED)
    if "hits" in data["before"] and not data["before"]["hits"]:
        return replace(verdict, measure="", reason="the flagged line was not reached in the iterations that were run")
    if absent := data["before"].get("absent"):
        said = ", ".join(absent[:3])
        return replace(verdict, measure="", reason=f"{ABSENT} ({said})")
    if data["before"].get("stumbled"):
        said = "; ".join(data["before"].get("failures", [])[:1])
        return replace(verdict, measure="", reason=f"{STUMBLED}: {said}")
    if claim is not Claim.TIME and not before.churn and not after.churn:
        return replace(verdict, measure="", reason=IDLE)
    host = before.host_growth - after.host_growth
    noise = _noise(before, after)
    if claim is Claim.GROWTH and (noise > UNCLEAR or BLOCK < host <= noise):
        figures = f"{host / 1024:,.1f} KiB less an iteration, give or take {noise / 1024:,.1f}"
        return replace(verdict, measure="host_growth", reason=f"on the host, {figures}: raise --steps")
    own = not data["before"].get("stood", tier in ("called", "isolated"))  # whether the sizes are the program's own
    held, less = _area(data["before"]), _area(data["after"])
    if not own and claim is not Claim.EQUAL and held and abs(held - less) <= SLIGHT * held:
        return replace(verdict, measure="", reason=NO_DIFFERENCE)
    if claim is Claim.PEAK and not own and (held > less or data["before"].get("stood")):
        return replace(verdict, reason=SIZES if held > less else OTHER_SIZES, own=bool(data["before"].get("own")))
    if data["before"].get("whole") and held - less > SLIGHT * held:
        return replace(verdict, measure="", reason=WHOLE)
    reason = FREES if claim is Claim.EQUAL else f"the repair does not lower the {claim.value}"
    return replace(verdict, status=REFUTED, reason=reason)


def _area(arm: dict[str, Any]) -> float:
    """Bytes held, summed over all that the iterations allocated and released; 0 where nobody counted."""
    areas = [reading.get("area", 0.0) for reading in arm["readings"]]
    return float(areas[-1] - areas[0])


def _alone(claim: Claim, data: dict[str, Any], tier: str, device: str, origin: Origin | None, alone: str) -> Verdict:
    """What there is to say where no repair was run: the cost as written.

    That decides only a claim of growth, and only where the stacks of what grows lead to lines that the finding names:
    every other claim is a comparison.
    """
    before = Measurement.of(data["before"])
    short = before.failure or few(before.iterations)
    reason = alone if before.iterations >= FEW else f"{alone}, and as written, {short}"
    measure = MEASURES[claim]
    if claim is Claim.GROWTH and before.device_growth <= BLOCK < before.host_growth:
        measure = "host_growth"
    measure = measure if before.iterations >= FEW else ""
    evidence = weigh(claim, data["before"].get("evidence"), origin) if measure not in ("", "host_growth") else None
    name = data.get("device", device)
    verdict = Verdict(UNDECIDED, claim, tier, name, reason, before, None, measure=measure, evidence=evidence)
    if alone != NO_EDIT or measure != "device_growth" or origin is None or not on_device(before):
        return verdict
    named = weigh(claim, data["before"].get("evidence"), replace(origin, anywhere=False))
    doubtful = data["before"].get("doubt") or not data["before"].get("hits", 1)
    if doubtful or named is None or not named.supports(before.device_growth):
        return verdict
    return replace(verdict, status=CONFIRMED, reason=AS_WRITTEN, evidence=named)


def few(iterations: int) -> str:
    """Why so few are not judged."""
    return f"the loop made {iterations} iterations, and {FEW} are needed"


def grows(arm: Measurement) -> bool:
    """Whether it grows from one iteration to the next beyond noise, on the device or on the host."""
    return on_device(arm) or arm.host_growth > max(BLOCK, SIGMAS * arm.host_noise)


def on_device(arm: Measurement) -> bool:
    """Whether it grows on the device from one iteration to the next beyond noise."""
    return arm.device_growth > max(BLOCK, SIGMAS * arm.device_noise)


def _saving(claim: Claim, before: Measurement, after: Measurement) -> tuple[str, bool]:
    """The number that decides for ``claim``, and whether it falls by more than noise and more than 512 bytes."""
    if claim is Claim.GROWTH:
        if _fell(before.device_growth, after.device_growth, before.device_noise, after.device_noise):
            return "device_growth", True
        noise = _noise(before, after)
        fell = before.host_growth > noise and before.host_growth - after.host_growth > max(BLOCK, noise)
        return ("host_growth", True) if fell else ("device_growth", False)
    if claim is Claim.PEAK:
        return "device_peak", _fell(before.device_peak, after.device_peak, before.peak_noise, after.peak_noise)
    if claim is Claim.EQUAL:
        rises = after.device_peak - before.device_peak, after.kept - before.kept
        return "device_peak", max(rises) <= BLOCK
    if claim is Claim.KEPT:
        return "kept", before.kept - after.kept > BLOCK
    if claim is Claim.CHURN:
        return "churn", before.churn - after.churn > BLOCK
    return "seconds", before.seconds > 1.05 * after.seconds


def _fell(before: float, after: float, *errors: float) -> bool:
    return before - after > max(BLOCK, SIGMAS * math.hypot(*errors))


def _noise(before: Measurement, after: Measurement) -> float:
    """Bytes by which the host's growth must fall to be clear of noise."""
    return SIGMAS * math.hypot(before.host_noise, after.host_noise)


def _within(readings: list[dict[str, float]], name: str, start: str) -> list[float]:
    """The readings of ``name`` added up over the iterations alone, without what fell or rose between two loops."""
    found = [readings[0][name]]
    for before, after in pairwise(readings):
        found.append(found[-1] + after[name] - after.get(start, before[name]))
    return found


def _slope(values: list[float]) -> tuple[float, float]:
    """Growth an iteration, and its standard error.

    The slope is Theil and Sen's of all readings and of both halves, of which the smallest counts: steady growth is in
    each, and neither outliers nor one jump are. Its error is the larger of two, both from medians: that of a line
    through n readings with independent noise s about it, s * sqrt(12 / (n**3 - n)), and that of a walk whose steps
    vary by d, d / sqrt(n - 1). A growth, or a difference of two, is one if it exceeds `SIGMAS` errors.
    """
    count = len(values)
    if count < 2:
        return 0.0, 0.0
    middle = count // 2
    parts = [values, values[: middle + 1], values[middle:]]
    slope = min((_theil_sen(part) for part in parts if len(part) > 1), key=abs)
    about = _scatter(_levelled(values, slope)) * math.sqrt(12 / (count**3 - count))
    walk = _scatter([after - before for before, after in pairwise(values)]) / math.sqrt(count - 1)
    return slope, max(about, walk)


def _levelled(values: list[float], slope: float | None = None) -> list[float]:
    """``values`` without their steady growth."""
    if slope is None:
        slope = _theil_sen(values) if len(values) > 1 else 0.0
    return [value - slope * index for index, value in enumerate(values)]


def _doubt_of_top(values: list[float]) -> float:
    """How far the largest value is a chance: by what it exceeds the third, or all scatter beside a steady growth."""
    top = sorted(values)[-3:]
    return min(top[-1] - top[0], _scatter(_levelled(values)))


def _scatter(values: list[float]) -> float:
    """The standard deviation of ``values`` as their median distance from their median tells it."""
    centre = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - centre) for value in values)


def _theil_sen(values: list[float]) -> float:
    return statistics.median((values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2))
