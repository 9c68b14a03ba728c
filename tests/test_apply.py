"""Fixes reach the disk whole or not at all, and change nothing but their own text."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from conftest import Run

from memlint import apply
from memlint.apply import apply_fixes
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
