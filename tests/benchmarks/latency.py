"""Edit to diagnostics: how long an editor waits, in a project of 500 files with a file of 1,000 lines open.

``python -m tests.benchmarks.latency [--edits N] [--folder PROJECT --open FILE]`` starts ``memlint lsp``, waits until it
has been through the project, then types: each edit is a change of one line at a random place, followed by the question
what the diagnostics are. The time is that until the answer, the pause for further changes (10 ms) included. Without
``--folder`` it makes the project up: models of layers, losses, data, metrics, trainers that import them, and scripts.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COUNTS = {
    "layers": 60,
    "models": 120,
    "losses": 40,
    "data": 80,
    "metrics": 40,
    "helpers": 40,
    "trainers": 99,
    "run": 20,
}

LAYER = """import torch
from torch import nn


class Block{n}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, inputs):
        hidden = torch.relu(self.first(inputs))
        return self.norm(inputs + self.second(hidden))
"""
MODEL = """from torch import nn

from project.layers.part{a} import Block{a}
from project.layers.part{b} import Block{b}


class Net{n}(nn.Module):
    def __init__(self, width=64, classes=10):
        super().__init__()
        self.blocks = nn.ModuleList([Block{a}(width), Block{b}(width)])
        self.head = nn.Linear(width, classes)

    def forward(self, inputs):
        for block in self.blocks:
            inputs = block(inputs)
        return self.head(inputs)

    def embed(self, inputs):
        return self.blocks[0](inputs)
"""
LOSS = """import torch.nn.functional as F


def loss{n}(scores, labels, weight=1.0):
    base = F.cross_entropy(scores, labels)
    return base * weight


class Weighted{n}:
    def __init__(self, weight):
        self.weight = weight
        self.seen = 0

    def __call__(self, scores, labels):
        self.seen += 1
        return loss{n}(scores, labels, self.weight)
"""
DATA = """import torch
from torch.utils.data import DataLoader, Dataset


class Rows{n}(Dataset):
    def __init__(self, count, width):
        self.rows = torch.rand(count, width)
        self.labels = torch.randint(10, (count,))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]


def loader{n}(batch=32):
    return DataLoader(Rows{n}(1000, 64), batch_size=batch, shuffle=True)
"""
METRIC = """import torch


def accuracy{n}(scores, labels):
    return (scores.argmax(1) == labels).float().mean().item()


class Average{n}:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value):
        self.total += float(value)
        self.count += 1

    @property
    def value(self):
        return self.total / max(self.count, 1)


@torch.no_grad()
def evaluate{n}(model, loader):
    model.eval()
    average = Average{n}()
    for rows, labels in loader:
        average.update(accuracy{n}(model(rows), labels))
    return average.value
"""
HELPER = """import json
import logging

logger = logging.getLogger(__name__)


def read{n}(path):
    with open(path) as file:
        return json.load(file)


def note{n}(step, **values):
    logger.info("%s %s", step, {{key: round(value, 4) for key, value in values.items()}})
"""
HEAD = """import torch

from project.data.part{d} import loader{d}
from project.helpers.part{h} import note{h}
from project.losses.part{l} import Weighted{l}, loss{l}
from project.metrics.part{m} import Average{m}, evaluate{m}
from project.models.part{o} import Net{o}

