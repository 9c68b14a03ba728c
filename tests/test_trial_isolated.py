"""Code whose packages, data or arguments are not there is run with stand-ins, and a verdict on it is right."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from memlint.check import Options, check_paths  # noqa: E402
from memlint.trial.confirm import Confirmer, Outcome, Settings  # noqa: E402
from memlint.trial.guess import Guess, refined  # noqa: E402
from memlint.trial.lenient import soften, way  # noqa: E402
from memlint.trial.missing import NUMBER, Missing, MissingFinder  # noqa: E402
from memlint.trial.run import Limits, Trials  # noqa: E402
from memlint.trial.watch import Place, loop_at  # noqa: E402


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    with Trials(Limits(timeout=60)) as running:
        yield running


@pytest.fixture
def outcome(trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.chdir(tmp_path)

    def confirmed(text: str, rule: str, name: str = "train.py", device: str = "auto") -> Outcome:
        (tmp_path / name).write_text(text)
        report = check_paths([name], Options(select=(rule,), cache=False))
        assert len(report.findings) == 1, report.findings
        finding = report.findings[0]
        return Confirmer(Settings(device, 6), trials).outcome(finding, report.sources[name])

    yield confirmed


GAN = """
import argparse
import no_such_package
from no_such_package.data import Pictures
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("data", help="required")
parser.add_argument("--channels", type=int, default=1)
parser.add_argument("--img_size", type=int, default=28)
opt = parser.parse_args()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(opt.channels, 8, 3, padding=1)
        self.head = nn.Linear(8 * 14 * 14, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv(x), 2)
        return self.head(x.flatten(1))

net = Net().cuda()
if not no_such_package.ready():
    raise SystemExit("no data")
