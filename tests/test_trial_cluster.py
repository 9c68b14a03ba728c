"""Trials as tasks of a Ray cluster of two nodes on this machine, each of which says that it has a GPU."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from click.testing import CliRunner

pytest.importorskip("torch")
ray = pytest.importorskip("ray")

from memlint.check import Options, check_paths  # noqa: E402
from memlint.rule import Finding  # noqa: E402
from memlint.source import Source  # noqa: E402
from memlint.trial import cluster  # noqa: E402
from memlint.trial.command import confirm  # noqa: E402
from memlint.trial.confirm import Confirmer, Outcome, Settings  # noqa: E402
from memlint.trial.run import CLOSED, Limits, Spec, TrialError, Trials  # noqa: E402
from memlint.trial.workers import outcomes  # noqa: E402

ROOT = Path(__file__).parents[1]
LIMITS = Limits(60)
TRAIN = """\
import torch
import torch.nn.functional as F

from parts.losses import SCALE, wait


def train(model, loader, optimizer):
    losses = []
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y) * SCALE
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses


def test(model, loader):
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    wait()
    return right


if __name__ == "__main__":
    model = torch.nn.Linear(16, 4)
    loader = [(torch.ones(8, 16), torch.ones(8, dtype=torch.long))] * 9
    train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))
    print(test(model, loader))
"""
LOSSES = """\
import json, os, pathlib, time

SCALE = json.loads(pathlib.Path(__file__).with_name("scale.json").read_text())


def wait():
    mark = pathlib.Path("{mark}")
    if mark.exists():
        mark.with_name(f"waits-{{os.getpid()}}").touch()
    while mark.exists():
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """The cluster, with one node, to which another is added."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # a full machine is not what is tested
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv("OMP_NUM_THREADS", "1")
        running = Cluster()
        try:
            try:
                running.add_node(**NODE, include_dashboard=False)
                running.second = running.add_node(**NODE)
            except Exception as error:
                pytest.skip(f"no Ray cluster starts here: {error}")
            yield running
        finally:
            ray.shutdown()
            running.shutdown()


NODE = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose file needs others of its own."""
    folder = tmp_path / "work"
    (folder / "parts").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("")
    (folder / "train.py").write_text(TRAIN)
    (folder / "parts" / "losses.py").write_text(LOSSES.format(mark=tmp_path / "wait"))
    (folder / "parts" / "scale.json").write_text("2.0")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MEMLINT_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def found(name: str = "train.py") -> list[tuple[Finding, Source]]:
    report = check_paths([name], Options(cache=False))
    return [(finding, report.sources[finding.path]) for finding in report.findings]


def told(outcome: Outcome) -> dict[str, Any]:
    """What a verdict says, but for what differs from one run to the next anyway."""
    verdict = outcome.verdict.as_json()
    for arm in ("before", "after"):
        if verdict[arm]:
            verdict[arm].pop("seconds")
            verdict[arm].pop("host_growth")
    return verdict


def test_two_nodes_say_what_this_machine_says(nodes: Any, work: Path) -> None:
    findings = found()
    assert {finding.code for finding, _ in findings} == {"MEM101", "MEM103", "MEM201"}
    with Confirmer(Settings("cpu", 8, LIMITS)) as local:
        here = outcomes([local], findings)
    begun: list[Finding] = []
    with cluster.workers(Settings("cpu", 8, LIMITS), nodes.address) as workers:
        assert len(workers) == 2
        there = outcomes(workers, findings, begun.append)
        assert workers[0].torch == local.torch
    assert [o.verdict.status for o in there] == ["confirmed"] * 3 and len(begun) == 3
    assert [o.harness for o in there] == [o.harness for o in here]
    assert list(map(told, there)) == list(map(told, here))
    frames = [frame for o in there if o.verdict.evidence for s in o.verdict.evidence.stacks for frame in s["frames"]]
    assert {Path(file).parent for file, _ in frames if file.endswith("train.py")} == {work}


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Path]:
    """While this file is there, the trials of `test` do not end."""
    (tmp_path / "wait").touch()
    yield tmp_path / "wait"
    (tmp_path / "wait").unlink(missing_ok=True)


