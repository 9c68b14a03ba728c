"""A pretended GPU: tensors without data on the CPU, some of which say that they lie on ``cuda:0``.

Fake tensors on a real "cuda" device need a device guard that only a CUDA build has, and random initialisers its
generator. So every tensor is a fake CPU tensor, the ledger knows which ones would be on the GPU, and the Python API is
answered to match.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from memlint.trial.autocast import on_gpu
from memlint.trial.cudnn import recurrent, scratch_of
from memlint.trial.distributed import without_data
from memlint.trial.ledger import DEVICE, HOST, Ledger

_GPU, _CPU = torch.device("cuda", 0), torch.device("cpu")
_aten = torch.ops.aten
_get_is_cuda = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_fake_device: Any = FakeTensor.device.fget  # type: ignore[attr-defined]
_RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}
_TO = {torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu}
_VALUES = {torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__, torch.Tensor.__format__}
_BOOLEAN = "a branch depends on a tensor's value, which fake tensors do not have"


class FakeLedger(Ledger):  # type: ignore[no-untyped-call]
    """The ledger of a pretended GPU, which also answers for the values that fake tensors lack: ones.

    Attributes:
        doubt: why the run may have gone another way than with values, or "".
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(everywhere=False, limit=limit)
        self.doubt = ""
        self._depth = 0

    def device(self, tensor: FakeTensor) -> torch.device:
        """The device that user code is told: the ledger's, but for the code that carries out an operator."""
        if self._depth == 0 and self.side(tensor) == DEVICE:
            return _GPU
        device: torch.device = _fake_device(tensor)
        return device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _aten._local_scalar_dense.default:
            if args[0].dtype is torch.bool:
                if torch.is_anomaly_check_nan_enabled() and torch._C._current_graph_task_id() != -1:
                    return False  # anomaly mode asks whether a gradient has NaNs
                self.doubt = _BOOLEAN
            return _one(args[0].dtype)
        if func is _aten._pin_memory.default:
            return args[0]
        self._depth += 1
        try:
            result = super().__torch_dispatch__(func, types, args, kwargs)
            if (size := scratch_of(func, args, result)) and self.side(args[0]) == DEVICE:
                self.scratch(size)
            return result
        finally:
            self._depth -= 1


class PretendGpu(TorchFunctionMode):
    """Answers the device questions of the Python API from the ledger and carries out its transfers."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self._converting = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == _get_is_cuda:
            return self._ledger.side(args[0]) == DEVICE
        if func in _TO:
            return self._transfer(func, args, kwargs)
        if func in _RECURRENT and self._ledger.side(args[0]) == DEVICE:
            result = recurrent(func.__name__, args, self._ledger.scratch)
            return func(*args, **kwargs) if result is NotImplemented else result
        if (result := on_gpu(func, args, kwargs)) is not NotImplemented:
            return result
        if func is torch.Tensor.type and (wanted := _typed(*args[1:], **kwargs)):
            return self._transfer(torch.Tensor.to, (args[0], *wanted), {})
        if func in _VALUES and isinstance(args[0], FakeTensor):
            return _values(func, *args, **kwargs)
        if func is torch.Tensor.pin_memory:
            return args[0]
        kwargs.pop("pin_memory", None)
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        side = _side(kwargs.pop("device"))
        result = func(*args, **kwargs, device=_CPU)
        if isinstance(result, torch.Tensor):
            self._ledger.move(result, side)
        return result

    def _transfer(self, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
        tensor: torch.Tensor = args[0]
        here = self._ledger.side(tensor)
        there, dtype = here, kwargs.get("dtype")
        if func is torch.Tensor.cuda:
            there = DEVICE
        elif func is torch.Tensor.cpu:
            there = HOST
        else:
            for argument in (*args[1:2], kwargs.get("device"), kwargs.get("other")):
                if isinstance(argument, torch.Tensor):
                    there, dtype = self._ledger.side(argument), argument.dtype
                elif isinstance(argument, (str, int, torch.device)) and not isinstance(argument, bool):
                    there = _side(argument)
            dtype = next((a for a in args[1:] if isinstance(a, torch.dtype)), dtype)
        if there != here and self._converting and dtype in (None, tensor.dtype):
            self._ledger.move(tensor, there)
            return tensor
        copy = there != here or bool(kwargs.get("copy"))
        if not copy and dtype is None:
            return tensor
        self._ledger.towards = there
        try:
            return tensor.to(dtype=dtype or tensor.dtype, copy=copy)
        finally:
            self._ledger.towards = None

    def _apply(self, module: torch.nn.Module, function: Any, recurse: bool = True) -> torch.nn.Module:
        """`torch.nn.Module._apply` for fake tensors, which cannot be swapped while anything refers to them weakly."""
        self._converting = True
        try:
            for part in module.modules() if recurse else [module]:
                for store in (part._parameters, part._buffers):
                    for name, old in store.items():
                        if old is None:
                            continue
                        with torch.no_grad():
                            new = function(old)
                        if new is not old:
                            is_parameter = isinstance(old, torch.nn.Parameter)
                            store[name] = torch.nn.Parameter(new, old.requires_grad) if is_parameter else new
                        elif old.grad is not None:
                            old.grad = function(old.grad)
        finally:
            self._converting = False
        return module


class OldTensor:
    """``torch.cuda.FloatTensor`` and its like of old, which an installation without CUDA cannot call."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, *args: Any) -> torch.Tensor:
        """A tensor of so many numbers, or of those given."""
        if all(isinstance(a, int) for a in args) or (len(args) == 1 and isinstance(args[0], torch.Size)):
            return torch.empty(*args, dtype=self.dtype, device=_GPU)
        return torch.as_tensor(args[0]).to(_GPU, self.dtype)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is self.dtype


