"""``github``: workflow commands that GitHub Actions shows as annotations on the lines of a change."""

from __future__ import annotations

from memlint.check import Report
from memlint.report.style import Screen, sentences
from memlint.rule import Level

_COMMAND = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}


def render(report: Report, screen: Screen) -> str:
    """One workflow command a finding. Columns count only within one line, which is all that GitHub allows."""
    lines = []
    for f in report.findings:
        properties = {"file": f.path, "line": f.span.line, "endLine": f.span.end_line}
        if f.span.line == f.span.end_line:
            properties |= {"col": f.span.column, "endColumn": f.span.end_column}
        properties["title"] = f"{f.code} {f.name}"
        joined = ",".join(f"{key}={_escape(str(value), ':,')}" for key, value in properties.items())
        message = sentences(f)
        lines.append(f"::{_COMMAND[f.level]} {joined}::{_escape(message)}\n")
    return "".join(lines)


def _escape(text: str, more: str = "") -> str:
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
