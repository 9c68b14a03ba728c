"""Every option of `memlint check` and its neighbours, and every exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from memlint import __version__

ROOT = Path(__file__).parents[1]

TEXT = "x = 1\ny = 'BAD'\n"


def findings(out: str) -> list[tuple[str, int, str, str]]:
    """Path, line, level and code of a json report."""
    return [(f["path"], f["line"], f["level"], f["code"]) for f in json.loads(out)["findings"]]


def test_exit_status_follows_the_findings(project: Path, memlint: Run) -> None:
    file = project / "a.py"
    file.write_text("x = 1\n")
    assert memlint("check").status == 0
    file.write_text("x = 'BADLY'\n")
    assert memlint("check").status == 0
    assert memlint("check", "--fail-on", "note").status == 1
    file.write_text(TEXT)
    assert memlint("check").status == 1
    assert memlint("check", "--fail-on", "error").status == 0
    assert memlint("check", "--exit-zero").status == 0
    file.write_text("x = 'BADDER'\n")
    assert memlint("check", "--fail-on", "error").status == 1


def test_no_path_means_the_working_folder(project: Path, memlint: Run) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "a.py").write_text(TEXT)
    assert findings(memlint("check", "--output-format", "json").out) == [("sub/a.py", 2, "warning", "TST901")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "--no-such"), "No such option"),
        (("check", "--select", "bad-wort"), "unknown rule 'bad-wort'; did you mean 'bad-word'?"),
        (("check", "--ignore", "TST902"), "unknown rule 'TST902'; did you mean 'TST901'?"),
        (("check", "--select", "TST9,TST8"), "unknown rule 'TST8'; codes begin with TST9"),
        (("check", "--select", "MEM9"), "unknown rule 'MEM9'; codes begin with MEM0, MEM1, MEM2,"),
        (("check", "--select", "mem911"), "unknown rule 'mem911'; codes begin with MEM0,"),
        (("check", "--select", "MEM3011"), "unknown rule 'MEM3011'; did you mean 'MEM301'?"),
        (("check", "missing.py"), "no such file or folder: missing.py"),
        (("check", "--fail-on", "warnin"), "unknown level 'warnin'; did you mean 'warning'?"),
        (("check", "--min-level", "x"), "unknown level 'x'"),
        (("check", "--target-torch", "new"), "no torch version"),
        (("check", "--output-format", "yaml"), "'yaml' is not one of"),
        (("check", "--stdin-filename", "a.py"), "goes with the path '-'"),
        (("check", "-", "a.py"), "'-' stands alone"),
        (("check", "--unsafe-fixes"), "goes with --fix or --diff"),
        (("check", "--update-baseline"), "needs --baseline"),
        (("check", "--baseline", "none.json"), "no baseline none.json"),
        (("check", "--statistics", "--output-format", "json"), "--statistics goes with"),
        (("check", "--output-file", "none/out.txt"), "cannot be written"),
        (("rule", "bad-wort"), "did you mean 'bad-word'?"),
        (("chek",), "No such command"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(
    project: Path, memlint: Run, arguments: tuple[str, ...], message: str
) -> None:
    (project / "a.py").write_text("x = 1\n")
    result = memlint(*arguments)
    assert result.status == 2
    assert message in result.err
    assert result.err.count("\n") == 1
    assert result.err.startswith("memlint: ")


def test_select_ignore_and_extend(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT + "z = 1  # memlint: ignore[bad-word]\n")

    def codes(*arguments: str) -> list[str]:
        return [code for _, _, _, code in findings(memlint("check", "--output-format", "json", *arguments).out)]

    assert codes() == ["TST901", "MEM099"]
    assert codes("--select", "bad-word") == ["TST901"]
    assert codes("--select", "TST") == ["TST901"]
    assert codes("--select", "MEM000") == []
    assert codes("--select", "MEM000", "--extend-select", "bad-word,MEM099") == ["TST901", "MEM099"]
    assert codes("--ignore", "bad-word", "--ignore", "MEM099") == []
    assert codes("--ignore", "ALL") == []


def test_min_level_hides_and_does_not_excuse(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("x = 'BADLY'\ny = 'BAD'\n")
    result = memlint("check", "--min-level", "error", "--output-format", "json")
    assert (findings(result.out), result.status) == ([], 1)
    assert len(findings(memlint("check", "--min-level", "warning", "--output-format", "json").out)) == 1


def test_statistics_counts_by_rule(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("a = 'BAD'\nb = 'BADDER'\nc = 1  # memlint: ignore\n")
    assert memlint("check", "--statistics").out == "2 TST901 bad-word\n1 MEM099 unused-suppression\n"


def test_output_file(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)
    result = memlint("check", "--output-format", "concise", "--output-file", "out.txt")
    assert (result.status, result.out) == (1, "")
    assert (project / "out.txt").read_text().startswith("a.py:2:6: warning TST901 bad-word")


def test_standard_input(project: Path, memlint: Run) -> None:
    result = memlint("check", "-", "--output-format", "json", stdin=TEXT.encode())
    assert findings(result.out) == [("stdin.py", 2, "warning", "TST901")]
    (project / "pkg").mkdir()
    (project / "pkg" / "memlint.toml").write_text("ignore = ['MEM099']\n" + (project / "memlint.toml").read_text())
    named = memlint("check", "-", "--stdin-filename", "pkg/a.py", "--output-format", "json", stdin=TEXT.encode())
    assert findings(named.out) == [("pkg/a.py", 2, "warning", "TST901")]
    assert not (project / "pkg" / "a.py").exists()


def test_standard_input_fixed_goes_to_standard_output(project: Path, memlint: Run) -> None:
    result = memlint("check", "-", "--fix", stdin=TEXT.encode())
    assert result.out == TEXT.replace("BAD", "GOOD")
    assert "1 finding fixed" in result.err
    assert result.status == 0


def test_diff_changes_nothing(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)
    result = memlint("check", "--diff")
    assert result.status == 1
    assert "-y = 'BAD'\n+y = 'GOOD'\n" in result.out
    assert result.err == "Would fix 1 finding; 0 would be left.\n"
    assert (project / "a.py").read_text() == TEXT


def test_unsafe_fixes_need_asking(project: Path, memlint: Run) -> None:
    file = project / "a.py"
    file.write_text("x = 'BADLY'\n")
    assert memlint("check", "--fix").status == 0
    assert file.read_text() == "x = 'BADLY'\n"
    memlint("check", "--fix", "--unsafe-fixes")
    assert file.read_text() == "x = 'GOOD'\n"


def test_unsafe_fixes_of_the_configuration(project: Path, memlint: Run) -> None:
    with open(project / "memlint.toml", "a") as config:
        config.write("unsafe-fixes = true\n")
    file = project / "a.py"
    file.write_text("x = 'BADLY'\n")
    memlint("check", "--fix", "--no-unsafe-fixes")
    assert "BADLY" in file.read_text()
    memlint("check", "--fix")
    assert "GOOD" in file.read_text()


def test_baseline_lets_new_findings_through_only(project: Path, memlint: Run) -> None:
    file = project / "a.py"
    file.write_text(TEXT)
    assert memlint("check", "--baseline", "known.json", "--update-baseline").status == 0
    file.write_text("import os\n\n\n" + TEXT)
    assert memlint("check", "--baseline", "known.json").status == 0
    file.write_text(TEXT + "z = 'BAD'\n")
    result = memlint("check", "--baseline", "known.json", "--output-format", "json")
    assert findings(result.out) == [("a.py", 3, "warning", "TST901")]
    file.write_text(TEXT * 2)
    assert memlint("check", "--baseline", "known.json").status == 1
    (project / "known.json").write_text("{")
    assert "cannot be read" in memlint("check", "--baseline", "known.json").err
    for other in ("[]", "{}", '{"version": 1, "findings": [1]}'):
        (project / "known.json").write_text(other)
        result = memlint("check", "--baseline", "known.json")
        assert result.err == "memlint: the baseline known.json is none that --update-baseline wrote\n"


def test_nothing_to_check_says_so(project: Path, memlint: Run) -> None:
    result = memlint("check")
    assert (result.status, result.err) == (0, "memlint: no Python file or notebook under .\n")


def test_a_file_that_cannot_be_parsed_is_one_finding_and_the_others_are_checked(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("x = 1\ndef f(:\n")
    (project / "b.py").write_text(TEXT)
    (project / "c.py").write_bytes(b"x = 1\n\xff\n")
    result = memlint("check", "--output-format", "json")
    assert findings(result.out) == [
        ("a.py", 2, "error", "MEM000"),
        ("b.py", 2, "warning", "TST901"),
        ("c.py", 2, "error", "MEM000"),
    ]
    assert result.status == 1


def test_a_failing_rule_is_reported_and_the_rest_goes_on(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("CRASH = 'BAD'\n")
    (project / "b.py").write_text(TEXT)
    result = memlint("check", "--output-format", "json")
    assert result.status == 2
    assert findings(result.out) == [("a.py", 1, "error", "MEM000"), ("b.py", 2, "warning", "TST901")]
    assert result.err.startswith("memlint: internal error: TST901 bad-word raised RuntimeError: as asked (bad_word.py:")
    assert result.err.count("\n") == 1


def test_colour(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.py").write_text(TEXT)
    assert "\x1b[" not in memlint("check").out
    assert "\x1b[" in memlint("check", "--color").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in memlint("check").out


def test_rule_and_rules(project: Path, memlint: Run) -> None:
    (project.parent / "outside" / "rules" / "bad_word.md").write_text(
        "# bad-word (TST901)\n\nBAD is written.\n\nLevel: warning. Fix: safe.\n\n## What it finds\n\n"
        "## Why it costs\n\n## The fix\n\n## What it leaves alone\n\n## Trial\n"
    )
    assert memlint("rule", "bad-word").out.startswith("# bad-word (TST901)")
    assert memlint("rule", "tst901").out == memlint("rule", "bad-word").out
    assert "cannot-read" in memlint("rule", "MEM000").out
    assert "TST901 bad-word" in memlint("rules").out
    rows = {row["code"]: row for row in json.loads(memlint("rules", "--output-format", "json").out)}
    assert rows["TST901"] == {
        "code": "TST901",
        "name": "bad-word",
        "level": "warning",
        "fix": "safe",
        "summary": "BAD is written.",
        "claim": "growth",
    }


def test_version_and_help(memlint: Run) -> None:
    assert memlint("--version").out.startswith("memlint ")
    assert "confirm" in memlint("--help").out
    assert "--fix" in memlint("check", "-h").out


def test_cache_gives_the_same_and_is_only_a_cache(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)

    def report() -> object:
        data = json.loads(memlint("check", "--output-format", "json").out)
        del data["summary"]["seconds"]
        return data

    first = report()
    database = next((project / ".memlint_cache").glob("*.sqlite"))
    assert report() == first
    database.write_bytes(b"no database at all" * 100)
    assert report() == first
    database.write_bytes(b"")
    assert report() == first
    (project / "a.py").write_text("x = 1\n")
    assert report() != first
    os.unlink(database)
    database.mkdir()
    assert report() != first


def test_cache_may_be_nowhere_or_elsewhere(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.py").write_text(TEXT)
    memlint("check", "--no-cache")
    assert not (project / ".memlint_cache").exists()
    monkeypatch.setenv("MEMLINT_CACHE_DIR", str(project.parent / "elsewhere"))
    assert memlint("check").status == 1
    assert list((project.parent / "elsewhere").glob("*.sqlite"))
    monkeypatch.setenv("MEMLINT_CACHE_DIR", str(project / "a.py"))
    assert memlint("check").status == 1


def test_the_cache_knows_a_changed_rule_and_a_changed_neighbour(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text(TEXT)
    assert memlint("check").status == 1
    rule = project.parent / "outside" / "rules" / "bad_word.py"
    rule.write_text(rule.read_text().replace('"BAD": Level.WARNING', '"BAD": Level.NOTE   '))
    code = "import sys; from memlint.cli import main; main(['check'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_ctrl_c_is_one_line_and_130(project: Path) -> None:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    child = subprocess.Popen([sys.executable, "-m", "memlint", "check", "-"], **pipes, text=True)
    time.sleep(1.5)  # it now waits for something to read
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert (child.returncode, err) == (130, "memlint: interrupted\n")


def test_a_clean_run_imports_neither_libcst_nor_torch(project: Path) -> None:
    (project / "a.py").write_text("import torch\n\n\ndef f(x):\n    return torch.relu(x)\n")
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "memlint", "check", "a.py"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in run.stderr.splitlines()}
        assert "memlint" in imported
        assert not imported & {"libcst", "torch", "numpy"}


def test_a_fix_is_shown_without_the_slowest_part_of_libcst(project: Path) -> None:
    body = "        loss = model(x).sum()\n        loss.backward()\n        total += loss\n"
    header = "import torch\n\n\ndef f(model: torch.nn.Module, loader):\n    total = 0\n    for x in loader:\n"
    (project / "a.py").write_text(f"{header}{body}    return total.item()\n")
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "memlint", "check", "a.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in run.stderr.splitlines()}
    assert "detach()" in run.stdout and "libcst" in imported
    assert "libcst.matchers" not in imported  # it takes as long as all the rest together


def test_version_as_json_says_what_memlint_runs_on(memlint: Run) -> None:
    facts = json.loads(memlint("--json", "--version").out)
    assert facts == json.loads(memlint("--version", "--json").out)
    assert facts["memlint"] == __version__
    assert facts["packages"]["libcst"] == metadata.version("libcst")
    assert memlint("--json", "rules").status == 2


def run_shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell's command line, in which ``memlint`` is this one."""
    memlint = f'memlint() {{ {sys.executable} -m memlint "$@"; }}; '
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", memlint + command], env=environment, capture_output=True, text=True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no file that is always full")
@pytest.mark.parametrize("words", ["rules", "rule MEM101", "check a.py", "check --diff a.py", "--version"])
def test_a_full_disk_is_one_line_and_status_2(project: Path, words: str) -> None:
    (project / "a.py").write_text((ROOT / "fixtures" / "corpus" / "train.py").read_text())
    done = run_shell(f"memlint {words} > /dev/full")
    assert (done.stderr.splitlines()[-1], done.returncode) == (
        "memlint: standard output cannot be written: No space left on device",
        2,
    )
    assert "Traceback" not in done.stderr


