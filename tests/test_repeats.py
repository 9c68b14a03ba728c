"""What memlint takes for a broadcast is one: `expand` gives what `repeat` gives, on real tensors."""

from __future__ import annotations

import itertools

import pytest

from memlint.project import Project
from memlint.repeats import needless_repeats
from memlint.source import Source

torch = pytest.importorskip("torch")

RECEIVERS = """
x.unsqueeze(0)
x.unsqueeze(1)
x.unsqueeze(2)
x.unsqueeze(-1)
x.unsqueeze(-2)
x.unsqueeze(dim=0)
x.unsqueeze(0).unsqueeze(-1)
x.unsqueeze(-1).unsqueeze(0)
x.unsqueeze(1).unsqueeze(0)
x.unsqueeze(-1).unsqueeze(-2)
x.unsqueeze(-2).unsqueeze(-1)
x.unsqueeze(0).unsqueeze(2)
torch.unsqueeze(x, 1)
x[None]
x[:, None]
x[..., None]
x[None, ..., None]
x[..., None, :]
x[0, None]
x[None, 0]
x[:, None, 0]
x.view(1, -1)
x.view(2, 1, 3)
x.view((3, 1, 2, 1))
x.view(1, 6).unsqueeze(-1)
x.reshape(-1, 1)
x.mean(dim=1, keepdim=True)
x.sum(-1, keepdim=True)
torch.arange(3)
torch.arange(3).unsqueeze(1)
torch.zeros(1, 3)
torch.ones(4)
x.unsqueeze(1).float().contiguous()
""".strip().splitlines()
SHOWN = ("torch.arange", "torch.zeros", "torch.ones", "x.view")  # how many dimensions these have shows
NAMES = {"torch": torch, "x": torch.arange(6.0).view(2, 3)}


def cases() -> list[str]:
    """Every receiver with every way to repeat some of its dimensions, and with one more in front if its rank shows."""
    found = []
    for receiver in RECEIVERS:
        rank = eval(receiver, NAMES).dim()
        for count in (rank, rank + 1) if receiver.startswith(SHOWN) else (rank,):
            for factors in itertools.product((1, 9), repeat=count):
                given = ", ".join(map(str, factors))
                found += [f"{receiver}.repeat({given})", f"{receiver}.tile(({given},))"]
        found += [f"{receiver}.repeat_interleave(9, dim={dim})" for dim in range(-rank, rank)]
    return found


def test_what_is_called_a_broadcast_is_one() -> None:
    texts = cases()
    source = Source("m.py", "import torch\n" + "".join(
        f"\n\ndef f{i}(x: torch.Tensor):\n    return {text} + 1\n" for i, text in enumerate(texts)
    ))  # fmt: skip
    seen = 0
    for function in Project([source]).functions(source):
        for repeat in needless_repeats(function):
            written = eval(texts[int(function.qualname[1:])], NAMES)
            if repeat.expanded:
                assert torch.equal(eval(repeat.expanded, NAMES), written), repeat.expanded
            else:  # told, and left to the reader
                where = [dim for dim in range(written.dim()) if written.size(dim) == 9]
                assert any(torch.equal(written.narrow(dim, 0, 1).expand_as(written), written) for dim in where)
            seen += 1
    assert seen > 150