"""
TRAINER = """
class Trainer{n}_{k}:
    def __init__(self, width):
        self.model = Net{o}(width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.criterion = Weighted{l}(0.5)
        self.history = []

    def step(self, rows, labels):
        self.optimizer.zero_grad()
        scores = self.model(rows)
        loss = self.criterion(scores, labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, epochs):
        loader = loader{d}()
        for epoch in range(epochs):
            average = Average{m}()
            for rows, labels in loader:
                loss = self.step(rows, labels)
                average.update(loss.item())
            self.history.append({stored})
            note{h}(epoch, loss=average.value, accuracy=evaluate{m}(self.model, loader))

    def predict(self, rows):
        self.model.eval()
        with torch.no_grad():
            return self.model(rows).argmax(1)


def run{n}_{k}(epochs):
    trainer = Trainer{n}_{k}(64)
    trainer.fit(epochs)
    return trainer.history
"""
SCRIPT = """from project.trainers.part{a} import run{a}_0
from project.trainers.part{b} import run{b}_0


def main():
    print(run{a}_0(3), run{b}_0(3))


if __name__ == "__main__":
    main()
"""


def trainer(n: int, rnd: random.Random, classes: int) -> str:
    """A file of trainers; one class in eight keeps losses with their graph."""
    part = {
        key: rnd.randrange(COUNTS[what])
        for key, what in zip("dhlmo", ("data", "helpers", "losses", "metrics", "models"), strict=True)
    }
    kinds = (rnd.random() < 0.125 for _ in range(classes))
    bodies = (
        TRAINER.format(n=n, k=k, stored="loss" if bad else "average.value", **part) for k, bad in enumerate(kinds)
    )
    return HEAD.format(**part) + "\n".join(bodies)


def generate(folder: Path) -> tuple[int, str]:
    """Write the project; how many files it has, and the one to open."""
    rnd = random.Random(0)
    single = {"layers": LAYER, "losses": LOSS, "data": DATA, "metrics": METRIC, "helpers": HELPER}
    files = {"project/__init__.py": ""}
    for what, count in COUNTS.items():
        for n in range(count):
            a, b = rnd.randrange(COUNTS["layers"]), rnd.randrange(COUNTS["layers"])
            if what in single:
                text = single[what].format(n=n)
            elif what == "models":
                text = MODEL.format(n=n, a=a, b=b)
            elif what == "trainers":
                text = trainer(n, rnd, rnd.randrange(1, 4))
            else:
                text = SCRIPT.format(a=a % COUNTS["trainers"], b=b % COUNTS["trainers"])
            files[f"project/{what}/part{n}.py" if what != "run" else f"run{n}.py"] = text
    opened = "project/trainers/large.py"
    files[opened] = trainer(COUNTS["trainers"], rnd, 26)
    (folder / "pyproject.toml").write_text("[project]\nname = 'project'\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return len(files), opened


class Client:
    """As much of a client as the measurement needs."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "memlint", "lsp"]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self.number = 0
        capabilities: dict[str, Any] = {"textDocument": {"diagnostic": {}}}
        root = {"processId": None, "rootUri": folder.as_uri(), "capabilities": capabilities}
        self.ask("initialize", {**root, "workspaceFolders": [{"uri": folder.as_uri(), "name": "project"}]})
        self.tell("initialized", {})

    def tell(self, method: str, params: Any, **more: Any) -> None:
        data = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.server.stdin is not None
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.server.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        self.tell(method, params, id=self.number)
        while True:
            message = self._read()
            if message.get("id") == self.number and "method" not in message:
                return message.get("result")

    def _read(self) -> Any:
        stream = self.server.stdout
        assert stream is not None
        length = 0
        while line := stream.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(stream.read(length))


def edit(text: str, rnd: random.Random, number: int) -> str:
    """The text with one more, one less or one other line in some function, so that it still parses."""
    while True:
        lines = text.split("\n")
        at = rnd.randrange(len(lines))
        if not lines[at].startswith("    ") or lines[at].strip().startswith(
            ("def ", "class ", "with ", "for ", "@", ")")
        ):
            continue
        margin = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        how = rnd.randrange(4)
        if how == 0:
            lines.insert(at, f"{margin}value_{number} = {number}")
        elif how == 1:
            lines[at] += f"  # remark {number}"
        elif how == 2:
            del lines[at]
        else:
            lines.insert(at, f"{margin}print('{number}')")
        new = "\n".join(lines)
        try:
            ast.parse(new)
        except SyntaxError:
            continue
        return new


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--open", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.folder or Path(scratch)).resolve()
        files, opened = generate(folder) if given.folder is None else (len(list(folder.rglob("*.py"))), given.open)
        text = (folder / opened).read_text()
        client, rnd = Client(folder), random.Random(1)
        uri = (folder / opened).as_uri()
        document = {"uri": uri, "languageId": "python", "version": 0, "text": text}
        client.tell("textDocument/didOpen", {"textDocument": document})
        began = time.perf_counter()
        found = client.ask("textDocument/diagnostic", {"textDocument": {"uri": uri}})["items"]
        first = time.perf_counter() - began
        last = sorted(path for path in folder.rglob("*.py"))[-1].as_uri()  # files are looked at in order
        client.ask("textDocument/diagnostic", {"textDocument": {"uri": last}})
        loaded = time.perf_counter() - began
        lines = len(text.splitlines())
        print(f"{files} files, {lines} lines open, {len(found)} findings in them; ", end="")
        print(f"first diagnostics after {first:.1f} s, whole project after {loaded:.1f} s")
        time.sleep(1.5)
        times: list[float] = []
        for number in range(given.edits):
            text = edit(text, rnd, number)
            began = time.perf_counter()
            change = {"textDocument": {"uri": uri, "version": number + 1}, "contentChanges": [{"text": text}]}
            client.tell("textDocument/didChange", change)
            client.ask("textDocument/diagnostic", {"textDocument": {"uri": uri}})
            times.append(1000 * (time.perf_counter() - began))
            time.sleep(0.1)  # as fast as anybody types
        times.sort()
        at = {share: times[min(int(len(times) * share), len(times) - 1)] for share in (0.5, 0.9, 0.95)}
        print(f"{len(times)} edits to diagnostics: median {at[0.5]:.0f} ms, 90 % {at[0.9]:.0f} ms, ", end="")
        print(f"95 % {at[0.95]:.0f} ms, longest {times[-1]:.0f} ms")
        client.ask("shutdown", None)
        client.tell("exit", None)


if __name__ == "__main__":
    main()
