"""Configuration files, and which files a run reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Run

from memlint.config import Config, ConfigError, Configs
from memlint.files import Loader, discover, neighbours
from memlint.rule import Level
from memlint.target import Target


def checked(memlint: Run, *arguments: str) -> list[str]:
    """The files in which BAD was found."""
    out = memlint("check", "--output-format", "json", *arguments).out
    return [finding["path"] for finding in json.loads(out)["findings"]]


def write(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 'BAD'\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selct = []", "unknown key 'selct'; did you mean 'select'?"),
        ("select = 'ALL'", "select: 'ALL' is no list of strings"),
        ("select = ['MEM10x']", "select: unknown rule 'MEM10x'"),
        ("ignore = ['gc-in-lop']", "ignore: unknown rule 'gc-in-lop'; did you mean 'gc-in-loop'?"),
        ("[tool.memlint]\nselect = ['ALL']", "write the keys without [tool.memlint]"),
        ("fail-on = 'warn'", "fail-on: unknown level 'warn'; did you mean 'warning'?"),
        ("unsafe-fixes = 1", "unsafe-fixes: 1 is neither true nor false"),
        ("target-torch = 2.1", "target-torch: 2.1 is no string"),
        ("target-torch = 'two'", "target-torch: 'two' is no torch version"),
        ("per-file-ignores = []", "per-file-ignores: [] is no table"),
        ("rule-folders = ['none']", "no rule folder"),
        ("x = ", "memlint.toml"),
        ("[library]\n'torch.relu' = { retruns = 'tensor' }", "[tool.memlint.library]"),
    ],
)
def test_what_is_not_known_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memlint: Run, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memlint.toml").write_text(text + "\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    result = memlint("check")
    assert result.status == 2
    assert message in result.err
    assert result.err.count("\n") == 1


def test_every_key(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """
        [tool.memlint]
        select = ["MEM1"]
        extend-select = ["MEM201"]
        ignore = ["MEM102"]
        exclude = ["old"]
        extend-exclude = ["gen"]
        target-torch = ">=1.7,<2"
        fail-on = "error"
        unsafe-fixes = true
        baseline = "known.json"
        rule-folders = ["rules"]
        [tool.memlint.per-file-ignores]
        "tests/*" = ["ALL"]
        [tool.memlint.confirm]
        steps = 3
        """
    )
    folder = str(tmp_path)
    assert Configs().of(str(tmp_path / "sub" / "a.py")) == Config(
        folder=folder,
        select=("MEM1",),
        extend_select=("MEM201",),
        ignore=("MEM102",),
        per_file_ignores={"tests/*": ("ALL",)},
        exclude=("old",),
        extend_exclude=("gen",),
        target_torch=Target((1, 7), (1, 999)),
        fail_on=Level.ERROR,
        unsafe_fixes=True,
        baseline=f"{folder}/known.json",
        rule_folders=(f"{folder}/rules",),
        confirm={"steps": 3},
    )


def test_the_nearest_file_wins_and_memlint_toml_before_pyproject(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "memlint.toml").write_text("fail-on = 'note'\n")
    (tmp_path / "sub" / "pyproject.toml").write_text("[tool.other]\nmemlint = 1\n")
    configs = Configs()
    assert configs.of(str(tmp_path / "sub" / "a.py")).fail_on is Level.NOTE
    (tmp_path / "sub" / "pyproject.toml").write_text("[tool.memlint]\nfail-on = 'error'\n")
    assert Configs().of(str(tmp_path / "sub" / "a.py")).fail_on is Level.ERROR
    (tmp_path / "sub" / "memlint.toml").write_text("")
    assert Configs().of(str(tmp_path / "sub" / "a.py")).fail_on is Level.WARNING
    (tmp_path / "sub" / "memlint.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        Configs().of(str(tmp_path / "sub" / "a.py"))


def test_selection_by_configuration(project: Path, memlint: Run) -> None:
    write(project, "a.py", "tests/b.py")
    base = (project / "memlint.toml").read_text()
    for text, expected in [
        ("select = ['MEM1']", []),
        ("ignore = ['bad-word']", []),
        ("select = ['MEM1']\nextend-select = ['TST901']", ["a.py", "tests/b.py"]),
        ("[per-file-ignores]\n'tests' = ['bad-word']", ["a.py"]),
        ("[per-file-ignores]\n'b.py' = ['TST']", ["a.py"]),
    ]:
        (project / "memlint.toml").write_text(base + text + "\n")
        assert checked(memlint) == expected
    (project / "memlint.toml").write_text(base + "ignore = ['bad-word']\n")
    assert checked(memlint, "--select", "bad-word") == ["a.py", "tests/b.py"]


def test_fail_on_of_the_nearest_file(project: Path, memlint: Run) -> None:
    write(project, "sub/a.py")
    (project / "sub" / "memlint.toml").write_text("fail-on = 'error'\n")
    assert memlint("check").status == 0
    assert memlint("check", "--fail-on", "warning").status == 1


def test_usual_folders_and_gitignore_are_passed_over(project: Path, memlint: Run) -> None:
    write(
        project,
        "a.py",
        "build/b.py",
        ".venv/c.py",
        "out/d.py",
        "gen_e.py",
        "sub/f.py",
        "sub/keep_g.py",
        "x.egg-info/h.py",
    )
    (project / ".gitignore").write_text("out/\n/gen_*.py\n")
    (project / "sub" / ".gitignore").write_text("*\n!keep_*\n")
    assert checked(memlint) == ["a.py", "sub/keep_g.py"]


def test_what_is_named_outright_is_checked(project: Path, memlint: Run) -> None:
    write(project, "build/b.py", "out/d.py", "old/e.py", "env/build/f.py")
    (project / "tool").write_text("x = 'BAD'\n")
    (project / ".gitignore").write_text("out/\n*.gen\n")
    with open(project / "memlint.toml", "a") as config:
        config.write("exclude = ['old']\n")
    assert checked(memlint, "build") == ["build/b.py"]
    assert checked(memlint, "out") == ["out/d.py"]
    assert checked(memlint, "out/d.py", "old/e.py", "tool") == ["old/e.py", "out/d.py", "tool"]
    assert checked(memlint, "env/build") == ["env/build/f.py"]


def test_excludes_stand_in_for_the_usual_folders_or_beside_them(project: Path, memlint: Run) -> None:
    write(project, "a.py", "build/b.py", "old/c.py")
    base = (project / "memlint.toml").read_text()
    (project / "memlint.toml").write_text(base + "exclude = ['old/']\n")
    assert checked(memlint) == ["a.py", "build/b.py"]
    (project / "memlint.toml").write_text(base + "extend-exclude = ['old/']\n")
    assert checked(memlint) == ["a.py"]


@pytest.mark.parametrize("name", ["build", "env", "dist", ".venv"])
def test_a_project_under_a_folder_of_a_usual_name(
    project: Path, memlint: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write(project, f"{name}/project/a.py")
    monkeypatch.chdir(project / name / "project")
    assert checked(memlint) == ["a.py"]


def test_odd_entries(project: Path, memlint: Run) -> None:
    write(project, "a.py", "x.py/inner.py")
    (project / "loop").symlink_to(project, target_is_directory=True)
    (project / "gone.py").symlink_to(project / "nowhere.py")
    assert checked(memlint) == ["a.py", "x.py/inner.py"]
    found = json.loads(memlint("check", "gone.py", "--output-format", "json").out)["findings"]
    assert [(f["code"], f["message"]) for f in found] == [("MEM000", "the file cannot be read: no such file")]


def test_each_file_once_and_in_order(project: Path) -> None:
    write(project, "b.py", "a.py", "sub/c.py")
    found = discover(["sub", "b.py", ".", "./a.py", str(project / "b.py")], Configs().of_folder)
    assert found == ["a.py", "b.py", "sub/c.py"]


def test_neighbours_are_the_rest_of_the_project(project: Path, tmp_path: Path) -> None:
    write(project, "a.py", "sub/b.py", "build/c.py", "n.ipynb")
    assert neighbours(["a.py"], Configs().of_folder) == ["sub/b.py"]
    loose = tmp_path / "loose"
    write(loose, "a.py", "b.py", "sub/c.py")
    assert neighbours([str(loose / "a.py")], Configs().of_folder) == [str(loose / "b.py")]


def test_loader_finds_what_an_import_means(project: Path) -> None:
    write(project, "pkg/__init__.py", "pkg/a.py", "pkg/sub/b.py", "src/lib/__init__.py", "pkg/sub/__init__.py")
    load = Loader()

    def path(module: str, importer: str = "pkg/sub/b.py") -> str | None:
        source = load(module, importer)
        return source.path if source else None

    assert path("pkg.a") == "pkg/a.py"
    assert path("a") is None  # a package's folder is not on the path
    assert path("a", "pkg2/b.py") is None
    assert path("pkg") == "pkg/__init__.py"
    assert path("lib") == "src/lib/__init__.py"
    assert path("..a") == "pkg/a.py"
    assert path(".") == "pkg/sub/__init__.py"
    assert path("torch") is None
    assert load("pkg.a", "x.py") is load("pkg.a", "y.py")
