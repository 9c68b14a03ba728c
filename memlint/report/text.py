"""``text``: for people. Grouped by file, with code frames, the trail and the fix as a small diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby

from memlint.check import Report
from memlint.registry import page_of
from memlint.report.style import BLUE, BOLD, CYAN, GREEN, LEVEL_COLORS, RED, Paint, Screen, place, printable, width
from memlint.rule import Applicability, Edit, Finding, Fix, Level
from memlint.source import Source

_FRAME = 4  # lines of code that a frame shows at most
_DIFF = 14  # lines of a fix's diff that are shown at most

_APPLY = {
    Applicability.SAFE: "safe, applied by --fix",
    Applicability.UNSAFE: "applied by --fix --unsafe-fixes",
    Applicability.HINT: "by hand",
}


def render(report: Report, screen: Screen) -> str:
    """The whole report, its summary line last."""
    look = _Look(screen, report.rule_folders)
    parts: list[str] = []
    for path, group in groupby(report.findings, key=lambda f: f.path):
        parts.append(look.paint(printable(path), BOLD) + "\n")
        findings = list(group)
        for finding in findings:
            if finding.level is Level.NOTE:
                parts += _note(finding, report.sources.get(path), look)
            else:
                parts += _finding(finding, report.sources.get(path), look)
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


class _Look:
    """How findings are drawn on one screen."""

    def __init__(self, screen: Screen, rule_folders: Sequence[str]) -> None:
        self.paint = Paint(screen.color)
        self.columns = screen.columns
        self._links = screen.links
        self._rule_folders = rule_folders

    def title(self, finding: Finding) -> str:
        """Code and name; on a terminal that shows links, one to the rule's page."""
        text = f"{finding.code} {finding.name}"
        page = page_of(finding.name, self._rule_folders) if self._links else None
        return Paint.link(text, page.resolve().as_uri()) if page else text


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _note(finding: Finding, source: Source | None, look: _Look) -> Iterator[str]:
    at = place(finding, source)[len(printable(finding.path)) + 1 :]
    yield f"  {look.paint('note', CYAN)} {look.title(finding)} at {at}: {printable(finding.message)}\n"


def _finding(finding: Finding, source: Source | None, look: _Look) -> Iterator[str]:
    paint = look.paint
    level = paint(finding.level.value, BOLD, LEVEL_COLORS[finding.level])
    yield f"  {level} {paint(look.title(finding), BOLD)}: {printable(finding.message)}\n"
    digits = len(str(finding.span.end_line))
    yield f"  {'':{digits}}{paint('-->', BLUE)} {place(finding, source)}\n"
    if source is not None:
        yield from _frame(finding, source, digits, look)
    for step in finding.trail:
        where = f"{printable(step.path)}:{step.line}"
        yield f"  {'':{digits}} {paint('=', BLUE)} {where}: {printable(step.message)}\n"
    if finding.fix:
        yield from _fix(finding.fix, source, digits, look)
    yield "\n"


def _frame(finding: Finding, source: Source, digits: int, look: _Look) -> Iterator[str]:
    span, paint = source.code_span(finding.span), look.paint
    # The lines of a notebook are counted in their cell.
    shift = source.code.cell_line(span.line) - span.line if source.code else 0
    bar = paint("|", BLUE)
    long = look.columns - digits - len("   | ")
    last = min(span.end_line, span.line + _FRAME - 1, len(source.lines))
    for number in range(span.line, last + 1):
        raw = source.line(number)
        start = span.column - 1 if number == span.line else len(raw) - len(raw.lstrip())
        end = span.end_column - 1 if number == span.end_line else len(raw)
        cut = max(0, start - long // 2) if len(raw) > long else 0
        raw, start, end = raw[cut : cut + long], start - cut, min(end - cut, long)
        lead = " " * width(printable(raw[:start]))
        mark = "^" * max(1, width(printable(raw[start:end])))
        yield f"  {paint(f'{number + shift:{digits}}', BLUE)} {bar} {printable(raw)}\n"
        yield f"  {'':{digits}} {bar} {lead}{paint(mark, LEVEL_COLORS[finding.level])}\n"
    if last < span.end_line:
        yield f"  {'':{digits}} {bar} … to line {span.end_line + shift}\n"


def _fix(fix: Fix, source: Source | None, digits: int, look: _Look) -> Iterator[str]:
    paint = look.paint
    how = _APPLY[fix.applicability]
    why = f": {printable(fix.reason)}" if fix.reason else ""
    pad = f"  {'':{digits}} "
    yield f"{pad}{paint('=', BLUE)} fix: {printable(fix.title)} ({how}{why})\n"
    if source is None:
        return
    source = source.file
    lines = [line for group in _groups(fix.edits) for line in _changed(source, group)]
    for sign, line in lines[:_DIFF]:
        text = f"{sign} {printable(line)}".rstrip()[: look.columns - len(pad) - 2]
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
