"""What cuDNN takes beside the tensors that a program sees: scratch space of convolutions, reserves of recurrent layers.

The figures are of an H200 (torch 2.11, CUDA 13.0, cuDNN 9), read from the caching allocator around single calls. What
is fitted and not exact is said so; all of it is for predictions on machines that have no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_aten = torch.ops.aten
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_KEPT = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}  # of one layer's output, by the reserve
_STREAM, _STEP = 8 << 20, 86 << 10  # bytes of scratch for one layer in one direction, and for each of its steps


def scratch_of(func: Any, args: Sequence[Any], result: Any) -> int:
    """Bytes that cuDNN takes for the time of a convolution, forward or backward; 0 for other operators.

    Its tensor-core kernels want channels last. Where tensors are not, it copies all three of them. What a 1 x 1
    kernel of stride 1 does is a matrix product, and a depthwise convolution has kernels of its own: neither copies.
    """
    if func is _aten.convolution.default:
        x, weight, _, stride, _, _, transposed, _, groups = args
        y = result
    elif func is _aten.convolution_backward.default:
        y, x, weight, _, stride, _, _, transposed, _, groups, _ = args
    else:
        return 0
    if x.dim() not in (4, 5) or groups == x.shape[1] or x.dtype is torch.float64:
        return 0
    if all(n == 1 for n in (*weight.shape[2:], *stride)):
        return 0
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    if x.is_contiguous(memory_format=last) and not x.is_contiguous():
        return 0
    again = y if transposed and func is _aten.convolution.default else None
    return sum(t.numel() * t.element_size() for t in (x, weight, y, again) if t is not None)


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer as cuDNN runs it: the whole sequence in one call."""

    kind: str
    layers: int
    directions: int
    training: bool
    scratch: Callable[[int], None]

    def reserve(self, steps: int, rows: int, hidden: int, itemsize: int) -> int:
        """Bytes that forward keeps for backward: exact for the layers measured.

        Args:
            steps: length of the sequence; ``rows`` the batch, ``hidden`` the width of one direction.
            itemsize: bytes of one number.
        """
        one = steps * rows * hidden * itemsize * self.directions
        return (_KEPT[self.kind] * self.layers + self.layers - 1) * one + 256

    def workspace(self, steps: int, rows: int, hidden: int, itemsize: int, weights: int) -> int:
        """Bytes for the time of a call, forward or backward; fitted, within 7 % on the LSTMs and GRUs measured."""
        one = steps * rows * hidden * itemsize * self.directions
        return self.layers * self.directions * (_STREAM + steps * _STEP) + weights + (_GATES[self.kind] + 1) * one


class _Run(torch.autograd.Function):
    """Forward and backward of a recurrent layer, with the memory of cuDNN's and no numbers."""

    @staticmethod
    def forward(ctx: Any, plan: Recurrent, x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states, weights = others[: 1 + (plan.kind == "lstm")], others[1 + (plan.kind == "lstm") :]
        steps, rows, hidden = x.shape[0], x.shape[1], states[0].shape[2]
        size = steps, rows, hidden, x.element_size()
        output = x.new_empty(steps, rows, hidden * plan.directions)
        finals = [state.new_empty(state.shape) for state in states]
        saved = [x, output, *weights]
        if plan.training:
            saved.append(x.new_empty(plan.reserve(*size), dtype=torch.uint8))
        ctx.workspace = plan.workspace(*size, sum(w.numel() * w.element_size() for w in weights))
        plan.scratch(ctx.workspace)
        ctx.plan, ctx.states = plan, len(states)
        ctx.save_for_backward(*saved)
        return output, *finals

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors
        weights = saved[2 : len(saved) - ctx.plan.training]
        made = [saved[0].new_empty(saved[0].shape)]
        made += [torch.empty_like(gradient) for gradient in gradients[1:]]
        ctx.plan.scratch(ctx.workspace)
        return None, *made, *(weight.new_empty(weight.shape) for weight in weights)


def recurrent(name: str, args: Sequence[Any], scratch: Callable[[int], None]) -> Any:
    """What ``torch.lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu`` gives, or NotImplemented for forms not modelled.

    Not modelled: packed sequences, projections. Autocast turns inputs and weights to its dtype, as on a GPU.
    """
    if name not in _GATES or len(args) != 9 or isinstance(args[1], torch.Tensor) is (name == "lstm"):
        return NotImplemented
    x, states, weights, biases, layers, _, training, bidirectional, batch_first = args
    if not isinstance(weights, (list, tuple)) or isinstance(biases, torch.Tensor):
        return NotImplemented  # packed
    directions = 2 if bidirectional else 1
    states = tuple(states) if name == "lstm" else (states,)
    if len(weights) != layers * directions * (4 if biases else 2):
        return NotImplemented  # with projections
    tensors = [x.transpose(0, 1).contiguous() if batch_first else x, *states, *weights]
    if torch.is_autocast_enabled("cpu"):
        tensors = [tensor.to(torch.get_autocast_dtype("cpu")) for tensor in tensors]
    keeps = training and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    output, *finals = _Run.apply(Recurrent(name, layers, directions, keeps, scratch), *tensors)  # type: ignore[no-untyped-call]
    return (output.transpose(0, 1) if batch_first else output, *finals)
