"""Gates that words and names make of questions lose nothing: what a reading finds, they let be read."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known import module_of, project_of

from memlint.check import Options, check_paths
from memlint.extract import Definition
from memlint.flow import Flow
from memlint.growth import ADDERS, ADDS
from memlint.library import shipped
from memlint.likely import Likely, _kept, stores, sums
from memlint.project import Project
from memlint.registry import rules_folder
from memlint.testing import run_page

ROOT = Path(__file__).parent.parent
PROJECTS = sorted(path for path in (ROOT / "fixtures" / "projects").iterdir() if path.is_dir())
EVENTS = {"forward": None, "store": stores, "sum": sums}
_UNSEEN = ("add_module", "set_submodule")  # what is put away there is a module


def unlikely(project: Project, flow: Flow) -> list[str]:
    """The events of a reading that the gates say the function cannot have."""
    found = []
    definition = flow.definition
    for event in flow.events:
        if event.inner is not None or event.verb not in EVENTS:
            continue
        how = EVENTS[event.verb]
        likely = project._calls_something(definition) if how is None else project._does(definition, how)
        text = ast.unparse(event.site)
        if not likely and not any(word in text for word in _UNSEEN):
            found.append(f"{event.verb} in {definition.full_name}: {text}")
    return found


@pytest.fixture
def doubts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """With the gates open, what they would have kept shut."""
    found: list[str] = []
    read = Project._read

    def reading(self: Project, definition: Definition, *rest: Any) -> Flow | None:
        flow = read(self, definition, *rest)
        if flow is not None and flow not in seen:
            seen.add(flow)
            found.extend(unlikely(self, flow))
        return flow

    seen: set[Flow] = set()
    monkeypatch.setattr(Project, "_read", reading)
    monkeypatch.setattr(Likely, "may_run", lambda self, definition: True)
    monkeypatch.setattr(Likely, "may_keep", lambda self, definition, how: True)
    return found


@pytest.mark.parametrize("project", PROJECTS, ids=[path.name for path in PROJECTS])
def test_in_projects(project: Path, doubts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    assert check_paths(["."], Options(cache=False, jobs=1)).files
    assert doubts == []


@pytest.mark.parametrize("path", sorted(rules_folder().glob("*.md")), ids=lambda path: path.stem)
def test_on_pages(path: Path, doubts: list[str]) -> None:
    assert run_page(path) == []
    assert doubts == []


def test_every_method_that_adds_to_a_container_is_one_that_may_grow_it() -> None:
    adds = ADDS - {"item", "setdefault"}  # what reads a number out of a tensor; what adds only what is not there yet
    assert {
        name.rpartition(".")[2].rpartition(":")[2] for name, row in shipped().rows() if row.effects & adds
    } <= ADDERS


@pytest.mark.parametrize("part", ["1:[1],", "x.a;", "self.t[1],", "a = self.b\n", "t1 * 2\n", "a[1], b[2],"])
@pytest.mark.parametrize("gate", [stores, sums, lambda code: _kept(code, stores), lambda code: _kept(code, sums)])
def test_a_gate_takes_time_in_proportion_to_the_text(gate: Callable[[str], bool], part: str) -> None:
    def seconds(size: int) -> float:
        code, best = part * size, float("inf")
        for _ in range(3):
            began = time.process_time()
            gate(code)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(40_000) < 40 * seconds(5_000) + 0.01, "8 times the text: 8 times as long, or 64 times"


LAYERS = """\
import math

import torch
from torch import nn


def widths(base, depth, ratio=1.0):
    found = []
    for stage in range(depth):
        found.append(int(base * ratio) * 2**stage)
    return found


class Mlp(nn.Module):
    def __init__(self, width, hidden=None, act=nn.GELU):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden or width)
        self.act = act()
        self.fc2 = nn.Linear(hidden or width, width)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width, drop=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width, 4 * width)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(shape[0], -1, shape[-1])
        x = x + self.drop(self.mlp(self.norm(x)))
        return x.reshape(shape)


class Encoder(nn.Module):
    def __init__(self, base=64, depth=4):
        super().__init__()
        self.stages = nn.ModuleList()
        for width in widths(base, depth):
            self.stages.append(Block(width))
        self.head = nn.Linear(widths(base, depth)[-1], 10)

    def reset_head(self, classes):
        self.head = nn.Linear(self.head.in_features, classes)

    def forward_features(self, x, every=False):
        found = []
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if every or number == len(self.stages) - 1:
                found.append(x)
        return found

    def forward(self, x):
        return self.head(self.forward_features(x)[-1].mean(dim=1))


def renamed(state, prefix="module."):
    out = {}
    for key, value in state.items():
        if key.startswith(prefix):
            key = key[len(prefix) :]
        if key.endswith("scale"):
            value = value / math.sqrt(value.shape[-1])
        out[key] = value
    return out


def small_encoder(**options):
    return Encoder(**dict({"base": 32}, **options))
"""
"""Parts of a model, and what puts them together: nothing here trains, evaluates, or keeps anything."""


def test_parts_of_a_model_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most code is of this kind, and reading is what takes time."""
    read: list[str] = []
    monkeypatch.setattr(Project, "_read", lambda self, definition, *rest: read.append(definition.full_name))
    (tmp_path / "layers.py").write_text(LAYERS)
    assert check_paths([str(tmp_path)], Options(cache=False, jobs=1)).findings == []
    assert read == []


@pytest.mark.parametrize(
    "text",
    [
        "from lib import net\n\n\ndef f(net, x):\n    net(x)\n",
        "from lib import net\n\n\ndef f(x):\n    net = net.build()\n    net(x)\n",
        "def net():\n    pass\n\n\ndef f(nets, x):\n    for net in nets:\n        net(x)\n",
        "def f(x, layer):\n    def inner():\n        layer(x)\n    return inner\n",
        "def f(x, nets):\n    nets[0](x)\n",
        "def f(x, trainer):\n    trainer.model(x)\n",
        "class A:\n    def __init__(self):\n        self.norm = 1\n\n    def f(self, x):\n        self.norm(x)\n",
    ],
)
def test_what_may_call_a_module(text: str) -> None:
    project = project_of({"a.py": text})
    module = module_of(project)
    assert any(map(project.may_run, module.definitions))


@pytest.mark.parametrize(
    "text",
    [
        "from lib import load\n\n\ndef f(x):\n    return load(x)\n",
        "def f(x):\n    return x.norm(dim=-1), len(x), [str(y) for y in x]\n",
        "def g(x):\n    return x + 1\n\n\ndef f(x):\n    return g(x).view(-1)\n",
    ],
)
def test_what_calls_none(text: str) -> None:
    project = project_of({"a.py": text})
    assert not any(map(project.may_run, module_of(project).definitions))
