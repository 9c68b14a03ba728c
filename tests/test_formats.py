"""What each output format holds."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Run

TEXT = "x = 1\ny = '𝄞é', 'BAD'\nz = 'BADLY'\n"


def test_json_is_the_contract(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)
    data = json.loads(memlint("check", "--output-format", "json").out)
    assert isinstance(data["summary"].pop("seconds"), float)
    assert data["summary"] == {"files": 1, "errors": 0, "warnings": 1, "notes": 1, "fixed": 0}
    assert data["version"] == 1
    first = data["findings"][0]
    fingerprint = first.pop("fingerprint")
    assert len(fingerprint) == 16
    assert first == {
        "code": "TST901",
        "name": "bad-word",
        "level": "warning",
        "path": "a.py",
        "line": 2,
        "column": 12,
        "end_line": 2,
        "end_column": 15,
        "cell": None,
        "message": "the word BAD stands here",
        "trail": [{"path": "a.py", "line": 1, "message": "the file begins here"}],
        "fix": {
            "title": "Write GOOD",
            "applicability": "safe",
            "edits": [{"line": 2, "column": 12, "end_line": 2, "end_column": 15, "text": "GOOD"}],
        },
        "verdict": None,
    }
    lines = memlint("check", "--output-format", "jsonl").out.splitlines()
    assert [json.loads(line)["line"] for line in lines] == [2, 3]
    assert json.loads(lines[0])["fingerprint"] == fingerprint


def test_json_counts_what_was_fixed(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)
    data = json.loads(memlint("check", "--fix", "--output-format", "json").out)
    assert (data["summary"]["fixed"], data["summary"]["warnings"], data["summary"]["notes"]) == (1, 0, 1)


def test_fingerprints_survive_moved_lines_and_tell_equal_lines_apart(project: Path, memlint: Run) -> None:
    def prints(text: str) -> list[str]:
        (project / "a.py").write_text(text)
        return [f["fingerprint"] for f in json.loads(memlint("check", "--output-format", "json").out)["findings"]]

    one = prints("x = 'BAD'\n")
    two = prints("\n\nx = 'BAD'\nx = 'BAD'\n")
    assert two[0] == one[0]
    assert two[1] != two[0]


def test_lsp_counts_from_zero_in_utf16(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)
    (project / "clean.py").write_text("x = 1\n")
    first, second = (json.loads(line) for line in memlint("check", "--output-format", "lsp").out.splitlines())
    assert first["uri"] == (project / "a.py").as_uri()
    assert second == {"uri": (project / "clean.py").as_uri(), "diagnostics": []}
    diagnostic = first["diagnostics"][0]
    assert diagnostic["range"] == {"start": {"line": 1, "character": 12}, "end": {"line": 1, "character": 15}}
    assert (diagnostic["severity"], diagnostic["code"], diagnostic["source"]) == (2, "TST901", "memlint")
    assert diagnostic["relatedInformation"] == [
        {
            "location": {
                "uri": (project / "a.py").as_uri(),
                "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 5}},
            },
            "message": "the file begins here",
        }
    ]
    assert diagnostic["data"]["edits"] == [{"range": diagnostic["range"], "newText": "GOOD"}]
    assert first["diagnostics"][1]["severity"] == 3


def test_lsp_links_a_rule_s_page(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("def f(:\n")
    diagnostic = json.loads(memlint("check", "--output-format", "lsp").out)["diagnostics"]
    assert [d["code"] for d in diagnostic] == ["MEM000"]


def test_github_escapes(project: Path, memlint: Run) -> None:
    (project / "a,b:c%.py").write_text("y = 'BAD'\nz = 'BADLY'\nw = 'BADDER'\n")
    lines = memlint("check", "--output-format", "github").out.splitlines()
    assert lines[0] == (
        "::warning file=a%2Cb%3Ac%25.py,line=1,endLine=1,col=6,endColumn=9,title=TST901 bad-word"
        "::the word BAD stands here. Write GOOD."
    )
    assert [line.split()[0] for line in lines] == ["::warning", "::notice", "::error"]


def test_concise(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)
    assert memlint("check", "--output-format", "concise").out == (
        "a.py:2:12: warning TST901 bad-word: the word BAD stands here [*]\n"
        "a.py:3:6: note TST901 bad-word: the word BADLY stands here\n"
    )


def test_text_shows_frame_trail_and_fix(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("x = 1\n\ty = '広', 'BAD'\n".replace("\t", "if x:\n\t", 1) + "z = 'BADLY'\n")
    assert memlint("check").out == (
        "a.py\n"
        "  warning TST901 bad-word: the word BAD stands here\n"
        "   --> a.py:3:12\n"
        "  3 |     y = '広', 'BAD'\n"
        "    |                ^^^\n"
        "    = a.py:1: the file begins here\n"
        "    = fix: Write GOOD (safe, applied by --fix)\n"
        "      -     y = '広', 'BAD'\n"
        "      +     y = '広', 'GOOD'\n"
        "\n"
        "  note TST901 bad-word at 4:6: the word BADLY stands here\n"
        "\n"
        "1 warning, 1 note in 1 file (1 repaired by --fix, 1 by --unsafe-fixes).\n"
    )


def test_text_of_nothing(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("x = 1\n")
    assert memlint("check").out == "No findings in 1 file.\n"
    (project / "b.py").write_text("x = 'BAD'\n")
    assert memlint("check", "--fix").out == "1 finding fixed. No findings in 2 files.\n"


def test_source_cannot_steer_the_terminal(project: Path, memlint: Run) -> None:
    (project / "a.py").write_bytes(b"y = 'BAD' # \x1b]0;title\x07 \x1b[2J\xe2\x80\xae\n")
    out = memlint("check").out
    assert not set(out) & {"\x1b", "\x07", "\u202e"}


def test_a_very_long_line_is_cut(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(f"x = '{'a' * 5000}', 'BAD', '{'b' * 5000}'\n")
    out = memlint("check").out
    assert max(map(len, out.splitlines())) < 200
    frame = out.splitlines()
    line = next(i for i, text in enumerate(frame) if text.startswith("  1 |"))
    start = frame[line + 1].index("^")
    assert frame[line][start : start + 3] == "BAD"