def waiting(folder: Path, count: int) -> list[int]:
    """The processes of ``count`` trials, as soon as they wait."""
    deadline = time.monotonic() + 60
    while len(marks := list(folder.glob("waits-*"))) < count:
        assert time.monotonic() < deadline, f"{len(marks)} of {count} wait"
        time.sleep(0.05)
    return [int(mark.name.partition("-")[2]) for mark in marks]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def test_what_a_removed_node_ran_is_undecided_and_the_others_go_on(nodes: Any, work: Path, blocked: Path) -> None:
    for name in ("again.py", "third.py"):
        (work / name).write_text(TRAIN)
    findings = [pair for name in ("train.py", "again.py", "third.py") for pair in found(name)]
    findings = [pair for pair in findings if pair[0].code == "MEM101"]
    assert len(findings) == 3

    def remove() -> None:
        pids = waiting(blocked.parent, 2)
        nodes.remove_node(nodes.second)
        gone.append(eventually(lambda: sum(map(alive, pids)) == 1))
        blocked.unlink()

    gone: list[bool] = []
    remover = threading.Thread(target=remove)
    remover.start()
    with cluster.workers(Settings("cpu", 8, LIMITS), nodes.address) as workers:
        made = outcomes(workers, findings)
    remover.join()
    nodes.second = nodes.add_node(**NODE)
    assert gone == [True], "the trial ends with its node"
    assert sorted(o.verdict.status for o in made) == ["confirmed", "confirmed", "undecided"]
    (lost,) = (o.verdict.reason for o in made if o.verdict.status == "undecided")
    assert lost.startswith("the trial was lost with its Ray task (NodeDiedError: Task failed")
    assert lost.endswith("): confirm it again with --ray")


def test_an_interrupt_ends_what_runs_on_the_nodes(nodes: Any, work: Path, blocked: Path) -> None:
    command = [sys.executable, "-m", "memlint", "confirm", "--device", "cpu", "--select", "MEM101", "--ray"]
    for name in ("again.py", "third.py"):
        (work / name).write_text(TRAIN)
    running = subprocess.Popen(
        [*command, nodes.address],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    pids = waiting(blocked.parent, 2)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=20)
    assert "Traceback" not in said and running.returncode == 130
    assert eventually(lambda: not any(map(alive, pids))), pids
    assert len(waiting(blocked.parent, 2)) == 2, "none was begun after it"


