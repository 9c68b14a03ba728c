"""Code in odd shapes gives findings or one `MEM000`, never a crash; one bad file does not take the others along."""

from __future__ import annotations

import builtins
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run

from memlint.check import Options, check_paths
from memlint.report import FORMATS

HEAD = "import torch\n"
SHAPES = {
    "empty": "",
    "only_comment": "# nothing",
    "terms": "def f(a):\n    return " + " + ".join(["a"] * 3000) + "\n",
    "conditions": "x = " + " and ".join(["a"] * 3000) + "\n",
    "brackets": "x = " + "[" * 90 + "1" + "]" * 90 + "\n",
    "brackets_beyond": "x = " + "[" * 1000 + "1" + "]" * 1000 + "\n",
    "calls": "x = " + "f(" * 90 + "1" + ")" * 90 + "\n",
    "chain": "x = a" + ".b()" * 1500 + "\n",
    "elifs": "def f(x):\n    if x == 0:\n        y = 0\n"
    + "".join(f"    elif x == {i}:\n        y = {i}\n" for i in range(1500))
    + "    return y\n",
    "blocks": "".join("  " * i + "if x:\n" for i in range(95)) + "  " * 95 + "pass\n",
    "loops": "def f(model, loader):\n"
    + "".join(" " * (i + 1) + f"for x{i} in loader:\n" for i in range(18))
    + " " * 19
    + "losses.append(model(x0))\n",
    "form_feed": "x = 1\n\x0c\ndef f():\n\treturn torch.ones(1)\n",
    "mixed_ends": "x = 1\r\ny = 2\rz = 3\n",
    "long_line": f"x = '{'a' * 1_000_000}'\n",
    "python_2": "print 'two'\n",
    "unterminated": "x = '''a\n",
    "recursion": "def f(x):\n    return f(f(x))\n\n\nclass A(A):\n    def g(self):\n        return self.g()\n",
    "imports_itself": "import a\nfrom a import *\nfrom . import a\nfrom a import f as f\n\ndef f():\n  return a.f()\n",
    "nul": "x = 1\0\n",
    "newer": "match x:\n    case {'a': [*_, b]} if b:\n        pass\nexcept* A:\n",
    "folded": "x = \\\n1\n" * 50 + "\\",
    "unary": "x = " + "-" * 5000 + "1\n",
    "generated": "TABLE = [\n" + "    (1, 'a', None),\n" * 20_000 + "]\n",
    "shadowed": "torch = None\nlist = torch\ndef f(torch=torch):\n    del torch\n    return torch\n",
}


def test_a_pipe_is_no_file(project: Path, memlint: Run) -> None:
    os.mkfifo(project / "pipe.py")
    result = memlint("check", "pipe.py", "--no-cache", "--output-format", "concise")
    assert result.status == 1
    assert (
        result.out == "pipe.py:1:1: error MEM000 cannot-read: the file cannot be read: a pipe or device, not a file\n"
    )


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/full"])
def test_a_device_is_no_file(project: Path, memlint: Run, device: str) -> None:
    if not os.path.exists(device):
        pytest.skip(f"no {device}")
    result = memlint("check", device, "--no-cache", "--output-format", "concise")
    assert (result.status, result.err) == (1, "")
    assert result.out.endswith("the file cannot be read: a pipe or device, not a file\n")


def test_a_walk_passes_over_what_is_no_file(project: Path, memlint: Run) -> None:
    os.mkfifo(project / "pipe.py")
    (project / "itself.py").symlink_to("itself.py")
    (project / "nowhere.py").symlink_to("no such file.py")
    (project / "round").mkdir()
    (project / "round" / "up").symlink_to("..")
    (project / "round" / "itself").symlink_to("itself")
    (project / "folder.py").mkdir()
    (project / "folder.py" / "a.py").write_text("x = 'BAD'\n")
    (project / "notes.ipynb").mkdir()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket.py")
        result = memlint("check", "--no-cache", "--output-format", "concise")
    assert result.err == ""
    assert [line.split(" ")[0] for line in result.out.splitlines()] == ["folder.py/a.py:1:6:"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("itself.py", "Too many levels"), ("nowhere.py", "no such file"), ("socket.py", "a pipe or device")],
)
def test_what_is_named_outright_and_is_no_file_is_told(project: Path, memlint: Run, name: str, reason: str) -> None:
    (project / "itself.py").symlink_to("itself.py")
    (project / "nowhere.py").symlink_to("no such file.py")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket.py")
        result = memlint("check", name, "--no-cache", "--output-format", "concise")
    assert (result.status, result.err) == (1, "")
    assert result.out.startswith(f"{name}:1:1: error MEM000 cannot-read: the file cannot be read: {reason}")


