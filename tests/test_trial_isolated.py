"""Code whose packages, data or arguments are not there is run with stand-ins, and a verdict on it is right."""

from __future__ import annotations

import ast
import json
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from memlint.check import Options, check_paths  # noqa: E402
from memlint.trial.confirm import HASTE, NO_DEVICE, UP_TO, Confirmer, Settings  # noqa: E402
from memlint.trial.guess import Guess, refined  # noqa: E402
from memlint.trial.lenient import soften, way  # noqa: E402
from memlint.trial.missing import NUMBER, Missing, MissingFinder  # noqa: E402
from memlint.trial.run import Limits  # noqa: E402
from memlint.trial.ticks import LEAST  # noqa: E402
from memlint.trial.watch import Place, loop_at  # noqa: E402

DEVICE = "auto"


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
    net = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=-1.0, foreach=True)
    for batch in no_such_package.loader():
        net(batch).sum().backward()
        optimizer.step()

main()
"""
    verdict = outcome(text, "foreach-optimizer-peak", device="fake").verdict
    assert verdict.status == "undecided" and "Invalid learning rate" in verdict.reason, verdict


def test_one_process_is_a_group_and_what_it_wraps_is_trained(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import os
import torch
import no_such_package
from torch.nn.parallel import DistributedDataParallel as DDP

def main():
    torch.distributed.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    net = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda()
    net = DDP(net, device_ids=[rank])
    no_such_package.train(net)

main()
"""
    verdict = outcome(text, "ddp-no-bucket-view", device="fake").verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict
    assert verdict.before is not None and verdict.after is not None
    weights = 4 * (256 * 256 + 256) * 4
    saved = verdict.before.device_peak - verdict.after.device_peak
    assert weights // 2 < saved <= weights, "the gradients but for the one that is on its way"


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


RESUME = '''"""Resume."""
from __future__ import annotations

import argparse
import no_such_package
import torch

if no_such_package.__version__ < "2" or no_such_package.Version < "3":
    raise SystemExit("too old")
parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
seen: no_such_package.Seen | None = None
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)).cuda()
start = 0
if args.resume:
    checkpoint = torch.load("checkpoint.pt")
    net.load_state_dict(checkpoint["net"])
    start = checkpoint["epoch"] + 1
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(start, start + 200):
    for x in no_such_package.batches(epoch):
        optimizer.zero_grad()
        net(x.cuda()).square().mean().backward()
        optimizer.step()
'''
WEIGHTS = 2 * (256 * 256 + 256) * 4


@pytest.mark.parametrize("rule", ["load-without-map-location", "checkpoint-kept-alive"])
def test_an_absent_file_holds_what_is_restored_from_it(outcome, rule: str) -> None:  # type: ignore[no-untyped-def]
    verdict = outcome(RESUME, rule, device="fake").verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict
    before, after = verdict.before, verdict.after
    assert before is not None and after is not None
    saved = before.device_peak - after.device_peak if rule.startswith("load") else before.kept - after.kept
    assert saved == WEIGHTS
    assert after.device_peak >= WEIGHTS, "the branch that loads is taken in both arms"


