"""What is known of classes, asked directly."""

from __future__ import annotations

import pytest
from known import class_of, expression, function_of, module_of, project_of

from memlint import names
from memlint.classes import KIN
from memlint.facts import Answer, Value

ANNOTATIONS = {
    "int": ("number", ""),
    "float": ("number", ""),
    "bool": ("bool", ""),
    "str": ("string", ""),
    "None": ("none", ""),
    "list": ("list", ""),
    "mystery": ("unknown", ""),
    "1": ("unknown", ""),
    "'in valid'": ("unknown", ""),
    "list[int]": ("list", ""),
    "tuple[int, ...]": ("tuple", ""),
    "List[int]": ("list", ""),
    "Dict[str, int]": ("dict", ""),
    "Deque[int]": ("deque", ""),
    "Set[int]": ("set", ""),
    "torch.relu": ("unknown", ""),
    "Optional[int]": ("number", ""),
    "Optional['torch.Tensor']": ("tensor", ""),
    "int | None": ("number", ""),
    "None | int": ("number", ""),
    "int | str": ("unknown", ""),
    "torch.Tensor": ("tensor", ""),
    "nn.Module": ("module", ""),
    "Net": ("module", "a.Net"),
    "DataLoader": ("loader", "torch.utils.data.DataLoader"),
    "DataLoader[int]": ("loader", "torch.utils.data.DataLoader"),
}


@pytest.mark.parametrize("text", ANNOTATIONS)
def test_annotation(text: str) -> None:
    project = project_of(
        "from typing import Deque, Dict, List, Optional\n"
        "from torch.utils.data import DataLoader\n\n\nclass Net(nn.Module):\n    pass\n"
    )
    assert project.annotation(expression(text), module_of(project).top) == ANNOTATIONS[text]


WEIGHTS = """
class Made(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)


class Stated(nn.Module):
    def __init__(self):
        self.fc: nn.Module = nn.Linear(2, 2)


class Chosen(nn.Module):
    def __init__(self, deep):
        self.fc = nn.Linear(2, 2) if deep else nn.Identity()


class Local(nn.Module):
    def __init__(self):
        self.size = 2
        made = nn.Linear(2, 2)


class Table(nn.Module):
    def __init__(self):
        self.table = torch.zeros(2)
        self.act = nn.ReLU()


class Loaded(nn.Module):
    def __init__(self):
        self.net = torch.hub.load("a", "b")


class Given(nn.Module):
    def __init__(self, net):
        self.net = net

    def forward(self, x):
        return self.net(x)


class Number(nn.Module):
    def __init__(self, size):
        self.size = size

    def forward(self, x):
        return x * self.size


class Switched(nn.Module):
    def __init__(self, on):
        self.fc = nn.Linear(2, 2)
        self.fc.weight.requires_grad = on
"""
LEARNS = {
    "Made": Answer.YES,
    "Stated": Answer.YES,
    "Chosen": Answer.YES,
    "Local": Answer.NO,
    "Table": Answer.NO,
    "Loaded": Answer.YES,
    "Given": Answer.MAYBE,
    "Number": Answer.NO,
    "Switched": Answer.MAYBE,
}


@pytest.mark.parametrize("name", LEARNS)
def test_weights_of_a_class(name: str) -> None:
    project = project_of(WEIGHTS)
    assert project.learns(class_of(project, name)) is LEARNS[name]


WRITERS = """
class Meter:
    def nothing(self):
        pass

    @staticmethod
    def make():
        return Meter()

    def clear(self):
        self.total, self.count = 0, 0

    def __init__(self):
        self.total = 0

    def add(self, value):
        self.total += value

    @property
    def mean(self):
        return self.total / self.count

    @mean.setter
    def mean(self, value):
        self.total = value


class Other(Meter):
    def use(self, x):
        x.net(1)
        return self.total.parameters()
"""


def test_methods_that_write_an_attribute() -> None:
    project = project_of(WRITERS)
    cls = class_of(project, "Other")
    assert [d.name for d in project.writers(cls, "total")] == ["__init__", "clear", "add"]
    assert [d.name for d in project.writers(cls, "count")] == ["clear"]
    setter = project.setter(cls, "mean")
    assert setter is not None and setter.name == "mean" and "= value" in setter.text
    assert project.setter(cls, "add") is None and project.setter(cls, "missing") is None


FAMILY = """
class Base:
    def settle(self):
        self.body.eval()


class Branch(Base):
    def go(self, x):
        return self.body(x)


class Leaf(Branch):
    def __init__(self):
        self.size = 3
"""


@pytest.mark.parametrize("siblings", [KIN // 2, KIN + 1])
def test_relatives_say_how_an_attribute_is_used_unless_they_are_a_crowd(siblings: int) -> None:
    more = "".join(f"\n\nclass S{n}(Base):\n    def go(self):\n        self.body.step()\n" for n in range(siblings))
    project = project_of(FAMILY + more)
    cls = class_of(project, "Leaf")
    use = project.class_use(cls, "body")
    assert use is not None and use.called and use.calls >= {"eval"}, "what it derives from always counts"
    assert ("step" in use.attributes) is (siblings < KIN)
    assert project.class_use(cls, "missing") is None
    base = project.class_use(class_of(project, "Base"), "body")
    assert base is not None and base.called is (siblings < KIN)


def test_a_file_that_does_not_say_an_attribute_is_not_parsed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ROOM", 0)
    texts = {f"{name}.py": text for name, text in zip("abc", FAMILY.split("\n\n\n"), strict=True)}
    texts["b.py"] = "from a import Base\n" + texts["b.py"]
    texts["c.py"] = "from b import Branch\n" + texts["c.py"]
    project = project_of(texts)
    use = project.class_use(class_of(project, "Leaf", "c.py"), "body")
    assert use is not None and use.called
    assert [m.loaded for m in project.names.modules.values()] == [True, True, False]


def test_role_of_a_value_is_that_of_its_name() -> None:
    project = project_of("def f(x):\n    x.net.parameters()\n    x.parameters\n")
    flow = project.flow(function_of(project, "f"))
    assert flow is not None
    assert project.role_of(Value("unknown", path="x.net"), flow) == "module"
    assert project.role_of(Value("unknown"), flow) == ""
