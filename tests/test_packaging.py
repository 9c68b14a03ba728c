"""What is installed, and that the README, the hooks and the package say the same."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from memlint import __version__, registry
from memlint.toml import loads

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel built from this checkout."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_wheel_holds_rules_pages_and_library(wheel: list[str]) -> None:
    for path in (ROOT / "rules").glob("*"):
        if path.suffix in (".py", ".md"):
            assert f"memlint/rules/{path.name}" in wheel
    for path in (ROOT / "memlint").rglob("*"):
        if path.suffix in (".py", ".toml", ".typed") or path.name == "py.typed":
            assert path.relative_to(ROOT).as_posix() in wheel


def test_wheel_holds_nothing_else(wheel: list[str]) -> None:
    for name in wheel:
        assert name.startswith("memlint/") or ".dist-info/" in name
        assert "__pycache__" not in name


def test_version_is_stated_once() -> None:
    assert loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] == __version__


def test_readme_lists_every_rule() -> None:
    rows = re.findall(r"^\| (MEM\d+) \| \[([a-z0-9-]+)\]\(rules/([a-z0-9_]+)\.md\) \| (\w+)", README, re.MULTILINE)
    assert [(code, name) for code, name, _, _ in rows] == [(rule.code, rule.name) for rule in registry.load()]
    assert all(stem == name.replace("-", "_") for _, name, stem, _ in rows)


def test_readme_has_the_commands_that_ci_runs() -> None:
    for marker in ("main-job", "tests"):
        assert re.search(rf"<!-- {marker} -->\n+```[a-z]*\n[^`]+```", README), marker


def test_hooks_call_commands_that_exist() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^- id: (.+)$", text, re.MULTILINE) == ["memlint", "memlint-fix"]
    for entry in re.findall(r"^  entry: memlint (.+)$", text, re.MULTILINE):
        run = subprocess.run(
            [sys.executable, "-m", "memlint", *entry.split(), "--help"], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0
        assert "--fix" in run.stdout
