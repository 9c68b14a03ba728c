"""A rule's page, ``rules/NAME.md``: documentation whose code blocks are the rule's tests and its trial."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

HEADINGS = ("What it finds", "Why it costs", "The fix", "What it leaves alone", "Trial")

_TITLE = re.compile(r"# (?P<name>[a-z0-9-]+) \((?P<code>[A-Z]+[0-9]+)\)\s*$")
_LEVEL = re.compile(r"Level: (?P<level>[^.]+)\. Fix: (?P<fix>.+?)\.?\s*$")
_FILE = re.compile(r"# file: (\S+)\s*$")
_TARGET = re.compile(r"# target-torch: (\S+)")


class PageError(Exception):
    """A page that does not have the fixed form; the message names file, line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of Python: its text, the line of the page it starts on, the words after ``python``."""

    text: str
    line: int
    words: tuple[str, ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """The block's files by name: one ``block.py``, or those that ``# file: name.py`` lines part."""
        files: dict[str, list[str]] = {}
        name = "block.py"
        for line in self.text.splitlines(keepends=True):
            if match := _FILE.match(line):
                name = match[1]
                files.setdefault(name, [])
            else:
                files.setdefault(name, []).append(line)
        head = files.get("block.py", [])
        if len(files) > 1 and all(not line.strip() or line.startswith("#") for line in head):
            files.pop("block.py", None)  # what stands before the first file is about the block
        return {name: "".join(lines) for name, lines in files.items()}

    @property
    def target(self) -> str | None:
        """The torch version of a ``# target-torch: X.Y`` line at the block's start."""
        match = _TARGET.search("\n".join(self.text.splitlines()[:2]))
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says, by its fixed headings.

    A block ``python trial NAME`` under "Trial" is a module in which the rule finds one thing, with `setup(device)` for
    the arguments of the function to call, which `target` may name; ``python repaired NAME`` is the same, repaired by
    hand where memlint has no edit for it. A rule's only trial needs no name.
    """

    path: Path
    name: str
    code: str
    summary: str
    level: str
    fix: str
    sections: dict[str, str]
    finds: tuple[Block, ...] = ()
    fixes: tuple[tuple[Block, Block], ...] = ()
    leaves: tuple[Block, ...] = ()
    trials: tuple[Block, ...] = field(default=())
    repaired: tuple[Block, ...] = field(default=())

    def trial(self, block: Block) -> str:
        """The name of the trial that ``block`` is, or is the repaired arm of: the rule's where it has none."""
        return next((word for word in block.words if word not in ("python", "trial", "repaired")), self.name)

    @property
    def brief(self) -> str:
        """What an editor or a service shows beside a finding, in Markdown: what it is, what it costs, one repair."""
        repair = re.split(r"(?<=^```\n)(?!```)", self.sections["The fix"] + "\n", maxsplit=1, flags=re.MULTILINE)[0]
        repair = re.sub(r"^```python (before|after).*$", "```python", repair, flags=re.MULTILINE).strip()
        why = self.sections["Why it costs"].strip()
        return f"{self.summary}\n\n**Why it costs.** {why}\n\n**The fix.** {repair}\n"


def read(path: Path) -> Page:
    """Read a page. Raises `PageError` where its form is not the fixed one."""
    lines = path.read_text(encoding="utf-8").splitlines()
    title = _TITLE.match(lines[0]) if lines else None
    if title is None:
        raise PageError(f"{path}:1: the title is not '# name (CODE)'")
    parts, blocks = _parts(path, lines)
    if tuple(heading for heading in parts if heading) != HEADINGS:
        raise PageError(f"{path}: the headings are not {', '.join(HEADINGS)}")
    head = [line for line in parts[""].splitlines()[1:] if line.strip()]
    level = next((match for line in head if (match := _LEVEL.match(line))), None)
    if level is None:
        raise PageError(f"{path}: no line 'Level: …. Fix: ….'")
    summary = " ".join(line.strip() for line in head if not _LEVEL.match(line))
    return Page(
        path,
        title["name"],
        title["code"],
        summary,
        level["level"],
        level["fix"],
        {heading: parts[heading].strip("\n") for heading in HEADINGS},
        finds=tuple(blocks["What it finds"]),
        fixes=_pairs(path, blocks["The fix"]),
        leaves=tuple(blocks["What it leaves alone"]),
        trials=tuple(block for block in blocks["Trial"] if "trial" in block.words),
        repaired=tuple(block for block in blocks["Trial"] if "repaired" in block.words),
    )


def _parts(path: Path, lines: list[str]) -> tuple[dict[str, str], dict[str, list[Block]]]:
    """Text and Python blocks under each heading; the head of the page under ""."""
    parts: dict[str, list[str]] = {"": []}
    blocks: dict[str, list[Block]] = {"": []}
    heading, fence, start = "", "", 0
    words: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        marker = line.lstrip()
        if not fence and line.startswith("## "):
            heading = line[3:].strip()
            if heading in parts:
                raise PageError(f"{path}:{number}: the heading {heading!r} stands twice")
            parts[heading], blocks[heading] = [], []
            continue
        if not fence and marker.startswith("```"):
            fence = marker[: len(marker) - len(marker.lstrip("`"))]
            start, words = number, tuple(marker.strip("`").split())
        elif fence and marker.rstrip() == fence:
            if words[:1] == ("python",):
                blocks[heading].append(Block("\n".join(lines[start : number - 1]) + "\n", start + 1, words[1:]))
            fence = ""
        parts[heading].append(line)
    if fence:
        raise PageError(f"{path}:{start}: the code block is not closed")
    return {key: "\n".join(value) for key, value in parts.items()}, blocks


def _pairs(path: Path, blocks: list[Block]) -> tuple[tuple[Block, Block], ...]:
    """Blocks named ``before``, each with the ``after`` that follows it."""
    pairs = []
    pending: Block | None = None
    for block in blocks:
        if "before" in block.words:
            pending = block
        elif "after" in block.words:
            if pending is None:
                raise PageError(f"{path}:{block.line}: an 'after' block without its 'before'")
            pairs.append((pending, block))
            pending = None
    if pending is not None:
        raise PageError(f"{path}:{pending.line}: a 'before' block without its 'after'")
    return tuple(pairs)
