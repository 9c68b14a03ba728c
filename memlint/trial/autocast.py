"""What autocast does on a GPU and not on a CPU, as far as memory goes.

A softmax of half-precision input is worked out in float32. CUDA's kernel reads the halves as they are, and its backward
writes halves; the CPU's turns the input to float32 first, which is one more copy of what is often the largest tensor.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

_SOFTMAX = {torch.softmax, torch.log_softmax, F.softmax, F.log_softmax, torch.Tensor.softmax, torch.Tensor.log_softmax}
_HALVES = (torch.float16, torch.bfloat16)


class _Softmax(torch.autograd.Function):
    """The memory of a softmax from halves to float32, and no numbers."""

    @staticmethod
    def forward(ctx: Any, halves: torch.Tensor) -> torch.Tensor:
        output = halves.new_empty(halves.shape, dtype=torch.float32)
        ctx.dtype = halves.dtype
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.new_empty(gradient.shape, dtype=ctx.dtype)


def on_gpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a softmax or cross entropy of halves under autocast gives, NotImplemented for anything else."""
    if (func not in _SOFTMAX and func is not F.cross_entropy) or not torch.is_autocast_enabled("cpu"):
        return NotImplemented
    halves = args[0] if args else kwargs.get("input")
    if not isinstance(halves, torch.Tensor) or halves.dtype not in _HALVES or kwargs.get("dtype") is not None:
        return NotImplemented
    if func in _SOFTMAX:
        return _Softmax.apply(halves)  # type: ignore[no-untyped-call]
    target = args[1] if len(args) > 1 else kwargs["target"]
    if target.is_floating_point() or kwargs.get("label_smoothing") or len(args) > 2:
        return NotImplemented
    names = ("weight", "ignore_index", "reduction")
    chances = _Softmax.apply(halves)  # type: ignore[no-untyped-call]
    return F.nll_loss(chances, target, **{name: kwargs[name] for name in names if name in kwargs})
