"""What stands for models, data and packages that are not there: it must do what the real thing would."""

from __future__ import annotations

import argparse
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from memlint.trial.missing import NUMBER, Missing, MissingModule  # noqa: E402
from memlint.trial.standins import (  # noqa: E402
    BATCH,
    CLASSES,
    TOKENS,
    WIDTH,
    Batches,
    Output,
    Quiet,
    StandIn,
    TokenBatches,
    fitted,
    inputs,
    instance,
    loss_of,
    targets,
)
from memlint.trial.substitutes import (  # noqa: E402
    BRIEF,
    NUMBERS,
    Substitutes,
    arrays_given,
    briefly,
    lenient_torch,
    options_given,
)


@pytest.mark.parametrize("kind", ["classes", "values", "tokens", "images", "maps", "same"])
def test_a_stand_in_learns_from_a_batch_of_its_kind(kind: str) -> None:
    model = StandIn(kind)
    scores, wanted = model(inputs(kind)), targets(kind)
    loss = loss_of(kind)(scores.flatten(0, 1), wanted.flatten()) if kind == "tokens" else loss_of(kind)(scores, wanted)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert repr(model) == f"StandIn({kind!r}, 'logits')"


def test_a_stand_in_takes_whatever_batch_it_is_given() -> None:
    model = StandIn("classes", "loss,output")
    for batch in (torch.rand(4, WIDTH + 9), torch.rand(4, 2, 3), torch.ones(4, 5, dtype=torch.long), torch.tensor(2.0)):
        loss, output = model(batch)
        assert loss.dim() == 0 and output.logits.shape[-1] == CLASSES
    assert model({"pixels": torch.rand(3, WIDTH)})[1].logits.shape == (3, CLASSES)
    assert model([torch.rand(3, WIDTH), "name"])[1].logits.shape == (3, CLASSES)
    assert model(labels=torch.rand(3, WIDTH))[1].logits.shape == (3, CLASSES)
    words = StandIn("tokens").generate(max_new_tokens=3)
    assert words.shape == (BATCH, TOKENS) and words.max() < CLASSES


def test_a_stand_in_has_the_parts_that_are_asked_of_it() -> None:
    model = StandIn("classes", also={"inner": "model", "optim": "optimizer", "loss": "loss"})
    assert {id(p) for p in model.inner.parameters()} < {id(p) for p in model.parameters()}
    assert model.loss(torch.rand(3, WIDTH)).dim() == 0 and model.optim.param_groups
    with pytest.raises(AttributeError):
        _ = model.outer


def test_what_is_absent_is_lacking() -> None:
    class Derived(Missing("package.Base")):  # type: ignore[misc]
        known = net = None

    made = instance(Derived, {}, {"parts": 3, "known": 4, "net": nn.Linear(1, 1)})
    assert (made.parts, made.known, type(made.net)) == (3, None, nn.Linear)


def test_an_output_is_read_by_key_attribute_and_position() -> None:
    output = Output(loss=1, logits=2, hidden=3)
    assert (output["loss"], output.logits, output[-1], output[:2]) == (1, 2, 3, [1, 2])
    with pytest.raises(AttributeError):
        _ = output.attentions


def test_loaders_have_a_length_and_give_new_batches() -> None:
    batches = Batches(3, lambda: torch.rand(2))
    first, second, third = batches
    assert len(batches) == 3 and not torch.equal(first, second) and not torch.equal(second, third)
    assert len(batches.dataset) == 3 * BATCH
    batches.sampler.set_epoch(1)
    words = TokenBatches(2, batch=3, tokens=5, words=7)
    assert len(words) == 2 and [x.shape for x, _ in words] == [(3, 5)] * 2


def test_what_is_quiet_takes_any_use_and_keeps_nothing() -> None:
    quiet: Any = Quiet()
    with quiet.run("name") as run:
        run.log({"loss": 1})["x"].y = 3
    quiet["key"] = 1
    assert list(quiet) == [] and not quiet and isinstance(quiet.a.b(1)[2], Quiet)
    assert not hasattr(quiet, "__len__")


