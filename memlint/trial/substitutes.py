"""What the calls that `lenient.soften` puts in do: give stand-ins for names that a program could not bind itself."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch.utils.data import DataLoader, IterableDataset

from memlint.trial.checkpoints import Checkpoint
from memlint.trial.lenient import BRIEFLY, FAILURE, HOLD, INSTEAD, ITEMS, NOTE, OPENED, SOON, STAND
from memlint.trial.missing import Blank, Missing, tensors_of
from memlint.trial.standins import Batches, Quiet

NOTED = 40  # failures of which the text is kept
BRIEF = 0.5  # seconds that a loop before the flagged one may take
NUMBERS = 1 << 20  # in a file of which nothing is known
RATE = 0.01  # a learning rate that is absent
_SCALARS = ("loss", "cost", "err")


class Substitutes:
    """Gives stand-ins by name, made by the harness's ``standins`` when they are first asked for.

    Attributes:
        stood: the names that have got one.
        failures: what statements failed with that were passed over, at most `NOTED`, those of the watched loop first.
        stumbled: how many in the watched loop were.
    """

    def __init__(self, harness: types.ModuleType | None, device: Any, steps: int) -> None:
        self.stood: list[str] = []
        self.failures: list[str] = []
        self.stumbled = 0
        self._steps = steps
        self._known: dict[str, Any] = {}
        self._started: dict[int, float] = {}
        made = getattr(harness, "standins", None)
        self._makers: dict[str, Callable[[], Any]] = made(device, _Names(self)) if made else {}

    def calls(self) -> dict[str, Any]:
        """The names under which a softened program finds this object's methods."""
        return {
            STAND: self.stand,
            HOLD: self.hold,
            ITEMS: self.items,
            FAILURE: (Exception, SystemExit),
            BRIEFLY: briefly,
            SOON: self.soon,
            NOTE: self.note,
            OPENED: self.opened,
            INSTEAD: self.instead,
        }

    def note(self, looped: bool = False) -> None:
        """A statement has failed, one of the watched loop if ``looped``."""
        error = sys.exc_info()[1]
        self.stumbled += looped
        text = f"{type(error).__name__}: {error}"
        if len(self.failures) < NOTED and text not in self.failures:
            self.failures.insert(min(self.stumbled - 1, len(self.failures)) if looped else len(self.failures), text)

    def opened(self, make: Callable[[], Any], looped: bool = False) -> Any:
        """What ``make`` gives, or something absent: for a ``with`` statement, or, ``looped``, for the flagged one."""
        try:
            return make()
        except (Exception, SystemExit):
            self.note(looped)
            return Missing("argument" if looped else "file")

    def stand(self, name: str) -> Any:
        """A stand-in for what ``name`` should have been bound to."""
        if name not in self.stood:
            self.stood.append(name)
        maker = self._makers.get(name)
        if maker is None:
            return Missing(name)
        made = maker()
        self._keep(name, made)
        return made

    def hold(self, names: Any, value: Any) -> Any:
        """``value``, or where it is absent (or a loader of what is absent), stand-ins for ``names``."""
        if isinstance(names, tuple):
            if isinstance(value, Missing) and not isinstance(value, Checkpoint):
                return tuple(self.hold(name, value) for name in names)
            if isinstance(value, (tuple, list)) and len(value) == len(names) and _absent(value):
                return tuple(self.hold(name, item) for name, item in zip(names, value, strict=True))
            return value
        if isinstance(value, Checkpoint):
            return value
        if isinstance(value, Missing):
            if value.tensors:
                return self._result(names, value.tensors)
            return self.stand(names)
        if isinstance(value, DataLoader) and not _gives(value):
            return self.stand(names) if names in self._makers else Missing(names)
        self._keep(names, value)
        return value

    def items(self, key: str, value: Any) -> Any:
        """What a loop runs over: ``value``, or stand-ins where it is absent, broken or empty; enough for all steps."""
        if isinstance(value, Missing) or (isinstance(value, DataLoader) and not _gives(value)):
            return self.stand(key) if key in self._makers else [Missing(key)] * (self._steps + 1)
        if isinstance(value, range) and len(value) <= self._steps:
            return range(value.start, value.start + value.step * (self._steps + 1), value.step)
        if isinstance(value, (list, tuple)) and len(value) <= self._steps:
            return list(itertools.islice(itertools.cycle(value or [Missing(key)]), self._steps + 1))
        return value

    def soon(self, loop: int) -> bool:
        """Whether the ``while`` loop in line ``loop`` may go on: for `BRIEF` seconds from its start."""
        return time.monotonic() - self._started.setdefault(loop, time.monotonic()) < BRIEF

    def instead(self, name: str, known: Callable[[], Any], *read: Callable[[], Any]) -> Any:
        """What ``name`` holds where the statement that should bind it has failed: what it held before, or a stand-in;
        of a loss, a number that goes on with the graphs of what was ``read`` for it."""
        if any(word in name.lower() for word in _SCALARS):
            found = []
            for value in read:
                with contextlib.suppress(NameError):
                    found.append(value())
            if graphs := tensors_of(found):
                self.stood.append(name)
                return self._result(name, graphs)
        try:
            return known()
        except NameError:
            return self.stand(name)

    def given(self, arguments: dict[str, Any]) -> None:
        """What a function under trial is called with is known to it by name, ``self``'s attributes too."""
        for name, value in arguments.items():
            self._keep(name, value)
        for name, value in getattr(arguments.get("self"), "__dict__", {}).items():
            self._keep(f"self.{name}", value)
        if isinstance(own := arguments.get("self"), torch.nn.Module):
            for name, value in own.named_children():
                self._keep(f"self.{name}", value)

    def named(self, name: str) -> Any:
        """What ``name`` was last bound to, as far as it is still alive, else a stand-in."""
        known = self._known.get(name)
        value = known() if isinstance(known, weakref.ref) else known
        return self.stand(name) if value is None else value

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
            self._known[name] = weakref.ref(value)

    def _result(self, name: str, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """What stands for the result of an absent function of ``tensors``, with their graphs."""
        if any(word in name.lower() for word in _SCALARS):
            return torch.stack([tensor.float().mean() for tensor in tensors]).sum()
        return tensors[0] * 1.0


def briefly(items: Any) -> Iterator[Any]:
    """``items`` until `BRIEF` seconds have passed."""
    end = time.monotonic() + BRIEF
    return itertools.takewhile(lambda _: time.monotonic() < end, items)


class _Names(Mapping[str, Any]):
    """The names of a program under trial, as a harness's ``standins`` sees them."""

    def __init__(self, substitutes: Substitutes) -> None:
        self._substitutes = substitutes

    def __getitem__(self, name: str) -> Any:
        return self._substitutes.named(name)

    def __iter__(self) -> Any:
        return iter(self._substitutes._known)

    def __len__(self) -> int:
        return len(self._substitutes._known)


def _absent(values: Any) -> bool:
    return any(isinstance(v, Missing) or (isinstance(v, (tuple, list)) and _absent(v)) for v in values)


def _gives(loader: DataLoader[Any]) -> bool:
    """Whether ``loader`` has a first example to give."""
    data = loader.dataset
    if isinstance(data, (Missing, Blank, Batches, Quiet)):
        return False
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
        return True
    try:
        return not isinstance(data[0], Missing) and len(data) > 0  # type: ignore[arg-type]
    except Exception:
        return False


@contextlib.contextmanager
def options_given() -> Iterator[None]:
    """While the block runs, command lines lack nothing: what they require has a value of its type."""
    parse = argparse.ArgumentParser.parse_known_args

    def lenient(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        for action in self._actions:
            if action.required:
                action.required = False
                action.nargs = "?" if not action.option_strings else action.nargs
                if action.default is None:
                    action.default = _value(action)
        namespace, rest = parse(self, *args, **kwargs)
        if type(namespace) is argparse.Namespace:
            namespace.__class__ = Given
        return namespace, rest

    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", lenient):
        yield


class Given(argparse.Namespace):
    """Options of a command line. Those that the program sets later, or elsewhere, are absent."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Missing(name)


@contextlib.contextmanager
def lenient_torch() -> Iterator[None]:
    """While the block runs, ``loss[0]`` gives the number in a tensor without dimensions, as torch once did, what stands
    for an array may be a tensor, and an optimizer's settings that are absent are numbers."""
    get, convert, start = torch.Tensor.__getitem__, torch.from_numpy, torch.optim.Optimizer.__init__

    def item(self: torch.Tensor, index: Any) -> Any:
        return self if isinstance(index, int) and index == 0 and self.dim() == 0 else get(self, index)

    def from_numpy(array: Any) -> torch.Tensor:
        return array if isinstance(array, torch.Tensor) else convert(array)

    def started(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        for group in (self.defaults, *self.param_groups):
            group |= {name: RATE if name == "lr" else 0 for name, value in group.items() if isinstance(value, Missing)}

    with (
        mock.patch.object(torch.Tensor, "__getitem__", item),
        mock.patch.object(torch, "from_numpy", from_numpy),
        mock.patch.object(torch.optim.Optimizer, "__init__", started),
    ):
        yield


@contextlib.contextmanager
def arrays_given() -> Iterator[None]:
    """While the block runs, a file of nothing but numbers that is not there holds `NUMBERS` zeros."""
    import numpy

    with contextlib.ExitStack() as stack:
        for name, usual in (("memmap", "uint8"), ("fromfile", "float64")):
            stack.enter_context(mock.patch.object(numpy, name, _read(getattr(numpy, name), numpy.zeros, usual)))
        yield


def _read(read: Callable[..., Any], zeros: Callable[..., Any], usual: str) -> Callable[..., Any]:
    def given(file: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(file, *args, **kwargs)
        except OSError:
            return zeros(kwargs.get("shape") or NUMBERS, kwargs.get("dtype", args[0] if args else usual))

    return given


def _value(action: argparse.Action) -> Any:
    if action.choices:
        return next(iter(action.choices))
    return {int: 1, float: 0.1}.get(action.type, "missing")  # type: ignore[call-overload]
