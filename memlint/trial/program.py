"""`memlint run` from outside: which files a program is made of, its runs, and what they say on each finding."""

from __future__ import annotations

import ast
import importlib.machinery
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memlint.apply import apply_fixes
from memlint.files import Loader, shown
from memlint.rule import Claim, Finding
from memlint.source import Source, SourceError
from memlint.trial.confirm import Outcome, on_target
from memlint.trial.evidence import origin
from memlint.trial.judge import CONFIRMED, FEW, NO_EDIT, REFUTED, UNDECIDED, Verdict, few, grows, judge, undecided
from memlint.trial.run import Answer
from memlint.trial.watch import Place, bytes_at, decorated, locate

TIER = "traced"
FILES = 2_000  # of a program that are checked at most
ONLY_WRITTEN = "measured as written: --ab runs the program repaired as well"
OUTSIDE = "it stands outside of functions and loops, so nothing tells one iteration from the next"
NOT_REACHED = "the program did not reach it"
NOT_RUN = "the flagged statement did not run in the iterations that were measured"
NO_GROWTH = "nothing grows from one iteration to the next as written"


class ProgramError(Exception):
    """The program cannot be run; the message says why in one line."""


@dataclass(frozen=True)
class Program:
    """What to run: a ``script``, or a ``module`` as `python -m` finds it, with ``arguments``."""

    script: str = ""
    module: str = ""
    arguments: tuple[str, ...] = ()

    def entry(self) -> str | None:
        """The file that begins, None where it is none that can be read. Raises `ProgramError`."""
        if self.module:
            return _module_file(self.module)
        if not os.path.exists(self.script):
            raise ProgramError(f"no such script: {self.script}")
        if os.path.isdir(self.script) or self.script.endswith(".ipynb"):
            raise ProgramError(f"{self.script} is no Python script")
        return self.script


def _module_file(name: str) -> str | None:
    """The file of a module, found without importing its packages."""
    path: list[str] | None = [os.getcwd(), *sys.path]
    spec = None
    for part in name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    if path:
        spec = importlib.machinery.PathFinder.find_spec("__main__", path)
    return spec.origin if spec is not None and (spec.origin or "").endswith(".py") else None


def files_of(entry: str) -> list[str]:
    """The files of the user's that ``entry`` is made of, as shown: itself, what it imports, and what that imports."""
    loader = Loader()
    found = [shown(entry)]
    for path in found:
        source = loader.read(path)
        try:
            tree = source.tree if source is not None else ast.Module([], [])
        except SourceError:
            continue
        for name in _imported(tree):
            other = loader(name, path)
            if other is not None and other.path not in found and len(found) < FILES:
                found.append(other.path)
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a file may import, and the packages around them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            joint = "" if module.endswith(".") else "."
            yield from (f"{module}{joint}{alias.name}" for alias in node.names)


@dataclass(frozen=True)
class Watched:
    """A finding and the ``key`` of the place at which it is watched; None with the ``reason`` where it cannot be."""

    finding: Finding
    key: int | None
    reason: str = ""


class Round:
    """Fixes that are laid over the program together: the findings, and the texts by path."""

    def __init__(self) -> None:
        self.watched: list[Watched] = []
        self.texts: dict[str, str] = {}

    def add(self, watched: Watched, source: Source, before: Run) -> bool:
        """Take in a fix, if it has room beside the others, in the text and in time."""
        finding = watched.finding
        if not (finding.fix and finding.fix.edits) or any(before.mixes(watched.key, w.key) for w in self.watched):
            return False
        here = [w.finding for w in self.watched if w.finding.path == source.path]
        text, count = apply_fixes(source, [*here, finding])
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            return False
        if count == len(here):
            return False
        self.watched.append(watched)
        self.texts[source.path] = text
        return True


