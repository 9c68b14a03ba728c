"""Evidence: stacks of allocations, what of them leads to a finding, and what that does to a verdict."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memlint.rule import Claim, Finding, Level, Span
from memlint.source import Source
from memlint.trial.evidence import Origin, origin, weigh
from memlint.trial.stacks import ENOUGH, START_AT, Account, Event, Stacks, Witness, at_peak, is_users
from memlint.trial.traced import Bench, Shared

HERE = __file__


def lines_of(text: str, at: str) -> Origin:
    """The origin of a finding on the text ``at``."""
    source = Source("m.py", text)
    row = next(n for n, line in enumerate(text.splitlines(), 1) if at in line)
    column = text.splitlines()[row - 1].index(at) + 1
    span = Span(row, column, row, column + len(at))
    return origin(Finding("MEM103", "graph-tensor-append", Level.ERROR, "m.py", span, "", claim=Claim.GROWTH), source)


LOOP = """\
def train(model, loader, optimizer):
    kept, other = [], []
    for x, y in loader:
        out = model(x)
        loss = criterion(
            out, y)
        other.append(x.clone())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(loss)
        picks = loss.argmax()
        print(picks)
    return kept
"""


@pytest.mark.parametrize(
    ("at", "lines", "gradients"),
    [
        ("kept.append(loss)", {2, 3, 4, 5, 6, 9, 11}, True),
        ("other.append", {2, 3, 7}, False),
        ("optimizer.zero_grad()", {8, 9, 10}, True),
        ("loss.argmax()", {3, 4, 5, 6, 9, 12, 13}, True),
    ],
)
def test_the_lines_that_a_finding_may_have_its_bytes_from(at: str, lines: set[int], gradients: bool) -> None:
    found = lines_of(LOOP, at)
    assert (found.lines, found.gradients, found.anywhere) == (frozenset(lines), gradients, False)


METHOD = """\
class Module:
    def training_step(self, batch, index):
        out = self.layer(batch)
        self.outputs.append(out)

    def log(self, loss):
        self.total += loss

    def local(self):
        kept = []
        for i in range(3):
            kept.append(make(i))
"""


@pytest.mark.parametrize(
    ("at", "anywhere"), [("self.outputs.append", True), ("self.total += loss", True), ("kept.append", False)]
)
def test_what_is_handed_in_may_come_from_anywhere(at: str, anywhere: bool) -> None:
    assert lines_of(METHOD, at).anywhere is anywhere


def test_a_handler_keeps_what_was_tried() -> None:
    text = "def run(x):\n    try:\n        return model(x)\n    except MemoryError:\n        return half(x)\n"
    assert lines_of(text, "half(x)").lines == {3, 5}


def test_a_decorated_function_is_its_own_origin() -> None:
    found = lines_of(
        "import functools\n@functools.lru_cache\ndef table(n):\n    return zeros(n)\n", "functools.lru_cache"
    )
    assert found.anywhere and 2 in found.lines


WHERE = Origin("/p/m.py", frozenset({4, 5}))


def table(*entries: tuple[list[tuple[str, int]], float]) -> list[dict[str, Any]]:
    return [{"frames": [list(frame) for frame in frames], "bytes": size} for frames, size in entries]


def test_stacks_are_weighed() -> None:
    rows = table(
        ([("/lib/net.py", 9), ("/p/m.py", 5)], 600),
        ([("/p/m.py", 7)], 300),
        ([], 100),
        ([("/p/m.py", 4)], -50),
    )
    found = weigh(Claim.GROWTH, {"growth": rows, "peak": []}, WHERE)
    assert found is not None and (found.leading, found.total) == (600, 1000)
    assert found.supports(1200) and not found.supports(1201)
    assert [stack["leads"] for stack in found.stacks] == [True, False, False]
    assert found.as_json()["stacks"][0] == {"frames": [["/lib/net.py", 9], ["/p/m.py", 5]], "bytes": 600, "leads": True}
    gradients = weigh(Claim.GROWTH, {"growth": rows}, replace(WHERE, gradients=True))
    assert gradients is not None and gradients.leading == 700
    assert weigh(Claim.PEAK, {"growth": rows, "peak": []}, WHERE) is None
    assert weigh(Claim.TIME, {"growth": rows}, WHERE) is None
    assert weigh(Claim.GROWTH, None, WHERE) is None


def test_the_same_file_by_a_link_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("")
    (tmp_path / "link.py").symlink_to(tmp_path / "m.py")
    where = Origin(str((tmp_path / "m.py").resolve()), frozenset({4}))
    assert where.leads([[str(tmp_path / "link.py"), 4]]) and not where.leads([["m.py", 4]])


def test_a_stack_names_the_user_s_lines_innermost_first() -> None:
    stacks = Stacks()

    def inner() -> int:
        return stacks.here(sys._getframe())

    first, again, other = inner(), *[inner() for _ in range(2)]
    assert again == other != first, "one line, two stacks"
    names = [Path(file).name for file, _ in stacks.lines(first)]
    line = inner.__code__.co_firstlineno
    assert names[:2] == ["test_trial_evidence.py"] * 2
    assert [number for _, number in stacks.lines(first)][:2] == [line + 1, line + 3]
    assert stacks.lines(0) == ()


def test_what_is_not_the_user_s() -> None:
    assert is_users("/home/me/train.py") and is_users("<harness>")
    assert not is_users("<frozen runpy>") and not is_users(Counter.update.__code__.co_filename)
    assert is_users(f"{Path(Counter.update.__code__.co_filename).parents[1]}/site-packages/timm/layers.py")


def test_the_peak_is_found_by_undoing() -> None:
    a, b, c = (("a.py", 1),), (("b.py", 1),), ()
    held = Counter({a: 5, c: 7})
    events = [Event(b, 10, 1, 0), Event(a, 5, 2, 1), Event(b, -10, 1, 2), Event(c, 7, 3, 3)]
    assert at_peak(held, events) == Counter({a: 5, b: 10})
    assert at_peak(held, [Event(c, 7, 3, 0)]) == held
    assert at_peak(held, []) == held


def test_a_witness_tells_growth_peak_and_churn_of_its_last_iteration() -> None:
    account = Account()
    witness = Witness(account)
    witness.tick(0)
    assert witness.evidence is None

    def step(count: int) -> None:
        here = account.stacks.here(sys._getframe())
        account.enter(here, 100, 100 + count)
        account.enter(here, 900, 1)
        account.enter(here, -900, 1)
        witness.tick(count)

    for count in range(1, 7):
        step(count)
    witness.testify(6)
    assert witness.evidence is not None
    sums = {name: sum(row["bytes"] for row in rows) for name, rows in witness.evidence.items()}
    assert sums == {"growth": 100, "peak": 1500, "churn": 1000}
    assert witness.evidence["growth"][0]["frames"][0] == [HERE, step.__code__.co_firstlineno + 1]
    before = witness.evidence
    step(7)
    witness.testify(7)
    assert witness.evidence is before, "taken when there were hardly fewer"


torch = pytest.importorskip("torch")

from memlint.trial.judge import ELSEWHERE, judge  # noqa: E402
from memlint.trial.meter import ENTRIES, CudaHistory  # noqa: E402
from memlint.trial.run import Limits, Spec, Trials  # noqa: E402
from memlint.trial.watch import locate  # noqa: E402

DECOY = """
import sys, torch

