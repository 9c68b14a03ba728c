"""Every row of the library is held against the real library, where that is installed."""

from __future__ import annotations

import collections
import importlib
import importlib.util
import inspect
import itertools
import queue
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memlint.library import FOLDER, KINDS, WORDS, Library, LibraryError, Row, shipped

LIBRARY = shipped()
TORCH = importlib.util.find_spec("torch") is not None
ENTRIES = sorted({name: row for name, row in LIBRARY.rows()}.items())

EMPTY: dict[str, Callable[[], Any]] = {
    "list": list,
    "deque": collections.deque,
    "dict": dict,
    "defaultdict": lambda: collections.defaultdict(list),
    "counter": collections.Counter,
    "set": set,
    "queue": queue.Queue,
}


def resolve(name: str) -> Any:
    """The object that a qualified name stands for, importing as far as needed."""
    parts = name.split(".")
    if len(parts) == 1:
        return getattr(importlib.import_module("builtins"), name)
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not (module + ".").startswith(error.name + "."):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name, name=parts[0])


def _writer() -> Any:
    try:
        return resolve("torch.utils.tensorboard.SummaryWriter")
    except ModuleNotFoundError:
        return None


def receiver_type(kind: str) -> Any:
    import logging

    import torch

    return {
        "tensor": torch.Tensor,
        "parameter": torch.nn.Parameter,
        "module": torch.nn.Module,
        "optimizer": torch.optim.SGD,
        "scheduler": torch.optim.lr_scheduler.StepLR,
        "scaler": torch.amp.GradScaler,
        "loader": torch.utils.data.DataLoader,
        "distribution": torch.distributions.Normal,
        "list": list,
        "tuple": tuple,
        "dict": dict,
        "defaultdict": collections.defaultdict,
        "counter": collections.Counter,
        "set": set,
        "deque": collections.deque,
        "queue": queue.Queue,
        "string": str,
        "logger": logging.Logger,
        "writer": _writer(),
        "handle": torch.utils.hooks.RemovableHandle,
        "ndarray": importlib.import_module("numpy").ndarray,
    }.get(kind)


def carries(value: Any) -> bool:
    """Whether any tensor in ``value`` hangs on a graph or wants a gradient."""
    if isinstance(value, dict):
        return any(map(carries, value.values()))
    if isinstance(value, (tuple, list)):
        return any(map(carries, value))
    return bool(getattr(value, "requires_grad", False))


def shares(a: Any, b: Any) -> bool:
    """Whether two tensors have one storage."""
    return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())


def scope(kind: str = "") -> dict[str, Any]:
    """Fresh names for an example or a check; nothing that one row does reaches the next."""
    import numpy
    import torch

    torch.manual_seed(0)
    w = torch.rand(2, 3).add_(0.1).mul_(0.8).requires_grad_()
    s = torch.rand(3, 3)
    s = (s @ s.T + 3 * torch.eye(3)).requires_grad_()
    m = torch.nn.Linear(3, 3)
    backed = torch.ones(2, requires_grad=True)
    backed.sum().backward()
    optimizer = torch.optim.SGD([backed], 0.1)

    def without_grad(context: Any) -> bool:
        with context:
            return not torch.is_grad_enabled()

    return {
        "torch": torch,
        "np": numpy,
        "numpy": numpy,
        "carries": carries,
        "shares": shares,
        "without_grad": without_grad,
        "empty": EMPTY.get(kind, list),
        "w": w,
        "s": s,
        "v": torch.rand(3).add_(0.1).requires_grad_(),
        "b": torch.rand(3, 3, 3, requires_grad=True),
        "c": w * 1,
        "c3": s * 1,
        "x": torch.rand(2, 3),
        "i": torch.tensor([0, 1]),
        "ii": torch.tensor([[0, 1], [1, 0]]),
        "ii3": torch.tensor([[0, 1, 0], [1, 0, -1]]),
        "img": torch.rand(1, 1, 4, 4, requires_grad=True),
        "a": numpy.ones((2, 3), dtype="float32"),
        "m": m,
        "backed": backed,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
        "scaler": torch.amp.GradScaler("cpu", enabled=False),
        "normal": torch.distributions.Normal(w.sum(), w.sum().abs() + 1),
    }