@pytest.mark.parametrize("output_format", FORMATS)
def test_names_that_are_no_text(project: Path, memlint: Run, output_format: str) -> None:
    """Names are bytes: some are no UTF-8, and some would break the line that shows them."""
    names = [b"\xff\xfe.py", b"a\nb.py", "\u202e\x1b[2J.py".encode(), b"a b:1.py"]
    for name in names:
        (project / os.fsdecode(name)).write_text("x = 'BAD'\n")
    result = memlint("check", "--output-format", output_format)
    assert (result.status, result.err) == (1, "")
    if output_format != "github":  # which wants the name as it is
        assert "\x1b" not in result.out and "\u202e" not in result.out
    if output_format == "concise":
        assert result.out.count("\n") == len(names)
    again = memlint("check", "--output-format", output_format)
    assert again.status == 1 and (output_format in ("json", "junit") or again.out == result.out)
    assert memlint("check", "--fix").status == 0
    assert {(project / os.fsdecode(name)).read_text() for name in names} == {"x = 'GOOD'\n"}


def test_a_file_that_goes_or_changes_while_it_is_being_fixed(
    project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memlint import apply

    for name in ("a.py", "b.py", "c.py", "sub/d.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("x = 'BAD'\n")
    known = apply.fix_paths

    def fixing(*arguments, **options):  # type: ignore[no-untyped-def]
        fixed = known(*arguments, **options)
        (project / "a.py").unlink()
        (project / "b.py").write_text("y = 'BAD'\n")
        shutil.rmtree(project / "sub")
        return fixed

    monkeypatch.setattr(apply, "fix_paths", fixing)
    result = memlint("check", "--fix", "--output-format", "concise")
    assert result.status == 2
    assert result.err.splitlines() == [
        "memlint: a.py cannot be written: no such file or directory",
        "memlint: b.py was changed by somebody else meanwhile and is left as it is",
        "memlint: sub/d.py cannot be written: no such file or directory",
    ]
    assert sorted(path.name for path in project.rglob("*.py")) == ["b.py", "c.py"]
    assert (project / "b.py").read_text() == "y = 'BAD'\n"
    assert (project / "c.py").read_text() == "x = 'GOOD'\n"


def test_a_folder_that_goes_while_it_is_walked(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.py").write_text("x = 'BAD'\n")
    (project / "sub").mkdir()
    (project / "sub" / "b.py").write_text("x = 'BAD'\n")
    known = os.scandir

    def scanning(folder):  # type: ignore[no-untyped-def]
        if str(folder).endswith("/sub"):
            shutil.rmtree(folder, ignore_errors=True)
        return known(folder)

    monkeypatch.setattr(os, "scandir", scanning)
    result = memlint("check", "--no-cache", "--output-format", "concise")
    assert (result.status, result.err) == (1, "")
    assert [line.split(" ")[0] for line in result.out.splitlines()] == ["a.py:1:6:"]


def test_a_file_that_nobody_may_read(project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.py").write_text("x = 'BAD'\n")
    (project / "b.py").write_text("x = 'BAD'\n")
    (project / "a.py").chmod(0)
    if os.access(project / "a.py", os.R_OK):  # root may
        known = builtins.open

        def opening(path, *arguments, **options):  # type: ignore[no-untyped-def]
            if path == "a.py":
                raise PermissionError(13, "Permission denied", path)
            return known(path, *arguments, **options)

        monkeypatch.setattr(builtins, "open", opening)
    result = memlint("check", "--no-cache", "--output-format", "concise")
    first, second = result.out.splitlines()
    assert (result.status, result.err) == (1, "")
    assert first == "a.py:1:1: error MEM000 cannot-read: the file cannot be read: permission denied"
    assert second.startswith("b.py:1:6: warning TST901")


def test_a_working_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    command = (
        "import os, sys; os.rmdir(os.getcwd()); sys.argv[1:] = ['check', '.']; from memlint.cli import main; main()"
    )
    (tmp_path / "gone").mkdir()
    result = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path / "gone", capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert result.stderr == "memlint: the working folder is gone\n"


def test_what_reads_a_file_is_said_where_it_cannot(project: Path, memlint: Run) -> None:
    (project / "a.py").write_text("def f(:\n")
    result = memlint("check", "a.py", "--no-cache", "--output-format", "concise")
    assert f"cannot be parsed as Python {sys.version_info[0]}.{sys.version_info[1]}: " in result.out


@pytest.mark.parametrize("name", SHAPES)
def test_odd_shapes(project: Path, memlint: Run, name: str) -> None:
    (project / "a.py").write_bytes((HEAD + SHAPES[name]).encode())
    result = memlint("check", "a.py", "--no-cache", "--output-format", "concise")
    assert not result.err
    assert result.status in (0, 1)
    assert result.out.count("MEM000") <= 1


def test_a_file_that_the_analysis_fails_on_does_not_take_the_others_along(
    project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memlint import project as analysis

    class Fragile(analysis.Project):
        def __init__(self, sources, **options) -> None:  # type: ignore[no-untyped-def]
            if any("FRAGILE" in source.text for source in sources):
                raise KeyError("as asked")
            super().__init__(sources, **options)

    monkeypatch.setattr(analysis, "Project", Fragile)
    (project / "a.py").write_text("FRAGILE = 'BAD'\n")
    (project / "b.py").write_text("x = 'BAD'\n")
    result = memlint("check", "--output-format", "concise")
    assert result.status == 2
    assert result.err.startswith("memlint: internal error: the analysis raised KeyError: 'as asked'")
    assert result.err.count("\n") == 1
    failed, found = result.out.splitlines()
    assert failed.startswith("a.py:1:1: error MEM000 cannot-read: internal error: the analysis raised KeyError")
    assert found.startswith("b.py:1:6: warning TST901")


def test_two_runs_at_once(project: Path) -> None:
    for number in range(20):
        (project / f"f{number}.py").write_text("import torch\n\nfor x in 'BAD':\n    print(x)\n")
    runs = [
        subprocess.Popen([sys.executable, "-m", "memlint", "check", "--fix", "."], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run in runs:
        _, err = run.communicate(timeout=60)
        assert run.returncode in (0, 2)
        assert all("changed by somebody else" in line for line in err.splitlines()), err
    assert {path.read_text() for path in project.glob("*.py")} == {"import torch\n\nfor x in 'GOOD':\n    print(x)\n"}
    assert not list(project.glob(".memlint-*.tmp"))


def test_a_file_of_a_package_does_not_hide_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``import torch`` in a package that has a ``torch.py`` beside it means the library, as it does to Python."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "torch.py").write_text("def no_grad():\n    pass\n")
    (package / "score.py").write_text(
        "import torch\n\n\ndef score(model, loader):\n    model.eval()\n    with torch.no_grad():\n"
        "        return [model(x).argmax(1).tolist() for x in loader]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert check_paths(["package/score.py"], Options(cache=False)).findings == []
    assert check_paths(["."], Options(cache=False)).findings == []


def test_callers_outside_the_run_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that hands over the changed file alone must not lose what its callers in other files do."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "predict.py").write_text(
        "import torch\n\n\ndef predict(model, loader):\n    model.eval()\n"
        "    return [model(x).argmax(1).tolist() for x in loader]\n"
    )
    caller = tmp_path / "validate.py"
    caller.write_text(
        "import torch\n\nfrom predict import predict\n\n\ndef validate(model, loader):\n    with torch.no_grad():\n"
        "        return predict(model, loader)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert check_paths(["predict.py"], Options(cache=False)).findings == []
    caller.write_text(caller.read_text().replace("with torch.no_grad():", "if True:"))
    assert [f.name for f in check_paths(["predict.py"], Options(cache=False)).findings] == ["eval-without-no-grad"]
