"""What being watched by `memlint run` costs a program: ``python -m tests.benchmarks.slowdown --device cuda``.

Each model of `predicted_peak` is trained by a program of its own, plainly and watched in turn, and times itself between
its tenth iteration and its last. Every iteration is read, the evidence is taken after the clock has stopped, as after
the last step of a run. ``--out FOLDER`` keeps the rows, in a file named after the device. Nothing is checked, so that
torch is all that is needed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from memlint.rule import Claim, Finding, Level, Span
from memlint.source import Source
from memlint.trial.program import Program, Run, Watching, outcomes, run
from memlint.trial.record import slug

ROOT = Path(__file__).resolve().parents[2]
WARM = 10
PROGRAM = f"""\
import sys, time

import torch
import torch.nn.functional as F

from tests.benchmarks.predicted_peak import MODELS

name, device, steps, out = sys.argv[1], torch.device(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def now():
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def train(model, batch, optimizer):
    losses = []
    for step in range(steps):
        if step == {WARM}:
            began = now()
        inputs, targets = batch(device)
        optimizer.zero_grad()
        outputs = model(inputs)
        if outputs.dim() == 3:
            outputs, targets = outputs.flatten(0, 1), targets.flatten()
        loss = F.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss)
        if step == steps - 1:
            ended = now()
    return (ended - began) / (steps - {WARM})


build, batch = MODELS[name]
model = build().to(device)
with open(out, "w") as file:
    file.write(str(train(model, batch, torch.optim.AdamW(model.parameters(), lr=1e-4))))
print(torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", torch.__version__, file=sys.stderr)
"""
FLAGGED = "losses.append(loss)"


def watching(path: str) -> Watching:
    """The program's one loop, watched for the losses that it keeps."""
    source = Source.read(path)
    line = next(n for n, text in enumerate(source.text.splitlines(), 1) if FLAGGED in text)
    span = Span(line, 9, line, 9 + len(FLAGGED))
    finding = Finding("MEM103", "graph-tensor-append", Level.WARNING, path, span, "", claim=Claim.GROWTH)
    return Watching([finding], {path: source})


def measure(name: str, device: str, steps: int, rounds: int) -> dict[str, Any]:
    """Seconds an iteration, plain and watched, and what the watched run says of the leak."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = str(Path(folder, "program.py")), Path(folder, "seconds")
        Path(path).write_text(PROGRAM, encoding="utf-8")
        arguments = name, device, str(steps), str(out)
        seconds: dict[str, list[float]] = {"plain": [], "watched": []}
        last = Run(0)
        looked_at = watching(path)
        for _ in range(rounds):
            subprocess.run([sys.executable, path, *arguments], check=True)
            seconds["plain"].append(float(out.read_text()))
            last = run(Program(script=path, arguments=arguments), looked_at, steps + 1, {})
            seconds["watched"].append(float(out.read_text()))
        verdict = outcomes(looked_at, last, None)[0].verdict.as_json()
        grown = (last.arms[0]["evidence"] or {"growth": []})["growth"][:2]
    row = {"model": name, "device": last.device, "torch": last.torch, "steps": steps}
    row |= {kind: min(values) for kind, values in seconds.items()}
    row |= {f"{kind}_median": statistics.median(values) for kind, values in seconds.items()}
    return row | {"before": verdict["before"], "grown": grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="models whose names hold this")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    models = importlib.import_module("tests.benchmarks.predicted_peak").MODELS
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    rows = []
    for name in models:
        if given.only in name:
            row = measure(name, given.device, given.steps, given.rounds)
            slower = row["watched"] / row["plain"] - 1
            print(f"{name:30} {1e3 * row['plain']:8.1f} ms plain, {1e3 * row['watched']:8.1f} watched, ", end="")
            print(
                f"{slower:+.1%}; growth {row['before'] and row['before']['device_growth']} B, {row['grown']}",
                flush=True,
            )
            rows.append(row)
    if given.out and rows:
        given.out.mkdir(parents=True, exist_ok=True)
        document = {"device": rows[0]["device"], "date": date.today().isoformat(), "rows": rows}
        (given.out / f"{slug(rows[0]['device'])}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
