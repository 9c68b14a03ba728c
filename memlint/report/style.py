"""What the formats for people share: colour, places, and text that a terminal can be trusted with."""

from __future__ import annotations

import os
import unicodedata
from typing import IO, NamedTuple

from memlint.rule import Finding, Level
from memlint.source import Source

BOLD, RED, GREEN, YELLOW, BLUE, CYAN = "1", "31", "32", "33", "34", "36"
LEVEL_COLORS = {Level.ERROR: RED, Level.WARNING: YELLOW, Level.NOTE: CYAN}


class Screen(NamedTuple):
    """What the text is shown on: whether it takes colours and links (OSC 8), and how many columns it has."""

    color: bool = False
    links: bool = False
    columns: int = 160

    @classmethod
    def of(cls, stream: IO[str], color: bool | None = None) -> Screen:
        """The screen behind a stream. ``color`` overrides what the stream and ``NO_COLOR`` say."""
        terminal = stream.isatty()
        if color is None:
            color = terminal and not os.environ.get("NO_COLOR")
        columns = _columns() if terminal else cls().columns
        return cls(color, terminal and color and _shows_links(), max(columns, 40))


def _columns() -> int:
    from shutil import get_terminal_size  # not for a file or a pipe: it brings all of Python's archive formats

    return get_terminal_size().columns


def _shows_links() -> bool:
    """Whether the terminal is one of those known to show links: no terminal can be asked."""
    env = os.environ
    return (
        env.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper")
        or env.get("TERM") in ("xterm-kitty", "alacritty", "foot", "xterm-ghostty")
        or (env.get("VTE_VERSION", "").isdigit() and int(env["VTE_VERSION"]) >= 5000)
        or "WT_SESSION" in env
        or "KONSOLE_VERSION" in env
    )


class Paint:
    """Colours text, or leaves it alone."""

    def __init__(self, on: bool) -> None:
        self._on = on

    @staticmethod
    def link(text: str, address: str) -> str:
        """``text`` as a link, for a terminal that shows them."""
        return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\"

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


def place(finding: Finding, source: Source | None = None) -> str:
    """``path:line:column``, in a notebook with the cell and, where its ``source`` is at hand, the line of the cell."""
    cell = f" (cell {finding.cell})" if finding.cell is not None else ""
    if cell and source is not None and source.code is not None:
        line = source.code.cell_line(source.code_span(finding.span).line)
        cell = f" (cell {finding.cell}, line {line})"
    return f"{printable(finding.path)}:{finding.span.line}:{finding.span.column}{cell}"


def sentences(finding: Finding) -> str:
    """What is wrong and what to write, for a reader who sees nothing but this text."""
    if finding.fix is None:
        return finding.message
    return f"{finding.message}. {finding.fix.title[:1].upper()}{finding.fix.title[1:]}."
