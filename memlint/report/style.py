"""What the formats for people share: colour, places, and text that a terminal can be trusted with."""

from __future__ import annotations

import unicodedata

from memlint.rule import Finding, Level

BOLD, RED, GREEN, YELLOW, BLUE, CYAN = "1", "31", "32", "33", "34", "36"
LEVEL_COLORS = {Level.ERROR: RED, Level.WARNING: YELLOW, Level.NOTE: CYAN}


class Paint:
    """Colours text, or leaves it alone."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._on and text else text


def printable(text: str) -> str:
    """``text`` without control characters: source code must not steer the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "    " if c == "\t" else "�" for c in text)


def width(text: str) -> int:
    """Columns that printable text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def place(finding: Finding) -> str:
    """``path:line:column``, with the cell in a notebook."""
    cell = f" (cell {finding.cell})" if finding.cell is not None else ""
    return f"{printable(finding.path)}:{finding.span.line}:{finding.span.column}{cell}"
