"""Who calls what and who touches what, asked directly."""

from __future__ import annotations

import pytest
from known import Disk, class_of, function_of, module_of, project_of

from memlint import callers, names
from memlint.facts import Answer
from memlint.project import Project

NETS = """
class Net(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


class Loss:
    def __init__(self):
        self.scale = 1

    def __call__(self, x):
        return x


def make():
    return Net()


def build():
    net, loss = Net(), Loss()
    loss(net(torch.zeros(2)))
    return net


class Trainer:
    def __init__(self):
        self.net = make()

    def run(self, x):
        return self.net.forward(x)


def elsewhere(x):
    return nn.Linear(2, 2)(x)
"""


def calling(project: Project, name: str) -> list[str]:
    return sorted({flow.definition.qualname for flow, _ in project.callers(function_of(project, name))})


def test_callers_of_methods_that_are_called_by_other_names() -> None:
    project = project_of(NETS)
    assert calling(project, "Net.forward") == ["Trainer.run", "build"]
    assert calling(project, "Net.__init__") == ["build", "make"]
    assert calling(project, "Loss.__init__") == ["build"]
    assert len(project.callers(function_of(project, "Loss.__init__"))) == 1


OBJECTS = """
class Job:
    def step(self, x):
        return x

    def run(self, other):
        self.step(1)
        return other.step(2)


class Driver(Unknown):
    def go(self):
        self.step(3)

    def twice(self):
        return [job.step(4) for job in self.jobs]


def silent(step):
    return step(5)
"""


def test_calls_on_objects_of_unknown_class() -> None:
    project = project_of(OBJECTS)
    found = project.namesakes(function_of(project, "Job.step"))
    assert sorted(flow.definition.qualname for flow, _ in found) == ["Driver.go", "Driver.twice", "Job.run"]
    assert project.sole("step") and not project.sole("missing")


def test_who_calls_only_its_own_method_is_not_parsed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ROOM", 0)
    own = "class Own:\n    def step(self, x):\n        return x\n\n    def run(self):\n        return self.step(1)\n"
    other = own.replace("self.step(1)", "self.job.self.step(1)")
    project = project_of(
        {"a.py": f"import torch\n{OBJECTS}", "b.py": f"import torch\n{own}", "c.py": f"import torch\n{other}"}
    )
    found = project.of_unknown(function_of(project, "Job.step"))
    assert sorted(flow.definition.full_name for flow, _ in found) == [
        "a.Driver.go",
        "a.Driver.twice",
        "a.Job.run",
        "c.Own.run",
    ]
    assert not module_of(project, "b.py").loaded


def test_files_beside_the_project_are_read_where_they_may_call_it() -> None:
    disk = Disk({
        "b.py": "import torch\nfrom a import score\n\n\ndef g(x):\n    return score(x)\n",
        "c.py": "import torch\n\n\ndef other(x):\n    return x\n",
    })  # fmt: skip
    texts = {"a.py": "import torch\n\n\ndef score(x):\n    return x\n\n\ndef unused(x):\n    return x\n"}
    project = project_of(texts, loader=disk, neighbours=["b.py", "c.py", "gone.py"])
    assert calling(project, "score") == ["g"] and calling(project, "unused") == []
    assert list(project.names.modules) == ["a.py", "b.py"]
    assert disk.opened == ["b.py", "c.py", "gone.py"]


def test_files_beside_the_project_are_not_read_without_a_reader() -> None:
    texts = {"a.py": "import torch\n\n\ndef f(x):\n    return x\n"}
    assert calling(project_of(texts, neighbours=["b.py"]), "f") == []


def test_of_a_common_name_only_the_family_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_of(
        "class A:\n    def put(self):\n        self.total = 1\n\n\nclass B(A):\n    def get(self):\n"
        "        return self.total\n\n\nclass C:\n    def get(self):\n        return self.total\n\n\ndef f(a):\n"
        "    return a.total\n"
    )
    cls = class_of(project, "A")
    monkeypatch.setattr(callers, "CROWD", 3)
    assert [d.qualname for d in project.touching("total", cls)] == ["A.put", "B.get"]
    assert project.touching("total", None) == []


FROZEN = """
class Net(nn.Module):
    def __init__(self):
        self.enc = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)

    def freeze(self):
        for p in self.enc.parameters():
            p.requires_grad = False

    def forward(self, x):
        return self.head(self.enc(x))


def thaw(net):
    net.enc.requires_grad_(True)
"""


def test_what_is_frozen_somewhere() -> None:
    project = project_of(FROZEN)
    frozen = {}
    flow = project.flow(function_of(project, "Net.forward"))
    assert flow is not None
    for event in flow.events:
        if event.verb == "forward":
            frozen[event.receiver.path] = project.answer_frozen(event.receiver)
    assert frozen == {"self.enc": Answer.YES, "self.head": Answer.NO}


def test_functions_that_are_handed_on_are_known() -> None:
    project = project_of("import mystery\n\n\ndef f(x):\n    return x\n\n\ndef g():\n    mystery.each(f)\n")
    project.flow(function_of(project, "g"))
    assert function_of(project, "f") in project.addressed


def test_names_of_functions_that_call_something() -> None:
    project = project_of("def f(x):\n    return g(x)\n\n\ndef g(x):\n    return x\n\n\ndef h():\n    return g\n")
    assert project.callers_of(("g",)) == {"g", "f"}
    assert module_of(project).top not in project.mentioning("h")


def test_what_is_frozen_here() -> None:
    project = project_of("def f(x):\n    net = nn.Linear(2, 2)\n    net.requires_grad_(False)\n    return net(x)\n")
    flow = project.flow(function_of(project, "f"))
    assert flow is not None
    modules = [event.receiver for event in flow.events if event.verb == "forward"]
    assert [project.answer_frozen(module) for module in modules] == [Answer.YES]
