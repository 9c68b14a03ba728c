"""What torch complains of leads to a batch that the forward takes: torch itself is asked, not copies of its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from memlint.trial import standins  # noqa: E402
from memlint.trial.guess import Guess, refined  # noqa: E402

Step = Callable[[Any, Any], Any]
ROUNDS = 4


def picture(side: int, after: int) -> nn.Module:
    """A network whose linear layer fits pictures of one side only."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Flatten(), nn.Linear(4 * after * after, 10))


def joined(x: Any) -> Any:
    return nn.Linear(20 + 5, 3)(torch.cat([x, torch.zeros(len(x), 5)], 1))


def unpacked(x: Any) -> Any:
    batch, channels, height, width = x.shape
    return x.view(batch, channels * height * width)


def flat(x: Any) -> Any:
    _batch, _features = x.shape
    return nn.Linear(20, 2)(x)


STEPS: dict[str, tuple[Guess, Step]] = {
    "words where numbers are wanted": (Guess("tokens"), lambda x, y: nn.Linear(20, 2)(x)),
    "words that are made numbers": (Guess("tokens", (16,), words=True), lambda x, y: nn.Linear(20, 2)(x.float())),
    "numbers where words are wanted": (Guess("classes"), lambda x, y: nn.Embedding(10, 3)(x)),
    "words where a picture is wanted": (Guess("tokens"), lambda x, y: nn.Conv2d(3, 4, 3)(x)),
    "fewer features": (Guess("classes"), lambda x, y: nn.Linear(20, 2)(x)),
    "features beside others": (Guess("classes"), lambda x, y: joined(x)),
    "features of each token": (Guess("classes", (5, 64)), lambda x, y: nn.Linear(20, 2)(x)),
    "a flattened picture": (Guess("images"), lambda x, y: nn.Linear(784, 2)(x.flatten(1))),
    "a flattened picture of no square": (Guess("images"), lambda x, y: nn.Linear(50, 2)(x.flatten(1))),
    "a larger picture": (Guess("images"), lambda x, y: picture(64, 32)(x)),
    "a smaller picture": (Guess("images"), lambda x, y: picture(28, 14)(x)),
    "a normalised width": (Guess("classes"), lambda x, y: nn.LayerNorm(48)(x)),
    "one colour": (Guess("images"), lambda x, y: nn.Conv2d(1, 4, 3)(x)),
    "colours last": (Guess("images", (8, 8, 3)), lambda x, y: nn.Conv2d(3, 4, 3)(x)),
    "channels of a norm": (Guess("images"), lambda x, y: nn.BatchNorm2d(6)(x)),
    "features of a norm": (Guess("classes"), lambda x, y: nn.BatchNorm1d(48)(x)),
    "a flat batch": (Guess("images"), lambda x, y: nn.BatchNorm1d(3072)(nn.Flatten(0, 0)(x))),
    "a signal": (Guess("classes"), lambda x, y: nn.Conv1d(16, 4, 3)(x)),
    "a volume": (Guess("images"), lambda x, y: nn.Conv3d(3, 4, 3)(x)),
    "a picture that the layers use up": (
        Guess("images", (3, 8, 8)),
        lambda x, y: nn.Sequential(nn.Conv2d(3, 4, 7), nn.Conv2d(4, 4, 7), nn.Conv2d(4, 4, 7))(x),
    ),
    "a picture that pooling uses up": (
        Guess("images", (3, 4, 4)),
        lambda x, y: nn.Sequential(nn.MaxPool2d(4), nn.MaxPool2d(4))(x),
    ),
    "a recurrent layer": (Guess("classes"), lambda x, y: nn.LSTM(28, 8, batch_first=True)(x)),
    "rows of a picture": (Guess("images", (28, 32)), lambda x, y: nn.GRU(12, 8, batch_first=True)(x)),
    "seen as one row": (Guess("images"), lambda x, y: nn.Linear(784, 2)(x.view(-1, 784).view(32, 784))),
    "seen as another picture": (Guess("classes"), lambda x, y: x.view(32, 3, 12, 12)),
    "seen so after some layers": (
        Guess("images"),
        lambda x, y: nn.Linear(4 * 14 * 14, 2)(nn.Conv2d(3, 4, 3, 2, 1)(x).view(32, 4 * 14 * 14)),
    ),
    "indexed as a sequence": (Guess("classes"), lambda x, y: x[:, :, 0]),
    "indexed as a picture": (Guess("classes", (5, 64)), lambda x, y: x.permute(0, 2, 3, 1)),
    "unpacked as a picture": (Guess("classes"), lambda x, y: unpacked(x)),
    "unpacked as a row": (Guess("images"), lambda x, y: flat(x)),
    "unpacked as words": (Guess("maps"), lambda x, y: [nn.Embedding(10, 3)(x) for batch, length in [x.shape]]),
    "joined with a map": (Guess("images"), lambda x, y: torch.cat([x, torch.zeros(32, 1, 28, 28)], 1)),
    "added to places": (Guess("classes", (16, 8)), lambda x, y: x + torch.zeros(1, 24, 8)),
    "a target like the output": (Guess("values"), lambda x, y: nn.BCELoss()(torch.rand(32, 1), y)),
    "a class for each token": (Guess("classes"), lambda x, y: F.cross_entropy(torch.rand(512, 10), y)),
    "a class for each": (
        Guess("tokens"),
        lambda x, y: nn.MultiMarginLoss()(torch.rand(32, 10), y),
    ),
    "a real target": (
        Guess("classes"),
        lambda x, y: F.binary_cross_entropy_with_logits(nn.Linear(64, 1)(x).squeeze(1), y),
    ),
    "a real target of two dimensions": (
        Guess("classes"),
        lambda x, y: F.binary_cross_entropy_with_logits(nn.Linear(64, 1)(x), y),
    ),
    "a whole target of one dimension": (
        Guess("classes", target="torch.rand(BATCH)"),
        lambda x, y: F.nll_loss(torch.rand(32, 10), y),
    ),
    "a whole target": (Guess("values"), lambda x, y: F.nll_loss(torch.rand(32, 10), y)),
}


