"""What a project in memory says after a change is what a fresh run over the same texts says."""

from __future__ import annotations

import ast
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memlint.check import Options, check_paths, with_deep_stack
from memlint.rule import Finding
from memlint.workspace import Workspace

PROJECTS = sorted(path for path in (Path(__file__).parent.parent / "fixtures" / "projects").iterdir() if path.is_dir())
WORDS = re.compile(r"\b[a-z_]{3,}\b")
STATEMENTS = (
    "loss.backward()", "optimizer.step()", "optimizer.zero_grad()", "losses.append(loss)", "self.history.append(loss)",
    "loss = loss.detach()", "return loss", "model.eval()", "total += loss", "model.train()", "pass",
    "self.history = []", "import torch", "del loss", "self.curve.clear()", "loss = loss.item()",
    "out = model(batch)", "losses = []",
)  # fmt: skip


def copied(project: Path, folder: Path) -> list[str]:
    """The project in a folder of the test's own; its files."""
    shutil.copytree(project, folder, dirs_exist_ok=True)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))


@contextmanager
def copy_of(project: Path, folders: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The files of a copy of the project, which is the working folder meanwhile."""
    folder = folders.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield copied(project, folder)


def edits(text: str, rnd: random.Random) -> Iterator[str]:
    """Texts that differ from one in what somebody may type, without end."""
    while True:
        lines = text.splitlines(keepends=True) or ["pass\n"]
        at = rnd.randrange(len(lines))
        margin = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        how = rnd.randrange(7)
        if how == 0:
            del lines[at]
        elif how == 1:
            lines.insert(at, lines[at])
        elif how == 2:
            lines.insert(at, f"{margin}{rnd.choice(STATEMENTS)}\n")
        elif how == 3:
            lines.insert(at, "\n")
        elif how == 4:
            lines[at] = lines[at].rstrip() + "  # a remark\n"
        elif how == 5:
            words = WORDS.findall(text) or ["word"]
            parts = WORDS.split(lines[at])
            own = [rnd.choice(words) if rnd.random() < 0.3 else word for word in WORDS.findall(lines[at])]
            lines[at] = "".join(part + word for part, word in zip(parts, [*own, ""], strict=True))
        else:
            other = rnd.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        yield "".join(lines)


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def agree(workspace: Workspace, texts: dict[str, bytes]) -> None:
    """What the workspace finds is what a fresh run finds, to the last word and place."""
    list(workspace.check())
    found: list[Finding] = [workspace.settled(finding) for finding in workspace.report.findings]
    fresh = check_paths(["."], Options(cache=False, overlay=texts))
    assert found == fresh.findings
    assert not fresh.errors and not workspace.report.errors


@pytest.mark.parametrize("project", PROJECTS, ids=[path.name for path in PROJECTS])
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_after_random_edits(project: Path, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    with copy_of(project, tmp_path_factory) as files:
        rnd = random.Random(seed)

        def go() -> None:
            workspace = Workspace(["."])
            texts: dict[str, bytes] = {}
            agree(workspace, texts)
            for _ in range(8):
                path = rnd.choice(files)
                text = texts[path].decode() if path in texts else Path(path).read_text()
                texts[path] = next(new for new in edits(text, rnd) if parses(new) and new.strip()).encode()
                workspace.put(path, texts[path])
                agree(workspace, texts)

        with_deep_stack(go)


SMALL = {
    "step.py": "import torch.nn.functional as F\n\n\ndef step(model, optimizer, x, y):\n    optimizer.zero_grad()\n"
    "    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()\n    return loss\n",
    "loop.py": "from step import step\n\n\ndef train(model, loader, optimizer):\n    curve = []\n"
    "    for x, y in loader:\n"
    "        curve.append(step(model, optimizer, x, y))\n    return [float(value) for value in curve]\n",
    "other.py": "import torch\n\n\ndef other(x):\n    return torch.relu(x)\n",
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for name, text in SMALL.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    workspace = Workspace(["."])
    assert {path: [f.code for f in found] for path, found in workspace.check()} == {
        "loop.py": ["MEM103"], "other.py": [], "step.py": [],
    }  # fmt: skip
    return workspace


def test_only_what_depends_on_a_change_is_asked_again(small: Workspace) -> None:
    small.put("other.py", SMALL["other.py"].replace("relu", "tanh").encode())
    assert small.due == ("other.py",)
    list(small.check())
    small.put("step.py", SMALL["step.py"].replace("return loss", "return loss.item()").encode())
    assert set(small.due) == {"step.py", "loop.py"}
    assert dict(small.check())["loop.py"] == []
    small.put("step.py", SMALL["step.py"].encode())
    assert [f.code for f in dict(small.check())["loop.py"]] == ["MEM103"]


def test_a_text_that_does_not_parse_leaves_other_files_alone(small: Workspace) -> None:
    small.put("step.py", b"def step(:\n")
    assert {path: [f.code for f in found] for path, found in small.check()} == {"step.py": ["MEM000"]}
    small.put("step.py", SMALL["step.py"].encode())
    assert dict(small.check())["step.py"] == []


def test_files_come_and_go(small: Workspace) -> None:
    small.put("new.py", SMALL["loop.py"].encode())
    assert [f.code for f in dict(small.check())["new.py"]] == ["MEM103"]
    Path("step.py").unlink()
    small.put("step.py", None)
    found = dict(small.check())
    assert "step.py" not in found and found["loop.py"] == []


def test_a_stopped_check_goes_on_later(small: Workspace) -> None:
    small.put("step.py", SMALL["step.py"].replace("return loss", "return loss.item()").encode())
    assert list(small.check(stop=lambda: True)) == []
    assert set(dict(small.check())) == {"step.py", "loop.py"}
    small.tidy()


def test_a_finding_moves_with_its_fix(small: Workspace) -> None:
    text = SMALL["loop.py"] + "\n\ndef more(x):\n    return x\n"
    small.put("loop.py", text.encode())
    list(small.check())
    text = text.replace("def train", "def before(x):\n    return x\n\n\ndef train")
    small.put("loop.py", text.encode())
    list(small.check())
    text = text.replace("    return x\n\n\ndef train", "    x = x + 1\n    return x\n\n\ndef train")
    small.put("loop.py", text.encode())
    list(small.check())
    (fix,) = [small.settled(finding).fix for finding in small.report.findings]
    assert fix is not None
    (edit,) = fix.edits
    assert text.splitlines()[edit.span.line - 1].strip().startswith("curve.append(")


def test_the_open_file_comes_first(small: Workspace) -> None:
    small.put("step.py", SMALL["step.py"].replace("return loss", "return loss.item()").encode())
    assert [path for path, _ in small.check(["loop.py"])] == ["loop.py", "step.py"]
