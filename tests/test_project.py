"""Which functions are read, how often and with what, asked directly."""

from __future__ import annotations

import pytest
from known import class_of, function_of, module_of, project_of

from memlint import likely
from memlint import project as analysis
from memlint.facts import Value

WORDS = """
loss.backward()
optimizer.zero_grad()
torch.autograd.grad(y, x)
x.detach()
x.numpy()
x.item()
x.argmax(1)
model.eval()
x.optimizer
net.register_forward_hook(f)
GradScaler
StepLR(o)
torch.autograd.set_detect_anomaly
ctx.x
@functools.lru_cache
@cache
DataParallel(net)
DDP(net)
torch.profiler
AdamW(p, foreach=True)
net.load_state_dict(s)
cycle(loader)
torch.save(s)
torch.load(f)
load(f)
"""


@pytest.mark.parametrize("line", WORDS.strip().splitlines())
def test_a_function_that_says_so_has_to_do_with_training(line: str) -> None:
    assert likely.TRAINS.search(line) and any(word in line for word in likely.TRAINING)
    if not line.startswith("@"):
        project = project_of(f"class Net(nn.Module):\n    def f(self, x):\n        {line}\n")
        assert project.interesting(function_of(project, "Net.f"))


@pytest.mark.parametrize("line", ["rows.append(x)", "total += x", "self.x = 1", "rows[0] = x"])
def test_a_function_that_stores_something(line: str) -> None:
    project = project_of(f"class Net(nn.Module):\n    def f(self, x):\n        {line}\n")
    assert project.interesting(function_of(project, "Net.f"))


@pytest.mark.parametrize("line", ["return x", "json.load(f)", "yaml.load(f)", "x == 1", "for a in x: print(a)"])
def test_a_method_of_a_module_that_does_not(line: str) -> None:
    project = project_of(f"class Net(nn.Module):\n    def f(self, x):\n        {line}\n")
    assert not project.interesting(function_of(project, "Net.f"))


def test_readings_of_one_function_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "VARIANTS", 1)
    project = project_of("def f(x):\n    return x\n")
    f = function_of(project, "f")
    plain = project.flow(f)
    assert project.summary(f, {}, 0) is plain
    tensors = project.summary(f, {"x": Value("tensor")}, 0)
    assert tensors is not None and tensors is not plain
    assert project.summary(f, {"x": Value("list")}, 0) is plain
    assert project.summary(f, {"x": Value("tensor")}, 0) is tensors
    assert project.summary(f, {"x": Value("tensor")}, 6) is None


CONSTRUCTORS = """
class A:
    def __init__(self, deep):
        self.other = B() if deep else None


class B:
    def __init__(self):
        self.other = A(False)


class C:
    def __init__(self, net):
        net.eval()


class D:
    def __init__(self, net):
        self.c = C(net)


class Net(nn.Module):
    def forward(self, x, masked):
        if masked:
            return x, x
        return x


class Later(nn.Module):
    pass
"""


def test_constructors_that_only_put_together() -> None:
    project = project_of(CONSTRUCTORS)
    inert = {name: project.inert(function_of(project, f"{name}.__init__")) for name in "ABCD"}
    assert inert == {"A": True, "B": True, "C": False, "D": False}


def test_a_module_gives_what_its_forward_returns() -> None:
    project = project_of(CONSTRUCTORS)
    flow = project.flow(module_of(project).top)
    assert flow is not None
    assert project.forward_shape(class_of(project, "Net"), [], {}, flow) is not None
    assert project.forward_shape(class_of(project, "Later"), [], {}, flow) is None