def complaint(guess: Guess, step: Step) -> str | None:
    """What torch says to a batch, None where it takes it."""
    names = {**vars(standins), "torch": torch}
    try:
        step(eval(guess.inputs, names), eval(guess.targets, names))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return f"train.py:3: {type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", STEPS)
def test_guesses_lead_to_a_batch_that_is_taken(name: str) -> None:
    guess, step = STEPS[name]
    said = [complaint(guess, step)]
    assert said[0] is not None, "the first guess is meant to be wrong"
    waiting = [(guess, said[0])]
    for _ in range(ROUNDS):
        further = []
        for known, message in waiting:
            for better in refined(known, message):
                assert better != known
                said.append(complaint(better, step))
                if said[-1] is None:
                    return
                further.append((better, said[-1]))
        waiting = further
    pytest.fail("\n".join(map(str, said)))


@pytest.mark.parametrize(
    ("guess", "message"),
    [
        (Guess("tokens", (16,), words=True), "shape '[-1, 784]' is invalid for input of size 512"),
        (Guess("images"), "too many indices for tensor of dimension 4"),
        (
            Guess("images"),
            "Sizes of tensors must match except in dimension 1. Expected size 7 but got size 9 for tensor",
        ),
        (
            Guess("classes"),
            "The size of tensor a (64) must match the size of tensor b (32) at non-singleton dimension 1",
        ),
        (Guess("images", (3, 256, 256)), "Calculated padded input size per channel: (1 x 1). Output size is too small"),
    ],
)
def test_a_complaint_that_tells_nothing_of_the_batch_leads_nowhere(guess: Guess, message: str) -> None:
    assert refined(guess, message) == []