def test_a_closed_output_is_no_fault(project: Path) -> None:
    (project / "a.py").write_text("x = 1\n")
    assert (run_shell("memlint check a.py >&-").returncode, run_shell("memlint check a.py >&-").stderr) == (0, "")
    done = run_shell("memlint rules | true; echo ${PIPESTATUS[0]}")
    assert done.stdout in ("141\n", "0\n")  # 0: all of it was in the pipe before its end was closed
    assert not done.stderr


def test_without_a_command_the_help_is_shown(memlint: Run) -> None:
    result = memlint()
    assert (result.status, result.out) == (2, "")
    assert "\nCommands:\n" in result.err


def test_the_list_of_rules_is_a_table() -> None:
    lines = run_shell("memlint rules").stdout.splitlines()
    assert {line.split()[2] for line in lines} == {"note", "warning", "error"}
    assert len({len(line) - len(line.split(maxsplit=3)[3]) for line in lines}) == 1


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("memlint check --select MEM60", [f"MEM60{n}" for n in range(1, 9)]),
        ("memlint check --select MEM101,gc-", ["MEM101,gc-in-loop"]),
    ],
)
def test_the_shell_completes_codes_and_lists(words: str, found: list[str]) -> None:
    done = run_shell("memlint", _MEMLINT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert done.stdout.split() == [f"plain,{word}" for word in found]


@pytest.mark.parametrize("words", ["memlint rule eval-wi", "memlint check --select eval-wi"])
def test_the_shell_completes_rules(words: str) -> None:
    environment = {"_MEMLINT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", "from memlint.cli import main; main()"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,eval-without-no-grad\n"


def test_watch_checks_again_after_a_change(project: Path) -> None:
    (project / "a.py").write_text("x = 1\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    watching = subprocess.Popen(
        [sys.executable, "-m", "memlint", "check", "--watch", "--output-format", "concise", "."],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stderr
    giving_up = threading.Timer(60, watching.kill)
    giving_up.start()
    try:
        assert watching.stderr.readline() == "Waiting for changes; Ctrl-C ends.\n"
        (project / "memlint.toml").write_text("selct = []\n")
        assert watching.stderr.readline() == "\n"
        assert watching.stderr.readline() == "Changed: memlint.toml\n"
        assert "'selct'" in watching.stderr.readline()
        assert watching.stderr.readline() == "Waiting for changes; Ctrl-C ends.\n"
        (project / "memlint.toml").unlink()
        assert watching.stderr.readline() == "\n"
        assert watching.stderr.readline() == "Changed: memlint.toml\n"
        assert watching.stderr.readline() == "Waiting for changes; Ctrl-C ends.\n"
        (project / "a.py").write_text("def f(:\n")
        assert watching.stderr.readline() == "\n"
        assert watching.stderr.readline() == "Changed: a.py\n"
        assert watching.stderr.readline() == "Waiting for changes; Ctrl-C ends.\n"
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=30)
    finally:
        giving_up.cancel()
        watching.kill()
    assert out.startswith("a.py:1:7: error MEM000 cannot-read:")
    assert (watching.returncode, err) == (130, "memlint: interrupted\n")


def test_watch_goes_with_nothing_that_writes(memlint: Run) -> None:
    assert memlint("check", "--watch", "--fix").status == 2
    assert memlint("check", "--watch", "-").status == 2


def test_a_long_run_says_how_far_it_is(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py"):
        (project / name).write_text("x = 'BAD'\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("memlint.cli.time.monotonic", iter(range(100)).__next__)
    assert "\r\x1b[K1 of 2 files" in memlint("check").err
