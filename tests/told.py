"""What memlint says of the code blocks of a rule's page, word for word: a rule is more than the line that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from memlint import page
from memlint.apply import edited
from memlint.check import Options, check_paths
from memlint.page import Block, Page
from memlint.rule import Finding
from memlint.source import Source
from memlint.target import parse
from memlint.testing import Project

WANT = re.compile(r"[ \t]*# want:.*$", re.MULTILINE)


def blocks(read: Page) -> Iterator[tuple[str, Block]]:
    """The blocks of a page that a rule finds something in, each with what it is called here."""
    yield from ((f"finds {number}", block) for number, block in enumerate(read.finds, 1))
    yield from ((f"before {number}", before) for number, (before, _) in enumerate(read.fixes, 1))


def told(path: Path, under: str = "") -> str:
    """All that is said of a page's blocks by its own rule: level, claim, message, trail, and the fix as it would be.

    ``under``: a folder that the blocks' files are put into.
    """
    read = page.read(path)
    lines = [f"# {read.name}"]
    for name, block in blocks(read):
        with Project({under + file: WANT.sub("", text) for file, text in block.files.items()}) as folder:
            target = parse(block.target) if block.target else None
            report = check_paths([str(folder)], Options(select=("ALL",), target=target, cache=False))
            for finding in report.findings:
                if finding.code == read.code:
                    lines += [f"{name}, {each}" for each in _said(finding, report.sources[finding.path], folder)]
            lines += report.errors
    return "".join(f"{line}\n" for line in lines)


def _said(finding: Finding, source: Source, folder: Path) -> Iterator[str]:
    """One finding: a line for itself, and lines below it for the trail and the fix."""
    where = f"{Path(finding.path).relative_to(folder).as_posix()}:{finding.span.line}:{finding.span.column}"
    claim = finding.claim.value if finding.claim else "nothing"
    text = f"{where}: {finding.level.value}, lowers {claim}: {finding.message}"
    for step in finding.trail:
        text += f"\n    via {Path(step.path).relative_to(folder).as_posix()}:{step.line}: {step.message}"
    if finding.fix is not None:
        why = f" ({finding.fix.reason})" if finding.fix.reason else ""
        text += f"\n    {finding.fix.applicability.value}: {finding.fix.title}{why}"
        text += "".join(f"\n    {line}" for line in _changed(source, edited(source, finding.fix.edits)))
    yield text


def _changed(source: Source, text: str) -> Iterator[str]:
    from difflib import unified_diff

    for line in unified_diff(source.text.splitlines(), text.splitlines(), lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            yield line.rstrip()
