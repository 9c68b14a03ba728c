"""How long `memlint check` takes beside parsing, and beside other linters, on the same files.

    python tests/benchmarks/speed.py [--write] [--runs N] [NAME=FOLDER[:FOLDER…] …]

Each row is a command in a process of its own, start-up and imports included: seconds of processor time (user and
system, of all its threads and children), seconds by the clock, and peak resident memory. The rows of one tree are
run in turn, round after round, and the round that was disturbed least counts. `ast.parse` of every file is the
yardstick, so that a record of one machine can be read on another. memlint's bytecode is there before, as it is where
memlint was installed: a checkout that may not write any compiles itself again in every run. Trees: those named, else
memlint itself and, where torch is installed, torch's own Python files. Linters that are not on the path are left out.
``--write`` records the result in ``fixtures/speed.json``, beside those of other trees from the same day and machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "fixtures" / "speed.json"
PATIENCE = 1800  # seconds for one command

EACH = """
import gc, sys, warnings
gc.disable()
warnings.simplefilter("ignore")
for path in open(sys.argv[1], encoding="utf-8").read().splitlines():
    try:
        with open(path, "rb") as file:
            {parse}(file.read())
    except Exception:
        pass
"""
PARSERS = {
    "ast.parse": "import ast" + EACH.format(parse="ast.parse"),
    "libcst.parse_module": "import libcst" + EACH.format(parse="libcst.parse_module"),
}
PEERS = {
    "torchfix": ["torchfix", "--select=ALL", "-j1"],
    "torch-preflight": ["torch-preflight", "check"],
    "flake8": ["flake8", "--exit-zero", "-j1", "--isolated"],
    "ruff": ["ruff", "check", "--isolated", "--no-cache", "--exit-zero", "--select=ALL", "--quiet"],
}
CHANGED = "memlint check, a file changed"
PLACES = 5  # files of a tree that are changed, one after the other
TEXTS = (".py", ".ipynb", ".toml", ".cfg", ".txt")
MEMLINT = [sys.executable, "-m", "memlint", "check", "--exit-zero", "--output-format", "jsonl", "--select", "ALL"]


class Cost(NamedTuple):
    """What one command took: processor seconds, seconds by the clock, peak MiB of its largest process."""

    cpu: float
    wall: float
    peak: float


def measure(command: list[str], folder: Path, environment: dict[str, str]) -> Cost | None:
    """Run a command and see what it costs; None where it fails or takes too long."""
    with tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=err
        )
        try:
            while True:  # `wait4` alone gives this child's own usage, and it knows no time limit
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.perf_counter() - start > PATIENCE:
                    process.kill()
                time.sleep(0.002)
        except BaseException:
            process.kill()
            raise
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            err.seek(0)
            print(f"{command[0]}: exit {process.returncode}: {err.read()[-300:]!r}", file=sys.stderr)
            return None
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def trees(named: list[str]) -> dict[str, list[Path]]:
    """Folders to check, by what they are called here."""
    if named:
        pairs = (each.partition("=") for each in named)
        return {name: [Path(folder).resolve() for folder in folders.split(":")] for name, _, folders in pairs}
    found = {"memlint": [ROOT / "memlint", ROOT / "rules"]}
    spec = importlib.util.find_spec("torch")  # finds it without importing it
    if spec is not None and spec.submodule_search_locations:
        found["torch"] = [Path(spec.submodule_search_locations[0])]
    return found


def installed(here: Path) -> dict[str, str]:
    """The environment in which memlint runs as if it were installed: with its bytecode, which this compiles."""
    compiled = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(here / "bytecode")}
    packages = [str(ROOT / "memlint"), str(ROOT / "rules")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True, env={**os.environ, **compiled})
    return compiled


def rows(folders: list[Path], here: Path, ours: dict[str, str]) -> dict[str, tuple[list[str], dict[str, str]]]:
    """The commands to compare, with their environments; memlint's is made of ``ours``."""
    paths = [str(folder) for folder in folders]
    files = str(here / "files")
    kept = {**ours, "MEMLINT_CACHE_DIR": str(here / "cache")}
    found = {name: ([sys.executable, "-c", code, files], kept) for name, code in PARSERS.items()}
    found["memlint check, cold"] = ([*MEMLINT, "--no-cache", "--jobs", "1", *paths], kept)
    found["memlint check, cold, all cores"] = ([*MEMLINT, "--no-cache", *paths], kept)
    found["memlint check, warm"] = ([*MEMLINT, *paths], kept)
    for name, command in PEERS.items():
        if program := shutil.which(command[0]):
            found[name] = ([program, *command[1:], *paths], {})
    return found


