"""The hooks, run by pre-commit itself in a scratch repository: it installs them from this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = (".pre-commit-hooks.yaml", "LICENSE", "README.md", "memlint", "pyproject.toml", "rules")

# The graph comes from a function of another file, which a commit of train.py alone does not touch.
MODEL = """\
import torch.nn.functional as F


def step(model, images, labels):
    return F.cross_entropy(model(images), labels)
"""
TRAIN = """\
from model import step


def train(model, loader, optimizer):
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = step(model, images, labels)
        loss.backward()
        optimizer.step()
        total += loss
    print(float(total))
"""

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="pre-commit needs git")


class Scratch:
    """A repository whose commits pass through one of the hooks."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment

    def run(self, *command: str, ok: bool = True) -> str:
        """What a command printed, on both streams. Asserts that it succeeded, or with ``ok=False`` that it failed."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is ok, done.stdout
        return done.stdout

    def use(self, hook: str, hooks: Scratch) -> None:
        """Configure the one hook, from the repository ``hooks``, and install it."""
        revision = hooks.run("git", "rev-parse", "HEAD").strip()
        (self.folder / ".pre-commit-config.yaml").write_text(
            f"repos:\n  - repo: {hooks.folder}\n    rev: {revision}\n    hooks: [{{id: {hook}}}]\n"
        )
        self.run(sys.executable, "-m", "pre_commit", "install")
        self.run("git", "add", "-A")
        self.run("git", "commit", "-q", "-m", "Begin")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Nothing of this process's Python, and a home of pre-commit's own."""
    home = tmp_path_factory.mktemp("home")
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PYTHON", "MEMLINT", "SKIP"))
    }
    who = {f"GIT_{role}_{what}": "memlint@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {**kept, **who, "PRE_COMMIT_HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull}


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Scratch:
    """This checkout as a repository of its own, uncommitted changes included."""
    folder = tmp_path_factory.mktemp("hooks")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    scratch = Scratch(folder, environment)
    scratch.run("git", "init", "-q")
    scratch.run("git", "add", "-A")
    scratch.run("git", "commit", "-q", "-m", "Hooks")
    return scratch


@pytest.fixture
def scratch(tmp_path: Path, environment: dict[str, str]) -> Scratch:
    repository = Scratch(tmp_path, environment)
    repository.run("git", "init", "-q")
    (tmp_path / "model.py").write_text(MODEL)
    return repository


def test_a_commit_with_a_finding_is_blocked(hooks: Scratch, scratch: Scratch) -> None:
    scratch.use("memlint", hooks)
    (scratch.folder / "train.py").write_text(TRAIN)
    scratch.run("git", "add", "train.py")
    out = scratch.run("git", "commit", "-m", "Train", ok=False)
    assert "train.py:11:9" in out
    assert "MEM102 loss-accumulation" in out
    assert scratch.run("git", "status", "--porcelain") == "A  train.py\n"
    (scratch.folder / "train.py").write_text(TRAIN.replace("+= loss", "+= loss.item()"))
    scratch.run("git", "commit", "-a", "-m", "Train")


def test_the_fixing_hook_repairs_and_asks_for_a_look(hooks: Scratch, scratch: Scratch) -> None:
    scratch.use("memlint-fix", hooks)
    (scratch.folder / "train.py").write_text(TRAIN)
    scratch.run("git", "add", "train.py")
    out = scratch.run("git", "commit", "-m", "Train", ok=False)
    assert "files were modified by this hook" in out
    assert (scratch.folder / "train.py").read_text() == TRAIN.replace("+= loss", "+= loss.detach()")
    scratch.run("git", "commit", "-a", "-m", "Train")
