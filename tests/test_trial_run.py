"""Trials in their child: what they measure, what limits them, what they leave alone."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from memlint.rule import Claim  # noqa: E402
from memlint.trial.judge import Measurement, judge  # noqa: E402
from memlint.trial.run import CLOSED, Limits, Spec, TrialError, Trials  # noqa: E402
from memlint.trial.watch import locate  # noqa: E402

MIB, KIB = 2**20, 2**10
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere nobody tells a process that its parent is gone"
)


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    with Trials(Limits(timeout=60)) as running:
        yield running


def spec(folder: Path, text: str, at: str, repair: tuple[str, str] = ("", ""), **more: Any) -> Spec:
    """A trial of the module ``text``, ticking in the loop around ``at``; the repaired arm has ``repair`` applied."""
    line = next(n for n, row in enumerate(text.splitlines(), 1) if at in row)
    place = locate(text, line, text.splitlines()[line - 1].index(at) + 1)
    arms = {"before": text, "after": text.replace(*repair) if repair[0] else text}
    path = folder / "under_trial.py"
    settings = {"device": "cpu", "steps": 6, **more}
    return Spec(str(path), "under_trial", str(folder), (str(folder),), place.function, place.loop, arms, **settings)


LEAK = """
import torch

def train(model, loader):
    kept = []
    for x in loader:
        loss = model(x).pow(2).mean()
        kept.append(loss)
    return kept

def setup(device):
    model = torch.nn.Linear(64, 256).to(device)
    return {"model": model, "loader": [torch.ones(32, 64, device=device) for _ in range(20)]}
"""
DETACHED = ("append(loss)", "append(loss.detach())")


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_growth_to_the_byte(trials: Trials, tmp_path: Path, device: str) -> None:
    answer = trials.run(spec(tmp_path, LEAK, "kept.append", DETACHED, device=device))
    before, after = (Measurement.of(answer.data[arm]) for arm in ("before", "after"))
    # linear's output, which pow saves, and the loss; the graph of the last iteration alone is alive once repaired
    assert before.device_growth == 32 * 256 * 4 + 512
    assert after.device_growth == 512
    assert before.iterations == after.iterations == 6, "20 batches, of which 6 are measured"
    assert judge(Claim.GROWTH, answer, "harness", device).status == "confirmed"
    assert answer.data["results"] == ("identical" if device == "cpu" else "not compared")


def test_a_spent_graph_grows_on_the_host_alone(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("        kept.append", "        loss.backward()\n        kept.append")
    answer = trials.run(spec(tmp_path, text, "kept.append", DETACHED, steps=12))
    found = judge(Claim.GROWTH, answer, "harness", "cpu")
    assert (found.status, found.measure) == ("confirmed", "host_growth")
    assert found.before is not None and found.after is not None
    assert found.before.device_growth == found.after.device_growth == 512
    assert found.before.host_growth > 1000 > found.after.host_growth


def test_different_results_are_seen(trials: Trials, tmp_path: Path) -> None:
    answer = trials.run(spec(tmp_path, LEAK, "kept.append", ("mean()", "sum()")))
    assert answer.data["results"] == "different"
    assert answer.data["differs"].startswith("returned[")
    close = trials.run(spec(tmp_path, LEAK, "kept.append", ("mean()", "mul(1 + 1e-7).mean()")))
    assert close.data["results"] == "close"


def test_names_of_files_are_no_results(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("import torch\n", "import tempfile\n\nimport torch\n", 1).replace(
        "def train(model, loader):", "def train(model, loader, path):"
    )
    text = text.replace('return {"model"', 'return {"path": tempfile.mkstemp()[1], "model"')
    assert trials.run(spec(tmp_path, text, "kept.append", DETACHED)).data["results"] == "identical"


def test_hits_are_counted_where_a_statement_is_flagged(trials: Trials, tmp_path: Path) -> None:
    assert "hits" not in trials.run(spec(tmp_path, LEAK, "kept.append", DETACHED)).data["before"]
    line = next(n for n, row in enumerate(LEAK.splitlines(), 1) if "kept.append" in row)
    counted = trials.run(spec(tmp_path, LEAK, "kept.append", DETACHED, flagged={"before": (line, 8)})).data["before"]
    assert counted["hits"] >= 6


def test_a_function_without_a_loop_ticks_at_each_call(trials: Trials, tmp_path: Path) -> None:
    text = """
