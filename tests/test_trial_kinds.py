"""What the bytes at the peak are for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from memlint.trial.kinds import Kinds
from memlint.trial.ledger import Ledger
from memlint.trial.meter import LedgerAllocator, Meter
from memlint.trial.stacks import ACTIVATIONS, GRADIENTS, KINDS, OTHER, PARAMETERS, STATE, Event, kinds_at_peak

WIDE, ROWS = 64, 32
WEIGHT = 4 * WIDE * WIDE
ACTIVATION = 4 * ROWS * WIDE


def events(*changes: tuple[int, int]) -> list[Event]:
    return [Event((), size, key, position) for position, (key, size) in enumerate(changes, 1)]


def kinds(**sizes: int) -> dict[str, int]:
    names = {"parameters": PARAMETERS, "gradients": GRADIENTS, "state": STATE, "activations": ACTIVATIONS}
    return dict.fromkeys(KINDS, 0) | {names.get(name, OTHER): size for name, size in sizes.items()}


def test_each_storage_counts_by_what_it_was_at_the_peak() -> None:
    weight, gradient, output, scratch, batch = range(5)
    alive = {weight: 100, gradient: 40, batch: 7}
    held = {weight: PARAMETERS, gradient: GRADIENTS}
    ends = [(0, held), (9, held)]
    forward = (output, 30), (scratch, 60), (scratch, -60), (output, -30)
    # The old gradient goes before the peak, and the new one, in the same place, comes after it.
    assert kinds_at_peak(alive, events((gradient, -40), *forward, (gradient, 40)), ends) == kinds(
        parameters=100, activations=90, other=7
    )
    # Here the old one is still there.
    late = events(*forward[:2], (gradient, -40), *forward[2:], (gradient, 40))
    assert kinds_at_peak(alive, late, ends) == kinds(parameters=100, gradients=40, activations=90, other=7)
    # Here it comes and goes within the iteration, and is seen in between; what had its place before is no gradient.
    within = events((gradient, 5), (gradient, -5), (gradient, 40), *forward, (gradient, -40))
    between = [(0, {weight: PARAMETERS}), (6, held), (9, {weight: PARAMETERS})]
    rest = {weight: 100, batch: 7}
    assert kinds_at_peak(rest, within, between) == kinds(parameters=100, gradients=40, activations=90, other=7)
    early = events((gradient, 400), (gradient, -400), (gradient, 40), (gradient, -40))
    assert kinds_at_peak(rest, early, [(0, {}), (3, held), (9, {weight: PARAMETERS})]) == kinds(
        parameters=100, activations=400, other=7
    )
    # What the iteration makes and keeps is an activation to begin with.
    assert kinds_at_peak({weight: 100, output: 30}, events((output, 30)), ends) == kinds(parameters=100, activations=30)
    assert kinds_at_peak(alive, [], ends) == kinds(parameters=100, gradients=40, other=7)


@pytest.mark.parametrize("to_none", [True, False])
def test_a_training_step_to_the_byte(to_none: bool) -> None:
    with Ledger() as ledger:
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDE, WIDE, bias=False) for _ in range(2)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        inputs = torch.randn(ROWS, WIDE)
        meter = Meter(LedgerAllocator(ledger, real=True), None, kinds=True)
        meter.begin()
        for _ in range(4):
            hidden = model[0](inputs)
            outputs = model[1](hidden).sum()
            del hidden
            outputs.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)
            del outputs
            meter.read()
        meter.testify()
    assert meter.evidence is not None
    alive = meter.evidence["alive"]
    assert alive[PARAMETERS] == alive[STATE] == alive[GRADIENTS] == 2 * WEIGHT
    assert alive[OTHER] == ACTIVATION
    assert sum(alive.values()) == meter.readings[-1]["peak"] + meter.start


def test_a_closed_meter_listens_to_no_optimizer() -> None:
    seen: list[int] = []
    kinds = Kinds(lambda tensor: int(tensor.untyped_storage()._cdata))
    kinds.before_each_step(lambda: seen.append(1))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    optimizer.step()
    kinds.close()
    optimizer.step()
    assert seen == [1]


def test_modules_and_optimizers_that_end_are_let_go() -> None:
    kinds = Kinds(lambda tensor: int(tensor.untyped_storage()._cdata))
    model = torch.nn.Linear(2, 2)
    found = Kinds(lambda tensor: int(tensor.untyped_storage()._cdata))
    keys = {p.untyped_storage()._cdata for p in model.parameters()}
    assert keys <= found.now().keys() and not keys & kinds.now().keys()
    del model
    assert not keys & found.now().keys()
