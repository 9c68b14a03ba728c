"""What being watched by `memlint run` costs a program: ``python -m tests.benchmarks.slowdown --device cuda``.

Each model of `predicted_peak` is trained by a program of its own, plainly and watched in turn, and times itself between
its third iteration, when kernels are chosen and caches filled, and its last. Every iteration is read, and stacks and
evidence are taken, while the clock runs. ``--write [FILE]`` keeps each row as soon as it is there, in
`fixtures/slowdown.json` where no other file is named. All is done within ``--seconds``, with as many rounds for each
model as its share of them has room for, at least one. Nothing is checked, so that torch is all that is needed.
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
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from memlint.rule import Claim, Finding, Level, Span
from memlint.source import Source
from memlint.trial.program import Program, Run, Watching, outcomes, run

ROOT = Path(__file__).resolve().parents[2]
WARM = 3
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


def measure(name: str, device: str, steps: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Seconds an iteration, plain and watched, and what the watched run says of the leak.

    No round is begun that would not end within ``seconds``, if it took as long as the one before. Raises
    `subprocess.SubprocessError` where the first is too slow, or fails.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path, out = str(Path(folder, "program.py")), Path(folder, "seconds")
        Path(path).write_text(PROGRAM, encoding="utf-8")
        arguments = name, device, str(steps), str(out)
        found: dict[str, list[float]] = {"plain": [], "watched": []}
        last = Run(0)
        looked_at = watching(path)
        for number in range(1, rounds + 1):
            subprocess.run([sys.executable, path, *arguments], check=True, timeout=seconds)
            found["plain"].append(float(out.read_text()))
            out.unlink()
            last = run(Program(script=path, arguments=arguments), looked_at, steps + 1, {})
            if not out.exists():
                raise subprocess.CalledProcessError(last.status, "memlint run")
            found["watched"].append(float(out.read_text()))
            if (time.monotonic() - began) * (number + 1) / number > seconds:
                break
        verdict = outcomes(looked_at, last, None)[0].verdict.as_json()
        grown = (last.arms[0]["evidence"] or {"growth": []})["growth"][:2]
    row: dict[str, Any] = {"model": name, "steps": steps, "rounds": len(found["plain"])}
    row |= {kind: min(values) for kind, values in found.items()}
    row |= {f"{kind}_median": statistics.median(values) for kind, values in found.items()}
    return row | {"device": last.device, "torch": last.torch, "before": verdict["before"], "grown": grown}


def write(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Keep ``rows``, which are of one device and torch."""
    head = {"device": rows[0]["device"], "torch": rows[0]["torch"], "date": date.today().isoformat()}
    kept = [{key: value for key, value in row.items() if key not in head} for row in rows]
    file.write_text(json.dumps(head | {"rows": kept}, indent=1) + "\n", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 1 where a model could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=280.0, help="for all models together")
    parser.add_argument("--only", default="", help="models whose names hold this")
    parser.add_argument("--write", type=Path, nargs="?", const=ROOT / "fixtures" / "slowdown.json", metavar="FILE")
    given = parser.parse_args(words)
    if given.steps <= WARM:
        parser.error(f"--steps: the clock runs from iteration {WARM} on")
    models = [name for name in importlib.import_module("tests.benchmarks.predicted_peak").MODELS if given.only in name]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    deadline, rows, failed = time.monotonic() + given.seconds, [], False
    for number, name in enumerate(models):
        share = (deadline - time.monotonic()) / (len(models) - number)
        try:
            row = measure(name, given.device, given.steps, given.rounds, max(share, 1.0))
        except subprocess.SubprocessError as error:
            print(f"{name:30} not measured: {error}", flush=True)
            failed = True
            continue
        rows.append(row)
        if given.write:
            write(rows, given.write)
        slower = row["watched"] / row["plain"] - 1
        print(f"{name:30} {1e3 * row['plain']:8.1f} ms plain, {1e3 * row['watched']:8.1f} watched, ", end="")
        print(f"{slower:+.1%}; growth {row['before'] and row['before']['device_growth']} B, {row['grown']}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
