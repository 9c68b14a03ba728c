"""The README shows what memlint really says. ``UPDATE_README=1`` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from conftest import Run

from memlint import page, registry
from memlint.trial.record import in_short

ROOT = Path(__file__).parents[1]
FILE = ROOT / "README.md"
OUTPUT = re.compile(r"(<!-- output: (?P<arguments>.*?) -->\n```text\n)(?P<text>.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
RULES = re.compile(r"(<!-- rules -->\n)(?P<text>.*?)(?=\n## )", re.DOTALL)


def table() -> str:
    """The rules as the README lists them."""
    rows = ["", "| code | rule | level | fix | | measured |", "|---|---|---|---|---|---|"]
    for rule in registry.load():
        assert rule.page is not None
        read = page.read(rule.page)
        link = f"[{rule.name}](rules/{rule.page.name})"
        cost = in_short(rule.name, ROOT / "fixtures" / "costs")
        rows.append(f"| {rule.code} | {link} | {read.level} | {read.fix} | {read.summary} | {cost} |")
    return "\n".join(rows) + "\n"


def test_readme_is_up_to_date(memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = FILE.read_text(encoding="utf-8")
    assert len(OUTPUT.findall(text)) == 2

    def output(match: re.Match[str]) -> str:
        result = memlint(*match["arguments"].split(), "--no-cache")
        assert result.status == 1
        assert not result.err
        return match[1] + result.out

    expected = RULES.sub(lambda match: match[1] + table(), OUTPUT.sub(output, text))
    if os.environ.get("UPDATE_README"):
        FILE.write_text(expected, encoding="utf-8")
    assert text == expected
