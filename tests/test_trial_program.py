"""`memlint run`: the user's program as without memlint, and what is measured in it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memlint.check import Options, check_paths
from memlint.rule import Claim
from memlint.source import Source
from memlint.trial.confirm import on_target
from memlint.trial.judge import undecided
from memlint.trial.program import ONLY_WRITTEN, Program, ProgramError, Run, Watching, files_of
from memlint.trial.traced import Bench, Overlay
from memlint.trial.watch import WATCH

ROOT = str(Path(__file__).parents[1])
Result = subprocess.CompletedProcess[str]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, of a project of its own."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("MEMLINT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path / "work"


def plain(*words: str, text: str = "") -> Result:
    return subprocess.run([sys.executable, *words], input=text, capture_output=True, text=True, timeout=120)


def memlint(*words: str, text: str = "") -> Result:
    return plain("-m", "memlint", "run", *words, text=text)


def put(at: Path, name: str, text: str) -> None:
    (at / name).write_text(text)


PROBE = """\
import os, pickle, sys, threading

class Thing:
    value: int = 1

def given(n: int) -> int:
    return n

print(sys.argv, __name__, __package__, __spec__ and __spec__.name, os.path.relpath(__file__), __doc__)
print(os.path.realpath(sys.path[0]), os.getcwd(), given.__annotations__, type(__loader__).__name__)
print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, sys.modules["__main__"].Thing is Thing)
print("torch" in sys.modules, threading.current_thread() is threading.main_thread(), sys.stdin.read())
print(sorted(name for name in globals() if not name.startswith("__cached")))
losses = []
for x in [1, 2, 3]:
    losses.append(x)
print(losses, sys.stdin.isatty())
sys.exit(len(sys.argv) + 40)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("probe.py",),
        ("sub/probe.py", "--steps", "3", "-m", "--json", "--", "x"),
        ("-m", "probe", "--select", "y"),
        ("-m", "package.inner"),
        ("-m", "package"),
    ],
)
def test_the_program_sees_what_it_sees_without_memlint(at: Path, words: tuple[str, ...]) -> None:
    (at / "sub").mkdir()
    (at / "package").mkdir()
    for name in ("probe.py", "sub/probe.py", "package/__init__.py", "package/__main__.py", "package/inner.py"):
        (at / name).write_text("" if name.endswith("__init__.py") else PROBE)
    expected, found = plain(*words, text="some input"), memlint(*words, text="some input")
    assert found.stdout == expected.stdout and "some input" in found.stdout
    assert found.returncode == expected.returncode == 41 + len(words) - 1 - (words[0] == "-m")


@pytest.mark.parametrize(
    "body",
    [
        "def f():\n    raise ValueError('boom')\nfor i in [1]:\n    f()\n",
        "import sys\nsys.exit('a message')\n",
        "import os\nos._exit(7)\n",
        "import sys\nsys.excepthook = lambda *about: print('my own hook', about[0])\nraise OSError\n",
        "import atexit\natexit.register(print, 'at exit')\n1 / 0\n",
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nimport time; time.sleep(30)\n",
        "import atexit\natexit.register(print, 'at exit')\nraise KeyboardInterrupt\n",
        "x = (\n",
    ],
)
def test_it_ends_as_without_memlint(at: Path, body: str) -> None:
    (at / "ends.py").write_text(body)
    expected, found = plain("ends.py"), memlint("ends.py")
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert expected.stderr in found.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_reach_the_program(at: Path, number: signal.Signals) -> None:
    (at / "waits.py").write_text(
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *about: sys.exit(9))\n"
        "print('ready', flush=True)\ntime.sleep(30)\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "memlint", "run", "waits.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # no terminal sends it anything
    )
    assert running.stdout is not None and running.stdout.readline() == b"ready\n"
    running.send_signal(number)
    assert running.wait(20) == 9
    running.stdout.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "missing the SCRIPT"),
        (("-m",), "-m needs a MODULE"),
        (("absent.py",), "no such script: absent.py"),
        (("--steps", "2", "a.py"), "neither a number from 4 on nor 'all'"),
        (("book.ipynb",), "book.ipynb is no Python script"),
    ],
)
def test_misuse_is_one_line(at: Path, words: tuple[str, ...], message: str) -> None:
    (at / "book.ipynb").write_text("{}")
    found = memlint(*words)
    assert found.returncode == 2 and message in found.stderr and len(found.stderr.splitlines()) == 1


