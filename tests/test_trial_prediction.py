"""What fake tensors predict of a GPU's memory, against one: whole training steps, convolutions, recurrent layers."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from memlint.trial.cudnn import Recurrent
from memlint.trial.fake import FakeLedger, pretended_gpu

KEPT = Path(__file__).parents[1] / "fixtures" / "predictions"
MIB = 2**20


def kept(name: str) -> dict[tuple[str, bool], dict[str, Any]]:
    document = json.loads((KEPT / name).read_text())
    return {(row["model"], row["autocast"]): row for row in document["rows"]}


GPU, FAKE = kept("gpu.json"), kept("fake.json")


@pytest.mark.parametrize("key", GPU, ids=lambda key: f"{key[0].split(',')[0]}{'-bf16' * key[1]}")
def test_training_steps_are_predicted(key: tuple[str, bool]) -> None:
    measured, predicted = GPU[key], FAKE[key]
    assert predicted["peak"] == pytest.approx(measured["peak"], rel=0.05)
    # None of them grows; what the allocator leaves in a block moves its count by as much as this.
    assert abs(predicted["growth"] - measured["growth"]) < 0.001 * measured["peak"]


def test_five_models_with_and_without_autocast_were_measured() -> None:
    assert len(GPU) == 10 and GPU.keys() == FAKE.keys()
    assert "H200" in json.loads((KEPT / "gpu.json").read_text())["device"]


@pytest.mark.parametrize("key", [key for key in FAKE if key[0].startswith(("U-Net", "LSTM"))])
def test_the_prediction_is_still_the_same(key: tuple[str, bool]) -> None:
    measure = importlib.import_module("benchmarks.predicted_peak").measure
    assert measure(*key, "fake")["peak"] == FAKE[key]["peak"]


def scratch(forward: Any) -> tuple[int, int]:
    """The most that forward and backward take above what they leave, in bytes, on the pretended GPU."""
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        inputs, run = forward()
        ledger.reset_peak()
        output = run(inputs)
        first = ledger.peak - ledger.live
        gradient = torch.ones_like(output)
        ledger.reset_peak()
        output.backward(gradient)
        return first, ledger.peak - ledger.live


# Bytes that the caching allocator of an H200 gave for the time of one call: torch 2.11, 2026-11-30.
@pytest.mark.parametrize(
    ("shape", "forward", "backward"),
    [
        ((64, 64, 3, 1, 256, 8), 268583424, 270648320),
        ((256, 256, 3, 1, 14, 32), 15204352, 23068672),
        ((128, 64, 3, 1, 256, 8), 402948096, 407208960),
        ((64, 256, 1, 1, 56, 32), 0, 2097152),
        ((1024, 2048, 1, 2, 14, 32), 38535168, 38535168),
    ],
)
def test_a_convolution_takes_copies_in_another_layout(shape: tuple[int, ...], forward: int, backward: int) -> None:
    inputs, outputs, kernel, stride, size, rows = shape

    def make() -> Any:
        x = torch.randn(rows, inputs, size, size, device="cuda", requires_grad=True)
        weight = torch.randn(outputs, inputs, kernel, kernel, device="cuda", requires_grad=True)
        return x, lambda x: F.conv2d(x, weight, stride=stride, padding=kernel // 2)

    first, second = scratch(make)
    assert first == pytest.approx(forward, rel=0.25)
    assert second == pytest.approx(backward, rel=0.4, abs=4 * MIB)


@pytest.mark.parametrize("form", ["channels last", "depthwise", "float64"])
def test_some_convolutions_take_nothing(form: str) -> None:
    def make() -> Any:
        x = torch.randn(4, 64, 32, 32, device="cuda", dtype=torch.float64 if form == "float64" else torch.float32)
        if form == "channels last":
            x = x.contiguous(memory_format=torch.channels_last)
        groups = 64 if form == "depthwise" else 1
        weight = torch.randn(64, 64 // groups, 3, 3, device="cuda", dtype=x.dtype)
        return x.requires_grad_(), lambda x: F.conv2d(x, weight, padding=1, groups=groups)

    assert scratch(make) == (0, 0)


# Layers, directions, steps, rows, width, bytes of a number; the reserve in bytes as cuDNN gave it.
@pytest.mark.parametrize(
    ("kind", "layers", "directions", "size", "reserve"),
    [
        ("lstm", 1, 1, (16, 8, 128, 4), 327936),
        ("lstm", 2, 1, (16, 8, 128, 4), 721152),
        ("lstm", 1, 2, (16, 8, 128, 4), 655616),
        ("lstm", 3, 2, (64, 32, 512, 4), 142606592),
        ("lstm", 2, 1, (128, 64, 1024, 2), 184549632),
        ("gru", 1, 1, (32, 8, 128, 4), 786688),
        ("gru", 3, 2, (64, 32, 512, 4), 167772416),
        ("rnn_tanh", 2, 1, (128, 64, 1024, 4), 100663552),
    ],
)
def test_reserves_are_exact(
    kind: str, layers: int, directions: int, size: tuple[int, int, int, int], reserve: int
) -> None:
    assert Recurrent(kind, layers, directions, True, lambda size: None).reserve(*size) == reserve


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("first", [False, True])
def test_a_recurrent_layer_gives_what_it_gives(kind: str, first: bool) -> None:
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        layer = getattr(torch.nn, kind)(12, 16, 2, bidirectional=True, batch_first=first).cuda()
        x = torch.randn(3, 5, 12, device="cuda", requires_grad=True)
        output, states = layer(x)
        assert output.shape == (3, 5, 32) and output.is_cuda
        shapes = [state.shape for state in (states if kind == "LSTM" else (states,))]
        assert shapes == [(4, 3 if first else 5, 16)] * len(shapes)
        output.sum().backward()
        assert x.grad is not None and x.grad.shape == x.shape
        assert all(p.grad is not None and p.grad.shape == p.shape and p.grad.is_cuda for p in layer.parameters())
        with torch.no_grad():
            assert not layer(x)[0].requires_grad


@pytest.mark.parametrize("of", [F.log_softmax, F.softmax, F.cross_entropy])
def test_a_softmax_of_halves_makes_no_copy_of_them(of: Any) -> None:
    ledger = FakeLedger()
    with pretended_gpu(ledger), torch.autocast("cuda", torch.bfloat16):
        x = torch.randn(256, 4096, device="cuda").bfloat16().requires_grad_()
        more = (torch.randint(4096, (256,), device="cuda"),) if of is F.cross_entropy else (-1,)
        ledger.reset_peak()
        before = ledger.live
        output = of(x, *more)
        assert output.dtype is torch.float32
        assert ledger.peak - before == pytest.approx(4 * x.numel(), rel=0.001)
        output.sum().backward()
        assert x.grad is not None and x.grad.dtype is torch.bfloat16