import torch

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 256)
        self.outputs = []

    def training_step(self, batch):
        out = self.layer(batch)
        self.outputs.append(out)

def setup(device):
    return {"self": Module().to(device), "batch": torch.ones(4, 8, device=device)}
"""
    answer = trials.run(spec(tmp_path, text, "self.outputs.append", ("append(out)", "append(out.mean().item())")))
    before, after = (Measurement.of(answer.data[arm]) for arm in ("before", "after"))
    assert (before.device_growth, after.device_growth) == (4 * 256 * 4, 0)


def test_a_harness_drives_the_function(trials: Trials, tmp_path: Path) -> None:
    harness = """
import torch
target = "train"

def setup(device):
    return {"n": 8}

def run(function, arguments):
    return function(torch.nn.Linear(4, 4), [torch.ones(2, 4)] * arguments["n"])
"""
    answer = trials.run(spec(tmp_path, LEAK, "kept.append", DETACHED, harness=harness))
    assert answer.data["before"]["ended"] == "returned"
    assert len(answer.data["before"]["readings"]) == 7


def test_an_endless_loop_ends_after_its_steps(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("    for x in loader:", "    x = loader[0]\n    while True:")
    answer = trials.run(spec(tmp_path, text, "kept.append", DETACHED))
    assert answer.data["before"]["ended"] == "returned"
    assert Measurement.of(answer.data["before"]).device_growth == 32 * 256 * 4 + 512


def test_loops_around_the_watched_one_are_cut_short(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("    for x in loader:", "    while True:\n      for x in loader:")
    answer = trials.run(spec(tmp_path, text, "kept.append", DETACHED))
    assert answer.data["before"]["ended"] == "cut short"
    assert judge(Claim.GROWTH, answer, "harness", "cpu").status == "confirmed"


def test_out_of_memory_as_written_is_a_result(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("Linear(64, 256)", "Linear(64, 4096)")
    answer = trials.run(spec(tmp_path, text, "kept.append", DETACHED, device_limit=4 * MIB))
    found = judge(Claim.GROWTH, answer, "harness", "cpu")
    assert found.status == "confirmed" and "limit" in found.reason
    assert found.before is not None and 4 * MIB < found.before.device_peak < 5 * MIB


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import no_such_module\n" + LEAK,
            "import: under_trial.py:1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (LEAK.replace("return {", "return {'no': 1, "), "TypeError"),
        (LEAK.replace("    kept = []", "    kept = []\n    raise SystemExit('enough')"), "SystemExit: enough"),
        (LEAK.replace("Linear(64, 256)", "Linear(63, 256)"), "under_trial.py:7: RuntimeError"),
        (LEAK.replace("def setup(device):", "def setup(device):\n    import os\n    os._exit(3)"), "exit status 3"),
        (
            LEAK.replace("def setup(device):", "def setup(device):\n    import os\n    os.kill(os.getpid(), 9)"),
            "killed by SIGKILL",
        ),
    ],
)
def test_what_fails_is_undecided_with_the_reason(trials: Trials, tmp_path: Path, text: str, words: str) -> None:
    answer = trials.run(spec(tmp_path, text, "kept.append", DETACHED))
    found = judge(Claim.GROWTH, answer, "called", "cpu")
    assert found.status == "undecided"
    assert words in found.reason


def test_a_failure_after_the_loop_does_not_spoil_it(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("    return kept", "    raise OSError('no room for the plot')")
    answer = trials.run(spec(tmp_path, text, "kept.append", DETACHED))
    assert judge(Claim.GROWTH, answer, "called", "cpu").status == "confirmed"
    assert answer.data["results"] == "not compared"


def test_time_is_limited_and_the_whole_group_dies(trials: Trials, tmp_path: Path) -> None:
    pid_file = tmp_path.parent / "grandchild"
    text = LEAK.replace(
        "    kept = []",
        "    import multiprocessing, time\n"
        "    child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,))\n"
        "    child.start()\n"
        f"    open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "    time.sleep(60)\n    kept = []",
    )
    trials.gpus()  # the import of torch is not the trial's time
    started = time.monotonic()
    answer = trials.run(spec(tmp_path, text, "kept.append"), Limits(timeout=2))
    assert answer.fate == "timeout"
    assert time.monotonic() - started < 8
    assert "--timeout" in judge(Claim.GROWTH, answer, "called", "cpu").reason
    grandchild = int(pid_file.read_text())
    for _ in range(100):
        if not _alive(grandchild):
            break
        time.sleep(0.05)
    assert not _alive(grandchild)
    assert trials.run(spec(tmp_path, LEAK, "kept.append")).fate == "ended", "the server lives on"


@pytest.mark.parametrize("how", ["closed", pytest.param("killed", marks=on_linux)])
def test_a_trial_ends_with_the_process_that_started_it(tmp_path: Path, how: str) -> None:
    pid_file = tmp_path.parent / f"running-{how}"
    text = LEAK.replace(
        "    kept = []",
        f"    import os, time\n    open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n    kept = []",
    )
    trials = Trials()
    trials.gpus()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(trials.run(spec(tmp_path, text, "kept.append"))))
    thread.start()
    while not (pid_file.exists() and pid_file.read_text()):
        time.sleep(0.02)
    running = int(pid_file.read_text())
    assert _alive(running)
    if how == "killed":
        os.kill(int(Path(f"/proc/{running}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        thread.join(10)
        assert answers[0].fate.startswith("ended with the trial process")
    trials.close()
    thread.join(10)
    for _ in range(100):
        if not _alive(running):
            break
        time.sleep(0.05)
    assert not _alive(running)
    with pytest.raises(TrialError, match=CLOSED):
        trials.run(spec(tmp_path, text, "kept.append"))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="resident memory is read from /proc")
def test_host_memory_is_limited(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("    kept = []", "    kept = [bytearray(10_000_000) for _ in range(200)]")
    answer = trials.run(spec(tmp_path, text, "kept.append"), Limits(60, 900 * MIB))
    assert answer.fate == "memory"
    assert "--memory-limit" in judge(Claim.GROWTH, answer, "called", "cpu").reason


def test_the_users_code_starts_no_programs(trials: Trials, tmp_path: Path) -> None:
    library = tmp_path / "lib" / "site-packages"
    library.mkdir(parents=True)
    (library / "installed.py").write_text("import subprocess\ndef start(command): return subprocess.call(command)\n")
    mark = tmp_path.parent / f"{tmp_path.name}-started"
    text = f"""
