"""Which storages are parameters, gradients and optimizer state."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from memlint.trial.stacks import GRADIENTS, PARAMETERS, STATE


class Kinds:
    """Knows parameters, their gradients and optimizer state by their storage. ``key`` is what a recorder calls one."""

    def __init__(self, key: Callable[[torch.Tensor], int]) -> None:
        self._key = key
        # By type: to ask an object for its class wakes proxies, some of which warn.
        self._modules = [weakref.ref(o) for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._handle: torch.utils.hooks.RemovableHandle | None = None

    def before_each_step(self, look: Callable[[], None]) -> None:
        """Call ``look`` before an optimizer steps: gradients that live within one iteration are there then."""

        def hook(optimizer: torch.optim.Optimizer, *_: object) -> None:
            self._optimizers.add(optimizer)
            look()

        self._handle = register_optimizer_step_pre_hook(hook)

    def close(self) -> None:
        """Listen to optimizers no more: the hook is every optimizer's, and would go on into the other arm."""
        if self._handle is not None:
            self._handle.remove()

    def now(self) -> dict[int, str]:
        """The storages that are of a kind at this moment."""
        found: dict[int, str] = {}
        parameters = list(self._parameters())
        for optimizer in self._optimizers:
            for leaf in pytree.tree_iter([dict(state) for state in optimizer.state.values()]):
                self._note(found, leaf, STATE)
        for parameter in parameters:
            self._note(found, parameter.grad, GRADIENTS)
            self._note(found, parameter, PARAMETERS)
        return found

    def _parameters(self) -> Iterator[torch.Tensor]:
        for reference in self._modules:
            module = reference()
            if module is not None:
                yield from module.parameters(recurse=False)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]

    def _note(self, found: dict[int, str], tensor: Any, kind: str) -> None:
        if isinstance(tensor, torch.Tensor):
            try:
                found[self._key(tensor)] = kind
            except (NotImplementedError, RuntimeError):  # sparse and opaque tensors have no storage
                return