@pytest.mark.parametrize(
    ("model", "kind", "shape"),
    [
        (nn.Sequential(nn.Linear(7, 2)), "classes", (BATCH, 7)),
        (nn.Sequential(nn.Embedding(5, 3)), "tokens", (BATCH, TOKENS)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 26 * 26, 3)), "images", (BATCH, 1, 28, 28)),
        (nn.Sequential(nn.Conv1d(4, 2, 3)), "images", (BATCH, 4, 32)),
        (nn.ReLU(), "classes", (BATCH, WIDTH)),
    ],
)
def test_a_batch_that_fits_a_model_is_found(model: nn.Module, kind: str, shape: tuple[int, ...]) -> None:
    found, batch = fitted(model, "cpu")
    assert (found, batch.shape) == (kind, shape)
    assert kind != "tokens" or batch.max() < 5


def test_a_model_that_no_batch_fits_is_told() -> None:
    with pytest.raises(ValueError, match="Bilinear takes none of the batches"):
        fitted(nn.Bilinear(2, 3, 4), "cpu")


def test_an_object_is_built_or_else_made_bare() -> None:
    class Model(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width

    built = instance(Model, {"width": 3}, {"width": 9, "extra": 1})
    assert (built.width, built.extra) == (3, 1)
    bare = instance(Model, {"depth": 3}, {"width": 9, "layer": nn.Linear(1, 1)})
    assert bare.width == 9 and len(list(bare.parameters())) == 2
    assert instance(SimpleNamespace, {"a": 1}, {"b": 2}).b == 2


def test_computing_with_something_absent() -> None:
    absent: Any = Missing("config")
    assert (float(absent), int(absent) + 1, repr(absent.lr)) == (NUMBER, NUMBER + 1, "<missing config.lr>")
    assert absent + 0.5 == NUMBER + 0.5 and 2 // absent == 0 and absent / 2 == NUMBER / 2 and absent > 3
    assert -absent == -NUMBER and "x" not in absent and isinstance(absent["key"], Missing)
    assert torch.as_tensor(absent.__array__()).shape == (NUMBER,)
    graph = torch.ones(2, requires_grad=True) * 2
    assert (absent * graph).tensors == (graph,) and (absent(graph) + 1).tensors == (graph,)
    assert absent([graph, 3]).tensors == (graph,) and absent(absent(graph)).tensors == (graph,)
    computed = len(Missing.computed)
    absent.scaler.scale(graph)
    assert Missing.computed[computed:] == ["scale"]
    assert not hasattr(absent, "__wrapped__")


def test_what_derives_from_something_absent_has_any_attribute() -> None:
    absent: Any = MissingModule("lightning")

    class Callback(absent.Callback):  # type: ignore[misc]
        pass

    class Model(absent.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

    callback, model = Callback(1, every=2), Model()
    assert isinstance(callback.trainer, Missing) and not hasattr(callback, "__len__")
    assert isinstance(model.trainer, Missing) and isinstance(model.layer, nn.Linear)
    assert not hasattr(model, "__wrapped__")
    assert absent.__version__ == "99.0.0" and not hasattr(absent, "__path__")


def harness(**makers: Any) -> ModuleType:
    """A harness that has stand-ins of these names."""
    module = ModuleType("harness")
    module.standins = lambda device, names: {k: lambda v=v: v(names) for k, v in makers.items()}  # type: ignore[attr-defined]
    return module


def test_names_get_stand_ins_where_the_program_has_nothing() -> None:
    gives = Substitutes(harness(loader=lambda names: [1], y=lambda names: "made"), "cpu", 2)
    absent = Missing("data")
    assert gives.hold("x", 3) == 3
    assert isinstance(gives.hold("x", absent), Missing) and gives.hold("y", absent) == "made"
    assert gives.hold(("x", "y"), (1, 2)) == (1, 2)
    assert gives.hold(("y", "y"), absent) == ("made", "made")
    assert gives.hold(("y", "n"), (absent, 2)) == ("made", 2)
    assert gives.hold(("y", "n"), ((absent,), 2)) == ((absent,), 2)
    assert gives.stood == ["x", "y"]


def test_the_result_of_something_absent_keeps_its_graph() -> None:
    gives = Substitutes(None, "cpu", 2)
    graph = torch.ones(2, requires_grad=True) * 3
    loss = gives.hold("loss", Missing("criterion")(graph, graph))
    assert loss.dim() == 0 and loss.item() == 6 and loss.requires_grad
    scores = gives.hold("scores", Missing("model")(graph))
    assert scores.tolist() == [3, 3] and scores.requires_grad


def test_a_loop_gets_as_many_items_as_there_are_steps() -> None:
    gives = Substitutes(harness(loader=lambda names: "batches"), "cpu", 3)
    assert gives.items("loader", Missing("loader")) == "batches"
    assert [type(x) for x in gives.items("other", Missing("loader"))] == [Missing] * 4
    assert list(gives.items("r", range(2, 6, 2))) == [2, 4, 6, 8]
    assert gives.items("l", [1, 2]) == [1, 2, 1, 2]
    assert gives.items("l", list(range(9))) == list(range(9))
    assert len(gives.items("l", [])) == 4
    assert gives.items("g", iter(())).__next__ is not None


def test_a_loader_of_what_is_absent_is_no_loader() -> None:
    gives = Substitutes(harness(loader=lambda names: "batches"), "cpu", 3)

    class Broken:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            raise FileNotFoundError("images.zip")

    class Absent(Broken):
        def __getitem__(self, index: int) -> Any:
            return Missing("image")

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

    good: Any = DataLoader([1, 2])  # type: ignore[arg-type]
    assert gives.items("loader", good) is good and gives.hold("loader", good) is good
    stream: Any = DataLoader(Stream())
    assert gives.items("loader", stream) is stream
    for data in (Broken(), Absent()):
        loader: Any = DataLoader(data)  # type: ignore[arg-type]
        assert gives.items("loader", loader) == gives.hold("loader", loader) == "batches"
        assert isinstance(gives.hold("other", loader), Missing)


def test_stand_ins_see_what_the_program_has_bound() -> None:
    model = nn.Linear(1, 1)
    gives = Substitutes(harness(optimizer=lambda names: names["model"], model=lambda names: "made"), "cpu", 3)
    gives.hold("model", model)
    gives.hold("number", 3)  # no model and no optimizer: nothing else is kept alive
    seen = gives.calls()
    assert gives.stand("optimizer") is model and "number" not in gives._known
    del model
    assert gives.stand("optimizer") == "made", "the program's own model is gone"
    assert all(callable(v) or v == (Exception, SystemExit) for v in seen.values())


def test_loops_before_the_flagged_one_are_brief() -> None:
    gives = Substitutes(None, "cpu", 3)
    started = time.monotonic()
    while gives.soon(7):
        pass
    for _ in briefly(iter(int, 1)):
        pass
    assert 2 * BRIEF <= time.monotonic() - started < 4 * BRIEF + 1
    assert gives.soon(8) and not gives.soon(7)


def test_a_command_line_lacks_nothing() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--mode", choices=["train", "test"], required=True)
    with options_given():
        given = parser.parse_args([])
    assert vars(given) == {"data": "missing", "steps": 1, "rate": 0.1, "mode": "train"}


def test_torch_as_it_once_was() -> None:
    scalar, vector = torch.tensor(3.0), torch.tensor([1.0, 2.0])
    with lenient_torch():
        assert scalar[0].item() == 3 and vector[0].item() == 1  # type: ignore[index,unused-ignore]
        assert torch.from_numpy(vector) is vector  # type: ignore[arg-type,unused-ignore]
        with pytest.raises(IndexError):
            scalar[1]
    with pytest.raises(IndexError):
        scalar[0]


def test_what_an_optimizer_is_set_to_is_a_number() -> None:
    absent: Any = Missing("config")
    net = nn.Linear(2, 2)
    groups: Any = [{"params": [net.weight], "lr": absent.lr}, {"params": [net.bias], "weight_decay": absent.decay}]
    with lenient_torch():
        optimizer = torch.optim.SGD(groups, lr=absent.lr, momentum=0.5, nesterov=absent.nesterov)
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert [(g["lr"], g["weight_decay"], g["momentum"]) for g in optimizer.param_groups] == [(0.01, 0, 0.5)] * 2
    assert optimizer.defaults["lr"] == 0.01 and isinstance(net.weight.grad, torch.Tensor)


def test_a_file_of_numbers_that_is_not_there_holds_zeros(tmp_path: Path) -> None:
    numpy: Any = pytest.importorskip("numpy")
    (tmp_path / "there").write_bytes(b"\1\2\3\4")
    with arrays_given():
        assert numpy.memmap(tmp_path / "there", dtype="uint8", mode="r").tolist() == [1, 2, 3, 4]
        assert numpy.fromfile(tmp_path / "there", "uint16").shape == (2,)
        words = numpy.memmap(tmp_path / "gone", dtype=numpy.uint16, mode="r")
        assert words.dtype == numpy.uint16 and words.shape == (NUMBERS,) and not words.any()
        assert numpy.memmap(tmp_path / "gone", numpy.float32, "r", shape=(2, 3)).shape == (2, 3)
        assert numpy.fromfile(tmp_path / "gone").dtype == numpy.float64
    with pytest.raises(FileNotFoundError):
        numpy.memmap(tmp_path / "gone", dtype="uint8", mode="r")


def test_stand_ins_see_what_a_function_is_called_with() -> None:
    gives = Substitutes(
        harness(optimizer=lambda names: (names["model"], names["self.net"], names["self.ear"])), "cpu", 3
    )
    model, owner = nn.Linear(1, 1), nn.Module()
    owner.net, agent = nn.Linear(1, 1), SimpleNamespace(ear=nn.Linear(1, 1))
    gives.given({"model": model, "self": owner})
    gives.given({"self": agent})
    assert gives.stand("optimizer") == (model, owner.net, agent.ear)


def test_a_loss_that_cannot_be_had_keeps_the_graphs_that_it_was_made_from() -> None:
    def unbound() -> Any:
        raise NameError("scores")

    gives = Substitutes(harness(other=lambda names: "made"), "cpu", 3)
    graph = torch.ones(2, requires_grad=True) * 3
    loss = gives.instead("loss", lambda: 1, lambda: "x", unbound, lambda: graph)
    assert loss.dim() == 0 and loss.item() == 3 and loss.requires_grad and gives.stood == ["loss"]
    assert gives.instead("loss", lambda: 1, lambda: "x") == 1, "what it held before"
    assert gives.instead("other", lambda: 1, lambda: graph) == 1
    assert gives.instead("other", unbound, lambda: graph) == "made"


def test_a_model_that_cannot_be_made_has_weights_all_the_same() -> None:
    class Base(ABC, nn.Module):
        @abstractmethod
        def build(self) -> None: ...

    class Failing(nn.Module):
        def __init__(self) -> None:
            raise RuntimeError

    assert [p.numel() for p in instance(Base, {}, {}).parameters()] == [WIDTH * WIDTH]
    assert [p.numel() for p in instance(Failing, {}, {}).parameters()] == [WIDTH * WIDTH]
    assert len(list(instance(Failing, {}, {"layer": nn.Linear(1, 1)}).parameters())) == 2
    assert not list(instance(nn.ReLU, {}, {}).parameters()), "it has none of its own"
