"""Sets of graph nodes put together."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from functools import reduce
from operator import or_

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


def test_many_sets_are_not_put_together_one_by_one() -> None:
    """Each sum of some made anew, as here for comparison, takes time with the square of their number."""
    sets = nodes(6_000)

    def seconds(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    assert min(seconds(lambda: together(sets)) for _ in range(3)) < seconds(lambda: reduce(or_, sets)) / 10