def test_the_files_of_a_program_are_found_without_importing_any(at: Path) -> None:
    boom = "raise SystemExit('imported')\n"
    (at / "src").mkdir()
    (at / "package").mkdir()
    (at / "main.py").write_text("import torch, package.part\nfrom deep import *\n" + boom)
    (at / "package" / "__init__.py").write_text(boom)
    (at / "package" / "part.py").write_text("from . import other\nfrom .absent import x\n" + boom)
    (at / "package" / "other.py").write_text("import main, broken\n" + boom)
    (at / "package" / "__main__.py").write_text("import package.other\n")
    (at / "src" / "deep.py").write_text(boom)
    (at / "broken.py").write_text("def (\n")
    (at / "unused.py").write_text(boom)
    inside = {"package/__init__.py", "package/part.py", "package/other.py", "src/deep.py", "broken.py"}
    assert set(files_of("main.py")) == {"main.py", *inside}
    for name, file in (("package", "package/__main__.py"), ("package.part", "package/part.py"), ("main", "main.py")):
        assert Program(module=name).entry() == str(at / file)
    assert Program(module="package.nothing").entry() is None
    with pytest.raises(ProgramError, match="no such script"):
        Program(script="nothing.py").entry()


TWO = """\
import torch


def train(model, loader, optimizer):
    losses = []
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = (model(x) - y).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
    right = 0
    model.eval()
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    return right


model = torch.nn.Linear(4, 4)
train(model, [(torch.ones(2, 4), torch.ones(2, 4))] * 9, torch.optim.SGD(model.parameters(), lr=0.1))
"""


def test_fixes_that_could_be_taken_for_each_other_are_run_apart(at: Path) -> None:
    put(at, "two.py", TWO)
    report = check_paths(["two.py"], Options(cache=False, select=("MEM101", "MEM104", "MEM201")))
    watching = Watching(report.findings, report.sources)
    assert [(w.finding.code, w.key) for w in watching.findings] == [("MEM201", 0), ("MEM104", 0), ("MEM101", 1)]
    arms: dict[int, dict[str, Any]] = {key: {"readings": [{}] * 9} for key in (0, 1)}

    def rounds(before: Run) -> list[list[str]]:
        return [[w.finding.code for w in one.watched] for one in watching.rounds(before)]

    assert rounds(Run(0, arms, {0, 1, 2})) == [["MEM201", "MEM101"], ["MEM104"]]
    assert rounds(Run(0, arms, {0, 1, 2}, {(1, 0)})) == [["MEM201"], ["MEM104"], ["MEM101"]], "one within the other"
    assert rounds(Run(0, arms, {1})) == [["MEM104"]], "the others did not run"
    assert rounds(Run(0, {1: arms[1], 0: {"readings": [{}] * 3}}, {0, 1, 2})) == [["MEM101"]], "too few iterations"
    texts = watching.rounds(Run(0, arms, {0, 1, 2}))[0].texts
    assert "with torch.no_grad()" in texts["two.py"] and "set_to_none" not in texts["two.py"]
    assert "retain_graph" in texts["two.py"]


def test_a_script_for_an_older_torch_is_not_refuted_by_a_newer_one(at: Path) -> None:
    put(at, "two.py", '"""Needs\n\ntorch: 0.4\n"""\n' + TWO)
    (finding,) = check_paths(["two.py"], Options(cache=False, select=("MEM104",))).findings
    verdict = replace(undecided(Claim.PEAK, "traced", "cpu", ""), status="refuted")
    found = on_target(verdict, Source.read("two.py"), "2.13.0+cpu")
    assert finding.code == "MEM104" and found.status == "undecided" and "torch 0.4" in found.reason
    put(at, "two.py", TWO)
    assert on_target(verdict, Source.read("two.py"), "2.13.0+cpu") == verdict


