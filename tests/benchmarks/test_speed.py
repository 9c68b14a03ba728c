"""A cold check beside `ast.parse` of the same files, in one process and without a cache; the ratio is printed (-s)."""

from __future__ import annotations

import ast
import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import memlint
from memlint.check import Options, check_paths

OWN = Path(memlint.__file__).parent
BOUNDS = {"memlint": 35.0, "torch.optim and torch.nn": 12.0}
"""Loose: what holds today. The aim is 3."""


def trees() -> dict[str, list[Path]]:
    """Folders to check, by what they are called here; torch's only where it is installed."""
    found = {"memlint": [OWN]}
    spec = importlib.util.find_spec("torch")  # finds it without importing it
    if spec is not None and spec.submodule_search_locations:
        torch = Path(spec.submodule_search_locations[0])
        found["torch.optim and torch.nn"] = [torch / "optim", torch / "nn"]
    return found


def parse(folders: list[Path]) -> int:
    """Parse every file; how many there are."""
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for file in files:
            ast.parse(file.read_bytes())
    return len(files)


def seconds(work: Callable[[], object], runs: int) -> float:
    """Processor time of the shortest of some runs: the one that was disturbed least."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("name", trees())
def test_cold_check_beside_parsing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folders = trees()[name]
    options = Options(select=("ALL",), cache=False)
    parse([OWN / "report"])
    check_paths([str(OWN / "report")], options)  # imports and the library's rows are no file's
    parsing = seconds(lambda: parse(folders), runs=3)
    checking = seconds(lambda: check_paths([str(folder) for folder in folders], options), runs=2)
    with capsys.disabled():
        print(f"\n{name}: {parse(folders)} files, check {checking:.2f} s, ast.parse {parsing:.2f} s, ", end="")
        print(f"ratio {checking / parsing:.2f}", end="")
    assert checking / parsing < BOUNDS[name]
