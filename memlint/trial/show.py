"""Verdicts as text for people: the finding, the verdict, and bars or curves of the two arms."""

from __future__ import annotations

from collections.abc import Iterator

from memlint.files import shown
from memlint.report.style import BOLD, CYAN, GREEN, LEVEL_COLORS, RED, YELLOW, Paint, place, printable
from memlint.trial.confirm import Outcome
from memlint.trial.evidence import Evidence
from memlint.trial.judge import BLOCK, CONFIRMED, REFUTED, Measurement, Verdict

_COLORS = {CONFIRMED: RED, REFUTED: GREEN}
_LEVELS = "▁▂▃▄▅▆▇█"
_PARTS = " ▏▎▍▌▋▊▉█"
_BAR = 32
_WHAT = {
    "device_growth": "growth an iteration",
    "host_growth": "growth an iteration on the host",
    "device_peak": "peak",
    "churn": "allocated an iteration",
    "seconds": "time an iteration",
    "kept": "kept at the end",
}


def render_outcomes(outcomes: list[Outcome], color: bool) -> str:
    """All outcomes, and a line that counts them."""
    paint = Paint(color)
    parts = [line + "\n" for outcome in outcomes for line in _outcome(outcome, paint)]
    counts = [
        (sum(o.verdict.status == status for o in outcomes), status) for status in (CONFIRMED, REFUTED, "undecided")
    ]
    said = ", ".join(f"{number} {status}" for number, status in counts if number)
    return "".join(parts) + (f"{said}.\n" if outcomes else "No findings to confirm.\n")


def size(number: float) -> str:
    """Bytes in the unit that suits; less than an allocator's block is noise, and shown as nothing."""
    if abs(number) < BLOCK:
        return "0 B"
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(number) >= factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number:,.0f} B"


def spark(values: tuple[float, ...], bottom: float, top: float) -> str:
    """A curve in one line of text, between ``bottom`` and ``top``."""
    height = top - bottom
    return "".join(
        _LEVELS[min(7, int(8 * (value - bottom) / height))] if height > 0 else _LEVELS[0] for value in values
    )


def bar(value: float, top: float) -> str:
    """A bar of `_BAR` columns at ``top``, to an eighth of a column."""
    eighths = round(8 * _BAR * max(value, 0) / top) if top > 0 else 0
    return ("█" * (eighths // 8) + _PARTS[eighths % 8]).strip()


def _outcome(outcome: Outcome, paint: Paint) -> Iterator[str]:
    finding, verdict = outcome.finding, outcome.verdict
    level = paint(finding.level.value, BOLD, LEVEL_COLORS[finding.level])
    yield f"{paint(place(finding), BOLD)} {level} {finding.code} {finding.name}: {printable(finding.message)}"
    status = paint(verdict.status, BOLD, _COLORS.get(verdict.status, YELLOW))
    where = f"{verdict.device}, tier {verdict.tier}"
    if verdict.before is not None and verdict.before.iterations:
        where += f", {verdict.before.iterations} iterations"
    yield f"  {status}: {printable(headline(verdict))} {paint(f'({where})', CYAN)}"
    if verdict.before is not None and verdict.measure:
        yield from _arms(verdict, verdict.before, verdict.after, paint)
    yield ""


def headline(verdict: Verdict) -> str:
    if verdict.before is None or not verdict.measure:
        return verdict.reason
    figures = f"{_WHAT[verdict.measure]} {amount(verdict.before, verdict.measure)} as written"
    if verdict.after is not None:
        figures += f", {amount(verdict.after, verdict.measure)} repaired"
    return f"{verdict.reason}; {figures}" if verdict.reason else figures


def amount(arm: Measurement, measure: str) -> str:
    value = getattr(arm, measure)
    return f"{1000 * value:,.1f} ms" if measure == "seconds" else size(value)


def _arms(verdict: Verdict, before: Measurement, after: Measurement | None, paint: Paint) -> Iterator[str]:
    grows = verdict.measure == "device_growth"
    arms = [("as written", before, RED)] + ([("repaired", after, GREEN)] if after is not None else [])
    curves = [value for _, arm, _ in arms for value in arm.curve]
    top = max(getattr(arm, verdict.measure) for _, arm, _ in arms)
    for name, arm, color in arms:
        picture = spark(arm.curve, min(curves), max(curves)) if grows else bar(getattr(arm, verdict.measure), top)
        others = ", ".join(
            (
                f"peak {size(arm.device_peak)}",
                f"growth {size(arm.device_growth)}",
                f"host {size(arm.host_growth)}",
                f"churn {size(arm.churn)}",
                f"{1000 * arm.seconds:,.1f} ms",
            )
        )
        width = len(before.curve) if grows else _BAR
        yield f"    {name:10} {paint(f'{picture:{width}}', color)} {others}"
    if verdict.results != "not compared":
        yield f"    results {verdict.results}"
    if verdict.evidence is not None and verdict.evidence.stacks:
        yield f"    evidence {printable(_evidence(verdict.evidence))}"


def _evidence(evidence: Evidence) -> str:
    """The stack with the most bytes that lead to the finding, or where none do, with the most bytes."""
    largest = evidence.stacks[0]
    frames = [f"{shown(file)}:{line}" for file, line in largest["frames"]]
    where = " in ".join(dict.fromkeys((frames[0], frames[-1]))) if frames else "code without a Python stack"
    share = f"{size(evidence.leading)} of {size(evidence.total)} lead here"
    return f"{share}, {'most' if largest['leads'] else 'most of the others'} from {where}"
