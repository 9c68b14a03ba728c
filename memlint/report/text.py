"""``text``: for people. Grouped by file, with code frames, the trail and the fix as a small diff."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import groupby

from memlint.check import Report
from memlint.report.style import BLUE, BOLD, CYAN, GREEN, LEVEL_COLORS, RED, Paint, place, printable, width
from memlint.rule import Applicability, Edit, Finding, Fix, Level
from memlint.source import Source

_FRAME = 4  # lines of code that a frame shows at most
_DIFF = 14  # lines of a fix's diff that are shown at most
_LONG = 160  # characters of a line that are shown at most

_APPLY = {
    Applicability.SAFE: "safe, applied by --fix",
    Applicability.UNSAFE: "applied by --fix --unsafe-fixes",
    Applicability.HINT: "by hand",
}


def render(report: Report, color: bool) -> str:
    """The whole report, its summary line last."""
    paint = Paint(color)
    parts: list[str] = []
    for path, group in groupby(report.findings, key=lambda f: f.path):
        parts.append(paint(printable(path), BOLD) + "\n")
        findings = list(group)
        for finding in findings:
            if finding.level is Level.NOTE:
                parts += _note(finding, paint)
            else:
                parts += _finding(finding, report.sources.get(path), paint)
        if findings[-1].level is Level.NOTE:
            parts.append("\n")
    parts.append(summary(report) + "\n")
    return "".join(parts)


def summary(report: Report) -> str:
    """One line: what was found, in how many files, and what can be repaired."""
    counts = [(sum(f.level is level for f in report.findings), level.value) for level in reversed(Level)]
    found = ", ".join(_plural(n, word) for n, word in counts if n)
    fixed = f"{_plural(report.fixed, 'finding')} fixed. " if report.fixed else ""
    files = _plural(report.files, "file")
    if not found:
        return f"{fixed}No findings in {files}."
    fixable = sum(bool(f.fix and f.fix.edits and f.fix.applicability is Applicability.SAFE) for f in report.findings)
    unsafe = sum(bool(f.fix and f.fix.edits and f.fix.applicability is Applicability.UNSAFE) for f in report.findings)
    ways = [f"{fixable} repaired by --fix"] * bool(fixable) + [f"{unsafe} by --unsafe-fixes"] * bool(unsafe)
    return f"{fixed}{found} in {files}" + (f" ({', '.join(ways)})." if ways else ".")


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _note(finding: Finding, paint: Paint) -> Iterator[str]:
    at = place(finding)[len(printable(finding.path)) + 1 :]
    yield f"  {paint('note', CYAN)} {finding.code} {finding.name} at {at}: {printable(finding.message)}\n"


def _finding(finding: Finding, source: Source | None, paint: Paint) -> Iterator[str]:
    level = paint(finding.level.value, BOLD, LEVEL_COLORS[finding.level])
    yield f"  {level} {paint(f'{finding.code} {finding.name}', BOLD)}: {printable(finding.message)}\n"
    digits = len(str(finding.span.end_line))
    yield f"  {'':{digits}}{paint('-->', BLUE)} {place(finding)}\n"
    if source is not None and not source.is_notebook:
        yield from _frame(finding, source, digits, paint)
    for step in finding.trail:
        where = f"{printable(step.path)}:{step.line}"
        yield f"  {'':{digits}} {paint('=', BLUE)} {where}: {printable(step.message)}\n"
    if finding.fix:
        yield from _fix(finding.fix, source, digits, paint)
    yield "\n"


def _frame(finding: Finding, source: Source, digits: int, paint: Paint) -> Iterator[str]:
    span = finding.span
    bar = paint("|", BLUE)
    last = min(span.end_line, span.line + _FRAME - 1, len(source.lines))
    for number in range(span.line, last + 1):
        raw = source.line(number)
        start = span.column - 1 if number == span.line else len(raw) - len(raw.lstrip())
        end = span.end_column - 1 if number == span.end_line else len(raw)
        cut = max(0, start - _LONG // 2) if len(raw) > _LONG else 0
        raw, start, end = raw[cut : cut + _LONG], start - cut, min(end - cut, _LONG)
        lead = " " * width(printable(raw[:start]))
        mark = "^" * max(1, width(printable(raw[start:end])))
        yield f"  {paint(f'{number:{digits}}', BLUE)} {bar} {printable(raw)}\n"
        yield f"  {'':{digits}} {bar} {lead}{paint(mark, LEVEL_COLORS[finding.level])}\n"
    if last < span.end_line:
        yield f"  {'':{digits}} {bar} … to line {span.end_line}\n"


def _fix(fix: Fix, source: Source | None, digits: int, paint: Paint) -> Iterator[str]:
    how = _APPLY[fix.applicability]
    why = f": {printable(fix.reason)}" if fix.reason else ""
    pad = f"  {'':{digits}} "
    yield f"{pad}{paint('=', BLUE)} fix: {printable(fix.title)} ({how}{why})\n"
    if source is None or source.is_notebook:
        return
    lines = [line for group in _groups(fix.edits) for line in _changed(source, group)]
    for sign, line in lines[:_DIFF]:
        text = f"{sign} {printable(line[:_LONG])}".rstrip()
        yield f"{pad}  {paint(text, RED) if sign == '-' else paint(text, GREEN) if sign == '+' else text}\n"
    if len(lines) > _DIFF:
        yield f"{pad}  … {len(lines) - _DIFF} more lines; --diff shows all\n"


def _groups(edits: tuple[Edit, ...]) -> list[list[Edit]]:
    """Edits in order, those on the same or neighbouring lines together."""
    groups: list[list[Edit]] = []
    end = -1
    for edit in sorted(edits):
        if groups and edit.span.line <= end + 1:
            groups[-1].append(edit)
        else:
            groups.append([edit])
        end = max(end, edit.span.end_line)
    return groups


def _changed(source: Source, edits: list[Edit]) -> list[tuple[str, str]]:
    """The lines that the edits touch, before and after, each with its sign."""
    first = edits[0].span.line
    start = source.offset(first, 1)
    end = source.offset(max(edit.span.end_line for edit in edits) + 1, 1)
    text = source.text[start:end]
    for edit in reversed(edits):
        at = source.offset(edit.span.line, edit.span.column) - start
        upto = source.offset(edit.span.end_line, edit.span.end_column) - start
        text = text[:at] + edit.text + text[upto:]
    old, new = source.text[start:end].splitlines(), text.splitlines()
    lines: list[tuple[str, str]] = []
    for verb, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if verb == "equal":
            lines += [(" ", line) for line in old[a:b][:2]]
        else:
            lines += [("-", line) for line in old[a:b]] + [("+", line) for line in new[c:d]]
    return lines
