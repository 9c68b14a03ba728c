"""Every finding on every rule's page, word for word. ``UPDATE_TOLD=1`` writes the file anew; its diff wants reading."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from told import told

from memlint import page, registry

PAGES = sorted(registry.rules_folder().glob("*.md"))
SILENT_IN_TESTS = set(
    """anomaly-mode-on cat-in-loop checkpoint-kept-alive cpu-then-device cycle-dataloader ddp-no-bucket-view
    device-tensor-hoard discarded-detach empty-cache-in-loop eval-without-no-grad figure-not-closed gc-in-loop
    load-without-map-location materialized-loader naive-attention pairwise-broadcast repeat-not-expand
    save-whole-model state-dict-on-device tf-graph-growth tf-memory-growth""".split()
)
"""Rules about what costs too much; a test's data are small, and what is slow or wasteful there is meant."""
FILE = Path(__file__).parents[1] / "fixtures" / "told.txt"


def test_what_is_said_of_the_pages() -> None:
    text = "".join(map(told, PAGES))
    if os.environ.get("UPDATE_TOLD"):
        FILE.write_text(text, encoding="utf-8")
    assert text.splitlines() == FILE.read_text(encoding="utf-8").splitlines()


def test_a_page_s_head_names_the_levels_and_the_kinds_of_fix_that_there_are() -> None:
    for part in FILE.read_text(encoding="utf-8").removeprefix("# ").split("\n# "):
        name = part.split("\n", 1)[0]
        path = registry.page_of(name)
        assert path is not None
        read = page.read(path)
        assert set(re.findall(r"^\S.*?: (note|warning|error), lowers ", part, re.MULTILINE)) == words(read.level), name
        kinds = set(re.findall(r"^    (safe|unsafe|hint): ", part, re.MULTILINE))
        assert kinds - {"hint"} == words(read.fix) - {"hint"}, name
        assert kinds >= words(read.fix), name


def words(text: str) -> set[str]:
    """The levels, or kinds of fix, that a page's head names."""
    return set(re.findall(r"\b(note|warning|error|safe|unsafe|hint)\b", text))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_rules_that_spare_tests(path: Path) -> None:
    name = path.stem.replace("_", "-")
    said = told(path, "tests/").count("\n") > 1
    assert said is (name not in SILENT_IN_TESTS)
