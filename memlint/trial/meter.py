"""What is read at each tick of a trial: device bytes, host bytes, allocations, time."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from typing import Any, Protocol

import torch

from memlint.trial.ledger import Ledger

Reading = dict[str, float]


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
    def host(self) -> int:
        """What of the live bytes stands in this process's own heap."""

    def reset_peak(self) -> None:
        """Start looking for a new peak, from what is alive now."""


class CudaAllocator:
    """The statistics of CUDA's caching allocator, in bytes that blocks handed out take up."""

    host = 0

    def __init__(self, device: torch.device, limit: int | None = None) -> None:
        self._device = device
        torch.cuda.init()  # type: ignore[no-untyped-call]
        if limit is not None:
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)

    def _stat(self, name: str) -> int:
        return int(torch.cuda.memory_stats(self._device).get(f"allocated_bytes.all.{name}", 0))

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


class LedgerAllocator:
    """A ledger's counts, for a run whose tensors are real and lie in the host's heap (``real``), or are not there."""

    def __init__(self, ledger: Ledger, real: bool) -> None:
        self._ledger = ledger
        self._real = real

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
    def host(self) -> int:
        """Bytes of tensors in this process's heap, which are no host growth of their own."""
        return self._ledger.live if self._real else 0


class Meter:
    """Takes a reading at each tick. ``start`` is the device bytes that were alive before the trial's set-up."""

    def __init__(self, allocator: Allocator, device: torch.device | None) -> None:
        self.allocator = allocator
        self.readings: list[Reading] = []
        self._device = device if device is not None and device.type == "cuda" else None
        self.start = allocator.live
        self._since = time.perf_counter()

    def begin(self) -> None:
        """The set-up is done: peaks and times count from here, and the first reading is taken."""
        gc.collect()
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
                "churn": counts.churn,
                "host": heap() - counts.host,
                "seconds": now - self._since,
            }
        )
        counts.reset_peak()
        self._since = time.perf_counter()


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
