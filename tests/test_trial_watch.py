"""Which loop a finding's line recurs in, and that wrapping it changes nothing but the ticks."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from memlint.trial.watch import (
    CALL,
    HIT,
    TICK,
    WATCH,
    Place,
    bytes_at,
    called,
    count_hits,
    definition,
    first,
    locate,
    rewrite,
)

TEXT = """\
class Trainer:
    def fit(self, loader):
        for epoch in range(3):
            for x, y in loader:
                loss = "é", f(x)
                for name, value in parts.items():
                    self.total[name] += value
                for p in model.parameters():
                    p.grad.zero_()
        return [model(x) for x in loader]

    def training_step(self, batch):
        self.losses.append(batch)


def wait():
    while True:
        go(1)


go(2)
"""


def column(line: int, what: str) -> int:
    return TEXT.splitlines()[line - 1].index(what) + 1


@pytest.mark.parametrize(
    ("line", "what", "place"),
    [
        (5, "f(x)", Place("Trainer.fit", 1, "loader")),
        (7, "self", Place("Trainer.fit", 1, "loader")),
        (9, "p.grad", Place("Trainer.fit", 1, "loader")),
        (10, "model(x)", Place("Trainer.fit", 4, "loader")),
        (10, "loader", Place("Trainer.fit")),
        (4, "loader", Place("Trainer.fit", 0, "range(3)")),
        (13, "self", Place("Trainer.training_step")),
        (18, "go", Place("wait", 0, "True")),
        (21, "go", Place("")),
    ],
)
def test_the_loop_over_steps_around_a_place(line: int, what: str, place: Place) -> None:
    assert locate(TEXT, line, column(line, what)) == place


def test_a_name_that_the_file_lacks_has_no_definition() -> None:
    assert definition(ast.parse(TEXT), Place("Trainer.missing")) is None


def run(text: str, loop: int, over: Callable[[Any], Any], tick: Callable[[], bool]) -> Any:
    tree = rewrite(ast.parse(text), Place("f", loop))
    names: dict[str, Any] = {WATCH: over, TICK: tick}
    exec(compile(tree, "f.py", "exec"), names)
    return names["f"]


def test_the_wrapped_loop_keeps_lines_and_results() -> None:
    text = """\
def f(xs):
    out = []
    for x in xs:
        if x == 1:
            continue
        out.append(x)
    return out
"""
    seen: list[Any] = []

    def over(items: Any) -> Any:
        seen.append(items)
        return iter(items)

    function = run(text, 0, over, lambda: True)
    assert function([0, 1, 2]) == [0, 2]
    assert seen == [[0, 1, 2]]
    assert function.__code__.co_firstlineno == 1


def test_a_while_loop_ticks_before_its_condition() -> None:
    ticks = iter([True, True, False])
    function = run(
        "def f():\n    n = 0\n    while n < 10:\n        n += 1\n    return n\n", 0, iter, lambda: next(ticks)
    )
    assert function() == 2


def test_a_comprehension_is_a_loop() -> None:
    function = run("def f(xs):\n    return {x: 1 for x in xs}\n", 0, lambda xs: list(xs)[:1], lambda: True)
    assert function([4, 5]) == {4: 1}


def test_the_first_loop_of_a_function_or_its_calls() -> None:
    assert first(TEXT, "Trainer.fit") == Place("Trainer.fit", 0, "range(3)")
    assert first(TEXT, "Trainer.training_step") == Place("Trainer.training_step")
    assert first(TEXT, "absent") == Place("absent")


def test_a_form_feed_ends_no_line() -> None:
    text = "x = 1\n\x0c\n# a\x1cb\ndef go(items):\r\n    for item in items:\r\n        kept.append(item)\r\n"
    assert locate(text, 6, 9) == Place("go", 0, "items")


@pytest.mark.parametrize(("text", "name"), [('target = "go"\n', "go"), ("x = 1\n", ""), ("def (\n", ""), ("\0", "")])
def test_what_a_harness_calls(text: str, name: str) -> None:
    assert called(text) == name


def test_several_places_are_told_apart_by_their_keys() -> None:
    tree = ast.parse(
        'def f(xs):\n    """Doc."""\n    for x in xs:\n        while x:\n            x -= 1\n    return g(xs)\n'
    )
    for key, place in enumerate((Place("f"), Place("f", 0), Place("f", 1))):
        rewrite(tree, place, key)
    seen: list[Any] = []

    def over(items: Any, key: int) -> Any:
        seen.append(("over", key))
        return iter(items)

    def tick(key: int) -> bool:
        seen.append(("tick", key))
        return True

    names: dict[str, Any] = {WATCH: over, TICK: tick, CALL: lambda key: seen.append(("call", key)), "g": len}
    exec(compile(tree, "f.py", "exec"), names)
    assert names["f"]([1]) == 1 and names["f"].__doc__ == "Doc."
    assert seen == [("call", 0), ("over", 1), ("tick", 2), ("tick", 2)]


def test_a_statement_tells_that_it_ran() -> None:
    text = "def f(xs):\n    for x in xs:\n        if x > 1:\n            y = (x +\n                 1)\n"
    tree = ast.parse(text)
    count_hits(tree, *bytes_at(text, 5, 18), 7)
    rewrite(tree, Place("f", 0), 0)
    seen: list[int] = []
    names: dict[str, Any] = {WATCH: lambda items, key: iter(items), HIT: seen.append}
    exec(compile(tree, "f.py", "exec"), names)
    names["f"]([0, 1])
    assert seen == []
    names["f"]([1, 2])
    assert seen == [7]
