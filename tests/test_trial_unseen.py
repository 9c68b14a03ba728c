"""What keeps code that memlint has never seen from being run alone, and how it is run all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from memlint.trial.checkpoints import Checkpoint, Checkpoints  # noqa: E402
from memlint.trial.missing import Missing, MissingModule  # noqa: E402

DEVICE = "fake"


def settled(outcome, text: str, rule: str, **given: str) -> None:  # type: ignore[no-untyped-def]
    verdict = outcome(text, rule, **given).verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict


RELATIVE = """
import torch
from .parts import width

def spread(frames: torch.Tensor, code: torch.Tensor):
    wide = code.unsqueeze(1).repeat(1, frames.shape[1], 1)
    return torch.cat([frames, wide], dim=width)
"""


def test_a_module_whose_packages_fail_runs_without_them(outcome, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text("from .inner import model\nraise OSError('no licence')\n")
    (inner / "__init__.py").write_text("raise SystemExit(3)\n")
    (inner / "parts.py").write_text("width = -1\n")
    settled(outcome, RELATIVE, "repeat-not-expand", name="outer/inner/model.py")


PENDING = """
import torch

def widened(x: torch.Tensor, pending: torch.Tensor | None = None, other=None):
    if other is not None:
        raise ValueError(other)
    if pending is None or not len(x):
        pass
    elif not (pending is None):
        assert pending.dim() == 2
        pending = pending[None].repeat(x.shape[0], 1, 1)
        return torch.cat([x, pending], dim=1)
"""


def test_what_a_branch_asks_for_is_given(outcome) -> None:  # type: ignore[no-untyped-def]
    settled(outcome, PENDING, "repeat-not-expand")


WRAPPED = """
import no_such_package
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def ranked():
    assert no_such_package.started() == "yes", "no processes were started"

def main(options):
    net = no_such_package.build(options)
    if no_such_package.processes() > 1:
        net = DDP(net, device_ids=[ranked()])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    no_such_package.train(net, optimizer)
"""


def test_a_model_stands_on_the_device_and_what_fails_beside_it_is_spared(outcome) -> None:  # type: ignore[no-untyped-def]
    settled(outcome, WRAPPED, "ddp-no-bucket-view")


def test_many_models_are_there_where_many_are_gone_through(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Parts(no_such_package.Base):
    def wrap(self):
        for name, part in self.parts.items():
            if any(p.requires_grad for p in part.parameters()):
                self.parts[name] = DDP(part, device_ids=[self.device])
"""
    settled(outcome, text, "ddp-no-bucket-view")


STOPPER = """
from copy import deepcopy

import no_such_package

import torch

class Stopper(no_such_package.Callback):
    def on_epoch_end(self, net, logs=None):
        score = logs.get("score") - self.best_loss
        if score > net.history[-1]:
            self.best_weights = deepcopy(self.trainer.network.state_dict())

    def on_train_end(self, net):
        self.trainer.network.load_state_dict(self.best_weights)
"""


def test_a_model_may_be_part_of_something_else(outcome) -> None:  # type: ignore[no-untyped-def]
    settled(outcome, STOPPER, "state-dict-on-device")


def test_a_loop_that_leads_there_runs_over_what_is_absent(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch

def train(options):
    if no_such_package.ready():
        rounds = 3
    loader = no_such_package.loader(options)
    net = torch.nn.Linear(64, 10).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(rounds):
        for x, y in loader:
            loss = net(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
    settled(outcome, text, "zero-grad-before-backward-only")


def test_a_method_of_an_absent_class_is_absent() -> None:
    for base in (Missing("package.Base"), Missing("package.Model")):

        class Derived(base):  # type: ignore[valid-type, misc]
            def seen(self, value: int) -> object:
                first, (second, third) = super().seen(value)
                return first, second, third

        class Further(Derived, base):  # type: ignore[valid-type, misc]
            pass

        values = Further().seen(3)
        assert isinstance(values, tuple) and all(isinstance(value, Missing) for value in values)
        assert list(Missing()) == [], "what takes nothing apart goes through nothing"

    class Both(Missing("package.One"), Missing("package.Two"), Missing("package.Net")):  # type: ignore[misc]
        pass

    assert issubclass(Both, torch.nn.Module)

    class Named(MissingModule("package")):  # type: ignore[misc]
        """A module may be called as the class in it is."""

    assert isinstance(Named().anything, Missing) and isinstance(MissingModule("package")(3), Missing)


def test_a_file_that_a_library_opens_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Checkpoints(torch.device("cpu")).absent():
        for path in ("trial", Path("trial", "net.pt"), "missing/net.pt"):
            with open(path, "rb") as file:
                assert isinstance(torch.load(file)["net"], Checkpoint)
        for read in (Path("trials").read_bytes, Path("net.pt").read_bytes, Path("trial").read_text):
            with pytest.raises(FileNotFoundError):
                read()
    with pytest.raises(FileNotFoundError):
        Path("trial").read_bytes()


def test_a_script_ends_where_its_statement_has_run(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import time
import torch

if __name__ == "__main__":
    net = torch.nn.Linear(512, 512).cuda()
    with torch.enable_grad():
        if net is not None:
            net.load_state_dict(torch.load("checkpoint.pt"))
            time.sleep(100)
    time.sleep(100)
"""
    settled(outcome, text, "load-without-map-location")


def test_what_holds_nothing_where_it_should_is_stood_in_for(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch
from no_such_package import TQDM

def train(options, loader=None):
    if loader is None:
        loader = no_such_package.loader(options)[options["fold"] + "!"]
    net = torch.nn.Linear(64, 10).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    progress = TQDM(loader)
    for i, (x, y, paths, shapes) in enumerate(progress):
        loss = net(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    settled(outcome, text, "zero-grad-before-backward-only")
