"""Work shared out over copies of the process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memlint import pool
from memlint.check import Options, check_paths

CORPUS = Path(__file__).parents[1] / "fixtures" / "corpus"
pytestmark = pytest.mark.skipif(not pool.can_fork(), reason="processes cannot be copied here")


def test_every_piece_is_done_once_and_by_others() -> None:
    found = dict(pool.shared_out(lambda n: (n * n, os.getpid()), 500, 3))
    assert {n: square for n, (square, _) in found.items()} == {n: n * n for n in range(500)}
    assert os.getpid() not in {process for _, process in found.values()}


def test_results_of_any_size_come_whole() -> None:
    found = dict(pool.shared_out(lambda n: "x" * (n * 100_000), 8, 2))
    assert [len(found[n]) for n in range(8)] == [n * 100_000 for n in range(8)]


def test_what_a_dead_process_owes_is_done_here() -> None:
    here = os.getpid()

    def work(number: int) -> int:
        if number == 3 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert dict(pool.shared_out(work, 8, 2)) == {n: n for n in range(8)}


def test_whoever_stops_early_leaves_no_process() -> None:
    def work(number: int) -> int:
        time.sleep(0.2 * number)
        return os.getpid()

    results = pool.shared_out(work, 40, 2)
    _, process = next(results)
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_findings_are_those_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        shutil.copytree(CORPUS, tmp_path / f"part{number}")
    monkeypatch.chdir(tmp_path)
    alone, shared = (check_paths(["."], Options(cache=False, jobs=jobs)) for jobs in (1, 3))
    assert alone.findings and alone.findings == shared.findings


def test_ctrl_c_ends_all_of_them(tmp_path: Path) -> None:
    for number in range(150):
        shutil.copytree(CORPUS, tmp_path / f"part{number}")
    command = [sys.executable, "-m", "memlint", "check", "--no-cache", "--jobs", "2", "."]
    root = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    group = os.getpgid(process.pid)
    time.sleep(1.5)
    os.killpg(group, signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode in (2, 130, -signal.SIGINT), said
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a process is left")
