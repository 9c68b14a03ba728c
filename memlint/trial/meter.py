"""What is read at each tick of a trial: device bytes, host bytes, allocations, time."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from memlint.trial.kinds import Kinds
from memlint.trial.ledger import BLOCK, Ledger
from memlint.trial.stacks import Event, Events, Lines, Recorder, Witness, users_lines

Reading = dict[str, float]
ENTRIES = 50_000  # of its history that the CUDA allocator keeps, until one knows how many an iteration makes


class Allocator(Protocol):
    """A count of device bytes."""

    @property
    def live(self) -> int:
        """Bytes now alive."""

    @property
    def peak(self) -> int:
        """Most bytes alive since `reset_peak`."""

    @property
    def churn(self) -> int:
        """Bytes allocated in all."""

    @property
    def area(self) -> int:
        """The sum of `live` after each allocation and each release, 0 where nobody counts it."""

    @property
    def host(self) -> int:
        """What of the live bytes stands in this process's own heap."""

    @property
    def recorder(self) -> Recorder | None:
        """Who allocated what, None where nobody notes it."""

    def reset_peak(self) -> None:
        """Start looking for a new peak, from what is alive now."""


class CudaAllocator:
    """The statistics of CUDA's caching allocator, in bytes that blocks handed out take up."""

    host = area = 0
    recorder: Recorder | None

    def __init__(self, device: torch.device, limit: int | None = None) -> None:
        self._device = device
        torch.cuda.init()  # type: ignore[no-untyped-call]
        if limit is not None:
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)
        self.recorder = CudaHistory.started(device)

    def _stat(self, name: str) -> int:
        nested = torch.cuda.memory_stats_as_nested_dict(self._device)  # the flat one takes ten times as long
        return int(nested["allocated_bytes"]["all"][name]) if nested else 0

    @property
    def live(self) -> int:
        """Bytes now handed out."""
        return self._stat("current")

    @property
    def peak(self) -> int:
        """Most bytes handed out since `reset_peak`."""
        return self._stat("peak")

    @property
    def churn(self) -> int:
        """Bytes handed out in all."""
        return self._stat("allocated")

    def reset_peak(self) -> None:
        """Start looking for a new peak, from what is alive now."""
        torch.cuda.reset_peak_memory_stats(self._device)


