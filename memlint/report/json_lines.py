"""``jsonl``: one finding a line, each as in ``json``."""

from __future__ import annotations

import json

from memlint.check import Report
from memlint.report.style import Screen
from memlint.wire import to_dict


def render(report: Report, screen: Screen) -> str:
    """One JSON object a line; nothing where there is no finding."""
    return "".join(json.dumps(to_dict(finding)) + "\n" for finding in report.findings)
