"""Comments that silence findings, and those that silence none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import Run

from memlint.apply import edited
from memlint.rule import Finding, Level, Span
from memlint.source import Source, SourceError
from memlint.suppress import comments, ignoring, suppress


def found(project: Path, memlint: Run, text: str, *arguments: str) -> list[tuple[int, str]]:
    (project / "a.py").write_text(text)
    data = json.loads(memlint("check", "--output-format", "json", *arguments).out)
    return [(f["line"], f["code"]) for f in data["findings"]]


@pytest.mark.parametrize(
    "text",
    [
        "x = 'BAD'  # memlint: ignore[bad-word] because\n",
        "x = 'BAD'  # memlint: ignore[TST901]\n",
        "x = 'BAD'  # memlint: ignore\n",
        "x = 'BAD'  # memlint:ignore[ bad-word ]\n",
        "x = 'BAD'  # type: ignore  # memlint: ignore[bad-word] because  # other\n",
        "x = 'BAD'  # noqa: TST901\n",
        "x = 'BAD'  # noqa: E501,TST901 why\n",
        "x = 'BAD'  # NOQA:tst901\n",
        "x = f(  # memlint: ignore[bad-word]\n    'BAD',\n)\n",
        "if x:\n    y = [  # memlint: ignore[bad-word]\n        1,\n        'BAD',\n    ]\n",
        "# memlint: ignore-file[bad-word]\nx = 'BAD'\n",
        "x = 'BAD'\n# memlint: ignore-file\n",
    ],
)
def test_silenced(project: Path, memlint: Run, text: str) -> None:
    assert found(project, memlint, text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 'BAD'  # noqa\n", [(1, "TST901")]),
        ("x = 'BAD'  # noqa: E501\n", [(1, "TST901")]),
        ("x = 'BAD'  # noqa: bad-word\n", [(1, "TST901")]),
        ("x = 'BAD # memlint: ignore'\n", [(1, "TST901")]),
        ("# memlint: ignore\nx = 'BAD'\n", [(1, "MEM099"), (2, "TST901")]),
        ("if x:  # memlint: ignore\n    y = 'BAD'\n", [(1, "MEM099"), (2, "TST901")]),
        ("x = 'BAD'  # memlint: ignore[MEM000]\n", [(1, "TST901"), (1, "MEM099")]),
        ("x = 'BAD'  # memlint: ignroe[bad-word]\n", [(1, "TST901"), (1, "MEM099")]),
        ("x = 'BAD'  # memlint: ignore[]\n", [(1, "TST901"), (1, "MEM099")]),
        ("x = 1  # noqa: TST901\n", []),
    ],
)
def test_not_silenced(project: Path, memlint: Run, text: str, expected: list[tuple[int, str]]) -> None:
    assert found(project, memlint, text) == expected


def test_unused_ones_are_notes_about_rules_that_ran(project: Path, memlint: Run) -> None:
    text = "x = 1  # memlint: ignore[bad-word]\ny = 1  # memlint: ignore\n"
    assert found(project, memlint, text) == [(1, "MEM099"), (2, "MEM099")]
    assert found(project, memlint, text, "--select", "bad-word,MEM099") == [(1, "MEM099")]
    assert found(project, memlint, text, "--select", "MEM000,MEM099") == []
    assert found(project, memlint, text, "--ignore", "unused-suppression") == []
    (project / "a.py").write_text(text)
    assert memlint("check").status == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # memlint: ignore[bad-word] old\n", "x = 1\n"),
        ("x = 1  # memlint: ignore\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        ("    \nif x:\n    # memlint: ignore[bad-word]\n    y = 1\n", "    \nif x:\n    y = 1\n"),
        ("x = 1  # memlint: ignore[bad-word]  # noqa: E501\n", "x = 1  # noqa: E501\n"),
        ("x = 1  # type: ignore  # memlint: ignore[bad-word] old\n", "x = 1  # type: ignore\n"),
        ("x = 'BADLY'  # memlint: ignore[MEM000, bad-word] why\n", "x = 'BADLY'  # memlint: ignore[bad-word] why\n"),
        ("# memlint: ignore-file[bad-word]\nx = 1\n", "x = 1\n"),
        ("x = 1  # memlint: ignore", "x = 1"),
    ],
)
def test_the_fix_removes_what_is_unused(project: Path, memlint: Run, before: str, after: str) -> None:
    file = project / "a.py"
    file.write_bytes(before.encode())
    memlint("check", "--fix")
    assert file.read_bytes().decode() == after
    assert memlint("check", "--fix").status == 0
    assert file.read_bytes().decode() == after


def test_text_without_the_word_is_not_read_for_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    import tokenize

    def fail(*_: object) -> None:
        raise AssertionError("the text was tokenized")

    monkeypatch.setattr(tokenize, "generate_tokens", fail)
    assert comments(Source("a.py", "x = 1  # a comment\n")) == []
    with pytest.raises(AssertionError):
        comments(Source("a.py", "x = 1  # memlint: ignore\n"))


def test_a_line_nested_beyond_comparison_is_offered_no_comment() -> None:
    source = Source("a.py", "x = 'BAD'" + ".b()" * 3000 + "\n")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(2500)  # enough to read it, not enough to go down all of it
    try:
        assert source.tree
        assert ignoring(source, Span(1, 5, 1, 10), "bad-word") is None
    except SourceError:
        pytest.skip("this Python does not read it")
    finally:
        sys.setrecursionlimit(limit)


WRITTEN = {
    "f(1)\ng(2)\n": "f(1)  # memlint: ignore[a-rule]\ng(2)\n",
    "f(1)  # memlint: ignore[other]\ng(2)\n": "f(1)  # memlint: ignore[other, a-rule]\ng(2)\n",
    "f[1]# memlint: ignore[other]\ng(2)\n": "f[1]# memlint: ignore[other, a-rule]\ng(2)\n",
    "f(1)  # noqa: MEM101\ng(2)\n": "f(1)  # noqa: MEM101  # memlint: ignore[a-rule]\ng(2)\n",
    "f(1)\ng(2)  # memlint: ignore[other]\n": "f(1)  # memlint: ignore[a-rule]\ng(2)  # memlint: ignore[other]\n",
    "f(1)\ng(2)  # said\n": "f(1)  # memlint: ignore[a-rule]\ng(2)  # said\n",
    "f('''\n''')\ng(2)\n": None,
}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_comment_is_put_on_the_line_or_into_the_comment_that_is_there(text: str) -> None:
    source = Source("a.py", text)
    edit = ignoring(source, Span(1, 1, 1, 3), "a-rule")
    assert (None if edit is None else edited(source, [edit])) == WRITTEN[text]


def test_a_comment_that_silences_nothing_is_taken_out() -> None:
    source = Source("a.py", "f(1)  # memlint: ignore\ng(2)  # memlint: ignore[one]\n")
    bare, named = suppress(source, [])
    assert (bare.message, bare.span.line) == ("the comment suppresses nothing", 1)
    assert bare.fix is not None and bare.fix.title == "Remove the comment"
    assert edited(source, bare.fix.edits) == "f(1)\ng(2)  # memlint: ignore[one]\n"
    assert named.message == "the comment suppresses no finding of one"


def test_a_comment_silences_its_own_statement_alone() -> None:
    source = Source("a.py", "if x:\n    f(1)  # memlint: ignore[a-rule]\ng(2)\n")
    findings = [Finding("MEM999", "a-rule", Level.NOTE, "a.py", Span(line, 1, line, 2), "said") for line in (2, 3)]
    assert list(suppress(source, findings)) == findings[1:]
