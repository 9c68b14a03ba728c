"""``--report FILE.html``: the verdicts as one page that needs nothing else, for people to look at and hand on."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from pathlib import Path

from memlint import __version__
from memlint.edits import apply_edits
from memlint.files import shown
from memlint.report.style import place, printable
from memlint.source import Source
from memlint.trial.confirm import Outcome
from memlint.trial.judge import CONFIRMED, REFUTED, UNDECIDED, Measurement, Verdict
from memlint.trial.show import amount, headline, size
from memlint.trial.stacks import KINDS

_AROUND = 3  # unchanged lines shown above and below the finding and the fix
_WIDE, _HIGH, _LEFT, _BOTTOM, _TOP = 560, 190, 66, 24, 18  # of the picture, in its own units
_LEADS = {True: "leads to the finding", False: ""}
_ROWS = (
    ("device_peak", "peak above the start"),
    ("device_growth", "growth an iteration"),
    ("host_growth", "growth an iteration on the host"),
    ("churn", "allocated an iteration"),
    ("seconds", "time an iteration"),
)


def page(outcomes: Sequence[Outcome], sources: Mapping[str, Source], torch: str, command: str) -> str:
    """The whole page. ``torch`` is the version that ran the trials, ``command`` what was called."""
    counts = {status: sum(o.verdict.status == status for o in outcomes) for status in (CONFIRMED, REFUTED, UNDECIDED)}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no findings"
    css = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    articles = (_article(n, o, sources.get(o.finding.path)) for n, o in enumerate(outcomes, 1))
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>memlint: {said}</title>\n<style>\n{css}</style>\n</head>\n<body>\n",
            '<a class="skip" href="#findings">To the findings</a>\n',
            f"<header>\n<h1>memlint: {said}</h1>\n",
            '<p class="faint">Each finding was run as written and with its repair laid over, on the same inputs and '
            "seeds. Bytes are above what was alive before the set-up.</p>\n",
            f"</header>\n{_contents(outcomes)}<main id='findings'>\n",
            *articles,
            f"</main>\n{_environment(outcomes, torch, command)}</body>\n</html>\n",
        )
    )


def _contents(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    rows = (
        f'<tr><td><a href="#finding-{n}">{_text(place(o.finding))}</a></td><td>{_text(o.finding.name)}</td>'
        f"<td>{_status(o.verdict)}</td><td>{_text(headline(o.verdict))}</td></tr>\n"
        for n, o in enumerate(outcomes, 1)
    )
    head = "<tr><th>where</th><th>rule</th><th>verdict</th><th>figures</th></tr>\n"
    return f'<nav aria-label="Findings">\n<table>\n{head}{"".join(rows)}</table>\n</nav>\n'


def _article(number: int, outcome: Outcome, source: Source | None) -> str:
    return "".join(_parts(number, outcome, source))


def _parts(number: int, outcome: Outcome, source: Source | None) -> Iterator[str]:
    finding, verdict = outcome.finding, outcome.verdict
    yield f'<article id="finding-{number}" aria-labelledby="title-{number}">\n'
    yield f'<h2 id="title-{number}">{_text(place(finding))} <span class="faint">'
    yield f"{finding.level.value} {finding.code} {_text(finding.name)}</span></h2>\n<p>{_text(finding.message)}</p>\n"
    yield f"<p>{_status(verdict)}: {_text(headline(verdict))}</p>\n"
    if source is not None and not source.is_notebook:
        yield _code(outcome, source)
    if verdict.before is not None and verdict.measure:
        arms = [("as written", "written", verdict.before)]
        arms += [("repaired", "repaired", verdict.after)] if verdict.after is not None else []
        yield '<div class="pair">\n<div>\n<h3>Live bytes after each iteration</h3>\n'
        yield f"{_curves(number, arms)}</div>\n<div>\n<h3>An iteration</h3>\n{_numbers(verdict)}</div>\n</div>\n"
        yield _alive(number, arms)
    yield from _origin(verdict)
    if finding.trail:
        steps = "".join(f"<li><code>{_text(s.path)}:{s.line}</code> {_text(s.message)}</li>" for s in finding.trail)
        yield f"<h3>How it comes there</h3>\n<ol>{steps}</ol>\n"
    where = f"tier {verdict.tier}, {verdict.device}, results {verdict.results}"
    yield f'<p class="faint">{_text(where)}</p>\n'
    if outcome.harness:
        yield "<details><summary>The harness that called it</summary>\n"
        yield f'<pre tabindex="0">{_text(outcome.harness)}</pre></details>\n'
    yield "</article>\n"


def _status(verdict: Verdict) -> str:
    return f'<span class="verdict {verdict.status}">{verdict.status}</span>'


def _code(outcome: Outcome, source: Source) -> str:
    """The flagged lines, and what the repair makes of them, as a diff with some lines around."""
    from difflib import SequenceMatcher

    fix = outcome.finding.fix
    old = source.text.splitlines()
    new = apply_edits(source, fix.edits).splitlines() if fix and fix.edits else old
    span = outcome.finding.span
    lines: list[tuple[int, str, str]] = []  # the line's number in the old text, its kind, its text
    for verb, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        kind = "same" if verb == "equal" else "gone"
        lines += [(n + 1, kind, old[n]) for n in range(a, b)]
        if verb != "equal":
            lines += [(max(b, 1), "new", text) for text in new[c:d]]
    wanted = {n for n, kind, _ in lines if kind != "same"}
    wanted.update(range(span.line, min(span.end_line, span.line + 5) + 1))
    near = {n + step for n in wanted for step in range(-_AROUND, _AROUND + 1)}
    rows, last = [], 0
    width = len(str(max(near)))
    for n, kind, text in lines:
        if n not in near:
            continue
        if last and n > last + 1:
            rows.append('<span class="faint">…</span>')
        sign = {"same": " ", "gone": "-", "new": "+"}[kind]
        label = f"{n:{width}}" if kind != "new" else " " * width
        mark = "▸" if kind != "new" and n == span.line else " "
        rows.append(f'<span class="{kind}">{mark}{label} {sign} {_text(text)}</span>')
        last = n
    title = f"<h3>{_text(fix.title)}</h3>\n" if fix else ""
    return f'{title}<pre tabindex="0" aria-label="Code">{"".join(rows)}</pre>\n'


def _curves(number: int, arms: Sequence[tuple[str, str, Measurement]]) -> str:
    """Live bytes of each arm over its iterations, as a picture whose description says the figures."""
    values = [value for _, _, arm in arms for value in arm.curve]
    if not values:
        return "<p>No iteration was measured.</p>\n"
    low, high = min(0.0, *values), max(values) or 1.0
    most = max(len(arm.curve) for _, _, arm in arms) - 1

    def point(index: int, value: float) -> str:
        x = _LEFT + (_WIDE - _LEFT - 84) * index / max(most, 1)
        y = _TOP + (_HIGH - _TOP - _BOTTOM) * (1 - (value - low) / ((high - low) or 1))
        return f"{x:.1f},{y:.1f}"

    lines, labels = [], []
    placed: list[float] = []
    for name, style, arm in arms:
        if not arm.curve:
            continue
        points = " ".join(point(i, value) for i, value in enumerate(arm.curve))
        lines.append(f'<polyline class="{style}" points="{points}"/>')
        x, y = map(float, point(len(arm.curve) - 1, arm.curve[-1]).split(","))
        y = max([y, *(at + 14 for at in placed if abs(at - y) < 14)])
        placed.append(y)
        labels.append(f'<text class="{style}" x="{x + 8:.1f}" y="{y + 4:.1f}">{name}</text>')
    said = "; ".join(f"{name} from {size(arm.curve[0])} to {size(arm.curve[-1])}" for name, _, arm in arms if arm.curve)
    base, top = _HIGH - _BOTTOM, _TOP
    return (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-labelledby="curve-{number}">'
        f'<title id="curve-{number}">Live bytes over {most} iterations: {_text(said)}</title>'
        f'<line class="axis" x1="{_LEFT}" y1="{top}" x2="{_LEFT}" y2="{base}"/>'
        f'<line class="axis" x1="{_LEFT}" y1="{base}" x2="{_WIDE - 84}" y2="{base}"/>'
        f'<text x="{_LEFT - 6}" y="{top + 4}" text-anchor="end">{size(high)}</text>'
        f'<text x="{_LEFT - 6}" y="{base + 4}" text-anchor="end">{size(low)}</text>'
        f'<text x="{_LEFT}" y="{_HIGH - 6}">0</text>'
        f'<text x="{_WIDE - 84}" y="{_HIGH - 6}" text-anchor="end">{most} iterations</text>'
        f"{''.join(lines)}{''.join(labels)}</svg>\n"
    )


def _numbers(verdict: Verdict) -> str:
    before, after = verdict.before, verdict.after
    assert before is not None
    head = '<tr><th></th><th class="number">as written</th>' + '<th class="number">repaired</th>' * (after is not None)
    rows = []
    for name, label in _ROWS:
        if name == "seconds" and verdict.device == "fake":
            continue  # fake tensors do no work
        figures = [amount(arm, name) for arm in (before, after) if arm is not None]
        cells = "".join(f'<td class="number">{figure}</td>' for figure in figures)
        strong = ("<strong>", "</strong>") if name == verdict.measure else ("", "")
        rows.append(f"<tr><td>{strong[0]}{label}{strong[1]}</td>{cells}</tr>\n")
    if before.workspace:
        rows.append(
            f'<tr><td>cuBLAS workspace, once a process</td><td class="number">{size(before.workspace)}</td>'
            + "<td></td>" * (after is not None)
            + "</tr>\n"
        )
    return f"<table>\n{head}</tr>\n{''.join(rows)}</table>\n"


def _alive(number: int, arms: Sequence[tuple[str, str, Measurement]]) -> str:
    """What was alive at the peak by kind: a bar for each arm and the figures."""
    known = [(name, arm) for name, _, arm in arms if arm.alive]
    if not known:
        return ""
    top = max(sum(arm.alive.values()) for _, arm in known) or 1
    bars = []
    for row, (name, arm) in enumerate(known):
        x = 74.0
        y = 8 + 34 * row
        bars.append(f'<text x="0" y="{y + 16}">{name}</text>')
        for index, kind in enumerate(KINDS):
            width = 400 * arm.alive.get(kind, 0) / top
            bars.append(f'<rect class="k{index}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="24"/>')
            x += width
        bars.append(f'<text x="{x + 6:.1f}" y="{y + 16}">{size(sum(arm.alive.values()))}</text>')
    said = "; ".join(
        f"{name}: {', '.join(f'{kind} {size(arm.alive.get(kind, 0))}' for kind in KINDS)}" for name, arm in known
    )
    head = "".join(f'<th class="number">{name}</th>' for name, _ in known)
    rows = "".join(
        f'<tr><td><span class="key k{index}"></span>{kind}</td>'
        + "".join(f'<td class="number">{size(arm.alive.get(kind, 0))}</td>' for _, arm in known)
        + "</tr>\n"
        for index, kind in enumerate(KINDS)
        if any(arm.alive.get(kind) for _, arm in known)
    )
    return (
        '<h3>Alive at the peak</h3>\n<div class="pair">\n<div>\n'
        f'<svg viewBox="0 0 560 {8 + 34 * len(known)}" role="img" aria-labelledby="alive-{number}">'
        f'<title id="alive-{number}">{_text(said)}</title>{"".join(bars)}</svg>\n</div>\n'
        f"<div>\n<table>\n<tr><th></th>{head}</tr>\n{rows}</table>\n</div>\n</div>\n"
    )


def _origin(verdict: Verdict) -> Iterator[str]:
    """Who allocated the bytes that the finding is about, by line."""
    evidence = verdict.evidence
    if evidence is None or not evidence.stacks:
        return
    rows = "".join(
        f"<tr><td>{_frames(stack['frames'])}</td>"
        f'<td class="number">{size(stack["bytes"])}</td><td>{_LEADS[stack["leads"]]}</td></tr>\n'
        for stack in evidence.stacks
    )
    yield "<h3>Allocated by</h3>\n<table>\n"
    yield f'<tr><th>line, and its callers</th><th class="number">bytes</th><th></th></tr>\n{rows}</table>\n'


def _frames(frames: Sequence[Sequence[object]]) -> str:
    """The innermost lines of the user's own code, or that there are none: autograd's threads run no Python."""
    lines = [f"<code>{_text(shown(str(file)))}:{line}</code>" for file, line in frames[:3]]
    return "<br>".join(lines) or "code without a Python stack"


def _environment(outcomes: Sequence[Outcome], torch: str, command: str) -> str:
    devices = sorted({o.verdict.device for o in outcomes})
    facts = {
        "command": command,
        "memlint": __version__,
        "torch": torch or "not started",
        "devices": ", ".join(devices) or "none",
        "Python": platform.python_version(),
        "platform": platform.platform(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }
    rows = "".join(f"<tr><th>{name}</th><td>{_text(value)}</td></tr>\n" for name, value in facts.items())
    return f"<footer>\n<h3>Environment</h3>\n<table>\n{rows}</table>\n</footer>\n"


def _text(text: str) -> str:
    return escape("\n".join(printable(line) for line in text.split("\n")))
