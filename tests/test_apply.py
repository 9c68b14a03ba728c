"""Fixes reach the disk whole or not at all, and change nothing but their own text."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from memlint import apply
from memlint.apply import apply_fixes, write
from memlint.rule import Edit, Finding, Fix, Level, Span
from memlint.source import Source, SourceError


@pytest.mark.parametrize(
    "data",
    [
        b"x = 'BAD'\r\ny = 1\r\n",
        b"x = 'BAD'\r\ny = 1\n\x0c\nz = 2",
        b"\xef\xbb\xbfx = 'BAD'\n",
        "# coding: latin-1\nx = 'é', 'BAD'\n".encode("latin-1"),
        "x = '𝄞é', 'BAD'\ny = '\\N{BULLET}'".encode(),
        b"if x:\n\ty = 'BAD'  # comment \t\n",
    ],
)
def test_every_other_byte_stays(project: Path, memlint: Run, data: bytes) -> None:
    file = project / "a.py"
    file.write_bytes(data)
    assert memlint("check", "--fix").status == 0
    assert file.read_bytes() == data.replace(b"BAD", b"GOOD")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"# coding: utf-7\nx = '+AOk-+AOk-', 'BAD'\n", "cannot be repaired: utf-7 would write all of it otherwise"),
        (
            b"# coding: unicode_escape\nx = 'BAD'\n",
            "cannot be repaired: unicode_escape would write all of it otherwise",
        ),
    ],
)
def test_what_an_encoding_would_not_give_back_is_left_alone(
    project: Path, memlint: Run, data: bytes, reason: str
) -> None:
    (project / "a.py").write_bytes(data)
    (project / "b.py").write_text("x = 'BAD'\n")
    result = memlint("check", "--fix", "--output-format", "concise")
    assert (result.status, result.err) == (2, f"memlint: a.py {reason}; the file is left as it is\n")
    assert (project / "a.py").read_bytes() == data
    assert (project / "b.py").read_text() == "x = 'GOOD'\n"


def test_mode_and_link_stay(project: Path, memlint: Run) -> None:
    real = project.parent / "real.py"
    real.write_text("x = 'BAD'\n")
    real.chmod(0o751)
    (project / "a.py").symlink_to(real)
    assert memlint("check", "--fix", "a.py").status == 0
    assert (project / "a.py").is_symlink()
    assert real.read_text() == "x = 'GOOD'\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o751


def test_a_read_only_file_is_one_line_and_the_others_are_fixed(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("x = 'BAD'\n")
    (project / "b.py").write_text("x = 'BAD'\n")
    (project / "a.py").chmod(0o444)
    result = memlint("check", "--fix", "--output-format", "concise")
    assert result.status == 2
    assert result.err == "memlint: a.py cannot be written: it is read-only\n"
    assert result.out.startswith("a.py:1:6: warning TST901")
    assert (project / "a.py").read_text() == "x = 'BAD'\n"
    assert (project / "b.py").read_text() == "x = 'GOOD'\n"
    (project / "b.py").write_text("x = 'BAD'\n")
    assert "1 finding fixed. 1 warning in 2 files" in memlint("check", "--fix").out
    assert "finding fixed" not in memlint("check", "--fix").out


def test_a_file_changed_meanwhile_is_left_alone(project: Path) -> None:
    file = project / "a.py"
    file.write_text("x = 'BAD'\n")
    source = Source.read("a.py")
    file.write_text("y = 'BAD'\n")
    with pytest.raises(SourceError, match="changed by somebody else"):
        apply.write(source, "x = 'GOOD'\n")
    assert file.read_text() == "y = 'BAD'\n"


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_write_that_fails_leaves_the_old_file_whole(
    project: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = project / "a.py"
    file.write_text("x = 'BAD'\n")
    source = Source.read("a.py")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(SourceError, match="no space left"):
        apply.write(source, "x = 'GOOD'\n")
    assert file.read_text() == "x = 'BAD'\n"
    assert sorted(p.name for p in project.iterdir()) == [".git", "a.py", "memlint.toml"]


def test_ctrl_c_midway_leaves_the_old_file_whole(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.py").write_text("x = 'BAD'\n")
    source = Source.read("a.py")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        apply.write(source, "x = 'GOOD'\n")
    assert sorted(p.name for p in project.iterdir()) == [".git", "a.py", "memlint.toml"]


OLD, NEW = (
    f"import torch\n{'# so that it takes a while to write' * 300}\nfor x in '{w}':\n    print(x)\n"
    for w in ("BAD", "GOOD")
)


def fixing(**options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "memlint", "check", "--fix", "--no-cache", "--output-format", "concise", "."]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_whoever_reads_while_two_of_them_write_reads_a_whole_file(project: Path) -> None:
    files = [project / f"f{number}.py" for number in range(30)]
    for file in files:
        file.write_text(OLD)
    runs = [fixing() for _ in range(2)]
    seen: Counter[str] = Counter()
    while any(run.poll() is None for run in runs):
        for file in files:
            seen[file.read_text()] += 1
    assert set(seen) <= {OLD, NEW} and seen[OLD]
    for run in runs:
        _, err = run.communicate(timeout=60)
        assert run.returncode in (0, 2), err
        assert all("changed by somebody else" in line for line in err.splitlines()), err
    assert {file.read_text() for file in files} == {NEW}
    assert not list(project.glob(".memlint-*"))


@pytest.mark.parametrize("moment", ["mkstemp", "fsync", "chmod", "unlink"])
def test_ctrl_c_while_a_file_is_written(project: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """It waits until the file is whole, and none is left beside it."""
    file = project / "one.py"
    file.write_text(OLD)
    owner = tempfile if moment == "mkstemp" else os
    plain = getattr(owner, moment)

    def interrupted(*given: object, **more: object) -> object:
        done = plain(*given, **more)
        signal.raise_signal(signal.SIGINT)
        return done

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    source = Source.read(str(file))
    monkeypatch.setattr(owner, moment, interrupted)
    if moment == "unlink":
        monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(KeyboardInterrupt):
        write(source, NEW)
    assert file.read_text() == (OLD if moment == "unlink" else NEW)
    assert not list(project.glob(".memlint-*"))


def test_ctrl_c_at_any_moment_leaves_whole_files(project: Path) -> None:
    """Five runs, interrupted from the first write on, each a little later than the one before."""
    files = [project / f"f{number:02}.py" for number in range(40)]
    partly = 0
    for turn in range(5):
        for file in files:
            file.write_text(OLD)
        run = fixing()
        while run.poll() is None and files[0].read_text() == OLD:
            time.sleep(0.001)
        time.sleep(turn * 0.008)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
        assert (run.returncode, err) in ((130, "memlint: interrupted\n"), (0, "")), err
        texts = [file.read_text() for file in files]
        assert set(texts) <= {OLD, NEW}
        partly += OLD in texts and NEW in texts
        assert not list(project.glob(".memlint-*"))
    assert partly, "no run was interrupted amid its writes"


def test_a_file_system_that_takes_no_more_leaves_the_old_files_whole(project: Path) -> None:
    resource = pytest.importorskip("resource")
    (project / "a.py").write_text(OLD)
    (project / "b.py").write_text("import torch\nfor x in 'BAD':\n    print(x)\n")
    run = fixing(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (2, "memlint: a.py cannot be written: file too large\n")
    assert out.startswith("a.py:3:11: warning TST901") and out.count("\n") == 1
    assert (project / "a.py").read_text() == OLD
    assert (project / "b.py").read_text() == "import torch\nfor x in 'GOOD':\n    print(x)\n"
    assert not list(project.glob(".memlint-*"))


def finding(*edits: Edit) -> Finding:
    return Finding("TST901", "bad-word", Level.NOTE, "a.py", edits[0].span, "", Fix("", edits=edits).safe())


def test_overlapping_fixes_wait() -> None:
    source = Source("a.py", "abcdef\n")
    one = finding(Edit(Span(1, 2, 1, 4), "X"))
    overlapping = finding(Edit(Span(1, 3, 1, 5), "Y"))
    apart = finding(Edit(Span(1, 4, 1, 5), "Z"))
    assert apply_fixes(source, [one, overlapping, apart]) == ("aXZef\n", 2)


def test_a_fix_is_applied_whole_or_not_at_all() -> None:
    source = Source("a.py", "abcdef\n")
    one = finding(Edit(Span(1, 2, 1, 4), "X"))
    two = finding(Edit(Span(1, 6, 1, 7), "F"), Edit(Span(1, 3, 1, 5), "Y"))
    assert apply_fixes(source, [one, two]) == ("aXdef\n", 1)


@pytest.mark.parametrize(
    "edit", [Edit(Span(1, 1, 1, 1), "x = 1\n"), Edit(Span(1, 1, 1, 4), ""), Edit(Span(1, 2, 1, 3), "B")]
)
def test_equal_edits_of_two_fixes_clash_where_they_are_no_import(edit: Edit) -> None:
    source = Source("a.py", "abc def\n")
    first, second = finding(edit), finding(edit, Edit(Span(1, 5, 1, 8), "DEF"))
    text, count = apply_fixes(source, [first, second])
    assert (text.endswith("def\n"), count) == (True, 1)


def test_an_equal_import_counts_once_and_insertions_at_one_place_have_no_order() -> None:
    source = Source("a.py", "abc\n")
    insert = Edit(Span(1, 1, 1, 1), "import x\n")
    first = finding(insert, Edit(Span(1, 2, 1, 3), "B"))
    second = finding(insert, Edit(Span(1, 3, 1, 4), "C"))
    third = finding(Edit(Span(1, 1, 1, 1), "import y\n"))
    assert apply_fixes(source, [first, second, third]) == ("import x\naBC\n", 2)


def test_a_fix_that_would_break_the_file_is_not_written(project: Path, memlint: Run) -> None:
    rule = project.parent / "outside" / "rules" / "worse_word.py"
    text = (rule.parent / "bad_word.py").read_text()
    rule.write_text(
        text.replace("BAD", "ILL")
        .replace("TST901", "TST902")
        .replace("bad_word", "worse_word")
        .replace('"GOOD"', '"\'"')
    )
    (project / "a.py").write_text("x = 'ILL'\n")
    (project / "b.py").write_text("x = 'BAD'\n")
    result = memlint("check", "--fix")
    assert result.status == 2
    assert "the fix of TST902 breaks a.py" in result.err
    assert (project / "a.py").read_text() == "x = 'ILL'\n"
    assert (project / "b.py").read_text() == "x = 'GOOD'\n"
