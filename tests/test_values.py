"""Sets of graph nodes put together."""

from __future__ import annotations

import ast
import time

from memlint.facts import Node, Origin
from memlint.values import EMPTY, together


def nodes(count: int) -> list[frozenset[Node]]:
    return [frozenset({Node(Origin.CALL, ast.Pass(), str(number))}) for number in range(count)]


def test_all_nodes_of_some_sets() -> None:
    one, two, three = nodes(3)
    assert together([]) == EMPTY
    assert together([EMPTY, one]) is one
    assert together([one | two, one, two]) == one | two
    whole = one | two | three
    assert together([whole, one, three]) is whole
    assert together([one, two, one, three]) == whole
    assert isinstance(together([one, two]), frozenset)


def test_many_sets_take_time_in_proportion() -> None:
    """Each sum made anew, four times as many would take sixteen times as long."""
    few, many = nodes(3_000), nodes(12_000)

    def seconds(sets: list[frozenset[Node]]) -> float:
        started = time.perf_counter()
        together(sets)
        return time.perf_counter() - started

    assert min(seconds(many) for _ in range(5)) < 9 * min(seconds(few) for _ in range(5))
