"""A scratch project whose one rule finds the word BAD: what surrounds the analysis is tested apart from it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from memlint.trial.confirm import Outcome
    from memlint.trial.run import Trials

RULE = '''
from memlint.rule import Claim, Edit, Finding, Fix, Level, Span, Step, rule


@rule(code="TST901", claim=Claim.GROWTH, triggers=("BAD",))
def bad_word(fn):
    """BAD is a warning and BADDER an error, both repaired; BADLY is a note with an unsafe fix."""
    if "CRASH" in fn.text:
        raise RuntimeError("as asked")
    for number, line in enumerate(fn.source.lines, 1):
        column = line.find("BAD") + 1
        if not column:
            continue
        word = next(w for w in ("BADDER", "BADLY", "BAD") if line.startswith(w, column - 1))
        level = {"BADDER": Level.ERROR, "BADLY": Level.NOTE, "BAD": Level.WARNING}[word]
        span = Span(number, column, number, column + len(word))
        fix = Fix("write GOOD", edits=(Edit(span, "GOOD"),))
        fix = fix.unsafe("it reads otherwise") if word == "BADLY" else fix.safe()
        step = Step(fn.source.path, 1, "the file begins here")
        yield Finding("TST901", "bad-word", level, fn.source.path, span, f"the word {word} stands here", fix, (step,))
'''


class Result(NamedTuple):
    """What a call of the command line gave."""

    status: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def every_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules see all functions of all files: those of the tests look for words, in files that know nothing of torch."""
    from memlint.project import Project

    monkeypatch.setattr(Project, "relevant", lambda self, module: True)
    monkeypatch.setattr(Project, "interesting", lambda self, definition: True)


@pytest.fixture
def project(every_function: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the rule; its configuration knows no other rule's findings."""
    rules = tmp_path / "outside" / "rules"
    rules.mkdir(parents=True)
    (rules / "bad_word.py").write_text(RULE)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "memlint.toml").write_text(f"rule-folders = ['{rules}']\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("MEMLINT_CACHE_DIR", raising=False)
    return folder


@pytest.fixture
def memlint(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process."""

    def run(*arguments: str | os.PathLike[str], stdin: bytes = b"") -> Result:
        import io

        from memlint.cli import main

        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([os.fspath(argument) for argument in arguments])
        gc.enable()  # left off by the command, as its process would end here
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        status = ended.value.code
        assert isinstance(status, int)
        return Result(status, out.decode(), err.decode())

    return run


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    """The process that runs trials, one for all tests of a file."""
    from memlint.trial.run import Limits, Trials

    with Trials(Limits(timeout=60)) as running:
        yield running


@pytest.fixture
def outcome(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[..., Outcome]:
    """Confirms the one finding of a rule in a text, on the ``DEVICE`` of the test's file."""
    from memlint.check import Options, check_paths
    from memlint.trial.confirm import Confirmer, Settings

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()

    def confirmed(text: str, rule: str, name: str = "train.py", device: str = request.module.DEVICE) -> Outcome:
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_text(text)
        report = check_paths([name], Options(select=(rule,), cache=False))
        assert len(report.findings) == 1, report.findings
        finding = report.findings[0]
        return Confirmer(Settings(device, 6), trials).outcome(finding, report.sources[name])

    return confirmed
