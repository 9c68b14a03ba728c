"""What stands for packages and data that are not there: values that any use of suits, and modules made of them."""

from __future__ import annotations

import ast
import dis
import enum
import functools
import importlib.abc
import importlib.machinery
import itertools
import linecache
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

NUMBER = 64  # what an absent number counts as
_PASSES_ON = re.compile(
    r"tqdm|trange|track|progress|prepare|initialize|wrap|parallel|to_device|auto|compile|ddp$", re.I
)
_WORKS = re.compile(r"scal|backward|step|optim|accelerat|fabric|engine", re.I)  # goes on with a graph by itself
_MODEL = re.compile(r"Module|Model|Layer|Net|Encoder|Decoder|Conv|Loss|Task|Transformer", re.I)
_ENUM = re.compile(r"Enum$")
_BOARD = os.path.join(os.path.dirname(os.path.realpath(torch.__file__)), "utils", "tensorboard", "")
_CAUGHT = re.compile(r"ImportError|ModuleNotFoundError|Exception|BaseException|^$")


def _overrides(base: type, derived: type) -> None:
    """Give ``base`` the methods that ``derived`` overrides: ``super()`` asks classes alone for them."""
    for name, value in vars(derived).items():
        if isinstance(value, types.FunctionType) and not name.startswith("__") and not hasattr(base, name):
            setattr(base, name, functools.partialmethod(_absent_method, name))