class CudaHistory:
    """The history that CUDA's caching allocator keeps of itself, with Python stacks: it costs the program little.

    It lies in host memory and grows until it is full, which would be taken for growth of the program's; so it is made
    to be full after a few iterations (`fit`).
    """

    def __init__(self, device: torch.device) -> None:
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self._room = 0
        self._running = False
        self._record(ENTRIES)

    @classmethod
    def started(cls, device: torch.device) -> CudaHistory | None:
        """The history from now on; None where this torch keeps none."""
        try:
            return cls(device)
        except (RuntimeError, TypeError, ValueError, AttributeError):  # an older torch, another allocator
            return None

    def _record(self, entries: int) -> None:
        self.stop()  # which empties the ring: one that is made smaller as it is would be written beyond its end
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=entries)
        self._running = True

    def start(self) -> None:
        """Keep a history again."""
        if not self._running:
            self._record(self._room or ENTRIES)

    def stop(self) -> None:
        """Keep no history: taking stacks costs as much as launching a kernel does."""
        torch.cuda.memory._record_memory_history(None)  # type: ignore[no-untyped-call,unused-ignore]
        self._running = False

    def fit(self, position: float) -> None:
        """Begin anew, with room for twice what has happened since ``position``, unless there was no less before.

        Who allocated what is alive is still known afterwards.
        """
        trace = torch.cuda.memory._snapshot()["device_traces"][self._index]
        wanted = min(ENTRIES, 2 * sum(entry.get("time_us", position) >= position for entry in trace))
        if wanted > self._room:
            self._room = wanted
            self._record(wanted)

    def position(self) -> float:
        """Now, in microseconds, as the history counts time."""
        return time.time_ns() / 1000

    def held(self) -> Counter[Lines]:
        """Bytes alive now, by who allocated them; all that was there before the history by nobody."""
        return self._held(torch.cuda.memory._snapshot())

    def since(self, position: float) -> tuple[Counter[Lines], Events]:
        """Bytes alive now, and what was allocated and freed since ``position``, in order."""
        snapshot = torch.cuda.memory._snapshot()
        owners: dict[int, Lines] = {}
        events: Events = []
        for entry in snapshot["device_traces"][self._index]:
            address, size = entry["addr"], -(-entry["size"] // BLOCK) * BLOCK
            when = entry.get("time_us", position)
            recent = when >= position
            if entry["action"] == "alloc":
                owners[address] = users_lines(entry.get("frames", ()))
                if recent:
                    events.append(Event(owners[address], size, address, when))
            elif entry["action"] == "free_requested" and recent:
                events.append(Event(owners.get(address, ()), -size, address, when))
        return self._held(snapshot), events

    def alive(self) -> dict[int, int]:
        """Bytes alive now, by address."""
        return {block["address"]: block["size"] for block in self._blocks(torch.cuda.memory._snapshot())}

    def key(self, tensor: torch.Tensor) -> int:
        """The address of the block that a tensor's storage is."""
        return tensor.untyped_storage().data_ptr()

    def _held(self, snapshot: Any) -> Counter[Lines]:
        found: Counter[Lines] = Counter()
        for block in self._blocks(snapshot):
            found[users_lines(block.get("frames", ()))] += block["size"]
        return found

    def _blocks(self, snapshot: Any) -> Iterator[dict[str, Any]]:
        """The blocks that are handed out, with their addresses, which older versions of torch leave to be counted."""
        for segment in snapshot["segments"]:
            if segment["device"] == self._index:
                address = segment["address"]
                for block in segment["blocks"]:
                    if block["state"] == "active_allocated":
                        yield {**block, "address": address}
                    address += block["size"]


class LedgerAllocator:
    """A ledger's counts, for a run whose tensors are real and lie in the host's heap (``real``), or are not there."""

    def __init__(self, ledger: Ledger, real: bool) -> None:
        self._ledger = ledger
        self._real = real
        self.recorder = ledger.account

    @property
    def live(self) -> int:
        """Bytes now alive on the device."""
        return self._ledger.live

    @property
    def peak(self) -> int:
        """Most bytes alive on the device since `reset_peak`."""
        return self._ledger.peak

    @property
    def churn(self) -> int:
        """Bytes allocated on the device in all."""
        return self._ledger.churn

    def reset_peak(self) -> None:
        """Start looking for a new peak, from what is alive now."""
        self._ledger.reset_peak()

    @property
    def area(self) -> int:
        """The sum of `live` after each allocation and each release."""
        return self._ledger.area

    @property
    def host(self) -> int:
        """Bytes of tensors in this process's heap, which are no host growth of their own."""
        return self._ledger.live if self._real else 0


class Meter:
    """Takes a reading at each tick. ``start`` is the device bytes that were alive before the trial's set-up.

    A reading holds bytes (live and peak above the start, churn in all, host) and the iteration's seconds; where the
    loop has started again with that iteration, also what was there at that moment (from, host_from).

    With ``kinds``, the evidence says also what the bytes at the peak are for: that takes time at each tick. With
    ``enough``, evidence is of so many iterations, and `content` from then on.

    Attributes:
        evidence: who allocated what grew, what was alive at the peak, and what an iteration allocated; None until
            `testify`.
    """

    def __init__(
        self, allocator: Allocator, device: torch.device | None, kinds: bool = False, enough: float = math.inf
    ) -> None:
        self.allocator = allocator
        self._enough = enough
        self._kinds = kinds
        self._known: Kinds | None = None
        self.evidence: dict[str, Any] | None = None
        self._witness: Witness | None = None
        self._from: Reading = {}
        self._between = 0.0  # bytes allocated while the loop was not running
        self.readings: list[Reading] = []
        self._device = device if device is not None and device.type == "cuda" else None
        self.start = allocator.live
        self._since = time.perf_counter()

    def begin(self) -> None:
        """The set-up is done and its garbage taken away: peaks and times count from here, by a first reading."""
        gc.collect()
        self.open()

    def open(self) -> None:
        """The first reading."""
        if (recorder := self.allocator.recorder) is not None:
            self._known = kinds = Kinds(recorder.key) if self._kinds else None
            self._witness = Witness(recorder, kinds.now if kinds else None, self._enough)
            if kinds:
                kinds.before_each_step(self._look)
        self.allocator.reset_peak()
        self._since = time.perf_counter()
        self.read()

    def read(self) -> None:
        """One reading, and a new start for peak and time."""
        if self._device is not None:
            torch.cuda.synchronize(self._device)
        now, counts = time.perf_counter(), self.allocator
        self.readings.append(
            {
                "live": counts.live - self.start,
                "peak": counts.peak - self.start,
                "churn": counts.churn - self._between,
                "area": counts.area,
                "host": heap() - counts.host,
                "seconds": now - self._since,
                **self._from,
            }
        )
        self._from = {}
        if self._witness is not None:
            self._witness.tick(len(self.readings) - 1)
        counts.reset_peak()
        self._since = time.perf_counter()

    def resume(self) -> None:
        """The loop starts again: the peak, the time and the allocations of what came in between are not its own."""
        counts = self.allocator
        self._from = {"from": counts.live - self.start, "host_from": heap() - counts.host}
        self._between += counts.churn - self._between - self.readings[-1]["churn"]
        if self._witness is not None:
            self._witness.resume(len(self.readings) - 1)
        counts.reset_peak()
        self._since = time.perf_counter()

    @property
    def due(self) -> bool:
        """Whether there are enough iterations to take the evidence, once and for all."""
        return self._witness is not None and self._witness.due(len(self.readings) - 1)

    @property
    def content(self) -> bool:
        """Whether it can do without a recorder from now on."""
        return self._witness is None or self._witness.content

    def close(self) -> None:
        """Note nothing any more: what listens to optimizers would go on into the next arm."""
        if self._known is not None:
            self._known.close()

    def _look(self) -> None:
        """Note what is of which kind now, off the clock."""
        started = time.perf_counter()
        if self._witness is not None:
            self._witness.look()
        self._since += time.perf_counter() - started

    def testify(self) -> None:
        """Take the evidence now, at the end of an iteration, or where the loop has ended in another way."""
        if self._witness is not None:
            self._witness.testify(len(self.readings) - 1)
            self.evidence = self._witness.evidence


_MALLINFO_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO_FIELDS]


def _mallinfo() -> Any:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    function.restype = _Mallinfo
    return function


_MALLINFO = _mallinfo()


def heap() -> int:
    """Bytes that this process holds from malloc (exact, glibc 2.33 and newer), else its resident memory."""
    if _MALLINFO is not None:
        info = _MALLINFO()
        return int(info.uordblks + info.hblkhd)
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
