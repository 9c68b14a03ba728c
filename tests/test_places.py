"""What attributes and names of a file's top level hold, asked directly."""

from __future__ import annotations

from typing import Any

import pytest
from known import class_of, function_of, project_of

from memlint.facts import UNKNOWN, UNSET, Value
from memlint.project import Project

ATTRIBUTES = """
class Meter:
    limit = 3
    rate = 0.5
    name = "meter"
    on = True
    nothing = None
    kept = []
    table = {}

    def __init__(self, net):
        self.total = torch.zeros(3, device="cuda")
        self.delta = torch.zeros(3).requires_grad_()
        self.scale = nn.Parameter(torch.ones(1))
        self.rows = [[], []]
        self.mode = "mean"
        self.size = 4
        self.head = nn.Linear(2, 2)
        for p in self.head.parameters():
            p.requires_grad = False
        self.made = helper
        self.net = net

    def forward(self, x):
        return self.net.parameters()

    def change(self):
        self.size = 5


def helper(x):
    return x
"""


def held(project: Project, attr: str) -> Value:
    value = project.attribute(class_of(project, "Meter"), attr, UNKNOWN, f"self.{attr}")
    assert value is not None
    return value


KINDS = {
    "limit": "number",
    "rate": "number",
    "name": "string",
    "on": "bool",
    "nothing": "unknown",
    "kept": "list",
    "table": "dict",
    "total": "tensor",
    "mode": "string",
    "size": "number",
    "head": "module",
    "net": "module",
    "missing": "unknown",
}


@pytest.mark.parametrize("attr", KINDS)
def test_kind_of_an_attribute(attr: str) -> None:
    assert held(project_of(ATTRIBUTES), attr).kind == KINDS[attr]


def test_what_an_attribute_holds() -> None:
    project = project_of(ATTRIBUTES)
    assert held(project, "mode").const == "mean" and held(project, "size").const is UNSET
    total, scale, head = held(project, "total"), held(project, "scale"), held(project, "head")
    assert total.device == "device" and total.path == "self.total" and not total.leaf
    assert scale.kind == "parameter"
    assert held(project, "delta").leaf
    assert head.obj is not None and head.obj.frozen and head.obj.name == "self.head"
    rows = held(project, "rows").obj
    assert rows is not None and rows.elem is not None and rows.elem.obj is not None
    assert rows.elem.obj.name == "self.rows"
    made = held(project, "made")
    assert made.target is function_of(project, "helper")


GLOBALS = """
FLAG = True
SIZE = 3
NAME = "x"
NOTHING = None
CHANGED = 1
CHANGED = 2
ROWS = []
WEIGHT = torch.zeros(3)
net = mystery.load()
LATE = None
thing = mystery.make()


def thing_of():
    return thing


def flag():
    return FLAG


def size():
    return SIZE


def name():
    return NAME


def nothing():
    return NOTHING


def changed():
    return CHANGED


def rows():
    return ROWS


def weight():
    return WEIGHT


def model():
    net.parameters()
    return net


def late():
    global LATE
    LATE = torch.zeros(3)
    return 1


def read():
    return LATE
"""


def returned(project: Project, name: str) -> Value:
    flow = project.flow(function_of(project, name))
    assert flow is not None
    (event,) = [event for event in flow.events if event.verb == "return"]
    return event.value


READ: dict[str, tuple[str, Any]] = {
    "flag": ("bool", True),
    "size": ("number", 3),
    "name": ("string", "x"),
    "nothing": ("none", None),
    "changed": ("number", UNSET),
    "rows": ("list", UNSET),
    "weight": ("tensor", UNSET),
    "model": ("module", UNSET),
    "read": ("unknown", UNSET),
    "thing_of": ("unknown", UNSET),
}


@pytest.mark.parametrize("name", READ)
def test_what_a_function_reads_of_a_file_s_top_level(name: str) -> None:
    value = returned(project_of(GLOBALS), name)
    assert (value.kind, value.const) == READ[name]


def test_what_functions_share_has_a_place() -> None:
    project = project_of(GLOBALS)
    places = {name: {node.place.name for node in returned(project, name).deps if node.place} for name in READ}
    assert places["thing_of"] == {"thing"}
    assert places["read"] == {"LATE"} and places["weight"] == {"WEIGHT"} and places["rows"] == {"ROWS"}
    assert not places["flag"] | places["model"]
    (obj,) = returned(project, "model").objs
    assert obj.name == "net" and obj.owner is None