import os, subprocess, sys, torch
sys.path.append({str(library)!r})
import installed

MARK = {str(mark)!r}

def train(model, loader, tried):
    for x in loader:
        model(x).sum()
    assert os.system("touch " + MARK) == 127 << 8
    for start in (
        lambda: subprocess.run(["touch", MARK]),
        lambda: os.popen("touch " + MARK),
        lambda: os.posix_spawn("/bin/touch", ["touch", MARK], os.environ),
        lambda: os.execv("/bin/touch", ["touch", MARK]),
    ):
        try:
            start()
        except PermissionError as error:
            assert "touch " + MARK in str(error)
            tried.append(True)
    return [len(tried), os.path.exists(MARK), installed.start(["true"])]

def setup(device):
    return {{"model": torch.nn.Linear(2, 2), "loader": [torch.ones(1, 2)] * 4, "tried": []}}
"""
    expected = text.replace(
        "    return [len(tried), os.path.exists(MARK), installed", "    return [4, False, 0] or [installed"
    )
    answer = trials.run(spec(tmp_path, text, "model(x)", (text, expected)))
    assert answer.data["results"] == "identical", answer
    assert not mark.exists()


def test_nothing_is_written_in_the_users_tree(trials: Trials, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    (tmp_path / "data.txt").write_text("as it was")
    text = f"""