CACHE = []

def remember(x):
    if not hasattr(sys, "second_arm"):
        CACHE.append(x.clone())

def train(model, loader):
    kept = []
    for x in loader:
        loss = model(x).pow(2).mean()
        remember(x)
        kept.append(loss.item())
    sys.second_arm = True
    return kept

def setup(device):
    model = torch.nn.Linear(64, 256).to(device)
    return {"model": model, "loader": [torch.ones(32, 64, device=device) for _ in range(20)]}
"""
LEAK = DECOY.replace("        remember(x)\n", "").replace("loss.item()", "loss")


@pytest.mark.parametrize("device", ["cpu", "fake", "cuda:0"])
def test_bytes_from_elsewhere_confirm_nothing(tmp_path: Path, device: str) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    found = {}
    with Trials(Limits(timeout=60)) as trials:
        for name, text in (("decoy", DECOY), ("leak", LEAK)):
            row = next(n for n, line in enumerate(text.splitlines(), 1) if "kept.append" in line)
            place = locate(text, row, 10)
            path = tmp_path / "m.py"
            repaired = text.replace("append(loss)", "append(loss.item())")
            spec = Spec(
                *(str(path), "m", str(tmp_path), (), place.function, place.loop),
                {"before": text, "after": repaired},
                device=device,
                steps=6,
            )
            where = replace(lines_of(text, "kept.append"), path=str(path))
            found[name] = judge(Claim.GROWTH, trials.run(spec), "called", device, where)
    decoy, leak = found["decoy"], found["leak"]
    assert (decoy.status, decoy.reason) == ("undecided", ELSEWHERE)
    assert decoy.evidence is not None and decoy.evidence.leading <= 512 * (device == "cuda:0")
    assert decoy.evidence.stacks[0]["frames"][0][1] == 8
    assert leak.status == "confirmed" and leak.evidence is not None
    assert leak.evidence.leading == leak.evidence.total == 32 * 256 * 4 + 512
    assert leak.as_json()["evidence"]["bytes"] == 32 * 256 * 4 + 512


class Allocator:
    """What CUDA's caching allocator tells of itself, as torch documents it, with the ring of its history."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks: dict[int, dict[str, Any]] = {}
        self.ring: list[dict[str, Any]] = []
        self.room = 0
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", self.record)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", self.snapshot)

    def record(self, enabled: str | None = "all", context: str = "", stacks: str = "", max_entries: int = 1) -> None:
        if enabled is None:
            self.ring.clear()
        assert len(self.ring) <= max_entries, "torch would write beyond the end of a ring that is made smaller"
        self.room = max_entries if enabled else 0

    def snapshot(self) -> dict[str, Any]:
        self.note("snapshot", 0, 0)
        blocks = [{"size": 512, "state": "inactive", "frames": []}] * 2
        for address in range(1024, 1 << 20, 512):
            blocks.append(self.blocks.get(address, {"size": 512, "state": "inactive", "frames": []}))
        other = {"device": 1, "address": 0, "blocks": [{"size": 512, "state": "active_allocated", "frames": []}]}
        segment = {"device": 0, "address": 0, "blocks": blocks}
        return {"segments": [other, segment], "device_traces": [list(self.ring), []]}

    def note(self, action: str, address: int, size: int, line: int = 0) -> None:
        entry: dict[str, Any] = {"action": action, "addr": address, "size": size, "time_us": time.time_ns() / 1000}
        if line:
            inner = {"filename": "/usr/lib/python3/dist-packages/x.py", "line": 1, "name": "f"}
            entry["frames"] = [inner, {"filename": HERE, "line": line, "name": "step"}]
            entry["frames"].append({"filename": "<frozen runpy>", "line": 1, "name": "run"})
        self.ring.append(entry)
        del self.ring[: -self.room or None]

    def alloc(self, size: int, line: int) -> int:
        address = next(a for a in range(1024, 1 << 20, 512) if a not in self.blocks)
        self.note("alloc", address, size, line)
        frames = self.ring[-1]["frames"] if self.room else []
        self.blocks[address] = {"size": 512, "state": "active_allocated", "frames": frames}
        return address

    def free(self, address: int) -> None:
        self.note("free_requested", address, 512)
        self.note("free_completed", address, 512)
        del self.blocks[address]


