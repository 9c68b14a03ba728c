"""``json``: one document, a contract (see `memlint.wire.to_dict`)."""

from __future__ import annotations

import json
from typing import Any

from memlint.check import Report
from memlint.report.style import Screen
from memlint.rule import Level
from memlint.wire import to_dict


def render(report: Report, screen: Screen) -> str:
    """``{"version": 1, "findings": [...], "summary": {...}}``; ASCII, so that any stream takes it."""
    document = {"version": 1, "findings": [to_dict(f) for f in report.findings], "summary": summary(report)}
    return json.dumps(document, indent=2) + "\n"


def summary(report: Report) -> dict[str, Any]:
    """Counts of files checked and of findings by level, findings fixed, and seconds taken."""
    levels = [f.level for f in report.findings]
    return {
        "files": report.files,
        "errors": levels.count(Level.ERROR),
        "warnings": levels.count(Level.WARNING),
        "notes": levels.count(Level.NOTE),
        "fixed": report.fixed,
        "seconds": round(report.seconds, 3),
    }
