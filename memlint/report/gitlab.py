"""``gitlab``: a Code Quality report, which GitLab shows in merge requests."""

from __future__ import annotations

import json
import posixpath

from memlint.check import Report
from memlint.report.style import Screen, sentences
from memlint.rule import Level

_SEVERITY = {Level.ERROR: "critical", Level.WARNING: "major", Level.NOTE: "info"}


def render(report: Report, screen: Screen) -> str:
    """A list of issues with paths relative to the working folder, which in a job is the repository's root."""
    issues = [
        {
            "description": sentences(f),
            "check_name": f.name,
            "fingerprint": f.fingerprint,
            "severity": _SEVERITY[f.level],
            "location": {
                "path": posixpath.normpath(f.path.replace("\\", "/")),
                "lines": {"begin": f.span.line, "end": f.span.end_line},
            },
        }
        for f in report.findings
    ]
    return json.dumps(issues, indent=2) + "\n"
