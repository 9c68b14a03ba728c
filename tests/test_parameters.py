"""What parameters are and what calls bind to them, asked directly."""

from __future__ import annotations

import pytest
from known import function_of, project_of

from memlint.facts import UNKNOWN, Value

KINDS = {
    "x": ("unknown", ""),
    "x=[]": ("list", ""),
    "x={}": ("dict", ""),
    "x=None": ("unknown", ""),
    "x: int": ("number", ""),
    "x: int = 1": ("number", ""),
    "x: nn.Module": ("module", ""),
    "x: nn.Module = nn.GELU": ("unknown", ""),
    "x: nn.Module = Net": ("unknown", ""),
    "x: nn.Module = torch.relu": ("module", ""),
    "x: nn.Module = mystery": ("module", ""),
    "x: Net": ("module", "a.Net"),
}


@pytest.mark.parametrize("parameter", KINDS)
def test_kind_of_a_parameter(parameter: str) -> None:
    project = project_of(f"class Net(nn.Module):\n    pass\n\n\ndef f({parameter}):\n    return x\n")
    flow = project.flow(function_of(project, "f"))
    assert flow is not None
    found = flow.arguments["x"]
    assert (found.kind, found.type) == KINDS[parameter]


def test_a_function_that_is_handed_over_is_known() -> None:
    project = project_of("def f(act):\n    return act\n\n\ndef g(x):\n    return x\n")
    f, g = function_of(project, "f"), function_of(project, "g")
    assert project._symbolic(f, {"act": Value("unknown", target=g)})["act"].target is g
    assert project._symbolic(f, {"act": Value("unknown", target=g)})["act"].kind == "unknown"
    assert project._symbolic(f, {})["act"].target is None


BOUND = """
def f(a, b=2, c=torch.float, d=[], *rest, e=None, **options):
    return a


def plain(a):
    return a
"""


def test_what_a_call_binds() -> None:
    project = project_of(BOUND)
    f, plain = function_of(project, "f"), function_of(project, "plain")
    caller = project.flow(plain)
    assert caller is not None
    one, two, three = Value("number", const=1), Value("tensor"), Value("string")
    bound = project.bind(f, [one], {}, caller)
    assert bound["a"] is one and bound["b"].const == 2 and bound["c"] is UNKNOWN and bound["e"].kind == "none"
    assert set(bound) == {"a", "b", "c", "e", "options"}
    assert bound["options"].kind == "dict" and bound["options"].obj is not None
    assert bound["options"].obj.kind == "dict" and not bound["options"].obj.items
    bound = project.bind(f, [one, one, one, one, two, three], {"e": two, "more": three, "**": one}, caller)
    assert bound["rest"].kind == "tuple" and bound["rest"].items == (two, three)
    assert bound["e"] is two
    assert bound["options"].obj is not None and bound["options"].obj.items == {"more": three}
    assert bound["options"].obj.elem == three and bound["options"].obj.name == "options"
    assert project.bind(plain, [one, two], {"more": three}, caller) == {"a": one}
    assert project.bind(plain, [], {"*": three}, caller) == {}


def test_what_makes_a_module_is_none() -> None:
    project = project_of("def f(block: nn.Module):\n    made = block(2)\n    return list(made.parameters())\n")
    flow = project.flow(function_of(project, "f"))
    assert flow is not None
    assert (flow.arguments["block"].kind, flow.arguments["block"].type) == ("unknown", "")