def test_the_allocator_s_history_is_evidence_and_stops_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in host memory: kept for as many iterations as are read, it would be host growth of the program's."""
    allocator = Allocator(monkeypatch)
    history = CudaHistory.started(torch.device("cuda", 0))
    assert history is not None and allocator.room == ENTRIES
    for _ in range(100):
        allocator.alloc(300, 1)  # the set-up
    witness = Witness(history)
    witness.tick(0)

    def step(count: int, passing: int = 5) -> None:
        allocator.alloc(300, 7)
        for address in [allocator.alloc(300, 8) for _ in range(passing)]:
            allocator.free(address)
        witness.tick(count)

    sizes = []
    for count in range(1, 9):
        step(count, 9 if count == 2 else 5)
        sizes.append(len(allocator.ring))
    assert allocator.room == pytest.approx(2 * 3 * 9, abs=6), "twice the larger of the first two iterations"
    assert sizes[-3:] == [allocator.room] * 3
    witness.testify(8)
    assert witness.evidence is not None
    found = {name: {r["frames"][1][1]: r["bytes"] for r in witness.evidence[name]} for name in witness.evidence}
    assert found == {"growth": {7: 512}, "peak": {1: 51200, 7: 8 * 512, 8: 5 * 512}, "churn": {7: 512, 8: 5 * 512}}
    assert history.alive().keys() == allocator.blocks.keys()
    history.stop()
    assert allocator.room == 0


def test_a_program_is_slowed_down_no_longer_than_evidence_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks cost a launch-bound program a third of its time on a GPU: they are taken for a few iterations."""
    allocator = Allocator(monkeypatch)
    history = CudaHistory.started(torch.device("cuda", 0))
    counts = SimpleNamespace(recorder=history, live=0, peak=0, churn=0, area=0, host=0, reset_peak=lambda: None)
    with tempfile.TemporaryFile() as out:
        bench = Bench(None, [1, 2], out.fileno())
        bench._shared = Shared(counts)
        kept: list[bool] = []

        def run(key: int, times: int) -> None:
            bench.watches[key].enter()
            for _ in range(times):
                allocator.alloc(300, key)
                bench.watches[key].leave()
                kept.append(bool(allocator.room))
            bench.watches[key].close()

        run(1, 12)
        assert kept == [True] * (START_AT + ENOUGH - 1) + [False] * (12 - START_AT - ENOUGH + 1)
        kept.clear()
        run(2, 3)
        assert kept == [True] * 3, "it starts again with the next loop"
        run(1, 3)
        assert kept[3:] == [True] * 3, "which has not seen enough"
        bench.end(None)
        out.seek(0)
        said = [json.loads(line) for line in out]
    (first,) = [event["evidence"]["growth"] for event in said if event.get("place") == 1 and "evidence" in event]
    assert [row["bytes"] for row in first if row["frames"][1][1] == 1] == [512]