loader = torch.utils.data.DataLoader(Pictures(opt.data), batch_size=64, shuffle=True)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
writer = no_such_package.Writer(opt.data)
outputs = []
for epoch in range(3):
    for i, (images, labels) in enumerate(no_such_package.tqdm(loader)):
        output = net(images.cuda())
        loss = criterion(output, labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(output)
        writer.add_scalar("loss", loss.item(), i)
torch.save(net.state_dict(), "/nowhere/losses.pt")
print(len(outputs))
"""


def test_a_script_without_its_packages_data_and_arguments(outcome) -> None:  # type: ignore[no-untyped-def]
    verdict = outcome(GAN, "graph-tensor-append").verdict
    assert verdict.before is not None and verdict.before.iterations == 6, verdict
    assert (verdict.tier, verdict.device) == ("isolated", "fake")
    assert verdict.before.device_growth == 32 * 10 * 4 + 256, "a batch's output, in blocks of 512 bytes"


MAIN = """
import no_such_package
import torch
from torch import nn

def evaluate(model, loader, device):
    model.eval()
    correct = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        correct += (model(x).argmax(1) == y).sum().item()
    return correct

def main(args):
    # what comes before is far too long, and a branch does not lead here
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.rank != 0:
        return
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    data = no_such_package.load(args.path)
    for epoch in range(10**9):
        model.train()
    while model.training:
        data = None
    test_loader = torch.utils.data.DataLoader(data, batch_size=args.batch)
    if args.evaluate:
        print(evaluate(model, test_loader, device))

if __name__ == "__main__":
    main(no_such_package.parse())
"""


def test_a_function_that_a_script_leads_to(outcome) -> None:  # type: ignore[no-untyped-def]
    found = outcome(MAIN, "eval-without-no-grad")
    assert (found.verdict.status, found.verdict.tier) == ("confirmed", "isolated"), found.verdict
    assert '"test_loader": lambda: Batches(' in found.harness and "784" in found.harness
    assert found.verdict.before is not None and found.verdict.after is not None
    assert found.verdict.before.device_peak > found.verdict.after.device_peak


def test_a_notebook_runs_as_a_script(outcome) -> None:  # type: ignore[no-untyped-def]
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for text in ("%matplotlib inline\nimport no_such_package", GAN)
    ]
    book = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    found = outcome(book, "graph-tensor-append", "train.ipynb")
    assert found.finding.path == "train.ipynb" and found.finding.cell == 2
    assert found.verdict.tier == "isolated" and found.verdict.before is not None, found.verdict
    assert found.verdict.before.device_growth == 32 * 10 * 4 + 256


def test_what_the_program_s_own_data_refute_is_refuted(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import torch
import no_such_package

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.rand(4096, 4), torch.rand(4096, 1)
for step in range(100):
    loss = (net(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    verdict = outcome(text, "zero-grad-before-backward-only").verdict
    assert (verdict.status, verdict.device) == ("refuted", "cpu"), verdict


def test_a_loop_that_computes_with_what_is_absent_refutes_nothing(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import torch
import no_such_package

net = no_such_package.build_network()
head = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(100):
    loss = head(no_such_package.graph(step)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    verdict = outcome(text, "zero-grad-before-backward-only", device="cpu").verdict
    assert verdict.status == "undecided" and "not there" in verdict.reason, verdict


def test_a_flagged_line_that_fails_refutes_nothing(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import torch
import no_such_package

def main():
    torch.distributed.init_process_group("nccl")
    net = torch.nn.Linear(64, 64).cuda()
    net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    for batch in no_such_package.loader():
        net(batch).sum().backward()

main()
"""
    verdict = outcome(text, "ddp-no-bucket-view", device="fake").verdict
    assert verdict.status == "undecided" and "process group" in verdict.reason, verdict


def test_the_peak_of_a_function_is_that_of_its_calls(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import torch
from torch import nn
import no_such_package

net = nn.Sequential(*[nn.Linear(128, 128) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(net.parameters())

def sample():
    net.eval()
    scores = net(torch.rand(64, 128).cuda())
    print(scores.argmax(1))

for epoch in range(100):
    loss = net(torch.rand(4096, 128).cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sample()
"""
    verdict = outcome(text, "eval-without-no-grad").verdict
    assert verdict.status != "refuted" and verdict.before is not None and verdict.after is not None, verdict
    assert verdict.before.device_peak > verdict.after.device_peak, "training, which takes far more, does not count"


def test_a_script_without_a_loop_runs_once_a_step(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import torch
import no_such_package

layers = [torch.nn.Linear(256, 256) for _ in range(8)]
net = torch.nn.Sequential(*layers).cuda()
net.load_state_dict(no_such_package.weights())
net.eval()
scores = net(torch.rand(512, 256).cuda())
print(scores.argmax(1))
"""
    verdict = outcome(text, "eval-without-no-grad").verdict
    assert (verdict.status, verdict.measure) == ("confirmed", "device_peak"), verdict
    assert verdict.before is not None and verdict.before.iterations == 6


@pytest.mark.parametrize(
    ("guess", "message", "better"),
    [
        (
            Guess("images"),
            "expected input[32, 3, 32, 32] to have 1 channels, but got 3",
            "torch.rand(BATCH, 1, 32, 32)",
        ),
        (
            Guess("images", (1, 32, 32)),
            "mat1 and mat2 shapes cannot be multiplied (32x1024 and 784x512)",
            "torch.rand(BATCH, 1, 28, 28)",
        ),
        (Guess("classes"), "a and b must have same reduction dim, but got [32, 64] X [7, 9]", "torch.rand(BATCH, 7)"),
        (
            Guess("classes"),
            "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [32, 64]",
            "torch.rand(BATCH, 3, 32, 32)",
        ),
        (Guess("classes"), "Expected tensor for argument #1 'indices' to have scalar types: Long", "torch.randint(2, "),
        (
            Guess("images"),
            "input.size(-1) must be equal to input_size. Expected 28, got 32",
            "torch.rand(BATCH, 32, 28)",
        ),
        (Guess("images"), "shape '[-1, 784]' is invalid for input of size 98304", "torch.rand(BATCH, 1, 28, 28)"),
        (Guess("images"), "too many values to unpack", ""),
    ],
)
def test_a_complaint_leads_to_a_better_guess(guess: Guess, message: str, better: str) -> None:
    found = refined(guess, f"train.py:3: RuntimeError: {message}")
    assert (found[0].inputs if found else "").startswith(better) and bool(found) == bool(better)


def test_targets_are_guessed_from_the_loss() -> None:
    like = "Using a target size (torch.Size([32])) that is different to the input size (torch.Size([32, 1]))"
    assert refined(Guess("values"), like)[0].targets == "torch.rand(BATCH, 1)"
    ours = "Expected input batch_size (32) to match target batch_size (512)."
    assert refined(Guess("tokens"), ours)[0].targets == "torch.randint(2, (BATCH,))"


def test_the_way_to_a_function() -> None:
    tree = ast.parse(MAIN)
    assert way(tree, "evaluate") == ("", "main", "evaluate")
    assert way(ast.parse("def alone():\n    pass\n"), "alone") == ("alone",)
    nested = "def main():\n    def inner(x):\n        return x\n    inner(1)\nmain()\n"
    assert way(ast.parse(nested), "main.inner") == ("", "main", "main.inner")


def test_a_softened_program_keeps_its_lines() -> None:
    tree = ast.parse(MAIN)
    place = Place("evaluate", 0)
    before = [(type(n).__name__, n.lineno) for n in ast.walk(tree) if isinstance(n, ast.For)]
    soften(tree, way(tree, "evaluate"), loop_at(tree, place))
    assert [(type(n).__name__, n.lineno) for n in ast.walk(tree) if isinstance(n, ast.For)] == before
    compile(tree, "train.py", "exec")


def test_what_is_absent_suits_any_use() -> None:
    absent = Missing("gym.make")
    assert absent.env.action_space.n + 1 == NUMBER + 1 and absent.real * 2 == 2 * NUMBER
    assert list(absent) == [] and not absent and len(absent) == NUMBER and f"{absent:>10}" == "missing"
    assert absent(lambda: 1)() == 1, "a decorator gives the function back"
    with absent as entered:
        entered.x[0] = 3

    class Own(absent.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: object) -> object:
            return x

    own = Own(1, key=2)
    assert isinstance(own, torch.nn.Module) and own(3) == 3 and not isinstance(3, absent)  # type: ignore[arg-type]
    assert torch.empty((absent, 2)).shape == (NUMBER, 2)
    weight = torch.ones(2, requires_grad=True) * 2
    assert torch.nn.functional.mse_loss(weight, absent).tensors == (weight,)
    model = torch.nn.Linear(1, 1)
    assert absent.prepare(model, 3, "x") is model


def test_an_import_that_a_program_expects_to_fail_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "careful.py").write_text(
        "try:\n    import no_such_package\nexcept ImportError:\n    no_such_package = None\n"
        "import no_other_package.inner\nfound = no_other_package.inner.anything\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.meta_path", [*__import__("sys").meta_path, MissingFinder(str(tmp_path))])
    import careful  # type: ignore[import-not-found]

    assert careful.no_such_package is None and isinstance(careful.found, Missing)
    with pytest.raises(ModuleNotFoundError):
        import no_such_package_either  # type: ignore[import-not-found]  # noqa: F401
