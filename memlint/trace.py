"""Which question looked at what, so that after a change only those are asked whose answers may be others now.

An editor's server keeps a project in memory, and a `Trace` that knows who asked for what, down to the code that was
looked at. A run from the command line has `memlint.grounds`, which follows questions only, or nothing at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


class Trace:
    """Who asked for what, down to functions and words of files. ``asking`` are the questions under way, the innermost
    last.

    ``about`` has, by file, what was asked of its text as a whole. ``answers`` keeps, of each question whose name
    ``digests`` has, what others can see of its answer.
    """

    fine = True

    def __init__(self) -> None:
        self.asking: list[Hashable] = []
        self.asked_by: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
        self.about: defaultdict[str, set[Any]] = defaultdict(set)
        self.digests: dict[str, Callable[[Any], Any]] = {}
        self.answers: dict[Hashable, Any] = {}

    def note(self, what: Hashable) -> None:
        """The question under way, if there is one, depends on ``what``."""
        if self.asking and self.asking[-1] is not None:
            self.asked_by[what].add(self.asking[-1])

    @contextmanager
    def question(self, key: Hashable) -> Iterator[None]:
        """What is looked at inside is looked at for the question ``key``."""
        self.asking.append(key)
        try:
            yield
        finally:
            self.asking.pop()

    def concerned(self, changed: Iterable[Hashable], same: Callable[[Hashable, Hashable], bool]) -> set[Hashable]:
        """What depends on anything that ``changed``, itself included; not through a question whose answer is the
        ``same`` as before, though something that it looked at (the second argument) is not."""
        found: set[Hashable] = set()
        queue: list[tuple[Hashable, Hashable]] = [(what, None) for what in changed]
        while queue:
            what, cause = queue.pop()
            if what not in found and not same(what, cause):
                found.add(what)
                queue += ((other, what) for other in self.asked_by.get(what, ()))
        return found


_current: Trace | None = None


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Note in ``trace`` what is looked at meanwhile."""
    global _current
    before, _current = _current, trace
    try:
        yield
    finally:
        _current = before


def note(what: Hashable, about: str = "") -> None:
    """The question under way depends on ``what``, a small question of its own ``about`` all of a file where it is."""
    if _current is not None:
        _current.note(what)
        if about:
            _current.about[about].add(what)


def active() -> bool:
    """Whether it is noted which single function is looked at. Shortcuts that look at every file at once are then not
    worth it: each change would have to ask everything again."""
    return _current is not None and _current.fine


@contextmanager
def unseen() -> Iterator[None]:
    """What is looked at meanwhile is noted by somebody else."""
    if _current is None:
        yield
    else:
        with _current.question(None):
            yield


def question(count: int) -> Callable[[Method], Method]:
    """A method that is a question about its first ``count`` arguments: who calls it depends on what it looks at."""

    def make(method: Method) -> Method:
        name = method.__name__

        @wraps(method)
        def ask(self: Any, *args: Any) -> Any:
            trace = _current
            if trace is None:
                return method(self, *args)
            key = (name, *args[:count])
            trace.note(key)
            digest = trace.digests.get(name) if key not in trace.answers and key not in trace.asking else None
            trace.asking.append(key)
            try:
                found = method(self, *args)
            finally:
                trace.asking.pop()
            if digest is not None:
                trace.answers[key] = digest(found)
            return found

        return ask  # type: ignore[return-value]

    return make


def fact(method: Method) -> Method:
    """A question that only source code answers; ``facts`` of the object keeps its answer until that code changes."""
    name = method.__name__

    @wraps(method)
    def ask(self: Any, *args: Any) -> Any:
        key = (name, *args)
        trace = _current
        if trace is not None:
            trace.note(key)
        facts = self.facts
        if key in facts:
            return facts[key]
        if trace is None:
            found = facts[key] = method(self, *args)
            return found
        trace.asking.append(key)
        try:
            found = facts[key] = method(self, *args)
        finally:
            trace.asking.pop()
        return found

    return ask  # type: ignore[return-value]
