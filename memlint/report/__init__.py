"""Reports, one small module a format, each loaded only when asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from memlint.check import Report
from memlint.report.style import Screen as Screen

FORMATS = {
    "text": "text",
    "concise": "concise",
    "json": "json_document",
    "jsonl": "json_lines",
    "lsp": "lsp",
    "sarif": "sarif",
    "github": "github",
    "gitlab": "gitlab",
    "junit": "junit",
}
"""Format names, as users write them, and their modules."""


def render(name: str, report: Report, screen: Screen | None = None) -> str:
    """The report in a format of `FORMATS`, with its last line end. ``screen`` matters to ``text`` alone."""
    module = import_module(f"memlint.report.{FORMATS[name]}")
    function: Callable[[Report, Screen], str] = module.render
    return function(report, screen or Screen())
