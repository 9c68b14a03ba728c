"""What stands for a file of weights that is not there: tensors like those that the program restores from it.

In a first run nothing is known of such a file, and what is read from it is a `Checkpoint`; which entry of it a module's
``load_state_dict`` is given, and of what shapes, is kept. In the runs that follow `torch.load` gives such tensors, on
the device of the trial, since that is where a program that runs there has saved them from.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import torch

from memlint.trial.missing import Missing


class Entry(NamedTuple):
    """A place in an absent file: the line that reads the file, and the keys that lead there."""

    file: str
    line: int
    keys: tuple[Any, ...] = ()


class Like(NamedTuple):
    """A tensor as it should lie in the file."""

    shape: torch.Size
    dtype: torch.dtype


class Checkpoint(Missing):
    """What is read from an absent file of which nothing is known: as `Missing`, but knows where it was read."""

    opened: ClassVar[list[Checkpoint]] = []

    def __init__(self, entry: Entry) -> None:
        super().__init__("checkpoint")
        self.__dict__["entry"] = entry

    def __getitem__(self, key: Any) -> Any:
        entry: Entry = self.__dict__["entry"]
        return Checkpoint(entry._replace(keys=(*entry.keys, key)))

    def __getattr__(self, name: str) -> Any:
        if name in ("items", "keys", "values", "state_dict", "copy"):
            self.opened.append(self)
            if name in ("state_dict", "copy"):
                return lambda *a, **k: self
            return lambda: iter((Missing("name"),) if name == "keys" else ())
        if name in ("get", "pop"):
            return lambda key, *default: self[key]
        return super().__getattr__(name)

    def __contains__(self, key: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        self.opened.append(self)
        return iter((Missing("name"),))


class Known(dict[Any, Any]):
    """What a file of which some entries are known holds: the others are absent."""

    def __missing__(self, key: Any) -> Any:
        return Missing(f"checkpoint[{key!r}]")

    def __contains__(self, key: Any) -> bool:
        return True

    def get(self, key: Any, default: Any = None) -> Any:
        """The entry, or what stands for it."""
        return self[key]

    def pop(self, key: Any, *default: Any) -> Any:
        """The same, and it is gone."""
        return super().pop(key) if super().__contains__(key) else self[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


class Checkpoints:
    """Stands for absent files of weights on ``device`` while `absent` is entered.

    Attributes:
        learned: what modules were given of each file, by entry.
    """

    learned: ClassVar[dict[Entry, dict[str, Like]]] = {}

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @contextlib.contextmanager
    def absent(self) -> Iterator[None]:
        """While the block runs, reading a file of weights that is not there gives what stands for it.

        Who opens such a file first finds nothing in it.
        """
        load, restore, descend = torch.load, torch.nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict
        fetch, read = torch.hub.load_state_dict_from_url, io.open
        Checkpoint.opened.clear()

        def loaded(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(file, (str, os.PathLike)) and (isinstance(file, Missing) or not hasattr(file, "read")):
                return self._stand(_caller(), map_location)
            try:
                return load(file, map_location, *args, **kwargs)
            except (OSError, EOFError):
                return self._stand(_caller(), map_location)

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            try:
                return read(file, mode, *args, **kwargs)
            except FileNotFoundError:
                if mode == "rb" and _ours(file):
                    return io.BytesIO()
                raise

        def fetched(url: str, model_dir: Any = None, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            try:
                return fetch(url, model_dir, map_location, *args, **kwargs)
            except OSError:
                return self._stand(_caller(), map_location)

        def restored(module: torch.nn.Module, state: Any, *args: Any, **kwargs: Any) -> Any:
            entry = _entry(state)
            if entry is not None:
                like = {name: Like(t.shape, t.dtype) for name, t in module.state_dict().items()}
                self.learned.setdefault(entry, like)
            if isinstance(state, Missing):
                return None
            if entry is not None:
                state = {name: value for name, value in state.items() if not isinstance(name, Missing)}
                if not state:
                    return None
            return restore(module, state, *args, **kwargs)

        def descended(optimizer: torch.optim.Optimizer, state: Any) -> Any:
            return None if isinstance(state, Missing) else descend(optimizer, state)

        with contextlib.ExitStack() as stack:
            for owner, name, stand_in in (
                (torch, "load", loaded),
                (torch.hub, "load_state_dict_from_url", fetched),
                (torch.nn.Module, "load_state_dict", restored),
                (torch.optim.Optimizer, "load_state_dict", descended),
                (io, "open", opened),
                (builtins, "open", opened),
            ):
                stack.enter_context(mock.patch.object(owner, name, stand_in))
            yield

    def _stand(self, place: tuple[str, int], map_location: Any) -> Any:
        """What was read at ``place``: the entries that are known of it, or something of which nothing is known."""
        known = {entry.keys: like for entry, like in self.learned.items() if (entry.file, entry.line) == place}
        if not known:
            return Checkpoint(Entry(*place))
        device = self._device if map_location is None else torch.device("cpu")
        if isinstance(map_location, (str, int, torch.device)):
            device = torch.device(map_location)
        made = Known()
        for keys, like in known.items():
            tensors = {name: torch.ones(shape, dtype=dtype, device=device) for name, (shape, dtype) in like.items()}
            if not keys:
                return tensors
            holder = made
            for key in keys[:-1]:
                holder = holder.setdefault(key, Known())
            holder[keys[-1]] = tensors
        return made


def _ours(file: Any) -> bool:
    """Whether it is a path that memlint itself has given, of a file that never was."""
    return isinstance(file, (str, os.PathLike)) and not {"trial", "missing"}.isdisjoint(Path(os.fspath(file)).parts)


def _entry(state: Any) -> Entry | None:
    """The entry of an absent file that a module is given: itself, or the one that was gone through last."""
    if isinstance(state, Checkpoint):
        entry: Entry = state.__dict__["entry"]
        return entry
    if isinstance(state, Mapping) and Checkpoint.opened:
        return _entry(Checkpoint.opened[-1])
    return None


def _caller() -> tuple[str, int]:
    """File and line of the call of what calls this."""
    frame = sys._getframe(2)
    return frame.f_code.co_filename, frame.f_lineno
