"""Every rule's page is its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memlint import page, registry
from memlint.check import Options, check_paths
from memlint.testing import run_page

FOLDER = registry.rules_folder()
PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page_holds(path: Path) -> None:
    problems = run_page(path)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_rule_finds_alone_what_it_finds_beside_the_others(path: Path, tmp_path: Path) -> None:
    """Other rules have functions read sooner, and in another order."""
    shown = page.read(path)
    for number, block in enumerate((*shown.finds, *shown.leaves)):
        file = tmp_path / f"block{number}.py"
        file.write_text(block.text)
        alone, beside = (
            [finding.span for finding in report.findings if finding.code == shown.code]
            for report in (
                check_paths([str(file)], Options(select=(chosen,), cache=False)) for chosen in (shown.code, "ALL")
            )
        )
        assert alone == beside, block.text


def test_rules_and_pages_come_in_pairs() -> None:
    rules = {path.stem for path in FOLDER.glob("*.py") if not path.name.startswith("_")}
    assert rules, "there are no rules"
    assert rules == {path.stem for path in PAGES}


def test_rule_page_and_file_agree_on_the_name() -> None:
    for rule in registry.load():
        assert rule.page is not None
        read = page.read(rule.page)
        assert (read.name, read.code) == (rule.name, rule.code)
        assert rule.page.stem == rule.name.replace("-", "_")
        assert re.fullmatch(r"MEM[1-9]\d\d", rule.code)


def test_a_page_that_is_wrong_is_told_so(every_function: None, tmp_path: Path) -> None:
    text = (
        "# {name} (TST901)\n\nOne sentence.\n\nLevel: warning. Fix: safe.\n\n## What it finds\n\n"
        "```python\nx = 1  # want: bad-word\n```\n\n## Why it costs\n\n## The fix\n\n"
        "```python before\nx = 'BAD'\n```\n```python after\nx = 'WORSE'\n```\n\n"
        "## What it leaves alone\n\n```python\ny = 'BAD'\n```\n\n## Trial\n"
    )
    (tmp_path / "bad_word.py").write_text(RULE)
    path = tmp_path / "bad_word.md"
    path.write_text(text.format(name="bad-word"))
    problems = "\n".join(run_page(path))
    assert "missed bad-word" in problems
    assert "not wanted: bad-word" in problems
    assert "another text than the 'after' block" in problems
    path.write_text(text.replace("## Why it costs\n\n", "").format(name="bad-word"))
    with pytest.raises(page.PageError, match="headings"):
        run_page(path)


RULE = """
from memlint.rule import Claim, Edit, Finding, Fix, Level, Span, rule


@rule(code="TST901", claim=Claim.GROWTH, triggers=("BAD",))
def bad_word(fn):
    for number, line in enumerate(fn.source.lines, 1):
        if (column := line.find("BAD") + 1) and "BAD," not in line:
            span = Span(number, column, number, column + 3)
            fix = Fix("Write GOOD", edits=(Edit(span, "GOOD"),)).safe()
            yield Finding("TST901", "bad-word", Level.WARNING, fn.source.path, span, "the word BAD stands here", fix)
"""