import os, torch, helper

HERE = {str(tmp_path)!r}

def train(model, loader, tried):
    for x in loader:
        model(x).sum()
    open("relative.txt", "w").write("goes to the temporary folder")
    for action in (
        lambda: open(os.path.join(HERE, "new.txt"), "w"),
        lambda: open(os.path.join(HERE, "data.txt"), "a"),
        lambda: os.remove(os.path.join(HERE, "data.txt")),
        lambda: os.mkdir(os.path.join(HERE, "folder")),
        lambda: os.rename(os.path.join(HERE, "data.txt"), "elsewhere"),
        lambda: torch.save(model.state_dict(), os.path.join(HERE, "model.pt")),
    ):
        try:
            action()
        except PermissionError:
            tried.append(True)
    return len(tried)

def setup(device):
    return {{"model": torch.nn.Linear(2, 2), "loader": [torch.ones(1, 2)] * 4, "tried": []}}
"""
    wrong = text.replace("lambda: os.mkdir", "lambda: None and os.mkdir")
    answer = trials.run(spec(tmp_path, text, "model(x)", (text, wrong)))
    assert answer.data["before"]["ended"] == "returned"
    assert answer.data["differs"] == "returned", "six refusals against five"
    assert sorted(os.listdir(tmp_path)) == ["data.txt", "helper.py"]
    assert (tmp_path / "data.txt").read_text() == "as it was"


def test_the_trial_s_own_folder_is_writable_wherever_it_lies(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("    kept = []", "    kept = []\n    open('scratch', 'w').write('x')")
    answer = trials.run(replace(spec(tmp_path, text, "kept.append", DETACHED), root=tempfile.gettempdir()))
    assert answer.data["before"]["ended"] == "returned", answer.data["before"]


def test_other_files_of_the_project_come_from_disk_and_anew_for_each_arm(trials: Trials, tmp_path: Path) -> None:
    (tmp_path / "state.py").write_text("SEEN = []\n")
    text = LEAK.replace("import torch", "import torch\nimport state").replace(
        "    kept = []", "    kept = []\n    state.SEEN.append(1)"
    )
    text = text.replace("return kept", "return len(state.SEEN)")
    answer = trials.run(spec(tmp_path, text, "kept.append", DETACHED))
    assert answer.data["results"] == "identical"


def test_the_module_under_trial_gets_no_future_of_memlint_s_own(trials: Trials, tmp_path: Path) -> None:
    text = LEAK.replace("return kept", "return type(train.__annotations__['n']).__name__").replace(
        "loader):", "loader, n: int = 0):"
    )
    answer = trials.run(spec(tmp_path, text, "kept.append", ("type(train.__annotations__['n']).__name__", "'type'")))
    assert answer.data["results"] == "identical"


def test_a_missing_torch_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Trials() as trials, pytest.raises(TrialError, match="confirm needs torch in this Python"):
        trials.gpus()


def test_a_torch_that_is_too_old_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlint.trial.run.OLDEST", (99, 0))
    with Trials() as trials, pytest.raises(TrialError, match=r"confirm needs torch 99\.0 or newer; this Python has 2"):
        trials.gpus()


HEAD = """
import torch
from memlint.trial.standins import Decoder, TokenBatches, token_loss

def setup(device):
    model = Decoder({size}).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return dict(model=model, loader=TokenBatches(20, {batch}), device=device, optimizer=optimizer)

def run(model, loader, device, optimizer):
    total, kept = 0.0, []
    for ids, targets in loader:
        ids, targets = ids.to(device), targets.to(device)
"""
STEP = """\
        optimizer.zero_grad()
        out = model(ids)
        loss = token_loss(out, targets)
        loss.backward()
