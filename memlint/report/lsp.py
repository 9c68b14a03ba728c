"""``lsp``: the parameters of ``textDocument/publishDiagnostics``, one JSON object a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from memlint.check import Report
from memlint.registry import page_of
from memlint.report.style import Screen
from memlint.rule import Finding, Level, Span, Step
from memlint.source import Source

_SEVERITY = {Level.ERROR: 1, Level.WARNING: 2, Level.NOTE: 3}


def render(report: Report, screen: Screen) -> str:
    """One line for every file checked, so that a file without findings clears what stood there."""
    by_path: dict[str, list[Finding]] = {path: [] for path in report.sources}
    for finding in report.findings:
        by_path.setdefault(finding.path, []).append(finding)
    objects = (
        {"uri": uri(path), "diagnostics": [diagnostic(finding, report.sources) for finding in found]}
        for path, found in sorted(by_path.items())
    )
    return "".join(json.dumps(each) + "\n" for each in objects)


def diagnostic(finding: Finding, sources: dict[str, Source], encoding: str = "utf-16") -> dict[str, Any]:
    """An LSP ``Diagnostic``: zero-based ranges in units of ``encoding``, the trail as related information, the fix as
    data."""
    known = sources.get(finding.path)
    source = known.file if known else None
    result: dict[str, Any] = {
        "range": span_range(finding.span, source, encoding),
        "severity": _SEVERITY[finding.level],
        "code": finding.code,
        "source": "memlint",
        "message": f"{finding.message} ({finding.name})",
    }
    if page := page_of(finding.name):
        result["codeDescription"] = {"href": page.resolve().as_uri()}
    if finding.trail:
        result["relatedInformation"] = [_related(step, sources, encoding) for step in finding.trail]
    fix = finding.fix
    result["data"] = {
        "name": finding.name,
        "fingerprint": finding.fingerprint,
        "title": fix.title if fix else None,
        "applicability": fix.applicability.value if fix else None,
        "edits": [{"range": span_range(e.span, source, encoding), "newText": e.text} for e in fix.edits] if fix else [],
    }
    return result


def span_range(span: Span, source: Source | None, encoding: str = "utf-16") -> dict[str, Any]:
    """An LSP ``Range``."""
    return {
        "start": {"line": span.line - 1, "character": units(source, span.line, span.column, encoding)},
        "end": {"line": span.end_line - 1, "character": units(source, span.end_line, span.end_column, encoding)},
    }


def uri(path: str) -> str:
    """The ``file:`` address of a path as shown."""
    return Path(os.path.abspath(path)).as_uri()


def _related(step: Step, sources: dict[str, Source], encoding: str) -> dict[str, Any]:
    source = sources.get(step.path)
    source = source.file if source else None
    end = len(source.line(step.line)) + 1 if source else 1
    span = Span(step.line, 1, step.line, end)
    return {"location": {"uri": uri(step.path), "range": span_range(span, source, encoding)}, "message": step.message}


def units(source: Source | None, line: int, column: int, encoding: str) -> int:
    """Code units of ``encoding`` (utf-8, utf-16 or utf-32) before a column of a line, both from 1."""
    if source is None or encoding == "utf-32":
        return column - 1
    before = source.line(line)[: column - 1]
    if before.isascii():
        return len(before)
    return len(before.encode(f"{encoding}-le" if encoding == "utf-16" else encoding, "surrogatepass")) // (
        2 if encoding == "utf-16" else 1
    )