_OLD = {
    f"{name}Tensor": OldTensor(dtype)
    for name, dtype in (
        ("Float", torch.float32),
        ("Double", torch.float64),
        ("Half", torch.float16),
        ("Long", torch.int64),
        ("Int", torch.int32),
        ("Short", torch.int16),
        ("Char", torch.int8),
        ("Byte", torch.uint8),
        ("Bool", torch.bool),
    )
}


def _typed(wanted: Any = None, non_blocking: bool = False) -> tuple[torch.device, torch.dtype] | None:
    """Device and dtype that ``tensor.type(wanted)`` asks for, where it is one of the types of old."""
    if isinstance(wanted, OldTensor):
        return _GPU, wanted.dtype
    module, _, name = str(getattr(wanted, "__module__", "") + "." + getattr(wanted, "__name__", "")).rpartition(".")
    if isinstance(wanted, str):
        module, _, name = wanted.rpartition(".")
    if name not in _OLD or module not in ("torch", "torch.cuda"):
        return None
    return (_GPU if module == "torch.cuda" else _CPU), _OLD[name].dtype


def _side(device: Any) -> str:
    return HOST if not isinstance(device, int) and torch.device(device).type == "cpu" else DEVICE


def _one(dtype: torch.dtype) -> Any:
    return True if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1j if dtype.is_complex else 1


