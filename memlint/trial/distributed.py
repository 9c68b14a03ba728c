"""One process that is a whole process group, and what `DistributedDataParallel` holds where tensors have no data."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from memlint.trial.standins import fitted

BACKWARD = "a backward through the replica"
stood: list[str] = []  # `BACKWARD`, where memlint itself has made one
_newest: list[Any] = []  # the replica made last, where it has seen no gradient so far
BUCKET = 25 << 20  # bytes of gradients that are reduced together, by default


@contextlib.contextmanager
def group_of_one() -> Iterator[None]:
    """While the block runs, who joins a process group, or wraps a model for one, is alone in it, without a network."""
    group = importlib.import_module("torch.distributed")
    if not group.is_available():
        yield
        return
    join, wrap = group.init_process_group, DistributedDataParallel.__init__

    def joined(*args: Any, **kwargs: Any) -> None:
        if not group.is_initialized():
            join("gloo", store=group.HashStore(), rank=0, world_size=1)

    def wrapped(self: Any, module: nn.Module, device_ids: Any = None, output_device: Any = None, **kwargs: Any) -> None:
        joined()
        on_gpu = any(parameter.is_cuda for parameter in module.parameters())
        ids = (device_ids, output_device) if on_gpu else (None, None)
        wrap(self, module, *ids, **kwargs)
        _newest[:] = [self]
        self.register_forward_pre_hook(lambda *_: _newest.clear())

    with contextlib.ExitStack() as stack:
        for owner in (group, group.distributed_c10d):
            stack.enter_context(mock.patch.object(owner, "init_process_group", joined))
        stack.enter_context(mock.patch.object(DistributedDataParallel, "__init__", wrapped))
        yield


@contextlib.contextmanager
def without_data() -> Iterator[None]:
    """While the block runs, `DistributedDataParallel` holds what its reducer would, of tensors that have no data, and
    what one process sends to itself is there already."""
    group = importlib.import_module("torch.distributed")
    _newest.clear()
    with contextlib.ExitStack() as stack:
        for name, method in (("__init__", _init), ("forward", _forward), ("no_sync", _no_sync)):
            stack.enter_context(mock.patch.object(DistributedDataParallel, name, method))
        for name in ("all_reduce", "broadcast", "reduce", "barrier") if group.is_available() else ():
            stack.enter_context(mock.patch.object(group, name, lambda *args, **kwargs: None))
        yield
    _newest.clear()


def _init(
    self: Any,
    module: nn.Module,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    broadcast_buffers: bool = True,
    *args: Any,
    bucket_cap_mb: float | None = None,
    gradient_as_bucket_view: bool = False,
    **kwargs: Any,
) -> None:
    """A replica whose gradients are copied into buckets as they come, or are views of these."""
    nn.Module.__init__(self)
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise RuntimeError(
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
        )
    self.module, self.device_ids, self.require_backward_grad_sync = module, device_ids, True
    _newest[:] = [self]
    cap = BUCKET if bucket_cap_mb is None else int(bucket_cap_mb * 2**20)
    for together in _buckets(parameters[::-1], cap):
        flat = torch.empty(sum(p.numel() for p in together), dtype=together[0].dtype, device=together[0].device)
        at = 0
        for parameter in together:
            place = flat[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()
            hooked: Any = parameter.register_post_accumulate_grad_hook
            hooked(_into(place, gradient_as_bucket_view))


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.module(*args, **kwargs)


def _no_sync(self: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _buckets(parameters: list[nn.Parameter], cap: int) -> Iterator[list[nn.Parameter]]:
    """Runs of ``parameters`` of one type, each filled until it has ``cap`` bytes."""
    together: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if together and (size >= cap or parameter.dtype is not together[0].dtype):
            yield together
            together, size = [], 0
        together.append(parameter)
        size += parameter.numel() * parameter.element_size()
    yield together


def trained() -> None:
    """One backward through the newest replica, if it has seen none: it was wrapped to be trained."""
    for replica in _newest[:]:
        weights = [p for p in replica.parameters() if p.requires_grad]
        with torch.enable_grad(), contextlib.suppress(ValueError):  # no batch is known that it takes
            if hasattr(replica, "reducer"):  # which waits for a forward
                device = weights[0].device
                result = replica(fitted(replica.module, device)[1].to(device))
                sums = [t.float().sum() for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
                loss = torch.stack(sums).sum()
            else:
                loss = torch.stack([p.float().sum() for p in weights]).sum()
            torch.autograd.backward(loss)
        stood[:] = [BACKWARD]
    _newest.clear()


def _into(place: torch.Tensor, view: bool) -> Callable[[torch.Tensor], None]:
    def reduced(parameter: torch.Tensor) -> None:
        _newest.clear()
        if parameter.grad is None or parameter.grad is place:
            return
        with torch.no_grad():
            place.copy_(parameter.grad)
        if view:
            parameter.grad = place

    return reduced
