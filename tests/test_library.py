"""Every row of the library is held against the real library, where that is installed."""

from __future__ import annotations

import builtins
import collections
import importlib
import importlib.util
import inspect
import queue
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from memlint.library import FOLDER, KINDS, PARENTS, Library, LibraryError, Row, make_row, shipped

LIBRARY = shipped()
TORCH = importlib.util.find_spec("torch") is not None
ENTRIES = sorted(dict(LIBRARY.rows()).items())

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
    if hasattr(builtins, parts[0]):
        parts.insert(0, "builtins")
    found: Any = importlib.import_module(parts[0])
    for length, part in enumerate(parts[1:], 2):
        if not hasattr(found, part) and isinstance(found, types.ModuleType):
            try:
                importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError as error:
                if error.name != ".".join(parts[:length]):
                    raise
        found = getattr(found, part)
    return found


RECEIVERS = {
    "tensor": "torch.Tensor",
    "parameter": "torch.nn.Parameter",
    "module": "torch.nn.Module",
    "optimizer": "torch.optim.SGD",
    "scheduler": "torch.optim.lr_scheduler.StepLR",
    "scaler": "torch.amp.GradScaler",
    "loader": "torch.utils.data.DataLoader",
    "dataset": "torch.utils.data.TensorDataset",
    "distribution": "torch.distributions.Normal",
    "list": "list",
    "tuple": "tuple",
    "dict": "dict",
    "defaultdict": "collections.defaultdict",
    "counter": "collections.Counter",
    "set": "set",
    "deque": "collections.deque",
    "queue": "queue.Queue",
    "string": "str",
    "logger": "logging.Logger",
    "handle": "torch.utils.hooks.RemovableHandle",
    "ndarray": "numpy.ndarray",
    "writer": "torch.utils.tensorboard.SummaryWriter",
    "run": "wandb.Run",
    "figure": "matplotlib.figure.Figure",
    "progress": "tqdm.tqdm",
    "accelerator": "accelerate.Accelerator",
    "fabric": "lightning.fabric.Fabric",
    "engine": "deepspeed.DeepSpeedEngine",
    "meter": "torchmetrics.Metric",
    "keras_model": "tensorflow.keras.Model",
    "pipeline": "diffusers.DiffusionPipeline",
    "tokenizer": "transformers.PreTrainedTokenizerBase",
    "outputs": "",
    "trainer": "",
}
"""A class of each kind that has methods; none where the kind stands for many classes that share no method."""


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
    torch.autograd.backward(backed.sum())
    optimizer = torch.optim.SGD([backed], 0.1)

    def without_grad(context: Any) -> bool:
        with context:
            return not torch.is_grad_enabled()

    return {
        "torch": torch,
        "np": numpy,
        "numpy": numpy,
        "carries": carries,
        "importlib": importlib.import_module,
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
    if "random" in row and tensors and row.returns != "same":
        assert all(len(set(value.flatten().tolist())) > 1 for value in tensors)
    if row.device == "host" and tensors:
        assert all(value.device.type == "cpu" for value in tensors)
    if row.kind == "module":
        trainable = any(p.requires_grad for p in result.parameters())
        assert trainable == row.parameters
    if row.kind == "optimizer":
        assert isinstance(result, torch.optim.Optimizer)


def hold_broadcast(row: Row, called: Any, example: str, kind: str) -> None:
    """Assert that tensors with strides of zero do in the place of full copies, and are read only."""
    import torch

    def narrow(value: Any, expand: bool) -> Any:
        if isinstance(value, list):
            return [narrow(each, expand) for each in value]
        if not isinstance(value, torch.Tensor) or not value.dim():
            return value
        wide = value.detach()[:1].expand_as(value)
        return wide if expand else wide.clone()

    results = []
    for expand in (False, True):
        arguments, keywords = evaluated(example, kind)
        kept = arguments[:1] if "in_place" in row else []
        narrowed = [*kept, *(narrow(value, expand) for value in arguments[len(kept) :])]
        with torch.no_grad():
            results.append(called(*narrowed, **keywords))
    assert torch.equal(torch.nan_to_num(results[0]), torch.nan_to_num(results[1]))


def evaluated(example: str, kind: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of an example, made anew."""
    return eval(f"_({example})", {**scope(kind), "_": lambda *a, **k: (list(a), k)})  # type: ignore[no-any-return]


def run_example(row: Row, called: Any, kind: str) -> None:
    """Call with the first example that the callable takes; the row must hold of the result."""
    refused = []
    for example in row.example:
        arguments = evaluated(example, kind)
        first = arguments[0][0] if arguments[0] else None
        try:
            result = called(*arguments[0], **arguments[1])
        except (TypeError, RuntimeError, ValueError, IndexError, NotImplementedError, AssertionError) as error:
            refused.append(f"({example}): {type(error).__name__} {str(error)[:200]}")
            continue
        hold(row, result, first)
        if "makes" in row:
            assert called(*arguments[0], **arguments[1], device="meta").is_meta
        return
    pytest.fail("no example is taken: " + "; ".join(refused))


def subject(name: str, row: Row) -> Any:
    """The callable that an entry speaks of, or None where it speaks of a name alone."""
    kind, _, method = name.rpartition(":")
    if kind:
        owner = RECEIVERS[kind] if kind != "any" else ""
        if not owner:
            return None
        if row.attribute:
            return lambda receiver: getattr(receiver, method)
        name = f"{owner}.{method}"
    root = name.split(".")[0]
    if "*" in name:
        return pytest.importorskip(root) and None
    try:
        return resolve(name)
    except ImportError as error:
        if root in ("torch", "numpy", *sys.stdlib_module_names) and "tensorboard" not in name:
            raise
        pytest.skip(f"{error.name or error} is not installed")


def checked(name: str, row: Row) -> None:
    """Hold one entry of the library against the thing itself."""
    kind = name.rpartition(":")[0]
    called = subject(name, row)
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


needs_torch = pytest.mark.skipif(not TORCH, reason="torch is not installed")


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "row"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_row_is_true(name: str, row: Row) -> None:
    checked(name, row)


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "row"), [(n, r) for n, r in ENTRIES if r.kind and "*" not in n])
def test_class_is_what_the_row_says(name: str, row: Row) -> None:
    cls = subject(name, row)
    if isinstance(cls, type):
        for base in row.bases:
            assert issubclass(cls, resolve(base)) or name.startswith("transformers.Auto")
        if row.kind in ("module", "optimizer") and not name.startswith(("transformers.Auto", "mmengine", "timm.utils")):
            root = {"module": "torch.nn.Module", "optimizer": "torch.optim.Optimizer"}[row.kind]
            assert issubclass(cls, resolve(root)) or name == "transformers.GenerationMixin"
    for hook in row.hooks:
        assert hook in BYGONE or hasattr(cls, hook) or hook.startswith("__"), hook


BYGONE = {
    "training_step_end",
    "training_epoch_end",
    "validation_step_end",
    "validation_epoch_end",
    "test_step_end",
    "test_epoch_end",
}
"""Hooks of Lightning 1.x that 2.x refuses."""


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "row"), [(n, r) for n, r in ENTRIES if r.defaults and not n.startswith("any:")])
def test_newest_default_is_the_installed_one(name: str, row: Row) -> None:
    signature = inspect.signature(subject(name, row))
    for argument in row.defaults:
        assert signature.parameters[argument].default == row.default(argument)


@pytest.mark.parametrize(("name", "row"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_row_can_be_checked(name: str, row: Row) -> None:
    assert row.example or row.check


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.name)
def test_rows_read_one_by_one_are_the_rows_of_the_file(path: Path) -> None:
    expected = []
    for table in tomllib.loads(path.read_text("utf-8"))["row"]:
        row = make_row(table, path.name)
        for name in table["names"].split():
            expected += [(f"{kind}:{name}", row) for kind in table.get("on", "").split()]
            prefixes = table.get("in", "").split() or ([] if "on" in table else [""])
            expected += [(f"{prefix}.{name}".lstrip("."), row) for prefix in prefixes]
    known = dict(LIBRARY.rows())
    missing = [name for name, _ in expected if name not in known]
    assert not missing
    last = dict(expected)
    assert [name for name, row in last.items() if known[name] != row] == []


def test_no_name_is_described_twice() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for path in FOLDER.glob("*.toml"):
        for table in tomllib.loads(path.read_text("utf-8"))["row"]:
            places = [f"{kind}:" for kind in table.get("on", "").split()]
            places += [f"{prefix}." for prefix in table.get("in", "").split()] or ([] if places else [""])
            seen.update(place + name for place in places for name in table["names"].split())
    assert [name for name, count in seen.items() if count > 1] == []


@pytest.mark.parametrize("name", [n for n, r in ENTRIES if n.startswith("any:")])
def test_a_name_alone_says_what_the_tensor_or_module_says(name: str) -> None:
    method = name.removeprefix("any:")
    row = LIBRARY.duck(method)
    assert row is not None
    for kind in ("tensor", "module", "optimizer"):
        other = LIBRARY.method(kind, method)
        if other is not None:
            assert row.effects <= other.effects
            assert row.graph in (other.graph, "unknown") or other.graph == "unknown"


@needs_torch
@pytest.mark.parametrize(
    ("module", "base"),
    [
        ("torch.nn", "torch.nn.Module"),
        ("torch.optim", "torch.optim.Optimizer"),
        ("torch.optim.lr_scheduler", "torch.optim.lr_scheduler.LRScheduler"),
        ("torch.distributions", "torch.distributions.Distribution"),
    ],
)
def test_every_class_of_torch_has_a_row(module: str, base: str) -> None:
    members = vars(importlib.import_module(module)).items()
    classes = {n for n, c in members if isinstance(c, type) and issubclass(c, resolve(base)) and not n.startswith("_")}
    assert len(classes) > 10
    assert sorted(n for n in classes if LIBRARY.lookup(f"{module}.{n}") is None) == []


@needs_torch
def test_every_functional_loss_and_every_arithmetic_method_has_a_row() -> None:
    functional = vars(importlib.import_module("torch.nn.functional"))
    assert [n for n in functional if n.endswith("_loss") and LIBRARY.lookup(f"torch.nn.functional.{n}") is None] == []
    for name in ("add", "sub", "mul", "truediv", "pow", "matmul", "mod", "floordiv", "and", "or", "xor", "lt", "eq"):
        assert LIBRARY.method("tensor", f"__{name}__") is not None, name


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("torch.optim.adam.Adam", "torch.optim.Adam"),
        ("torch.optim.lr_scheduler.StepLR", "torch.optim.lr_scheduler.StepLR"),
        ("torch.optim.lr_scheduler._LRScheduler", "torch.optim.lr_scheduler.LRScheduler"),
        ("torch.nn.modules.linear.Linear", "torch.nn.Linear"),
        ("torch.nn.modules.Linear", "torch.nn.Linear"),
        ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"),
        ("torch.cuda.amp.GradScaler", "torch.amp.GradScaler"),
        ("torch.cuda.amp.autocast", "torch.amp.autocast"),
        ("torch.autograd.grad_mode.no_grad", "torch.no_grad"),
        ("torch.utils.data.dataloader.DataLoader", "torch.utils.data.DataLoader"),
        ("torch.distributions.normal.Normal", "torch.distributions.Normal"),
        ("pytorch_lightning.LightningModule", "lightning.pytorch.LightningModule"),
        ("pytorch_lightning.core.lightning.LightningModule", "lightning.pytorch.LightningModule"),
        ("lightning.LightningModule", "lightning.pytorch.LightningModule"),
        ("lightning.pytorch.callbacks.Callback", "lightning.pytorch.Callback"),
        ("tqdm.auto.tqdm", "tqdm.tqdm"),
        ("builtins.len", "len"),
        ("mine.Thing", "mine.Thing"),
    ],
)
def test_canonical(written: str, known: str) -> None:
    assert LIBRARY.canonical(written) == known


def test_lookup_follows_owners_bases_and_patterns() -> None:
    tensor = LIBRARY.lookup("torch.Tensor.argmax")
    assert tensor is not None and tensor.graph == "none"
    moved = LIBRARY.lookup("pytorch_lightning.LightningModule.to")
    assert moved is not None and "moves" in moved
    logged = LIBRARY.member("pytorch_lightning.LightningModule", "log")
    assert logged is not None and logged.accepts == "number"
    generated = LIBRARY.lookup("transformers.GPT2LMHeadModel.generate")
    assert generated is not None and generated.graph == "none"
    resnet = LIBRARY.lookup("torchvision.models.resnet.resnet50")
    assert resnet is not None and resnet.returns == "module"
    for unknown in ("torch.no_such", "torch.nn.no_such", "transformers.BertConfig", "mine.thing", "", "a..b"):
        assert LIBRARY.lookup(unknown) is None, unknown


def test_methods_by_kind_fall_back_on_the_parent_kind() -> None:
    assert LIBRARY.method("parameter", "detach") is LIBRARY.method("tensor", "detach")
    assert LIBRARY.method("engine", "eval") is LIBRARY.method("module", "eval")
    assert LIBRARY.method("tensor", "no_such") is None
    assert LIBRARY.method("no_such", "detach") is None
    assert set(PARENTS) | set(PARENTS.values()) <= KINDS


def test_bases_and_hooks() -> None:
    assert LIBRARY.bases("torch.optim.adamw.AdamW") == ("torch.optim.Optimizer",)
    assert "torch.nn.Module" in LIBRARY.bases("transformers.BertModel")
    assert LIBRARY.bases("mine.Thing") == ()
    assert "differentiated" in LIBRARY.hook("pytorch_lightning.LightningModule", "training_step")
    assert "no_grad" in LIBRARY.hook("lightning.LightningModule", "validation_step")
    assert "forward" in LIBRARY.hook("transformers.BertModel", "forward")
    assert LIBRARY.hook("torch.nn.Linear", "helper") == frozenset()


def test_default_by_version() -> None:
    row = LIBRARY.method("optimizer", "zero_grad")
    assert row is not None
    assert row.default("set_to_none", (1, 13)) is False
    assert row.default("set_to_none", (2, 0)) is True
    assert row.default("set_to_none") is True
    assert row.default("set_to_none", (1, 4)) is None
    assert row.default("no_such") is None


def test_rows_of_the_user_come_first() -> None:
    extra = {
        "mine.Meter": {"kind": "meter"},
        "mine.Meter.update": {"accepts": "keeps", "keeps": ["value"]},
        "mine.functional": "torch.nn.functional",
        "torch.relu": {"returns": "tensor", "graph": "none"},
    }
    library = Library.load(extra)
    update = library.lookup("mine.Meter.update")
    assert update is not None and update.keeps == ("value",)
    reset = library.lookup("mine.Meter.reset")
    assert reset is not None and "clear" in reset
    assert library.lookup("mine.functional.mse_loss") == LIBRARY.lookup("torch.nn.functional.mse_loss")
    changed, shipped_row = library.lookup("torch.relu"), LIBRARY.lookup("torch.relu")
    assert changed is not None and changed.graph == "none"
    assert shipped_row is not None and shipped_row.graph == "arguments"


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"retruns": "tensor"}, ["mine.f", "'retruns'", "'returns'"]),
        ({"returns": "tensr"}, ["mine.f", "'tensr'", "'tensor'"]),
        ({"effects": ["bakward"]}, ["mine.f", "'bakward'", "'backward'"]),
        ({"effects": "step bakward"}, ["mine.f", "'bakward'", "'backward'"]),
        ({"hooks": {"step": "no_grd"}}, ["mine.f", "'no_grd'", "'no_grad'"]),
        ({"view": "yes"}, ["mine.f", "view", "'yes'"]),
        ({"since": "two"}, ["mine.f", "since", "'two'"]),
        ({"since": 2}, ["mine.f", "since", "2"]),
        ({"returns": 3}, ["mine.f", "returns", "3"]),
        ({"effects": 3}, ["mine.f", "effects", "3"]),
        ({"items": [3]}, ["mine.f", "items"]),
        ({"defaults": {"a": 1}}, ["mine.f", "defaults"]),
        ({"names": "x"}, ["mine.f", "'names'"]),
        (3, ["mine.f", "3"]),
    ],
)
def test_a_wrong_row_is_one_clear_error(row: Any, parts: list[str]) -> None:
    with pytest.raises(LibraryError) as caught:
        Library.load({"mine.f": row})
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_loading_imports_no_torch() -> None:
    code = "import sys, memlint.library as l; l.shipped().lookup('torch.relu'); print('torch' in sys.modules)"
    root = str(FOLDER.parents[1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "False"
