"""Whether values carry graphs, modules learn and functions repeat, asked directly."""

from __future__ import annotations

import pytest
from known import function_of, project_of

from memlint import answers
from memlint.facts import Answer, Value
from memlint.project import Project

MODULES = """
class Given(nn.Module):
    def __init__(self, net):
        self.net = net

    def forward(self, x):
        return self.net(x)


class Frozen(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)
        for p in self.parameters():
            p.requires_grad = False

    def forward(self, x):
        return self.fc(x)


def around_weights(x):
    net = Given(nn.Linear(2, 2))
    return net(x)


def around_none(x):
    net = Given(nn.ReLU())
    return net(x)


def around_frozen(x):
    inner = nn.Linear(2, 2)
    inner.requires_grad_(False)
    net = nn.Sequential(inner)
    return net(x)


def plain(x):
    net = nn.Linear(2, 2)
    return net(x)


def frozen(x):
    net = Frozen()
    return net(x)


def wrapped(x):
    net = nn.DataParallel(nn.Linear(2, 2))
    return net(x)


def handed(net, x):
    return net(x)


def hand_over(x):
    return handed(Frozen(), x)


def frozen_on_learnt(x):
    first, second = nn.Linear(2, 2), Frozen()
    return second(first(x))


def frozen_on_data():
    second = Frozen()
    return second(torch.zeros(2))


def under_no_grad():
    net = nn.Linear(2, 2)
    with torch.no_grad():
        return net(torch.zeros(2))


def inner_off(x):
    net = nn.Linear(2, 2)
    return net(x)


def off(x):
    with torch.no_grad():
        return inner_off(x)


class Reader:
    def __init__(self, loss):
        self.loss = loss

    def read(self):
        return self.loss


def kept(x):
    rows = []
    rows.append(1)
    return rows
"""
LEARNS = {
    "around_weights": Answer.YES,
    "around_none": Answer.MAYBE,
    "around_frozen": Answer.MAYBE,
    "plain": Answer.YES,
    "frozen": Answer.NO,
    "wrapped": Answer.YES,
    "handed": Answer.MAYBE,
}
CARRIES = {
    "plain": Answer.YES,
    "frozen_on_learnt": Answer.YES,
    "frozen_on_data": Answer.NO,
    "under_no_grad": Answer.NO,
    "inner_off": Answer.NO,
    "Reader.read": Answer.MAYBE,
    "kept": Answer.NO,
}


def last_forward(project: Project, name: str) -> Value:
    flow = project.flow(function_of(project, name))
    assert flow is not None
    return [event.receiver for event in flow.events if event.verb == "forward"][-1]


@pytest.mark.parametrize("name", LEARNS)
def test_module_that_learns(name: str) -> None:
    project = project_of(MODULES)
    module = last_forward(project, name)
    assert answers.trainable(project, function_of(project, name), module, 0) is LEARNS[name]


@pytest.mark.parametrize("name", CARRIES)
def test_value_that_carries_a_graph(name: str) -> None:
    project = project_of(MODULES)
    flow = project.flow(function_of(project, name))
    assert flow is not None
    (value,) = [event.value for event in flow.events if event.verb == "return"]
    assert answers.carries(project, flow, flow.held(value), 0) is CARRIES[name]


FATES = """
class Keeper:
    def __init__(self):
        self.loss = None

    def keep(self, model: nn.Module, x):
        self.loss = model(x).mean()

    def use(self):
        self.loss.backward()


class Idle:
    def __init__(self):
        self.loss = None

    def keep(self, model: nn.Module, x):
        y = model(x)
        self.loss = y.mean().item()
        self.size = 1
        return self.size


class Two:
    def keep(self, model: nn.Module, x):
        y = model(x)
        self.kept = y.mean().item()
        self.loss = nn.Linear(2, 2)(x)

    def use(self):
        self.loss.mean().backward()


def give(model: nn.Module, x):
    return model(x)


def differentiate(model, x):
    give(model, x).mean().backward()


def show(model, x):
    y = hold(model, x)
    print(y.shape)


def hold(model: nn.Module, x):
    return model(x)
"""
ENDS = {
    "Keeper.keep": Answer.YES,
    "Idle.keep": Answer.NO,
    "Two.keep": Answer.NO,
    "give": Answer.YES,
    "hold": Answer.NO,
}


@pytest.mark.parametrize("name", ENDS)
def test_fate_of_what_a_forward_gives(name: str) -> None:
    project = project_of(FATES)
    definition = function_of(project, name)
    flow = project.flow(definition)
    assert flow is not None
    node = next(n for n in flow.nodes.values() if n.origin.value == "forward")
    assert answers.fate(project, definition, node, set(), 0) is ENDS[name]


REPEATS = """
import app


@app.on("started")
def handler():
    pass


@app.route("/")
def page():
    pass


def in_loop():
    pass


def once():
    below()


def below():
    pass


def loop():
    for i in range(3):
        in_loop()
        through()


def through():
    deep()


def deep():
    pass


def ping():
    pong()


def pong():
    ping()


class Net(nn.Module):
    def forward(self, x):
        return x

    def other(self, x):
        return x
"""
AGAIN = {
    "handler": True,
    "page": False,
    "in_loop": True,
    "below": False,
    "deep": True,
    "ping": False,
    "Net.forward": True,
    "Net.other": False,
}


@pytest.mark.parametrize("name", AGAIN)
def test_function_that_runs_again_and_again(name: str) -> None:
    project = project_of(REPEATS)
    assert answers.repeats(project, function_of(project, name), set(), 0) is AGAIN[name]