def test_a_gpu_is_handed_out_and_the_worker_keeps_torch(
    nodes: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes only say that they have a GPU: what asks for one runs on the CPU here."""
    monkeypatch.setattr(cluster, "needs", lambda device: "GPU")
    seen = []
    with cluster.workers(Settings("auto", 8, LIMITS), nodes.address) as workers:
        assert [worker.settings.device for worker in workers] == ["cuda", "cuda"] and workers[0].gpus() == 2
        trials = workers[0]._trials
        for _ in range(2):
            answer = trials.run(gpu_trial(work))
            assert answer.data["before"]["ended"] == "returned", answer
            seen.append(answer.log.split())
    assert seen[0][0] in ("0", "1") and seen[0] == seen[1], "the same GPU, from the same process"
    assert not seen[0][2].startswith(str(ROOT)), "memlint has travelled"


def gpu_trial(work: Path) -> Spec:
    text = """
import os, sys

import torch


def run(x):
    for _ in range(5):
        x + 1


def setup(device):
    print(os.environ["CUDA_VISIBLE_DEVICES"], os.getppid(), sys.modules["memlint"].__path__[0])
    return {"x": torch.ones(4, device=device)}
"""
    path = str(work / "gpu.py")
    return Spec(path, "gpu", str(work), (str(work),), "run", 0, {"before": text}, device="cpu", steps=4)


def test_what_no_node_can_run_any_more_does_not_wait(nodes: Any, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster.workers(Settings("cpu", 8, LIMITS), nodes.address) as workers:
        monkeypatch.setattr(cluster, "needs", lambda device: "TPU")
        monkeypatch.setattr(cluster, "ALIVE", 0.01)
        answer = workers[0]._trials.run(gpu_trial(work))
    assert answer.fate == "found no node any more that can run it: confirm it again with --ray"


def test_the_command_takes_a_cluster(nodes: Any, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    result = CliRunner().invoke(confirm, ["--device", "fake", "--ray", "train.py:10"], standalone_mode=False)
    assert result.return_value == 1, result
    assert "MEM201" in result.stdout and "MEM103" not in result.stdout, "what follows --ray may be a path"
    assert "confirmed: peak" in result.stdout and "(fake, tier called, 8 iterations)" in result.stdout
    result = CliRunner().invoke(confirm, ["train.py", "--ray", "--device", "cuda:1"], standalone_mode=False)
    assert isinstance(result.exception, ClickException) and "write cuda" in result.exception.message


def test_without_ray_or_a_cluster_it_is_one_line(work: Path, memlint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = memlint("confirm", "train.py", "--ray", "127.0.0.1:1")
    assert nobody.status == 2 and nobody.err.count("\n") == 1 and "no Ray cluster at '127.0.0.1:1'" in nobody.err
    word = memlint("confirm", "train.py", "--ray", "somewhere")
    assert word.status == 2 and word.err.count("\n") == 1 and "no Ray cluster at 'somewhere'" in word.err

    def init(*about: Any, **more: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nStart one.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    none = memlint("confirm", "train.py", "--ray")
    assert none.status == 2 and none.err.count("\n") == 1 and "no Ray cluster is running: Could not find" in none.err
    monkeypatch.setitem(sys.modules, "ray", None)
    absent = memlint("confirm", "train.py", "--ray")
    assert absent.status == 2 and absent.err.count("\n") == 1
    assert "pip install 'torch-memlint[ray]'" in absent.err


def test_a_project_is_packed_without_what_is_not_its_own(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        ".git/HEAD",
        "venv/x.py",
        "own/pyvenv.cfg",
        "own/lib/y.py",
        "build/z.py",
        "env/__init__.py",
        "env/w.py",
    ):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("")
    (work / "data.bin").write_bytes(os.urandom(2000))
    (work / "small.txt").write_bytes(b"x" * 100)
    (work / "circle").symlink_to(work)
    (work / "nowhere").symlink_to(work / "absent")

    def names() -> set[str]:
        return set(zipfile.ZipFile(io.BytesIO(cluster.packed(str(work)))).namelist())

    own = {"train.py", "parts/losses.py", "env/__init__.py", "env/w.py", "parts/scale.json", "pyproject.toml"}
    assert names() == own | {"data.bin", "small.txt"}
    monkeypatch.setattr(cluster, "TRAVELS", 2000)
    assert names() == own | {"small.txt"}, "what is too much is what is largest, and no Python"


def test_a_node_that_can_run_no_trial_says_so(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoTorch(Trials):
        def run(self, spec: Spec, limits: Limits | None = None) -> Any:
            raise TrialError("confirm needs torch")

    monkeypatch.setattr(cluster, "_running", {os.environ.get("CUDA_VISIBLE_DEVICES", ""): NoTorch()})
    reply = cluster.run_here(asdict(gpu_trial(work)), cluster.packed(str(work)), asdict(LIMITS))
    assert set(reply) == {"impossible"} and reply["impossible"].endswith(", confirm needs torch")

    class Node:
        exceptions = ray.exceptions

        @property
        def ray(self) -> Node:
            return self

        def start(self, spec: Spec, limits: Limits) -> Any:
            return dict(reply)

        def wait(self, tasks: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
            return tasks, []

        def get(self, task: Any) -> Any:
            return task

    trials = cluster.ClusterTrials(Node(), LIMITS)  # type: ignore[arg-type]
    with pytest.raises(TrialError, match="confirm needs torch"):
        trials.run(gpu_trial(work))
    trials.close()
    with pytest.raises(TrialError, match=CLOSED):
        trials.run(gpu_trial(work))
