"""Who allocated what: Python stacks of the user's own code, and bytes by stack. Needs no torch.

A stack is cheap to take (codes and instruction offsets, no text) and is turned into files and lines only for evidence.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

DEPTH = 48  # frames of the user's that a stack keeps at most, from the innermost outward
EVENTS = 200_000  # allocations and frees that are remembered
ROWS = 200  # stacks that evidence keeps, those with the most bytes
ENOUGH = 6  # iterations over which growth is seen, where the program is not to be slowed down for longer
START_AT = 2  # the iteration after which growth counts: caches and optimizer state are there by then

Lines = tuple[tuple[str, int], ...]
"""Files and lines of a stack, innermost first; empty where no code of the user's is on it, as on autograd's threads."""
PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, OTHER = "parameters", "gradients", "optimizer state", "activations", "other"
KINDS = PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, OTHER
"""What storages are for."""

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_users(filename: str) -> bool:
    """Whether code of this file may be the user's: not torch's, not the standard library's, not memlint's."""
    if filename.startswith("<"):
        return filename == "<harness>"
    if filename.startswith((_HERE, _torch())):
        return False
    return not filename.startswith(_STDLIB) or any(part in filename for part in _PACKAGES)


def _torch() -> str:
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) + os.sep if file else "\0"


class Stacks:
    """Takes stacks, each a number, and says which files and lines they are."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[CodeType, bool]] = {}  # by identity: hashing a code reads all of it
        self._numbers: dict[tuple[int, ...], int] = {(): 0}
        self._lines: list[Lines] = []

    def here(self, frame: FrameType | None) -> int:
        """The number of the stack from ``frame`` outward, of which only the user's frames count."""
        found: list[int] = []
        known = self._known
        while frame is not None and len(found) < 2 * DEPTH:
            code = frame.f_code
            entry = known.get(id(code))
            if entry is None:
                entry = known[id(code)] = code, is_users(code.co_filename)
            if entry[1]:
                found += id(code), frame.f_lasti
            frame = frame.f_back
        return self._numbers.setdefault(tuple(found), len(self._numbers))

    def lines(self, number: int) -> Lines:
        """Files and lines of a stack."""
        if number >= len(self._lines):
            for stack in list(self._numbers)[len(self._lines) :]:
                pairs = zip(stack[::2], stack[1::2], strict=True)
                self._lines.append(tuple(_line(self._known[code][0], offset) for code, offset in pairs))
        return self._lines[number]


def _line(code: CodeType, offset: int) -> tuple[str, int]:
    found = (line for start, end, line in code.co_lines() if start <= offset < end and line)
    return code.co_filename, next(found, code.co_firstlineno)


class Event(NamedTuple):
    """An allocation or, with a minus, a free: who allocated, how many bytes, which storage it is, and its position."""

    lines: Lines
    size: int
    key: int
    position: float


Events = list[Event]
"""Allocations and frees in order."""
View = tuple[float, Mapping[int, str]]
"""A position, and the storages that were of a kind there."""


class Recorder(Protocol):
    """Where evidence comes from. A position is a moment: what an allocator counts as one."""

    def position(self) -> float:
        """Now."""

    def held(self) -> Counter[Lines]:
        """Bytes alive now, by who allocated them."""

    def since(self, position: float) -> tuple[Counter[Lines], Events]:
        """Bytes alive now, and what was allocated and freed since ``position``, in order."""

    def alive(self) -> dict[int, int]:
        """Bytes alive now, by storage."""

    def key(self, tensor: Any) -> int:
        """What events call the storage of a tensor."""

    def fit(self, position: float) -> None:
        """An iteration has been made since ``position``: take no more memory than such iterations need."""

    def start(self) -> None:
        """Take stacks again, after `stop`."""

    def stop(self) -> None:
        """Take no stacks, where that costs the program time."""


class Account:
    """A recorder that is told of every allocation and free. In steady state it takes no memory of its own."""

    def __init__(self) -> None:
        self.stacks = Stacks()
        self._held: dict[int, int] = {}
        self._alive: dict[int, int] = {}
        self._events = array("q", bytes(24 * EVENTS))  # stack, size and key in turns, the oldest written over
        self._count = 0

    def enter(self, stack: int, size: int, key: int) -> None:
        """``size`` bytes were allocated at ``stack`` for the storage ``key``, or freed with a minus."""
        self._held[stack] = self._held.get(stack, 0) + size
        if size > 0:
            self._alive[key] = size
        else:
            self._alive.pop(key, None)
        at = 3 * (self._count % EVENTS)
        self._events[at], self._events[at + 1], self._events[at + 2] = stack, size, key
        self._count += 1

    def position(self) -> float:
        """How many events there have been."""
        return self._count

    def held(self) -> Counter[Lines]:
        """Bytes alive now, by who allocated them."""
        found: Counter[Lines] = Counter()
        for stack, size in self._held.items():
            found[self.stacks.lines(stack)] += size
        return found

    def since(self, position: float) -> tuple[Counter[Lines], Events]:
        """Bytes alive now, and what was allocated and freed since ``position``, in order."""
        found = []
        for number in range(max(int(position), self._count - EVENTS), self._count):
            at = 3 * (number % EVENTS)
            stack, size, key = self._events[at : at + 3]
            found.append(Event(self.stacks.lines(stack), size, key, number))
        return self.held(), found

    def alive(self) -> dict[int, int]:
        """Bytes alive now, by storage."""
        return dict(self._alive)

    def key(self, tensor: Any) -> int:
        """What events call the storage of a tensor."""
        return int(tensor.untyped_storage()._cdata)

    def fit(self, position: float) -> None:
        """It has taken its memory from the beginning."""

    def start(self) -> None:
        """It has never stopped: what it is told of, it counts."""

    def stop(self) -> None:
        """It goes on: without it, nobody would count."""