def is_kind(value: Any, kind: str) -> bool:
    """Whether a result is of the kind that a row names."""
    import numpy
    import torch

    types_of: dict[str, Any] = {
        "tensor": torch.Tensor,
        "parameter": torch.nn.Parameter,
        "indices": torch.Tensor,
        "number": (int, float, complex),
        "string": str,
        "bool": bool,
        "none": type(None),
        "module": torch.nn.Module,
        "optimizer": torch.optim.Optimizer,
        "list": list,
        "tuple": (tuple, list),
        "dict": dict,
        "ndarray": (numpy.ndarray, numpy.generic),
        "device": torch.device,
        "dtype": (torch.dtype, numpy.dtype),
        "shape": tuple,
        "iterator": collections.abc.Iterable,
        "distribution": torch.distributions.Distribution,
        "loader": torch.utils.data.DataLoader,
        "unknown": object,
        "graph_node": object,
        "element": object,
    }
    if kind == "indices" and value.dtype.is_floating_point:
        return False
    return isinstance(value, types_of[kind])


def hold(row: Row, result: Any, first: Any) -> None:
    """Assert all that a row says of one call's result; ``first`` is the receiver or first argument."""
    import torch

    if row.returns == "same":
        assert result is first or isinstance(result, type(first))
    elif row.returns != "same":
        assert is_kind(result, row.returns), f"returns a {type(result).__name__}"
    if row.items and not row.items_with and not row.kind:
        assert len(result) == len(row.items)
        assert all(map(is_kind, result, row.items))
    if row.of not in ("unknown", "element", "elements"):
        assert all(is_kind(value, row.of) or isinstance(value, list) for value in result)
    values = result if isinstance(result, (tuple, list)) else (result,)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if row.graph == "none" and row.kind != "parameter":
        assert not carries(tensors)
    if row.graph == "arguments" and not row.kind:
        assert any(map(carries, tensors))
    if row.view and row.returns not in ("ndarray", "same"):
        sources = first if isinstance(first, (tuple, list)) else (first,)
        assert any(shares(value, source) for value in tensors for source in sources)
    elif not row.view and row.returns == "tensor" and row.graph == "arguments" and isinstance(first, torch.Tensor):
        assert not any(shares(value, first) for value in tensors)
    if "copies" in row and isinstance(first, torch.Tensor):
        assert not any(shares(value, first) for value in tensors)
    if row.device == "host" and tensors:
        assert all(value.device.type == "cpu" for value in tensors)
    if row.kind == "module":
        trainable = any(p.requires_grad for p in result.parameters())
        assert trainable == row.parameters
    if row.kind == "optimizer":
        assert isinstance(result, torch.optim.Optimizer)


def run_example(row: Row, called: Any, kind: str) -> None:
    """Call with the first example that the callable takes; the row must hold of the result."""
    refused = []
    for example in row.example:
        names = scope(kind)
        arguments = eval(f"_({example})", {**names, "_": lambda *a, **k: (a, k)})
        first = arguments[0][0] if arguments[0] else None
        try:
            result = called(*arguments[0], **arguments[1])
        except (TypeError, RuntimeError, ValueError, IndexError, NotImplementedError, AssertionError) as error:
            refused.append(f"({example}): {type(error).__name__} {str(error)[:200]}")
            continue
        hold(row, result, first)
        return
    pytest.fail("no example is taken: " + "; ".join(refused))


def checked(name: str, row: Row) -> None:
    """Hold one entry of the library against the thing itself."""
    kind, _, method = name.rpartition(":")
    if kind and kind != "any":
        owner = receiver_type(kind)
        if owner is None:
            pytest.skip(f"no {kind} is at hand")
        called = inspect.getattr_static(owner, method, None)
        if called is None and row.attribute:
            called = None
        elif called is None:
            called = getattr(owner, method)
        if row.attribute:
            called = lambda receiver: getattr(receiver, method)  # noqa: E731
        else:
            called = getattr(owner, method)
    elif kind == "any":
        called = None
    else:
        try:
            called = resolve(name)
        except ModuleNotFoundError as error:
            pytest.skip(f"{error.name} is not installed")
    if row.example:
        run_example(row, called, kind)
    if row.check:
        assert eval(row.check, {**scope(kind), "f": called}), row.check
    if row.arguments and callable(called) and not isinstance(called, type):
        try:
            signature = list(inspect.signature(called).parameters.values())
        except (ValueError, TypeError):
            return
        names = [p.name for p in signature if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if kind or (names and names[0] == "self"):
            names = names[1:]
        if names and not any(p.kind == p.VAR_POSITIONAL for p in signature):
            assert names[: len(row.arguments)] == list(row.arguments)


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "row"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_row_is_true(name: str, row: Row) -> None:
    if ":" not in name and "." in name:
        root = name.split(".")[0]
        if importlib.util.find_spec(root) is None:
            pytest.skip(f"{root} is not installed")
        if "*" in name:
            pytest.skip("a pattern")
    checked(name, row)
