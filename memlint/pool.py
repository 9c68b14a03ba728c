"""Work shared out over processes that are copies of this one: what it has in memory, each of them has."""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")

_HEAD = struct.Struct("!IQ")  # number of a piece of work, and the length of what follows
_TURN = struct.Struct("!II")  # first of some pieces of work that follow one another, and how many


def processors() -> int:
    """How many processes can run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_fork() -> bool:
    """Whether a process can be copied here: not on Windows, and not for sure on macOS."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def shared_out(work: Callable[[int], Result], count: int, jobs: int) -> Iterator[tuple[int, Result]]:
    """The results of ``work(0)`` to ``work(count - 1)``, each with its number, as they come from ``jobs`` processes.

    What ``work`` changes in memory stays in the process that did it. A result has to be picklable. What a process that
    dies owes is done here. ``work`` must not raise.
    """
    turns = _turns(count, jobs)
    with selectors.DefaultSelector() as selector:
        children = []
        for _ in range(jobs):
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                _serve(work, turns, writer)
            os.close(writer)
            children.append(child)
            selector.register(reader, selectors.EVENT_READ, bytearray())
        os.close(turns)
        owed = set(range(count))
        try:
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        continue
                    key.data.extend(data)
                    for number, result in _complete(key.data):
                        owed.discard(number)
                        yield number, result
        finally:
            for key in list(selector.get_map().values()):
                os.close(key.fd)
            for child in children:
                if owed:
                    _kill(child)
                os.waitpid(child, 0)
    for number in sorted(owed):
        yield number, work(number)


def _turns(count: int, jobs: int) -> int:
    """A file that holds all pieces of work, run by run: whoever reads the next one has it to do.

    Pieces that follow one another have much in common, so that it pays if one process does them. The runs get shorter
    towards the end, where all are to be done at the same time.
    """
    import tempfile

    with tempfile.TemporaryFile() as file:
        first = 0
        while first < count:
            size = max(1, (count - first) // (2 * jobs))
            file.write(_TURN.pack(first, size))
            first += size
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())  # processes that inherit it share its place


def _serve(work: Callable[[int], Any], turns: int, writer: int) -> None:
    """The life of a copy: take turns until there are none. Never returns."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever is in front of the terminal ends all of them
        while turn := os.read(turns, _TURN.size):
            first, size = _TURN.unpack(turn)
            for number in range(first, first + size):
                data = pickle.dumps(work(number), pickle.HIGHEST_PROTOCOL)
                data = _HEAD.pack(number, len(data)) + data
                while data:
                    data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _complete(data: bytearray) -> Iterator[tuple[int, Any]]:
    """The results that have come in whole; they are taken out of ``data``."""
    while len(data) >= _HEAD.size:
        number, length = _HEAD.unpack_from(data)
        end = _HEAD.size + length
        if len(data) < end:
            return
        result = pickle.loads(data[_HEAD.size : end])
        del data[:end]
        yield number, result


def _kill(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        return