class Witness:
    """Takes evidence on one watched place: what grew since its iteration `START_AT`, and what its last one held.

    ``kinds`` says which storages are of a kind now; it is asked at every tick, and by `look`, in between. Evidence of
    ``enough`` iterations stays as it is, and needs no recorder any more.
    """

    def __init__(
        self, recorder: Recorder, kinds: Callable[[], dict[int, str]] | None = None, enough: float = inf
    ) -> None:
        self._recorder = recorder
        self._enough = enough
        self.content = False
        self._kinds = kinds or dict
        self._views: list[View] = []
        self._earlier: list[View] = []
        self._start: Counter[Lines] | None = None
        self._started = 0
        self._last = self._before_last = recorder.position()
        self._testified = 0
        self.evidence: dict[str, Any] | None = None

    def tick(self, count: int) -> None:
        """The iteration ``count`` has ended."""
        if self.content:
            return
        if 0 < count <= START_AT:
            self._recorder.fit(self._last)
        if count in (0, START_AT):
            self._begin(count)
        self.look()
        self._earlier, self._views = self._views, self._views[-1:]
        self._before_last, self._last = self._last, self._recorder.position()

    def look(self) -> None:
        """See which storages are of a kind now."""
        self._views.append((self._recorder.position(), self._kinds()))

    def _begin(self, count: int) -> None:
        self._start, self._started = self._recorder.held(), count

    def due(self, count: int) -> bool:
        """Whether ``count`` iterations are enough to take the evidence, for good."""
        return not self.content and self._start is not None and count - self._started >= self._enough

    def resume(self, count: int) -> None:
        """The loop starts again after ``count`` iterations: what came in between does not belong to the next."""
        if self.content:
            return
        self._last = self._recorder.position()
        if count > START_AT:
            self._start = None
        if count >= 2 * self._testified:  # it is worth the look
            self._begin(count)

    def testify(self, count: int) -> None:
        """Take the evidence after ``count`` iterations, unless it was taken when there were hardly fewer."""
        if self.content or self._start is None or count <= self._started or count < 2 * self._testified:
            return
        self.content = self.due(count)
        self._testified = count
        held, events = self._recorder.since(self._before_last)
        growth = Counter(held)
        growth.subtract(self._start)
        span = count - self._started
        tables = {
            "growth": Counter({lines: size / span for lines, size in growth.items() if size}),
            "peak": at_peak(held, events),
            "churn": Counter(),
        }
        for event in events:
            if event.size > 0:
                tables["churn"][event.lines] += event.size
        self.evidence = {name: rows(table) for name, table in tables.items()}
        if any(kinds for _, kinds in self._earlier):
            self.evidence["alive"] = kinds_at_peak(self._recorder.alive(), events, self._earlier)


def at_peak(held: Counter[Lines], events: Events) -> Counter[Lines]:
    """What was alive when most was, over ``events``, after which ``held`` is alive."""
    found = Counter(held)
    for event in events[_peak(sum(held.values()), events) :]:
        found[event.lines] -= event.size
    return Counter({lines: size for lines, size in found.items() if size > 0})


def kinds_at_peak(alive: Mapping[int, int], events: Events, views: Sequence[View]) -> dict[str, int]:
    """Bytes by kind when most was alive, over the events of one iteration, at whose end ``alive`` is, by storage.

    ``views`` are the kinds of storages, seen at its beginning, at its end and at moments between. What the iteration
    makes that is of none is an activation, temporaries among them; what is older and of none is other: inputs, buffers,
    what earlier iterations left.
    """
    at = _peak(sum(alive.values()), events)
    there = dict(alive)
    until: dict[int, float] = {}  # where what was there at the peak ended, so that its place was free for others
    for event in reversed(events[at:]):
        if event.size > 0:
            there.pop(event.key, None)
        else:
            there[event.key] = there.get(event.key, 0) - event.size
            until[event.key] = event.position
    since = {event.key: event.position for event in events[:at] if event.size > 0}
    found = dict.fromkeys(KINDS, 0)
    for key, size in there.items():
        lived = since.get(key, -inf), until.get(key, inf)
        seen = (kinds[key] for position, kinds in views if lived[0] < position <= lived[1] and key in kinds)
        found[next(seen, ACTIVATIONS if key in since else OTHER)] += size
    return found


def _peak(live: int, events: Events) -> int:
    """Before which event most bytes were alive, undone from the last one on, after which ``live`` are."""
    best, at = live, len(events)
    for number in range(len(events) - 1, -1, -1):
        live -= events[number].size
        if live > best:
            best, at = live, number
    return at


def rows(table: Counter[Lines]) -> list[dict[str, Any]]:
    """The stacks with the most bytes, as plain data."""
    return [{"frames": [list(frame) for frame in lines], "bytes": size} for lines, size in table.most_common(ROWS)]


def users_lines(frames: Iterable[dict[str, Any]]) -> Lines:
    """Files and lines of an allocator's own stack that may be the user's."""
    return tuple((f["filename"], f["line"]) for f in frames if is_users(f["filename"]))[:DEPTH]
