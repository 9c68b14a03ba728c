"""Projects of several files: what is found crosses from one to another, and what is sound stays silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint import registry
from memlint.testing import run_case, wants_in

FOLDER = Path(__file__).parents[1] / "fixtures" / "projects"
PROJECTS = sorted(path for path in FOLDER.iterdir() if path.is_dir() and not path.name.startswith("."))


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_project(folder: Path) -> None:
    problems = run_case(folder)
    assert not problems, "\n".join(problems)


def test_projects_want_what_there_is() -> None:
    texts = {str(file): file.read_text(encoding="utf-8") for folder in PROJECTS for file in folder.rglob("*.py")}
    wanted = {name for _, _, name in wants_in(texts)}
    assert len(PROJECTS) >= 4
    assert wanted
    assert wanted <= {rule.name for rule in registry.load()}
