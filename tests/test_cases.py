"""Small programs with the findings that the rules ask for, kept beside this repository where they exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint import registry
from memlint.testing import run_case

FOLDER = Path(__file__).parents[1] / ".." / "shared" / "cases"
NAMES = {rule.name for rule in registry.load()}
CASES = sorted(
    path
    for name in NAMES
    for path in (FOLDER / name).glob("[0-9]*")
    if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the cases are not beside this checkout")
@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path) -> None:
    problems = run_case(path, NAMES)
    assert not problems, "\n".join(problems)