"""
SLIM = STEP.replace("        out = model(ids)\n", "").replace("(out,", "(model(ids),")
NO_GRAD = ("def run", "@torch.no_grad()\ndef run")
BUILT = "        optimizer = torch.optim.AdamW(model.parameters())\n"
EVALUATION = "        kept = model(ids).argmax(-1)\n        total += (kept == targets).sum().item()\n"
ROWS: dict[str, tuple[str, str, tuple[str, str], dict[str, tuple[float, float]]]] = {
    # body, the line to watch, the repair, and by number what it is as written and as repaired: MiB for peaks, else KiB
    "evaluation": (EVALUATION, "total +=", NO_GRAD, {"device_peak": (404.6, 148.2)}),
    "total of losses": (
        "        total += token_loss(model(ids), targets)\n",
        "total +=",
        ("total += token_loss(model(ids), targets)", "total += token_loss(model(ids), targets).detach()"),
        {"device_growth": (332_192.5, 0)},
    ),
    "features kept": (
        "        kept.append(model(ids).mean())\n",
        "kept.append",
        ("model(ids).mean()", "model(ids).mean().item()"),
        {"device_growth": (266_640.5, 0)},
    ),
    "losses kept after backward": (
        STEP + "        kept.append(loss)\n",
        "kept.append",
        ("append(loss)", "append(loss.detach())"),
        {"device_growth": (0.5, 0.5)},
    ),
    "outputs kept after backward": (
        STEP + "        kept.append(out)\n",
        "kept.append",
        ("append(out)", "append(out.mean().item())"),
        {"device_growth": (65_536, 0)},
    ),
    "gradients zeroed": (
        SLIM.replace("zero_grad()", "zero_grad(set_to_none=False)") + "        optimizer.step()\n",
        "zero_grad",
        ("set_to_none=False", ""),
        {"device_peak": (1509.3, 1060.8)},
    ),
    "optimizer built again": (
        BUILT + SLIM + "        optimizer.step()\n",
        "AdamW",
        (BUILT, ""),
        {"device_peak": (532.5, 692.8)},
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_fake_tensors_say_what_was_measured_before(trials: Trials, tmp_path: Path, row: str) -> None:
    body, at, repair, wanted = ROWS[row]
    large = row == "gradients zeroed"
    text = HEAD.format(size="8, 1024" if large else "", batch=2 if large else 4) + body + "    return total, kept\n"
    if row == "optimizer built again":
        repair = (
            text,
            text.replace(BUILT, "").replace("torch.optim.SGD(model.parameters(), lr=0.01)", BUILT.strip()[12:]),
        )
    answer = trials.run(spec(tmp_path, text, at, repair, device="fake", steps=4))
    for name, (before, after) in wanted.items():
        unit, near = (MIB, 0.05) if name == "device_peak" else (KIB, 0.001)
        measured = [getattr(Measurement.of(answer.data[arm]), name) / unit for arm in ("before", "after")]
        assert measured == pytest.approx([before, after], rel=near, abs=0.01)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_and_fake_tensors_agree_on_growth(tmp_path: Path) -> None:
    with Trials() as trials:
        found = {}
        for device in ("cuda:0", "fake"):
            answer = trials.run(spec(tmp_path, LEAK, "kept.append", DETACHED, device=device))
            found[device] = Measurement.of(answer.data["before"]).device_growth
            assert judge(Claim.GROWTH, answer, "harness", device).status == "confirmed"
    assert found["cuda:0"] == found["fake"] == 32 * 256 * 4 + 512


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_limit_of_device_memory_holds_on_cuda(tmp_path: Path) -> None:
    text = LEAK.replace("kept.append(loss)", "kept.append(torch.empty(64 << 20, device=x.device))")
    with Trials() as trials:
        answer = trials.run(spec(tmp_path, text, "kept.append", device="cuda:0", device_limit=300 * MIB))
    assert answer.data["before"]["ended"] == "out of memory"
