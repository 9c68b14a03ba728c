"""What code does with a name tells how many dimensions it has, and what is a size."""

from __future__ import annotations

import ast

import pytest

from memlint.trial.guess import Guess
from memlint.trial.ranks import ranks, sizes


@pytest.mark.parametrize(
    ("text", "name", "dimensions"),
    [
        ("b, n, _ = x.shape", "x", 3),
        ("b, n = x.size()", "x", 2),
        ("rows, columns = x.shape[:2]", "x", 2),
        ("b, *rest = x.shape\nx.shape[2]", "x", 3),
        ("if x.size() != y.size() or x.ndim != 3:\n    raise ValueError", "x", 3),
        ("assert x.dim() == 4", "x", 4),
        ("assert len(x.shape) == 4", "x", 4),
        ("x.permute(0, 2, 1)", "x", 3),
        ("x[None].repeat(n, 1, 1)", "x", 2),
        ("x.unsqueeze(1).expand(-1, n, -1)", "x", 2),
        ("torch.mean(x, dim=1).unsqueeze(1).repeat(1, n, 1)", "x", 3),
        ("x.mean(1, keepdim=True).repeat(1, n)", "x", 2),
        ("y = norm(x)\ny.permute(0, 2, 1)", "x", 3),
        ("y = self.norm(x)\ny.permute(0, 2, 1)", "x", 3),
        ("x.size(1)\nx.size(-3)", "x", 3),
        ("x.transpose(1, 2)", "x", 3),
        ("x[:, 0, None, ...]", "x", 2),
        ("torch.softmax(x, dim=3)", "x", 4),
        ("torch.unsqueeze(x, dim=2)", "x", 2),
        ("for y in z:\n    if w:\n        x.permute(0, 1)", "x", 2),
    ],
)
def test_dimensions_are_told(text: str, name: str, dimensions: int) -> None:
    assert ranks(ast.parse(text))[name] == dimensions


@pytest.mark.parametrize(
    "text",
    [
        "if x.dim() == 3:\n    pass",  # or it may have others
        "assert x.dim() != 3",
        "x.repeat(*sizes, 1)",
        "x.permute(order, 1)",
        "f(x)",
        "def inner(x):\n    b, n = x.shape",
        "x = 1\nx = y.reshape(2, 3)\nb, n = x.shape",  # what it is by then is not what it was
        "len(x)",
    ],
)
def test_dimensions_are_not_told(text: str) -> None:
    assert "x" not in ranks(ast.parse(text))


def test_a_parameter_is_what_it_is_before_it_is_bound_anew() -> None:
    function = ast.parse("def f(x, y):\n    b, n = y.shape\n    x = x.reshape(2)\n    x.permute(0, 1, 2)").body[0]
    assert ranks(function) == {"y": 2}


def test_sizes_are_told() -> None:
    text = "nn.Linear(wide, self.narrow, bias=b)\nx.repeat(1, often ** 2, n / 2)\nConv2d(c, c, kernel)\nnn.Dropout(p)"
    assert sizes(ast.parse(text)) == {"wide": "WIDTH", "self.narrow": "WIDTH", "c": "WIDTH", "often": "TOKENS"}


@pytest.mark.parametrize(
    ("guess", "dimensions", "batch"),
    [
        (Guess("classes"), 1, "torch.rand(BATCH)"),
        (Guess("classes"), 2, 'inputs("classes")'),
        (Guess("classes"), 3, "torch.rand(BATCH, TOKENS, WIDTH)"),
        (Guess("classes", (7,)), 3, "torch.rand(BATCH, TOKENS, 7)"),
        (Guess("images"), 4, 'inputs("images")'),
        (Guess("images", (1, 9, 9)), 4, "torch.rand(BATCH, 1, 9, 9)"),
        (Guess("tokens", (7,), words=True), 2, "torch.randint(2, (BATCH, 7))"),
        (Guess("classes"), 5, "torch.rand(BATCH, 3, 8, 32, 32)"),
    ],
)
def test_a_batch_with_so_many_dimensions(guess: Guess, dimensions: int, batch: str) -> None:
    assert guess.of(dimensions) == batch


def test_classes_are_whole_numbers_where_there_is_one_an_example() -> None:
    assert Guess("images").of(1, classes=True) == "torch.randint(2, (BATCH,))"
    assert Guess("images").of(2, classes=True) == "torch.randint(2, (BATCH, TOKENS))"
    assert Guess("classes").of(3, classes=True) == "torch.rand(BATCH, TOKENS, WIDTH)"
