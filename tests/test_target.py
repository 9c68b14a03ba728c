"""Which torch a project is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.target import Finder, Target, from_clauses, of_header, parse


@pytest.mark.parametrize(
    ("clauses", "low", "high"),
    [
        ("==1.8.0", (1, 8), (1, 8)),
        ("==1.8.0+cu111", (1, 8), (1, 8)),
        (">=0.4", (0, 4), None),
        (">=1.7,<2", (1, 7), (1, 999)),
        (">=1.7, <2.0.0", (1, 7), (1, 999)),
        ("<1.13", None, (1, 12)),
        ("<=1.13", None, (1, 13)),
        ("<1.8.1", None, (1, 8)),
        ("~=1.10", (1, 10), (1, 999)),
        ("~=1.10.2", (1, 10), (1, 10)),
        ("^1.9", (1, 9), (1, 999)),
        ("==1.*", (1, 0), (1, 999)),
        ("=1.7", (1, 7), (1, 7)),
        ("!=1.5,>=1.4", (1, 4), None),
        ("*", None, None),
        ("", None, None),
    ],
)
def test_clauses(clauses: str, low: tuple[int, int] | None, high: tuple[int, int] | None) -> None:
    assert from_clauses(clauses) == Target(low, high)


def test_questions() -> None:
    assert Target((1, 8), (1, 8)).before("2.0")
    assert not Target((1, 8), None).before("2.0")
    assert not Target().before("2.0")
    assert Target().at_least("2.0")
    assert not Target((1, 8), None).at_least("2.0")
    assert Target((2, 0), None).at_least("2.0")
    assert not Target(None, (2, 10)).before("2.9")


def test_parse() -> None:
    assert parse("2.1") == parse("2.1.0+cu118") == Target((2, 1), (2, 1))
    assert parse(">=1.7,<2") == Target((1, 7), (1, 999))
    for text in ("", "new", "2.x", ">=", "torch==1"):
        with pytest.raises(ValueError, match="no torch version"):
            parse(text)


FILES = {
    "pyproject.toml": [
        '[project]\ndependencies = ["numpy", "torch>=1.7,<1.9"]\n',
        "[project.optional-dependencies]\ngpu = [\"torch[opt] >= 1.7, < 1.9; sys_platform == 'linux'\"]\n",
        '[dependency-groups]\ndev = [{include-group = "x"}, "torch>=1.7,<1.9"]\n',
        '[tool.poetry.dependencies]\ntorch = {version = ">=1.7,<1.9", optional = true}\n',
        '[tool.poetry.group.dev.dependencies]\ntorch = ">=1.7,<1.9"\n',
    ],
    "setup.cfg": ["[options]\ninstall_requires =\n    numpy\n    torch>=1.7,<1.9\n"],
    "setup.py": ["from setuptools import setup\nREQ = ['torch>=1.7,<1.9']\nsetup(install_requires=REQ)\n"],
    "requirements.txt": ["# torch==0.4\nnumpy\nTorch>=1.7,<1.9  # new\n"],
    "requirements-dev.txt": ["torch>=1.7,<1.9\n"],
    "requirements/base.txt": ["torch (>=1.7,<1.9)\n"],
    "environment.yml": ["dependencies:\n  - pytorch>=1.7,<1.9\n", "dependencies:\n- pip:\n  - 'torch>=1.7,<1.9'\n"],
    "Pipfile": ['[packages]\ntorch = ">=1.7,<1.9"\n'],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FILES.items() for text in texts])
def test_ranges_are_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / ".git").mkdir()
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert Finder().of(str(tmp_path / "sub" / "a.py")) == Target((1, 7), (1, 8))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("poetry.lock", '[[package]]\nname = "torch"\nversion = "1.8.1"\n'),
        ("uv.lock", '[[package]]\nname = "torch"\nversion = "1.8.1"\n'),
        ("Pipfile.lock", '{"default": {"torch": {"version": "==1.8.1"}}}'),
        ("conda-lock.yml", "package:\n- name: pytorch\n  version: 1.8.1\n"),
        ("environment.yaml", "dependencies:\n  - python=3.8\n  - pytorch::pytorch=1.8\n"),
        ("README.md", "```\npip install torch==1.8.0+cu111 torchvision==0.9.0 -f x\n```\n"),
        ("INSTALL.md", "`conda install pytorch==1.8 -c pytorch`\n"),
    ],
)
def test_pins_are_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    assert Finder().of(str(tmp_path / "a.py")) == Target((1, 8), (1, 8))


def test_pins_beat_ranges_and_a_readme_comes_last(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("torch>=1.7\n")
    (tmp_path / "README.md").write_text("pip install torch==1.8.0\n")
    assert Finder().of(str(tmp_path / "a.py")) == Target((1, 7), None)
    (tmp_path / "uv.lock").write_text('name = "torch"\nversion = "2.1.0"\n')
    assert Finder().of(str(tmp_path / "a.py")) == Target((2, 1), (2, 1))


def test_the_nearest_folder_wins_up_to_the_repository(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.4\n")
    inner = tmp_path / "repository"
    (inner / "sub").mkdir(parents=True)
    assert Finder().of(str(inner / "a.py")) == Target((1, 4), (1, 4))
    (inner / ".git").mkdir()
    assert Finder().of(str(inner / "sub" / "a.py")) == Target()
    (inner / "requirements.txt").write_text("torch==2.2\n")
    (inner / "sub" / "requirements.txt").write_text("torch\nnumpy\n")
    assert Finder().of(str(inner / "sub" / "a.py")) == Target((2, 2), (2, 2))


@pytest.mark.parametrize(
    "text", ["torchvision==0.9\n", "torch-geometric==1.8\n", "pytorch-lightning==1.8\n", "mytorch==1.8\n"]
)
def test_other_packages_are_not_torch(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(text)
    assert Finder().of(str(tmp_path / "a.py")) == Target()


@pytest.mark.parametrize("name", ["pyproject.toml", "Pipfile", "Pipfile.lock", "setup.py", "setup.cfg", "uv.lock"])
def test_a_broken_file_says_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_bytes(b"torch = [\xff((( project = 1")
    assert Finder().of(str(tmp_path / "a.py")) == Target()


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Know more.\n\nDependencies:\ntorch: 0.4\nmatplotlib", "0.4"),
        ("Requires\n * torch==1.8.0\n * numpy", "1.8"),
        ("torch: 1.0 or newer", "unknown"),
        ("Uses torch 1.2 features", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_script_may_say_in_its_header_what_it_needs(docstring: str, expected: str) -> None:
    assert str(of_header(docstring)) == expected