def _absent_method(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return Missing(name)(*args, **kwargs)


class Blank:
    """Base class in place of one that is absent: takes any arguments, has any attribute."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()
        _overrides(Blank, cls)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(name)


class BlankModule(torch.nn.Module):
    """The same for what is a module by its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()
        _overrides(BlankModule, cls)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or name in ("forward", "_is_full_backward_hook"):
                raise
            return Missing(name)


class Missing:
    """Something absent: attributes, items and calls give further such things; as a number it is `NUMBER`.

    Attributes:
        path: where it comes from, for people.
        tensors: the tensors that require gradients among the arguments of the call that gave it.
        computed: the torch functions that were to compute with something absent.
    """

    computed: ClassVar[list[str]] = []

    def __init__(self, path: str = "", tensors: tuple[torch.Tensor, ...] = ()) -> None:
        self.__dict__["path"] = path
        self.__dict__["tensors"] = tensors

    def __repr__(self) -> str:
        return f"<missing {self.path}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.path}.{name}", self.tensors)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]  # a decorator
        name = self.path.rpartition(".")[2]
        if args and (_PASSES_ON.search(name) or isinstance(args[0], (torch.nn.Module, torch.optim.Optimizer))):
            handed = [a for a in args if not isinstance(a, (str, int, float))]
            return handed[0] if len(handed) == 1 else tuple(handed)
        tensors = tensors_of((*args, *kwargs.values()))
        if tensors and _WORKS.search(self.path):
            self.computed.append(name)
        return Missing(f"{self.path}()", tensors)

    def __or__(self, other: Any) -> Any:
        return self  # of types

    __ror__ = __or__

    def __getitem__(self, key: Any) -> Any:
        return Missing(f"{self.path}[…]", self.tensors)

    def __setattr__(self, name: str, value: Any) -> None: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __delitem__(self, key: Any) -> None: ...

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        if _ENUM.search(self.path):
            return () if any(isinstance(b, enum.EnumMeta) for b in bases) else (enum.Enum,)
        base = self._base()
        before = itertools.takewhile(lambda b: b is not self, bases)
        again = any(isinstance(b, Missing) and b._base() is base for b in before)
        return () if again or any(isinstance(b, type) and issubclass(b, base) for b in bases) else (base,)

    def _base(self) -> type:
        return BlankModule if _MODEL.search(self.path.rpartition(".")[2]) else Blank

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __subclasscheck__(self, value: type) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter([Missing(f"{self.path}[…]", self.tensors) for _ in range(_unpacked(sys._getframe(1)))])

    def __len__(self) -> int:
        return NUMBER

    def __contains__(self, value: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return False

    def __index__(self) -> int:
        return NUMBER

    __int__ = __index__

    def __float__(self) -> float:
        return float(NUMBER)

    def __str__(self) -> str:
        return "missing"

    def __format__(self, spec: str) -> str:
        return "missing"

    def __fspath__(self) -> str:
        return "missing"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy

        if re.search("shape|size", self.path.rpartition(".")[2]):
            return numpy.array([NUMBER], dtype or "int64")
        return numpy.ones(NUMBER, dtype or "int64")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A torch function of something absent is absent too, and keeps the graphs that went in.

        As a size it is a number.
        """
        if getattr(func, "__name__", "") in _FACTORIES:
            return func(*map(_number, args), **(kwargs or {}))
        name = getattr(func, "__name__", "")
        cls.computed.append(name)
        return Missing(name, tensors_of((*args, *(kwargs or {}).values())))


def _unpacked(frame: types.FrameType) -> int:
    """How many values the statement that ``frame`` is at takes apart what it iterates over; 0 where it is a loop."""
    operation, count = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return count if dis.opname[operation] == "UNPACK_SEQUENCE" else 0


_FACTORIES = frozenset("empty zeros ones full rand randn randint arange eye linspace empty_strided".split())


def _number(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_number, value))
    return NUMBER if isinstance(value, Missing) else value


def _arithmetic(name: str) -> Any:
    def operation(self: Missing, *others: Any) -> Any:
        if any(isinstance(other, torch.Tensor) for other in others):
            return Missing(self.path, (*self.tensors, *tensors_of(others)))
        if self.tensors:
            return Missing(self.path, self.tensors)
        if others and isinstance(others[0], (tuple, list)) and name in ("__add__", "__radd__"):  # a shape
            whole = [NUMBER, *others[0]] if name == "__add__" else [*others[0], NUMBER]
            return type(others[0])(whole)
        if any(isinstance(other, str) for other in others):
            return False if name in ("__lt__", "__le__", "__gt__", "__ge__") else Missing(self.path)
        result = getattr(float(NUMBER), name)(*(float(o) if isinstance(o, (int, Missing)) else o for o in others))
        return int(result) if isinstance(result, float) and result.is_integer() else result

    return operation


for _name in "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg lt le gt ge".split():
    setattr(Missing, f"__{_name}__", _arithmetic(f"__{_name}__"))


def tensors_of(values: Any) -> tuple[torch.Tensor, ...]:
    """The tensors among ``values``, and those behind absent ones, that require gradients."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            found.append(value)
        elif isinstance(value, Missing):
            found += value.tensors
        elif isinstance(value, (list, tuple)):
            found += tensors_of(value)
    return tuple(found)


class MissingModule(types.ModuleType):
    """A module that is not installed: whatever is asked of it is `Missing`.

    It may be called, and derived from, as what it stands for may be a class.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        return "99.0.0" if name == "__version__" else Missing(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Missing(self.__name__)(*args, **kwargs)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return Missing(self.__name__).__mro_entries__(bases)


class MissingFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: gives a `MissingModule` for what nobody else found and a file under ``root`` imports.

    Where the import stands under an ``except ImportError`` the program says itself what to do, and nothing is given.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.join(os.path.realpath(root), "")
        self.gone: list[str] = []
        self.wanted: set[str] = set()  # packages without which the program does not go on, whatever it says itself

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The specification of a module that is absent, None where the importer is not the project's."""
        parent = sys.modules.get(fullname.rpartition(".")[0])
        wanted = fullname in self.wanted or isinstance(parent, MissingModule)
        if not wanted and not self._asked_for():
            return None
        self.gone.append(fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A module that has everything."""
        return MissingModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""

    def _asked_for(self) -> bool:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and (
            frame.f_code.co_filename == __file__ or frame.f_code.co_filename.startswith("<frozen importlib")
        ):
            frame = frame.f_back
        if frame is None:
            return False
        file = os.path.realpath(frame.f_code.co_filename)
        if file.startswith(_BOARD):
            return True  # torch's own writer, which fails at import where its package is absent
        return file.startswith(self._root) and not any(
            start <= frame.f_lineno <= end for start, end in _guarded(frame.f_code.co_filename)
        )


@functools.lru_cache(maxsize=64)
def _guarded(path: str) -> tuple[tuple[int, int], ...]:
    """The lines of a file in which a failing import is expected."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(
        (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
        and any(_CAUGHT.search(ast.unparse(h.type) if h.type else "") for h in node.handlers)
    )
