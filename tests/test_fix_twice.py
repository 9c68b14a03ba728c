"""Fixing leaves nothing to fix: over every rule page's code and all fixtures, with safe fixes and with unsafe ones."""

from __future__ import annotations

import ast
import io
import shutil
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from memlint import page, registry
from memlint.apply import fix_paths, write
from memlint.check import Options
from memlint.page import Block
from memlint.target import parse

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAGES = sorted(registry.rules_folder().glob("*.md"))
PROJECTS = [FIXTURES / "corpus", *sorted(path for path in (FIXTURES / "projects").iterdir() if path.is_dir())]


def blocks(path: Path) -> list[Block]:
    """All the code of a page that its tests check or run, as it stands before any fix."""
    read = page.read(path)
    return [*read.finds, *(before for before, _ in read.fixes), *read.leaves, *read.trials]


def comments(text: str) -> Counter[str]:
    """All comments but those that silence something, which go with what they silenced."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(
        token.string
        for token in tokens
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# memlint:"))
    )


def fix(folder: Path, target: str | None, unsafe: bool) -> int:
    """Fix the files of a folder on disk; how many changed. Each one must parse, and keep its comments."""
    options = Options(select=("ALL",), target=parse(target) if target else None, cache=False)
    fixed = fix_paths([str(folder)], options, unsafe=unsafe)
    assert not fixed.errors + fixed.before.errors + fixed.after.errors
    for source, text in fixed.changes.values():
        ast.parse(text)
        lost = comments(source.text) - comments(text)
        assert not lost, f"the fix of {source.path} loses {lost}"
        write(source, text)
    return len(fixed.changes)


@pytest.mark.parametrize("unsafe", [False, True], ids=["safe", "unsafe"])
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_code_of_a_page(path: Path, unsafe: bool, tmp_path: Path) -> None:
    changed = 0
    for number, block in enumerate(blocks(path)):
        folder = tmp_path / str(number)
        (folder / ".git").mkdir(parents=True)
        for name, text in block.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        changed += fix(folder, block.target, unsafe)
        again = fix(folder, block.target, unsafe)
        assert not again, f"{path}:{block.line}: a second --fix changes something"
    assert changed or not unsafe or not page.read(path).fixes, "nothing in this page was fixed"


@pytest.mark.parametrize("unsafe", [False, True], ids=["safe", "unsafe"])
@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_a_project(project: Path, unsafe: bool, tmp_path: Path) -> None:
    folder = tmp_path / project.name
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns(".memlint_cache", "__pycache__"))
    (folder / ".git").mkdir()
    changed = fix(folder, None, unsafe)
    assert changed or "# want:" not in "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    assert not fix(folder, None, unsafe), "a second --fix changes something"
