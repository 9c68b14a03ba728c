"""A ledger of live tensor storage, for devices whose allocator keeps no statistics: the CPU and fake tensors."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from memlint.trial.stacks import Account

HOST, DEVICE, BEFORE = "host", "device", "before"
_SCRATCH = 0  # no storage's key
BLOCK = 512  # the CUDA caching allocator hands out multiples of this many bytes
_aten = torch.ops.aten


class OverLimit(MemoryError):
    """The ledger's live bytes have passed the limit set for the trial."""


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Live, peak and cumulative bytes of every storage that an operator makes, takes or views while the mode is on.

    Each storage counts once, rounded up to 512 bytes, from the operator that first shows it until it is freed. It lies
    on the *device* if one of the operator's inputs does (or everything does, with ``everywhere``), else on the *host*.
    With ``late``, what an operator takes that none has made was there before, and is not counted.

    Attributes:
        account: who allocated what on the device.
        live: bytes now alive on the device.
        peak: most bytes alive on the device since `reset_peak`.
        churn: bytes allocated on the device in all.
        host: bytes now alive on the host side.
        area: the sum of `live` after each allocation and each release, a measure of what is held in between.
        towards: where results lie while a transfer goes on, whatever their inputs; None at other times.
    """

    def __init__(self, everywhere: bool = True, limit: int | None = None, late: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.account = Account()
        self.live = self.peak = self.churn = self.host = self.area = 0
        self.towards: str | None = None
        self._everywhere = everywhere
        self._limit = limit
        self._taken = BEFORE if late else DEVICE if everywhere else HOST
        self._storages: dict[int, tuple[int, str]] = {}
        self._stacks: dict[int, int] = {}

    def reset_peak(self) -> None:
        """Start looking for a new peak, from what is alive now."""
        self.peak = self.live

    def side(self, tensor: torch.Tensor) -> str:
        """Where ``tensor`` lies: ``"device"`` or ``"host"``."""
        known = self._storages.get(tensor.untyped_storage()._cdata)
        return known[1] if known else DEVICE if self._everywhere else HOST

    def note(self, tensor: torch.Tensor, side: str) -> None:
        """Enter the storage of ``tensor``, or its new size; a storage stays on the side where it was first seen."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and opaque tensors have none
            return
        key, size = storage._cdata, -(-storage.nbytes() // BLOCK) * BLOCK
        known = self._storages.get(key)
        if known == (size, known[1] if known else ""):
            return
        if known:
            side = known[1]
            self._count(-known[0], side, key)
        else:
            weakref.finalize(storage, self._forget, key).atexit = False
            self._stacks[key] = self.account.stacks.here(sys._getframe(1))
        self._storages[key] = (size, side)
        self._count(size, side, key)

    def move(self, tensor: torch.Tensor, side: str) -> None:
        """Carry the storage of ``tensor`` over to the other side, as ``module.to(device)`` does."""
        self.note(tensor, side)
        key = tensor.untyped_storage()._cdata
        size, old = self._storages[key]
        if old != side:
            self._count(-size, old, key)
            self._storages[key] = (size, side)
            self._count(size, side, key)

    def scratch(self, size: int) -> None:
        """Take ``size`` bytes on the device and give them back: space that an operator needs while it runs."""
        if size > 0:
            size = -(-size // BLOCK) * BLOCK
            self._stacks[_SCRATCH] = self.account.stacks.here(sys._getframe(1))
            self._count(size, DEVICE, _SCRATCH)
            self._count(-size, DEVICE, _SCRATCH)

    def _count(self, size: int, side: str, key: int) -> None:
        if side == BEFORE:
            return
        if side == HOST:
            self.host += size
            return
        self.account.enter(self._stacks.get(key, 0), size, key)
        self.live += size
        self.churn += max(size, 0)
        self.area += self.live
        self.peak = max(self.peak, self.live)
        if size > 0 and self._limit is not None and self.live > self._limit:
            raise OverLimit(f"the device memory limit of {self._limit} bytes is passed")

    def _forget(self, key: int) -> None:
        size, side = self._storages.pop(key, (0, HOST))
        self._count(-size, side, key)
        self._stacks.pop(key, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        side = DEVICE if self._everywhere else HOST
        for tensor in pytree.tree_iter((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor, self._taken)
                if not self._everywhere and self.side(tensor) == DEVICE:
                    side = DEVICE
        result = func(*args, **kwargs)
        for tensor in pytree.tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor, self.towards or side)
        return result
