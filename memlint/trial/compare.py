"""Whether both arms of a trial computed the same: returned values, parameters, buffers and gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

IDENTICAL, CLOSE, DIFFERENT, NOT_COMPARED = "identical", "close", "different", "not compared"
DEPTH = 4  # how far containers and objects are looked into

Snapshot = dict[str, Any]


def snapshot(returned: Any, arguments: dict[str, Any]) -> Snapshot:
    """Copies, on the host, of what can be compared: numbers and tensors by the path that leads to them.

    A gradient that is None counts as zeros, since that is what an optimizer takes it for. Texts count only in what is
    returned: those among the arguments are names of files, and a set-up gives each arm one of its own.
    """
    found: Snapshot = {}
    _collect("returned", returned, found, DEPTH)
    given: Snapshot = {}
    for name, value in arguments.items():
        _collect(name, value, given, DEPTH)
    return found | {path: value for path, value in given.items() if not isinstance(value, str)}


def compare(before: Snapshot, after: Snapshot) -> tuple[str, str]:
    """How the snapshots agree (bit for bit, within rounding, or not), and the first path where they do not."""
    if not before and not after:
        return NOT_COMPARED, ""
    worst, where = IDENTICAL, ""
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            return DIFFERENT, name
        result = _same(before[name], after[name])
        if result == DIFFERENT:
            return DIFFERENT, name
        if result == CLOSE:
            worst, where = CLOSE, where or name
    return worst, where


def _collect(path: str, value: Any, found: Snapshot, depth: int) -> None:
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            found[path] = value.detach().cpu().clone()
    elif isinstance(value, (bool, int, float, complex, str)):
        found[path] = value
    elif isinstance(value, torch.nn.Module):
        for name, parameter in value.named_parameters():
            found[f"{path}.{name}"] = parameter.detach().cpu().clone()
            gradient = parameter.grad
            found[f"{path}.{name}.grad"] = (
                torch.zeros_like(found[f"{path}.{name}"]) if gradient is None else gradient.detach().cpu().clone()
            )
        for name, buffer in value.named_buffers():
            found[f"{path}.{name}"] = buffer.detach().cpu().clone()
        if depth:
            _collect_attributes(path, {k: v for k, v in vars(value).items() if not k.startswith("_")}, found, depth)
    elif depth <= 0 or value is None:
        return
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(f"{path}[{key!r}]" if isinstance(key, (str, int)) else f"{path}[…]", item, found, depth - 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _collect(f"{path}[{index}]", item, found, depth - 1)
    elif type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        _collect(path, torch.as_tensor(value) if value.dtype.kind in "biufc" else None, found, 0)
    elif type(value).__module__.partition(".")[0] not in ("builtins", "torch"):
        _collect_attributes(path, getattr(value, "__dict__", {}), found, depth)


def _collect_attributes(path: str, attributes: dict[str, Any], found: Snapshot, depth: int) -> None:
    for name, item in attributes.items():
        if isinstance(item, (torch.Tensor, torch.nn.Module, list, tuple, dict, float, int)):
            _collect(f"{path}.{name}", item, found, depth - 1)


def _same(before: Any, after: Any) -> str:
    if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor):
        before, after = torch.as_tensor(before), torch.as_tensor(after)
        if before.shape != after.shape:
            return DIFFERENT
        if before.dtype == after.dtype and torch.equal(torch.nan_to_num(before), torch.nan_to_num(after)):
            return IDENTICAL
        exact = not (before.is_floating_point() or before.is_complex())
        near = not exact and torch.allclose(before.double(), after.double(), rtol=1e-4, atol=1e-6, equal_nan=True)
        return CLOSE if near else DIFFERENT
    if before == after or (before != before and after != after):
        return IDENTICAL
    if (
        isinstance(before, float)
        and isinstance(after, float)
        and math.isclose(before, after, rel_tol=1e-4, abs_tol=1e-6)
    ):
        return CLOSE
    return DIFFERENT