def after_a_change(folders: list[Path], here: Path, ours: dict[str, str]) -> Cost | None:
    """What a run in one process costs after a function was put at the end of one file: the mean over some files of a
    copy of the tree, which lie far apart; one run before that knows nothing yet."""
    copies = []
    for number, folder in enumerate(folders):
        copies.append(here / f"copy{number}" / folder.name)
        shutil.copytree(folder, copies[-1], ignore=_not_read)
    command = [*MEMLINT, "--jobs", "1", *map(str, copies)]
    environment = {**ours, "MEMLINT_CACHE_DIR": str(here / "changed")}
    measure(command, here, environment)
    files = sorted(path for copy in copies for path in copy.rglob("*.py"))
    costs = []
    for path in files[len(files) // (2 * PLACES) :: max(1, len(files) // PLACES)][:PLACES]:
        path.write_bytes(path.read_bytes() + b"\n\ndef one_more(value):\n    return value + 1\n")
        if (cost := measure(command, here, environment)) is None:
            return None
        costs.append(cost)
    for copy in copies:
        shutil.rmtree(copy.parent)
    shutil.rmtree(here / "changed")
    return Cost(*(sum(each) / len(costs) for each in zip(*costs, strict=True)))


def _not_read(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(TEXTS) and not (Path(folder) / name).is_dir()]


def of_tree(folders: list[Path], runs: int, only: str = "") -> dict[str, Any]:
    """The costs of every row on one tree, the least of some rounds each, and how large the tree is."""
    from memlint.config import Configs
    from memlint.files import discover

    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        files = discover([str(folder) for folder in folders], Configs().of_folder)
        paths = [Path(file).resolve() for file in files if file.endswith(".py")]
        (here / "files").write_text("\n".join(map(str, paths)), encoding="utf-8")
        texts = [path.read_bytes() for path in paths]
        ours = installed(here)
        commands = rows(folders, here, ours)
        commands = {name: row for name, row in commands.items() if name == "ast.parse" or re.search(only, name)}
        if "memlint check, warm" in commands:
            measure(commands["memlint check, warm"][0], here, commands["memlint check, warm"][1])  # fills the cache
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, (command, environment) in commands.items():
                if (cost := measure(command, here, environment)) is not None:
                    costs[name].append(cost)
            if re.search(only, CHANGED) and (cost := after_a_change(folders, here, ours)) is not None:
                costs.setdefault(CHANGED, []).append(cost)
    best = {name: Cost(*map(min, zip(*found, strict=True))) for name, found in costs.items() if found}
    return {
        "files": len(texts),
        "lines": sum(text.count(b"\n") for text in texts),
        "rows": {
            name: {
                "ratio": round(cost.cpu / best["ast.parse"].cpu, 3),
                "cpu_seconds": round(cost.cpu, 3),
                "wall_seconds": round(cost.wall, 3),
                "peak_mib": round(cost.peak, 1),
            }
            for name, cost in best.items()
        },
    }


def machine() -> dict[str, str]:
    """Where and when the figures were taken, and of which versions."""
    found = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and (match := re.search(r"model name\s*: (.*)", cpu.read_text())):
        found["processor"] = match[1]
    for name in ("libcst", "torch", "transformers", "timm"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    for name, command in PEERS.items():
        if program := shutil.which(command[0]):
            said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split()
            found[name] = next((word for word in said if re.match(r"\d", word)), "?")
    return found


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown table."""
    lines = ["| tree | command | × ast.parse | CPU s | clock s | peak MiB |", "|---|---|---:|---:|---:|---:|"]
    for name, tree in result["trees"].items():
        title = f"{name} ({tree['files']:,} files, {tree['lines']:,} lines)"
        for row, c in tree["rows"].items():
            lines.append(
                f"| {title} | {row} | {c['ratio']:.2f} | {c['cpu_seconds']:.2f} | {c['wall_seconds']:.2f} "
                f"| {c['peak_mib']:.0f} |"
            )
            title = ""
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("trees", nargs="*", metavar="NAME=FOLDER[:FOLDER…]")
    parser.add_argument("--runs", type=int, default=3, help="rounds; the least counts (default: 3)")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name holds this, beside ast.parse")
    parser.add_argument("--write", action="store_true", help=f"record the result in {RECORD.relative_to(ROOT)}")
    given = parser.parse_args(arguments)
    result: dict[str, Any] = {"machine": machine(), "trees": {}}
    for name, folders in trees(given.trees).items():
        result["trees"][name] = of_tree(folders, given.runs, given.only)
    print(table(result))
    if given.write:
        known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        if known.get("machine") == result["machine"]:  # one tree at a time, where all of them take long
            result["trees"] = {**known["trees"], **result["trees"]}
        RECORD.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
