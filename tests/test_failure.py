"""Where memlint itself fails: one finding that can be filed, all else as if nothing had happened, exit status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Run

from memlint.check import Options
from memlint.check import Run as Checking
from memlint.report import FORMATS
from memlint.workspace import Workspace


def failures(out: str) -> list[dict[str, object]]:
    return [f for f in json.loads(out)["findings"] if f["code"] == "MEM000"]


def test_a_rule_that_fails_is_one_finding_where_it_failed_first(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(
        "def f():\n    return 'CRASH BAD'\n\n\ndef g():\n    return 'CRASH BAD'  # memlint: ignore\n"
    )
    result = memlint("check", "--output-format", "json")
    assert result.status == 2
    (failure,) = failures(result.out)  # the file's top level holds both words as well, and comes first
    assert (failure["line"], failure["level"], failure["name"]) == (1, "error", "cannot-read")
    assert str(failure["message"]).startswith(
        "internal error: TST901 bad-word raised RuntimeError: as asked (bad_word.py"
    )
    trail = failure["trail"]
    assert isinstance(trail, list)
    assert (
        trail[0]["path"] == "a.py" and "TST901 bad-word" in trail[0]["message"] and "Python 3." in trail[0]["message"]
    )
    assert trail[-1]["path"].endswith("bad_word.py") and trail[-1]["message"] == "in `bad_word`"
    assert result.err.count("\n") == 1 and "; 2 more such; the report shows them as MEM000" in result.err


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_shows_it(project: Path, memlint: Run, output_format: str) -> None:
    (project / "a.py").write_text("x = 'CRASH BAD'\n")
    result = memlint("check", "--output-format", output_format)
    assert result.status == 2
    assert "internal error" in result.out
    assert result.out.count("MEM000") + result.out.count("cannot-read") > 0


def test_it_stands_at_the_function(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = project.parent / "outside" / "rules" / "bad_word.py"
    rule.write_text(rule.read_text().replace('if "CRASH" in fn.text', 'if fn.qualname == "f"'))
    (project / "a.py").write_text("import os\n\n\ndef f():\n    return 'BAD'\n")
    result = memlint("check", "--output-format", "text")
    assert "--> a.py:4:1\n" in result.out and "in `f`" in result.out
    notebook = {
        "cells": [{"cell_type": "code", "metadata": {}, "source": ["x = 1\n", "def f():\n", "    return 'BAD'\n"]}]
    }
    (project / "a.py").unlink()
    (project / "b.ipynb").write_text(
        json.dumps({**notebook, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    )
    out = memlint("check", "--output-format", "concise").out
    assert "(cell 1, line 2): error MEM000" in out


def test_nothing_is_kept_of_a_run_that_failed(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("x = 'CRASH BAD'\n")
    assert memlint("check").status == 2
    assert memlint("check").status == 2


def test_the_fix_that_fails_is_told_beside_the_finding(
    project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = project.parent / "outside" / "rules" / "bad_word.py"
    text = rule.read_text().replace('edits=(Edit(span, "GOOD"),)', "operations=(Operation('wrap', (span,)),)")
    rule.write_text(text.replace("import Claim", "import Operation, Claim"))
    from memlint import edits

    def fail(*_: object) -> None:
        raise KeyError("no such verb")

    monkeypatch.setattr(edits, "resolve", fail)
    (project / "a.py").write_text("x = 1\ny = 'BAD'\n")
    result = memlint("check", "--output-format", "concise")
    assert result.status == 2
    first, second = result.out.splitlines()
    assert first.startswith("a.py:2:1: error MEM000") and "the fix of TST901 bad-word raised KeyError" in first
    assert second.startswith("a.py:2:6: warning TST901") and not second.endswith("[*]")


@pytest.mark.parametrize("step", ["finished", "_run_rules"])
def test_a_file_s_guard(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whatever fails after a file was read is that file's finding, and the others are checked."""
    known = getattr(Checking, step)

    def fragile(self: Checking, *arguments: object, **options: object) -> object:
        if any(getattr(argument, "path", None) == "a.py" for argument in arguments):
            raise ZeroDivisionError("as asked")
        return known(self, *arguments, **options)

    monkeypatch.setattr(Checking, step, fragile)
    (project / "a.py").write_text("x = 'BAD'\n")
    (project / "b.py").write_text("x = 'BAD'\n")
    result = memlint("check", "--output-format", "concise")
    assert result.status == 2
    assert [line.split(" ")[2] for line in result.out.splitlines()] == ["MEM000", "TST901"]


def test_a_fault_outside_any_file_is_one_line(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("as asked")

    monkeypatch.setattr("memlint.check.check_paths", fail)
    result = memlint("check")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("memlint: internal error: memlint raised KeyError: 'as asked'")
    assert result.err.count("\n") == 1


def test_a_project_that_stays_shows_it_and_goes_on(project: Path) -> None:
    (project / "a.py").write_text("x = 'BAD'\n")
    (project / "b.py").write_text("x = 'BAD'\n")
    workspace = Workspace(["."], Options())
    dict(workspace.check())
    workspace.put("a.py", b"def f():\n    return 'CRASH BAD'\n")
    found = dict(workspace.check())
    assert [f.code for f in found["a.py"]] == ["MEM000"]
    workspace.put("a.py", b"def f():\n    return 'BAD'\n")
    assert [f.code for f in dict(workspace.check())["a.py"]] == ["TST901"]


def test_a_project_that_stays_goes_on_after_a_file_that_it_fails_on(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "a.py").write_text("x = 'BAD'\n")
    (project / "b.py").write_text("x = 'BAD'\n")
    known = Checking.finished

    def fragile(self: Checking, source, *arguments, **options):  # type: ignore[no-untyped-def]
        if source.path == "a.py":
            raise ZeroDivisionError("as asked")
        return known(self, source, *arguments, **options)

    monkeypatch.setattr(Checking, "finished", fragile)
    workspace = Workspace(["."], Options())
    assert {path: [f.code for f in found] for path, found in workspace.check()} == {
        "a.py": ["MEM000"],
        "b.py": ["TST901"],
    }
    assert not workspace.due