def test_a_file_that_is_nested_too_deeply_runs_unwatched(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(at, "flat.py", "for x in [1]:\n    pass\n")
    data = (at / "flat.py").read_bytes()
    plan = {"digest": hashlib.sha256(data).hexdigest(), "text": data.decode(), "repaired": False, "hits": []}
    path = str((at / "flat.py").resolve())
    overlay = Overlay({path: {**plan, "places": [["", 0, 0]]}}, Bench(None, [], os.open(os.devnull, os.O_WRONLY)))
    code = overlay.code(path)
    assert code is not None and WATCH in code.co_names

    def too_deep(*about: Any) -> None:
        raise RecursionError

    monkeypatch.setattr("memlint.trial.traced.rewrite", too_deep)
    assert overlay.code(path) is None, "it is imported as it is"
    monkeypatch.undo()
    (at / "flat.py").write_bytes(data + b"# changed since it was checked\n")
    assert overlay.code(path) is None


torch = pytest.importorskip("torch")

TRAIN = """\
import sys

import torch
import torch.nn.functional as F

from more import evaluate


def train(model, loader, optimizer):
    outputs = []
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        outputs.append(out)
    return len(outputs)


if __name__ == "__main__":
    torch.manual_seed(0)
    device = sys.argv[1]
    hidden = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()]
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), *hidden, torch.nn.Linear(512, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [(torch.randn(32, 64, device=device), torch.randint(8, (32,), device=device)) for _ in range(10)]
    for epoch in range(3):
        print(epoch, train(model, loader, optimizer), evaluate(model, loader))
    print("trained")
"""
MORE = """\
import torch


def evaluate(model, loader):
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    return right > 0
"""


def verdicts(at: Path) -> dict[str, Any]:
    document = json.loads((at / "verdicts.json").read_text())
    return {finding["code"]: finding["verdict"] for finding in document["findings"]}


SAVE = ("--json", "--output-file", "verdicts.json")


def test_both_loops_are_measured_and_the_program_stops_when_they_are(at: Path) -> None:
    put(at, "train.py", TRAIN)
    put(at, "more.py", MORE)
    found = memlint("--steps", "8", *SAVE, "train.py", "cpu")
    assert (found.returncode, found.stdout) == (0, ""), "neither loop is whole, so nothing is printed"
    by_code = verdicts(at)
    assert {code: v["iterations"] for code, v in by_code.items()} == {"MEM101": 8, "MEM103": 8}
    assert all(v["tier"] == "traced" and v["device"] == "cpu" and v["reason"] == ONLY_WRITTEN for v in by_code.values())
    leak, peak = by_code["MEM103"], by_code["MEM101"]
    # the logits of each batch, and the loss's saved log-probabilities are gone with backward
    assert leak["before"]["device_growth"] == 32 * 8 * 4 and leak["after"] is None
    stack = leak["evidence"]["stacks"][0]
    assert stack["leads"] and [Path(f).name for f, _ in stack["frames"]] == ["train.py", "train.py"]
    assert [line for _, line in stack["frames"]] == [13, 29]
    assert leak["evidence"]["bytes"] == leak["evidence"]["of"] == 32 * 8 * 4
    assert peak["before"]["device_growth"] == 0 and peak["before"]["device_peak"] >= 32 * 512 * 4


def test_ab_confirms_what_the_repair_saves_and_changes_no_file(at: Path) -> None:
    put(at, "train.py", TRAIN.replace("outputs.append(out)", "outputs.append(loss)"))
    put(at, "more.py", MORE)
    found = memlint("--ab", "--steps", "all", "train.py", "cpu")
    expected = plain("train.py", "cpu")
    assert found.stdout == 2 * expected.stdout and found.returncode == 0
    assert "2 confirmed." in found.stderr and "confirmed: growth an iteration on the host" in found.stderr
    assert "confirmed: peak" in found.stderr and "(cpu, tier traced, 30 iterations)" in found.stderr
    assert "lead here, most from more.py:7 in train.py:29" in found.stderr
    assert "append(loss)" in (at / "train.py").read_text()


def test_a_loop_that_is_not_reached_and_a_statement_that_does_not_run(at: Path) -> None:
    text = TRAIN.replace("        outputs.append(out)", "        if y is None:\n            outputs.append(out)")
    put(at, "train.py", text.replace("evaluate(model, loader))", "device == 'tpu' and evaluate(model, loader))"))
    put(at, "more.py", MORE)
    found = memlint("--steps", "6", *SAVE, "train.py", "cpu")
    assert found.returncode == 0 and found.stdout.endswith("trained\n"), "one loop is never reached, so none stops it"
    by_code = verdicts(at)
    assert by_code["MEM101"]["reason"] == "the program did not reach it"
    assert by_code["MEM103"]["reason"] == "the flagged statement did not run in the iterations that were measured"
    assert {v["status"] for v in by_code.values()} == {"undecided"}


def test_out_of_memory_as_written_is_a_result(at: Path) -> None:
    text = TRAIN.replace("        outputs.append(out)", "        outputs.append(out)\n        full(outputs)")
    text = text.replace(
        "from more import evaluate\n",
        """
def full(outputs):
    if len(outputs) == 7 and outputs[0].requires_grad:
        torch.empty(1 << 20)
        raise MemoryError("no more of it")
""",
    ).replace(", evaluate(model, loader))", ")")
    put(at, "train.py", text)
    found = memlint("--ab", *SAVE, "train.py", "cpu")
    assert found.returncode == 1 and "MemoryError: no more of it" in found.stderr
    verdict = verdicts(at)["MEM103"]
    assert verdict["status"] == "confirmed" and verdict["reason"] == "as written: MemoryError: no more of it"
    assert verdict["before"]["device_peak"] > 4 << 20 > verdict["after"]["device_peak"]


def test_a_program_that_is_killed_leaves_what_was_measured(at: Path) -> None:
    text = TRAIN.replace("        outputs.append(out)", "        outputs.append(out)\n        die(outputs)")
    put(
        at,
        "train.py",
        text.replace(
            "def train",
            "import os\n\ndef die(outputs):\n    if len(outputs) == 7:\n        os.kill(os.getpid(), 9)\n\n\ndef train",
        ),
    )
    put(at, "more.py", MORE)
    found = memlint(*SAVE, "train.py", "cpu")
    assert found.returncode == -9
    verdict = verdicts(at)["MEM103"]
    assert verdict["iterations"] == 6 and verdict["before"]["device_growth"] == 32 * 8 * 4


def test_a_method_ticks_at_each_call_and_workers_are_left_alone(at: Path) -> None:
    put(
        at,
        "fit.py",
        """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 256)
        self.outputs = []

    def training_step(self, batch):
        out = self.layer(batch)
        self.outputs.append(out)
        return out.mean()


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in torch.utils.data.DataLoader(torch.randn(64, 16), batch_size=4, num_workers=1):
        optimizer.zero_grad()
        loss = net.training_step(batch)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
""",
    )
    found = memlint("--steps", "6", *SAVE, "fit.py")
    assert found.returncode == 0, found.stderr
    growing = [v for v in verdicts(at).values() if v["claim"] == "growth"]
    assert growing and all(v["before"]["device_growth"] == 4 * 256 * 4 for v in growing)
    assert all(v["evidence"]["bytes"] == v["evidence"]["of"] for v in growing)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_the_allocator_s_own_history_is_the_evidence(at: Path) -> None:
    put(at, "train.py", TRAIN.replace("outputs.append(out)", "outputs.append(loss)"))
    put(at, "leak.py", TRAIN)
    put(at, "more.py", MORE)
    assert memlint("--ab", "--steps", "10", *SAVE, "train.py", "cuda").returncode == 0
    by_code = verdicts(at)
    assert {v["status"] for v in by_code.values()} == {"confirmed"}
    for code in ("MEM103", "MEM101"):
        assert by_code[code]["device"] == torch.cuda.get_device_name(0)
    # Every loss kept is some 14 KB of host memory; an H200 still shows 2.5 KB an iteration of the process's own.
    assert by_code["MEM103"]["before"]["host_growth"] > 4 * by_code["MEM103"]["after"]["host_growth"]
    evidence = by_code["MEM101"]["evidence"]
    assert [Path(f).name for f, _ in evidence["stacks"][0]["frames"]] == ["more.py", "train.py"]
    assert evidence["bytes"] >= 2 * 32 * 512 * 4
    memlint("--steps", "10", *SAVE, "--select", "MEM103", "leak.py", "cuda")
    leak = verdicts(at)["MEM103"]
    assert leak["before"]["device_growth"] == leak["evidence"]["bytes"] == leak["evidence"]["of"] == 32 * 8 * 4
    assert [line for _, line in leak["evidence"]["stacks"][0]["frames"]] == [13, 29]
