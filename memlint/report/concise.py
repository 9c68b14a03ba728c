"""``concise``: one line a finding."""

from __future__ import annotations

from memlint.check import Report
from memlint.report.style import Screen, place, printable
from memlint.rule import Applicability


def render(report: Report, screen: Screen) -> str:
    """One line a finding; ``[*]`` marks those that ``--fix`` repairs."""
    lines = []
    for f in report.findings:
        mark = " [*]" if f.fix and f.fix.edits and f.fix.applicability is Applicability.SAFE else ""
        lines.append(
            f"{place(f, report.sources.get(f.path))}: {f.level.value} {f.code} {f.name}: {printable(f.message)}{mark}\n"
        )
    return "".join(lines)