class Watching:
    """The findings of a program, the places at which they are watched, and its texts as written and as repaired."""

    def __init__(self, findings: Sequence[Finding], sources: dict[str, Source]) -> None:
        self.sources = sources
        self.places: dict[tuple[str, Place], int] = {}
        self.findings = [self._watched(finding) for finding in findings]

    def _watched(self, finding: Finding) -> Watched:
        source = self.sources[finding.path]
        if source.is_notebook:
            return Watched(finding, None, "it stands in a notebook")
        try:
            place = locate(source.text, finding.span.line, finding.span.column)
        except RecursionError:
            return Watched(finding, None, "its file is nested too deeply to be watched")
        if place.loop is None:
            place = Place(decorated(source.tree, finding.span.line) or place.function)
            if not place.function:
                return Watched(finding, None, OUTSIDE)
        key = self.places.setdefault((finding.path, replace(place, source="")), len(self.places))
        return Watched(finding, key)

    def rounds(self, before: Run) -> list[Round]:
        """The fixes of what ``before`` has measured, in as few rounds as leave each one's effect to itself.

        Two share a round only where neither's loop runs within an iteration of the other's.
        """
        rounds: list[Round] = []
        for number, watched in enumerate(self.findings):
            if number in before.hits and watched.key is not None and before.iterations(watched.key) >= FEW:
                if not any(one.add(watched, self.sources[watched.finding.path], before) for one in rounds):
                    new = Round()
                    if new.add(watched, self.sources[watched.finding.path], before):
                        rounds.append(new)
        return rounds

    def files(self, texts: dict[str, str]) -> dict[str, Any]:
        """What is laid over each flagged file, as `traced.Overlay` takes it; ``texts`` are those repaired."""
        files: dict[str, Any] = {}
        for watched in self.findings:
            if watched.key is None:
                continue
            source = self.sources[watched.finding.path]
            path = os.path.realpath(source.path)
            plan = files.setdefault(
                path,
                {
                    "digest": source.digest,
                    "text": texts.get(source.path, source.text),
                    "repaired": source.path in texts,
                    "places": [
                        [p.function, p.loop, key] for (file, p), key in self.places.items() if file == source.path
                    ],
                    "hits": [],
                },
            )
            if source.path not in texts:
                span = watched.finding.span
                plan["hits"].append([*bytes_at(source.text, span.line, span.column), self.findings.index(watched)])
        return files


@dataclass
class Run:
    """What one run of the program gave: its exit ``status`` (of a signal the negative number) and what was read."""

    status: int
    arms: dict[int, dict[str, Any]] = field(default_factory=dict)
    hits: set[int] = field(default_factory=set)
    during: set[tuple[int, int]] = field(default_factory=set)
    device: str = "cpu"
    torch: str = ""

    def iterations(self, key: int) -> int:
        """Of the place ``key``, how many were read."""
        return len(self.arms[key]["readings"]) - 1 if key in self.arms else 0

    def mixes(self, one: int | None, other: int | None) -> bool:
        """Whether what happens at one place may be seen at another."""
        return one == other or (one, other) in self.during or (other, one) in self.during


def run(program: Program, watching: Watching, steps: int | None, texts: dict[str, str]) -> Run:
    """Run the program once, with streams and signals as they are. Raises `ProgramError` where it does not start."""
    with tempfile.TemporaryDirectory(prefix="memlint-run-") as folder:
        events, plan = Path(folder, "events"), Path(folder, "plan")
        content = {
            "script": program.script,
            "module": program.module,
            "steps": steps,
            "keys": sorted(watching.places.values()),
            "files": watching.files(texts),
            "events": str(events),
        }
        plan.write_text(json.dumps(content), encoding="utf-8")
        events.touch()
        traced = Path(__file__).with_name("traced.py")
        status = _wait([sys.executable, str(traced), str(plan), *program.arguments])
        return _read(status, events.read_text(encoding="utf-8", errors="replace").splitlines())


