"""What each output format holds."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from conftest import Run
from jsonschema import Draft7Validator
from junitparser import JUnitXml

from memlint.check import Options, check_paths
from memlint.report import Screen, render

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
            "title": "write GOOD",
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
        "    = fix: write GOOD (safe, applied by --fix)\n"
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


# A clean file, one with findings of each level, one that cannot be parsed, and a name that needs quoting.
def awkward(project: Path) -> None:
    (project / "a.py").write_text(TEXT)
    (project / "b c%.py").write_text("w = 'BADDER'\n")
    (project / "broken.py").write_text("def f(:\n")
    (project / "clean.py").write_text("x = 1\n")


def test_sarif_is_valid_by_the_official_schema(project: Path, memlint: Run) -> None:
    awkward(project)
    (project / "crash.py").write_text("x = 'CRASH BAD'\n")
    schema = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    validator = Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)
    log = json.loads(memlint("check", "--output-format", "sarif").out)
    assert [error.message for error in validator.iter_errors(log)] == []
    del log["runs"][0]["results"][0]["message"]
    assert any(validator.iter_errors(log))  # the schema does look there


def test_sarif_has_rules_regions_trails_fixes_and_fingerprints(project: Path, memlint: Run) -> None:
    awkward(project)
    (run,) = json.loads(memlint("check", "--output-format", "sarif").out)["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [(rule["id"], rule["name"]) for rule in rules] == [("MEM000", "cannot-read"), ("TST901", "bad-word")]
    assert run["columnKind"] == "unicodeCodePoints"
    first, second, third, broken = run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert [result["level"] for result in run["results"]] == ["warning", "note", "error", "error"]
    region = {"startLine": 2, "startColumn": 12, "endLine": 2, "endColumn": 15}
    place = first["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "a.py", "uriBaseId": "%SRCROOT%"}, "region": region}
    assert third["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "b%20c%25.py"
    assert first["relatedLocations"][0]["message"] == {"text": "the file begins here"}
    (change,) = first["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [{"deletedRegion": region, "insertedContent": {"text": "GOOD"}}]
    assert second["fixes"][0]["description"]["text"] == "write GOOD (unsafe: it reads otherwise)"
    assert "fixes" not in broken
    found = json.loads(memlint("check", "--output-format", "json").out)["findings"]
    assert [r["partialFingerprints"]["memlint/v1"] for r in run["results"]] == [f["fingerprint"] for f in found]


def test_sarif_says_when_memlint_failed(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("x = 'CRASH BAD'\n")
    (run,) = json.loads(memlint("check", "--output-format", "sarif").out)["runs"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "as asked" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_sarif_helps_with_a_rule_s_page(tmp_path: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "def f(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x).tolist())\n"
    (tmp_path / "train.py").write_text(f"import torch\n\n{text}")
    (run,) = json.loads(memlint("check", "--output-format", "sarif").out)["runs"]
    (rule,) = run["tool"]["driver"]["rules"]
    assert rule["id"] == "MEM101"
    assert "no_grad" in rule["help"]["markdown"]
    assert "```python before" not in rule["help"]["markdown"]


def test_gitlab_is_a_code_quality_report(project: Path, memlint: Run) -> None:
    awkward(project)
    issues = json.loads(memlint("check", "--output-format", "gitlab").out)
    assert issues[0] == {
        "description": "the word BAD stands here. Write GOOD.",
        "check_name": "bad-word",
        "fingerprint": issues[0]["fingerprint"],
        "severity": "major",
        "location": {"path": "a.py", "lines": {"begin": 2, "end": 2}},
    }
    assert [issue["severity"] for issue in issues] == ["major", "info", "critical", "critical"]
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    (project / "a.py").unlink()
    (project / "b c%.py").unlink()
    (project / "broken.py").unlink()
    assert json.loads(memlint("check", "--output-format", "gitlab").out) == []


def test_junit_is_read_by_a_parser_of_its_own(project: Path, memlint: Run) -> None:
    awkward(project)
    (project / "a.py").write_text("y = 'BAD' # <&> \x01\n")
    xml = memlint("check", "--output-format", "junit").out
    (suite,) = JUnitXml.fromstring(xml.encode())
    assert (suite.tests, suite.failures, suite.errors) == (4, 3, 0)
    cases = {case.name: [failure.message for failure in case.result] for case in suite}
    assert cases == {
        "a.py": ["TST901 bad-word"],
        "b c%.py": ["TST901 bad-word"],
        "broken.py": ["MEM000 cannot-read"],
        "clean.py": [],
    }


def test_frames_fit_the_terminal_and_titles_link_to_pages(project: Path) -> None:
    (project / "a.py").write_text(f"x = '{'a' * 100}', 'BAD', '{'b' * 100}'\n")
    report = check_paths(["a.py"], Options(cache=False))
    for line in render("text", report, Screen(columns=60)).splitlines():
        assert len(line) <= 60 or "TST901" in line
    page = Path(report.rule_folders[0]) / "bad_word.md"
    assert "\x1b]8" not in render("text", report, Screen(color=True, links=True))
    page.write_text("# bad-word (TST901)\n")
    shown = render("text", report, Screen(links=True))
    assert f"\x1b]8;;{page.as_uri()}\x1b\\TST901 bad-word\x1b]8;;\x1b\\" in shown


def test_a_screen_is_what_the_stream_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "TERM_PROGRAM", "VTE_VERSION", "WT_SESSION", "KONSOLE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "72")
    assert Screen.of(io.StringIO()) == Screen()
    assert Screen.of(io.StringIO(), color=True) == Screen(color=True)
    assert Screen.of(Terminal()) == Screen(color=True, columns=72)
    monkeypatch.setenv("VTE_VERSION", "7600")
    assert Screen.of(Terminal()) == Screen(color=True, links=True, columns=72)
    assert Screen.of(Terminal(), color=False) == Screen(columns=72)
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen.of(Terminal()) == Screen(columns=72)