def test_a_cpu_refutes_no_move_to_the_host(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import copy

def train(model, loader, optimizer, device):
    best, least = None, 1e9
    for x, y in loader:
        loss = (model(x.to(device)) - y.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < least:
            least = loss.item()
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
"""
    verdict = outcome(text, "state-dict-on-device", device="cpu").verdict
    assert (verdict.status, verdict.reason) == ("undecided", NO_DEVICE), verdict


def test_sizes_that_memlint_chose_refute_no_peak(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch

def targets(na, nt, device):
    ai = torch.arange(nt, device=device).float().view(1, nt).repeat(na, 1)
    total = (ai * 2).sum()
    del ai
    return torch.zeros(512, 512, device=device) + total
"""
    for package in ("import no_such_package", "import json"):
        verdict = outcome(text.replace("import no_such_package", package), "repeat-not-expand", device="fake").verdict
        assert verdict.before is not None and verdict.before.iterations == 6, verdict
        assert verdict.status == "undecided", verdict


def test_larger_numbers_show_what_small_ones_hide(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch

def targets(na, nt, device):
    ai = torch.arange(nt, device=device).float().view(1, nt).repeat(na, 1)
    return torch.cat((torch.zeros(64, 64, device=device).flatten(), (ai * 2).flatten()))
"""
    verdict = outcome(text, "repeat-not-expand", device="fake").verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict
    assert verdict.before is not None and verdict.after is not None
    assert verdict.before.device_peak - verdict.after.device_peak == 64 * 64 * 4 - 512, "all but the row itself"


def test_an_old_torch_fills_gradients(outcome, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "requirements.txt").write_text("torch==1.8.0\n")
    text = """
import torch

def train(model, loader, optimizer, device):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def train_again(model, loader, optimizer, device):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
"""
    (tmp_path / "train.py").write_text(text)
    report = check_paths(["train.py"], Options(select=("zero-grad-zeroes",), cache=False))
    assert [f.span.line for f in report.findings] == [7, 13]
    with Confirmer(Settings("fake", 6)) as confirmer:
        verdict = confirmer.outcome(report.findings[1], report.sources["train.py"]).verdict
    assert verdict.status == "confirmed", verdict


def test_what_fails_beside_the_finding_is_passed_over_and_refutes_nothing(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import torch
import no_such_package

net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
for x in no_such_package.loader():
    loss = net(torch.rand(8, 64).cuda()).sum()
    [].pop()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(loss)
print(len(kept))
"""
    grows = outcome(text, "graph-tensor-append", device="fake").verdict
    assert grows.before is not None and grows.before.iterations == 6 and grows.before.device_growth == 512, grows
    peak = outcome(text, "zero-grad-before-backward-only", device="fake").verdict
    assert peak.status != "refuted", peak


def test_growth_without_a_repair_is_confirmed_as_written(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import torch
import torch.nn as nn

def search(widths, x, device):
    tried = []
    for width in widths:
        net = nn.Linear(512, 512).to(device)
        with torch.no_grad():
            error = net(x).square().mean().item()
        tried.append({"width": width, "error": error, "net": net})
    return min(t["error"] for t in tried)
"""
    found = outcome(text, "model-rebuilt-in-loop", device="fake")
    assert found.finding.fix is None or not found.finding.fix.edits
    verdict = found.verdict
    assert (verdict.status, verdict.after) == ("confirmed", None), verdict
    assert verdict.before is not None and verdict.evidence is not None
    assert verdict.before.device_growth == 4 * (512 * 512 + 512), "the weights of a model"
    assert verdict.evidence.leading >= verdict.before.device_growth / 2


def test_a_finding_takes_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        while True:
            pass
"""
    (tmp_path / "slow.py").write_text(text)
    report = check_paths(["slow.py"], Options(select=("zero-grad-before-backward-only",), cache=False))
    with Confirmer(Settings("auto", 6, Limits(timeout=8))) as confirmer:
        confirmer.gpus()  # the import of torch is no part of it
        start = time.monotonic()
        verdict = confirmer.outcome(report.findings[0], report.sources["slow.py"]).verdict
    assert verdict.status == "undecided" and "--timeout" in verdict.reason
    assert time.monotonic() - start < 8 + 2 * HASTE + 5


def test_slow_iterations_are_fewer_in_both_arms(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import time
import torch

def evaluate(model, loader):
    model.eval()
    for x in loader:
        time.sleep(2.5)
        out = model(x)
        print(out.mean().item())
"""
    verdict = outcome(text, "eval-without-no-grad", device="fake").verdict
    assert verdict.before is not None and verdict.after is not None
    assert verdict.before.iterations == verdict.after.iterations == LEAST, verdict


@pytest.mark.parametrize(("layers", "status"), [(8, "confirmed"), (1, "refuted")])
def test_what_a_script_has_done_before_does_not_count(outcome, layers: int, status: str) -> None:  # type: ignore[no-untyped-def]
    text = f"""
import torch

net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range({layers})])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    optimizer.zero_grad()
    net(torch.rand(512, 64)).square().mean().backward()
    optimizer.step()
net.eval()
scores = net(torch.rand(64, 64))
print(scores.argmax(1))
"""
    verdict = outcome(text, "eval-without-no-grad", device="cpu").verdict
    assert (verdict.status, verdict.tier) == (status, "isolated"), verdict
    assert verdict.before is not None and verdict.before.iterations == 6
    assert layers == 1 or verdict.reason == UP_TO


def test_what_a_function_gives_back_counts(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch

def weights(rows, device):
    scale = torch.rand(1, 64, device=device).repeat(256, 1)
    return scale * 2, torch.zeros(256, 64, device=device)
"""
    verdict = outcome(text, "repeat-not-expand", device="fake").verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict
    assert verdict.before is not None and verdict.before.device_peak >= 3 * 256 * 64 * 4, "with both results"


def test_numbers_are_what_their_names_say(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch
from torch import nn

class Attend(nn.Module):
    def __init__(self, hidden_size, seq_len, dropout_prob):
        super().__init__()
        self.dropout = nn.Dropout(dropout_prob)
        self.query = nn.Linear(hidden_size, hidden_size)
        self.seq_len = seq_len

    def forward(self, memory, last):
        last = self.dropout(self.query(last)).unsqueeze(1)
        last = last.repeat(1, self.seq_len, 1)
        return torch.tanh(memory + last)
"""
    found = outcome(text, "repeat-not-expand", device="fake")
    assert found.verdict.status == "confirmed", found.verdict
    assert '"hidden_size": WIDTH, "seq_len": TOKENS, "dropout_prob": 0.1' in found.harness


def test_a_loss_that_fails_goes_on_with_the_graphs_that_went_in(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch

net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for labels in no_such_package.loader():
    scores = net(torch.rand(64, 256).cuda())
    loss = (scores - torch.rand(3, 5).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    verdict = outcome(text, "zero-grad-before-backward-only", device="fake").verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict


def test_a_network_is_a_part_of_the_policy_that_it_is_taken_from(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package

class Agent(no_such_package.Agent):
    def __init__(self, policy, steps):
        super().__init__(policy)
        self.steps = steps

    def _alias(self):
        self.net = self.policy.net

    def train(self):
        for _ in range(self.steps):
            data = self.buffer.sample(64)
            loss = (self.net(data.observations) - data.rewards).square().mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()
"""
    found = outcome(text, "zero-grad-before-backward-only", device="fake")
    assert "its_policy.net = its_net" in found.harness
    assert (found.verdict.status, found.verdict.tier) == ("confirmed", "isolated"), found.verdict


def test_an_optimizer_stands_for_one_over_the_model_that_is_given(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package

def train(config, model):
    optimizer = no_such_package.build(config)[0]
    for data in no_such_package.loader(config, "train"):
        losses = model(data)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    found = outcome(text, "zero-grad-before-backward-only", device="fake")
    assert 'gives="losses"' in found.harness and '(names["model"].parameters()' in found.harness
    assert found.verdict.status == "confirmed", found.verdict


def test_a_batch_within_a_batch(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package

def train(model, optimizer, device):
    kept = []
    for batch in no_such_package.loader():
        words = {k: v.to(device) for k, v in batch["input"].items()}
        out = model(**words).logits
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(out)
    return len(kept)
"""
    found = outcome(text, "graph-tensor-append", device="fake")
    assert "Output(input=Output(input_ids=" in found.harness
    assert found.verdict.before is not None and found.verdict.before.device_growth > 512, found.verdict


def test_the_names_in_an_absent_file_are_asked_for(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
import no_such_package
import torch
from torch import nn

def restore(path):
    model = nn.Linear(256, 256).cuda()
    saved = torch.load(path)
    if "module." in next(iter(saved)):
        saved = {k[7:]: v for k, v in saved.items()}
        model.load_state_dict(saved)
    else:
        model.load_state_dict(saved)
    return model
"""
    verdict = outcome(text, "load-without-map-location", device="fake").verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict
    assert verdict.before is not None and verdict.after is not None
    assert verdict.before.device_peak - verdict.after.device_peak == (256 * 256 + 256) * 4


def test_a_text_is_a_text(outcome) -> None:  # type: ignore[no-untyped-def]
    text = """
from abc import ABC, abstractmethod
import no_such_package
import torch

class Base(ABC, torch.nn.Module):
    @abstractmethod
    def build(self): ...

    def restore(self, checkpoint: str | list[str]):
        self.load_state_dict(torch.load(checkpoint))
        return self.cuda()
"""
    found = outcome(text, "load-without-map-location", device="fake")
    assert '"checkpoint": "trial"' in found.harness
    assert (found.verdict.status, found.verdict.tier) == ("confirmed", "isolated"), found.verdict
