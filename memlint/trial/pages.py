"""The trials in rules' pages as findings that can be confirmed: each block is a module with its own set-up.

What a block says stands where it stands in the page: its module has empty lines in place of everything else. A finding
without an edit of memlint's own is compared with the block ``repaired`` of the same name, if the page has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memlint.check import Options, check_paths
from memlint.config import Configs
from memlint.files import shown
from memlint.page import Block, PageError, read
from memlint.rule import Edit, Finding, Fix, Span
from memlint.source import Source


def is_page(path: str) -> bool:
    """Whether ``path`` is taken for a rule's page."""
    return path.endswith(".md")


def findings(path: str, configs: Configs) -> Iterator[tuple[Finding, Source]]:
    """The finding of each trial in the page at ``path``. Raises `PageError`, also where one has none or several."""
    try:
        page = read(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        raise PageError(f"the page {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    name = shown(path)
    for block in page.trials:
        text = "\n" * (block.line - 1) + block.text
        options = Options(select=(page.name,), cache=False, overlay={name: text.encode()})
        report = check_paths([name], options, configs)
        found = [finding for finding in report.findings if finding.name == page.name]
        if len(found) != 1:
            raise PageError(f"{path}:{block.line}: the trial has {len(found)} findings of {page.name} in place of one")
        by_hand = next((other for other in page.repaired if page.trial(other) == page.trial(block)), None)
        yield _repaired(found[0], block, by_hand) if by_hand else found[0], report.sources[name]


def _repaired(finding: Finding, block: Block, by_hand: Block) -> Finding:
    """``finding`` with the whole of its block replaced ``by_hand`` as its fix, which is shown and never applied."""
    lines = block.text.splitlines()
    span = Span(block.line, 1, block.line + len(lines) - 1, len(lines[-1]) + 1)
    fix = finding.fix or Fix("write it as the page does")
    return replace(finding, fix=replace(fix, edits=(Edit(span, by_hand.text.rstrip("\n")),)).hint(fix.reason))