def _read(status: int, lines: Iterable[str]) -> Run:
    found = Run(status)
    end: dict[str, Any] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # the program died while it was written
            continue
        if "hit" in event:
            found.hits.add(event["hit"])
        elif "device" in event:
            found.device, found.torch, found.arms = event["device"], event["torch"], {}
        elif "during" in event:
            found.during.add((event["during"][0], event["during"][1]))
        elif "place" in event:
            arm = found.arms.setdefault(event["place"], {"readings": [], "evidence": None})
            if "reading" in event:
                del arm["readings"][event["count"] :]
                arm["readings"].append(event["reading"])
            else:
                arm["evidence"] = event["evidence"]
        elif "ended" in event:
            end = event
    for key, arm in found.arms.items():
        arm["ended"] = end.get("ended", "failed")
        arm["message"] = end.get("message") or _death(status)
        if arm["ended"] == "out of memory":
            arm["peak"] = end.get("peaks", {}).get(str(key), 0.0)
    return found


def _death(status: int) -> str:
    if status < 0:
        return f"the program was killed by {signal.Signals(-status).name}"
    return f"the program ended with exit status {status}"


def _wait(command: Sequence[str]) -> int:
    """Run ``command`` to its end; signals sent to this process go to it, as far as a terminal does not send them."""
    child: list[subprocess.Popen[bytes]] = []
    shared = _in_foreground()

    def forward(number: int, frame: object) -> None:
        if child and not (shared and number in (signal.SIGINT, signal.SIGQUIT)):
            child[0].send_signal(number)

    names = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    numbers = [number for name in names if (number := getattr(signal, name, None)) is not None]
    before = {n: signal.getsignal(n) for n in numbers}
    caught = [n for n in numbers if before[n] is not signal.SIG_IGN]  # what is ignored stays so, in the program too
    for number in caught:
        signal.signal(number, forward)
    try:
        child.append(subprocess.Popen(list(command)))
        return child[0].wait()
    except OSError as error:
        raise ProgramError(f"the program does not start: {error.strerror}") from None
    finally:
        for number in caught:
            signal.signal(number, before[number])


def _in_foreground() -> bool:
    """Whether a terminal sends its signals to this process's whole group."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):
        return False


def outcomes(watching: Watching, before: Run, rounds: Sequence[tuple[Round, Run]] | None) -> list[Outcome]:
    """A verdict for each finding from the run as written and from those repaired; ``rounds`` None: nobody asked."""
    after = {id(watched): run for one, run in rounds or () for watched in one.watched}
    alone = ONLY_WRITTEN if rounds is None else NO_EDIT
    return [
        Outcome(w.finding, _verdict(watching, w, number in before.hits, before, after.get(id(w)), alone))
        for number, w in enumerate(watching.findings)
    ]


def _verdict(watching: Watching, watched: Watched, ran: bool, before: Run, after: Run | None, alone: str) -> Verdict:
    finding = watched.finding
    claim = finding.claim or Claim.GROWTH
    arm = before.arms.get(watched.key) if watched.key is not None else None
    if arm is None or watched.key is None:
        return undecided(claim, TIER, before.device, watched.reason or NOT_REACHED)
    if (made := before.iterations(watched.key)) < FEW:
        fault = arm["message"] if arm["ended"] not in ("returned", "cut short") else ""
        return undecided(claim, TIER, before.device, fault or few(made))
    data = {"before": arm, "device": before.device}
    if after is not None:
        data["after"] = after.arms.get(watched.key, {"ended": "failed", "message": NOT_REACHED})
    source = watching.sources[finding.path]
    verdict = judge(claim, Answer("ended", data), TIER, before.device, origin(finding, source), alone)
    if not ran and verdict.status != CONFIRMED:
        return replace(verdict, status=UNDECIDED, measure="", reason=NOT_RUN)
    if after is None and claim is Claim.GROWTH and verdict.before and not grows(verdict.before):
        verdict = replace(verdict, status=REFUTED, reason=NO_GROWTH)
    return on_target(verdict, source, before.torch)