def _values(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """What ``func`` would give if every element of ``tensor`` were one."""
    if func is torch.Tensor.__format__:
        return format(_one(tensor.dtype), *args) if tensor.dim() == 0 else repr(tensor)
    import numpy

    if tensor.requires_grad and func is not torch.Tensor.tolist:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    dtype = str(tensor.dtype).removeprefix("torch.")
    ones = numpy.ones(tuple(tensor.shape), "float32" if dtype == "bfloat16" else dtype)
    return ones.tolist() if func is torch.Tensor.tolist else ones


@dataclass(frozen=True)
class _Saved:
    """A tensor as it lies in a file."""

    shape: torch.Size
    dtype: torch.dtype
    side: str


class Files:
    """`torch.save` and `torch.load` where tensors have no data: what was saved is known by its file for the run."""

    def __init__(self, ledger: FakeLedger) -> None:
        self._ledger = ledger
        self._contents: dict[Any, Any] = {}
        self._save, self._load = torch.save, torch.load

    def save(self, content: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        """Keep what tensors of which side a file would hold. Whole modules are kept as they are."""

        def saved(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return _Saved(leaf.shape, leaf.dtype, self._ledger.side(leaf))

        self._contents[_file(file)] = tree_map(saved, content)

    def load(self, file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        """New tensors like those that were saved, on the side that they were saved from unless told another."""
        if _file(file) not in self._contents:
            return self._load(file, map_location, *args, **kwargs)
        told = None if map_location is None or isinstance(map_location, dict) else HOST
        if isinstance(map_location, (str, torch.device)):
            told = _side(map_location)

        def loaded(leaf: Any) -> Any:
            if isinstance(leaf, torch.nn.Module):
                return copy.deepcopy(leaf)
            if not isinstance(leaf, _Saved):
                return leaf
            device = _CPU if (told or leaf.side) == HOST else _GPU
            return torch.empty(leaf.shape, dtype=leaf.dtype, device=device)

        return tree_map(loaded, self._contents[_file(file)])


def _file(file: Any) -> Any:
    return os.fspath(file) if isinstance(file, (str, os.PathLike)) else file


@contextlib.contextmanager
def pretended_gpu(ledger: FakeLedger) -> Iterator[None]:
    """Run the block on fake tensors under ``ledger``, with ``torch.cuda`` answering as if there were one GPU."""
    import torch.utils.data

    optimizers = importlib.import_module("torch.optim.optimizer")
    gpu = PretendGpu(ledger)
    nothing = {name: lambda *a, **k: None for name in _SILENT}
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_bf16_supported": lambda *a, **k: True,
        "is_current_stream_capturing": lambda: False,
        "get_device_name": lambda *a: "fake",
        "get_device_capability": lambda *a: (9, 0),
        "memory_allocated": lambda *a: ledger.live,
        "memory_reserved": lambda *a: ledger.live,
        "max_memory_allocated": lambda *a: ledger.peak,
        "max_memory_reserved": lambda *a: ledger.peak,
    }
    replaced: dict[str, Any] = {**nothing, **answers, **_OLD}
    loader_init = torch.utils.data.DataLoader.__init__
    autocast_init = torch.autocast.__init__

    def in_process(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "timeout"):
            kwargs.pop(name, None)
        loader_init(self, *args, **kwargs)

    def on_cpu(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        autocast_init(self, "cpu", *args, **kwargs)

    scaler: Any = torch.cuda.amp.GradScaler.__mro__[1]
    types = optimizers._foreach_supported_types
    with contextlib.ExitStack() as stack:
        files = Files(ledger)
        stack.enter_context(mock.patch.multiple(torch.cuda, **replaced))
        stack.enter_context(mock.patch.multiple(torch, save=files.save, load=files.load))
        if hasattr(torch, "accelerator"):
            stack.enter_context(mock.patch.multiple(torch.accelerator, **_ACCELERATOR))
        stack.enter_context(
            mock.patch.object(torch.nn.Module, "_apply", lambda s, f, recurse=True: gpu._apply(s, f, recurse))
        )
        stack.enter_context(mock.patch.object(torch.utils.data.DataLoader, "__init__", in_process))
        stack.enter_context(mock.patch.object(torch.autocast, "__init__", on_cpu))
        stack.enter_context(mock.patch.object(scaler, "__init__", _disabled_scaler(scaler.__init__)))
        stack.enter_context(mock.patch.object(FakeTensor, "device", property(ledger.device)))
        stack.enter_context(mock.patch.object(optimizers, "_foreach_supported_types", [*types, FakeTensor]))
        stack.enter_context(without_data())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(ledger)
        stack.enter_context(gpu)
        yield


class _Stream:
    def is_capturing(self) -> bool:
        return False


def _disabled_scaler(init: Any) -> Any:
    """A gradient scaler reads whether its gradients are finite; without values it had better not scale."""

    def disabled(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "enabled": False})

    return disabled


_ACCELERATOR: dict[str, Any] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_accelerator": lambda *a, **k: torch.device("cuda"),
    "current_device_index": lambda: 0,
    "set_device_index": lambda *a: None,
    "synchronize": lambda *a: None,
    "current_stream": lambda *a: _Stream(),
}
_SILENT = (
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "manual_seed",
    "manual_seed_all",
    "set_device",
    "init",
)
