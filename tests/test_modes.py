"""The gradient mode in which functions run, asked directly."""

from __future__ import annotations

import pytest
from known import class_of, function_of, project_of

from memlint.facts import Grad

OWN = {
    "@torch.no_grad()": Grad.OFF,
    "@torch.no_grad": Grad.OFF,
    "@torch.inference_mode()": Grad.OFF,
    "@torch.inference_mode(False)": Grad.ON,
    "@torch.enable_grad()": Grad.ON,
    "@torch.set_grad_enabled(False)": Grad.OFF,
    "@torch.set_grad_enabled(True)": Grad.ON,
    "@torch.set_grad_enabled(FLAG)": Grad.UNKNOWN,
    "@torch.set_grad_enabled": Grad.ENTRY,
    "@torch.jit.script": Grad.ENTRY,
    "@quietly": Grad.OFF,
    "@loudly": Grad.UNKNOWN,
    "@named": Grad.ENTRY,
    "@plain": Grad.ENTRY,
    "@Quiet()": Grad.OFF,
    "@Plain()": Grad.ENTRY,
    "@guard": Grad.OFF,
    "@other": Grad.ENTRY,
    "@eval_mode": Grad.OFF,
    "@nograd": Grad.OFF,
    "@unknown": Grad.ENTRY,
}
DECORATORS = """
import functools

guard = torch.no_grad()
other = functools.lru_cache()


def quietly(f):
    def run(*args):
        with torch.no_grad():
            return f(*args)

    return run


def loudly(f):
    def run(*args):
        with torch.enable_grad():
            return f(*args)

    return run


def named(f):
    f.grad = True
    return f


def plain(f):
    return f


class Quiet:
    def __call__(self, f):
        return torch.no_grad()(f)


class Plain:
    def __call__(self, f):
        return f
"""


@pytest.mark.parametrize("decorator", OWN)
def test_mode_of_a_decorator(decorator: str) -> None:
    project = project_of(f"{DECORATORS}\n\n{decorator}\ndef f(x):\n    return x\n")
    assert project.decorated_grad(function_of(project, "f")) is OWN[decorator]


def test_mode_of_a_decorator_that_a_function_imports() -> None:
    project = project_of(
        "def make():\n    from torch import no_grad as quiet\n\n    @quiet()\n    def f(x):\n        return x\n"
    )
    assert project.decorated_grad(function_of(project, "make.<locals>.f")) is Grad.OFF


CONTEXTS = """
from contextlib import contextmanager


@contextmanager
def quiet():
    print("begins")
    with torch.no_grad():
        yield
    print("ends")


@contextmanager
def nested():
    with quiet():
        yield


@contextmanager
def either(flag):
    if flag:
        with torch.no_grad():
            yield
    else:
        yield


@contextmanager
def plain():
    yield


def no_context():
    with torch.no_grad():
        return 1


class Guard:
    def __enter__(self):
        self.before = torch.set_grad_enabled(False)


class Plain:
    def __enter__(self):
        pass
"""


def test_mode_under_a_context_manager() -> None:
    project = project_of(CONTEXTS)
    modes = {
        name: project.context_mode(function_of(project, name))
        for name in ("quiet", "nested", "either", "plain", "no_context")
    }
    assert modes == {
        "quiet": Grad.OFF,
        "nested": Grad.OFF,
        "either": Grad.UNKNOWN,
        "plain": None,
        "no_context": None,
    }
    assert project.context_mode(class_of(project, "Guard")) is Grad.UNKNOWN
    assert project.context_mode(class_of(project, "Plain")) is None


CALLERS = """
import lightning
import mystery


def alone(x):
    return called(x)


def called(x):
    return x


def off(x):
    with torch.no_grad():
        return guarded(x) + both(x)


def guarded(x):
    return x


def both(x):
    return x


def on(x):
    return both(x)


class Fast(nn.Module):
    def forward(self, x):
        if self.fast:
            with torch.no_grad():
                return self.help(x)
        if self.slow:
            return self.work(x)
        return self.rest(x)

    def help(self, x):
        return x

    def work(self, x):
        return x

    def rest(self, x):
        return x

    def free(self, x):
        return x


class Branch(nn.Module):
    def forward(self, x):
        if self.slow:
            x = self.more(x)
        return x

    def more(self, x):
        return x


class One:
    def tick(self, x):
        return x

    def tock(self, x):
        return x


class Two:
    def tick(self, x):
        return x

    def tock(self, x):
        return x


def tick(clock, x):
    return clock.tick(x)


def tock(clock, x):
    with torch.no_grad():
        return clock.tock(x)


class Task(mystery.Task):
    def run(self, x):
        return x


class Lit(lightning.LightningModule):
    def extra(self, x):
        return x

    def validation_step(self, batch, i):
        return batch

    def training_step(self, batch, i):
        return batch


def handed(x):
    return x


mystery.register(handed)
"""
ENTRIES = {
    "alone": Grad.ON,
    "called": Grad.ON,
    "guarded": Grad.OFF,
    "both": Grad.ON,
    "Fast.help": Grad.OFF,
    "Fast.work": Grad.UNKNOWN,
    "Fast.rest": Grad.UNKNOWN,
    "Fast.free": Grad.ON,
    "Branch.more": Grad.UNKNOWN,
    "One.tick": Grad.ON,
    "One.tock": Grad.UNKNOWN,
    "Task.run": Grad.UNKNOWN,
    "Lit.extra": Grad.ON,
    "Lit.validation_step": Grad.OFF,
    "Lit.training_step": Grad.ON,
    "handed": Grad.UNKNOWN,
}


@pytest.mark.parametrize("name", ENTRIES)
def test_mode_at_entry(name: str) -> None:
    project = project_of(CALLERS)
    for definition in project.names.modules["a.py"].definitions:
        project.flow(definition)
    assert project.entry_grad(function_of(project, name)) is ENTRIES[name]
