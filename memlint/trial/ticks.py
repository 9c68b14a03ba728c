"""Ticks of a watched loop: what the calls that `watch.rewrite` puts in do. It starts nothing, and needs no torch."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

LEAST = 4  # iterations that are run however long they take
GRACE = 3  # times that a loop may start again after the last step before the run is cut short


class Enough(BaseException):
    """Ends a run whose watched loop has made its steps; no handler of the user's catches it."""


class Reader(Protocol):
    """What takes a reading at each tick."""

    @property
    def readings(self) -> Sequence[Any]:
        """The readings so far."""

    def read(self) -> None:
        """Take one more."""

    def testify(self) -> None:
        """Take evidence of who holds what."""


class Watch:
    """Counts the iterations of the watched loop, reads the meter after each, and ends the loop after ``steps``.

    Where they take more than ``patience`` seconds, it ends after fewer, but not before `LEAST`.
    """

    def __init__(self, meter: Reader, steps: int, patience: float = math.inf) -> None:
        self._meter = meter
        self.steps = steps
        self._late = time.monotonic() + patience
        self._overtime = 0
        self._inside = False

    @property
    def count(self) -> int:
        """Iterations read so far; the first reading is the start of the first."""
        return len(self._meter.readings) - 1

    def tick(self) -> None:
        """An iteration has ended."""
        if self.count < self.steps:
            self._meter.read()
            if self.count >= LEAST and time.monotonic() > self._late:
                self.steps = self.count
            if self.count == self.steps:
                self._meter.testify()

    def over(self, items: Iterable[Any]) -> Watched:
        """``items``, ticking whenever the next is asked for."""
        return Watched(self, items)

    def condition(self) -> bool:
        """Stands before the condition of a ``while`` loop: ticks, and is false after the last step."""
        self._inside = self.leave() if self._inside else self.enter()
        return self._inside

    def enter(self) -> bool:
        """The loop starts (again). After the last step it gets one unread iteration, and in the end none."""
        if self.count >= self.steps:
            self._overtime += 1
            if self._overtime > GRACE:
                raise Enough
        return True

    def leave(self) -> bool:
        """An iteration has ended; whether there may be another."""
        if self.count >= self.steps:
            return False
        self.tick()
        return self.count < self.steps

    def close(self) -> None:
        """The loop has ended, in whatever way, and what it has made is still there."""
        self._meter.testify()

    def each_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, each of whose calls is an iteration; after the last step a call ends the run."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self.count >= self.steps:
                raise Enough
            self.enter()
            try:
                return function(*args, **kwargs)
            finally:
                self.tick()

        return watched


class Watched:
    """An iterator that holds no item, so that it keeps nothing alive."""

    def __init__(self, watch: Watch, items: Iterable[Any]) -> None:
        self._watch = watch
        self._items = items
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Watched:
        return self

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)

    def __next__(self) -> Any:
        if self._iterator is None:
            self._watch.enter()
            self._iterator = iter(self._items)
        elif not self._watch.leave():
            raise StopIteration
        return next(self._iterator)

    def __del__(self) -> None:
        if self._iterator is not None:
            self._watch.close()
