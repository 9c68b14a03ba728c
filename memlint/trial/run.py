"""Starts the process in which trials run, hands it specifications and collects what it measured."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

MARGIN = 10.0  # seconds that the server may take beyond a trial's own limit
OLDEST = (2, 2)  # of torch
START = 120.0  # seconds that the import of torch may take
AGAIN = "confirm it again with --ray"  # of a trial that was lost with the machine that it ran on
CLOSED = "the trials have been ended"


@dataclass(frozen=True)
class Spec:
    """One trial: a module's text as written and as repaired, and how to call what is flagged in it.

    Attributes:
        path: the module's file, absolute; `module` is its dotted name with `paths` in front of `sys.path`.
        root: the folder in which nothing may be written.
        function: dotted path of the flagged function; `loop` is the number of the watched loop in it (`watch.Place`).
        arms: the texts, "before" and, where there is a repair, "after".
        harness: source text with `setup(device)`, and `run(function, arguments)` and `target` if need be; None where
            the module has `setup` and `target` itself.
        chain: the scopes that are run leniently (`lenient.soften`), from a start that can be called ("": the file is
            run as a script) to `function`; empty where everything runs as written.
        begins: what is measured, where no loop is watched, begins with the flagged statement.
        ends: what runs leniently, and not in a loop, ends where the flagged statement has run (`lenient.soften`).
        flagged: by arm, line (from 1) and column (from 0, in bytes) of the flagged statement or of what has taken its
            place, to which what runs leniently leads, and whose runs are counted.
        patience: seconds after which the iterations of an arm end early (`ticks.Watch`), None for never.
        fills: ``zero_grad`` fills gradients with zeros unless told otherwise, as torch did before 2.0.
        batch: examples in a batch that memlint makes, None for the usual number.
        device: "fake", "cpu" or "cuda:N".
        device_limit: bytes of device memory for one arm.
    """

    path: str
    module: str
    root: str
    paths: tuple[str, ...]
    function: str
    loop: int | None
    arms: dict[str, str]
    harness: str | None = None
    device: str = "fake"
    steps: int = 12
    compare: bool = True
    device_limit: int | None = None
    chain: tuple[str, ...] = ()
    begins: bool = False
    ends: bool = False
    flagged: dict[str, tuple[int, int]] = field(default_factory=dict)
    fills: bool = False
    batch: int | None = None
    patience: float | None = None


@dataclass(frozen=True)
class Limits:
    """What one trial may take: ``timeout`` in seconds for both arms, ``memory`` in bytes of resident host memory."""

    timeout: float = 60.0
    memory: int | None = 8 << 30


@dataclass(frozen=True)
class Answer:
    """What came back: ``fate`` is "ended", "timeout", "memory" or how the child died; ``data`` is its answer."""

    fate: str
    data: dict[str, Any] = field(default_factory=dict)
    log: str = ""


class TrialError(Exception):
    """Trials cannot run at all; the message says why in one line."""


class Runner(Protocol):
    """Where trials run, one after the other."""

    torch: str  # that ran them, "" before the first

    def run(self, spec: Spec, limits: Limits | None = None) -> Answer:
        """Run one trial, within ``limits`` of its own if need be. Raises `TrialError` where none can run at all."""

    def gpus(self) -> int:
        """How many CUDA devices there are."""

    def close(self) -> None:
        """End what still runs; no trial is run any more."""


class Trials:
    """A context in which trials run, one after the other, in children of one process that imports torch once."""

    def __init__(self, limits: Limits = Limits(), python: str = sys.executable) -> None:
        self.limits = limits
        self.torch = ""
        self._python = python
        self._server: subprocess.Popen[str] | None = None
        self._closed = False

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, spec: Spec, limits: Limits | None = None) -> Answer:
        """Run one trial, within ``limits`` of its own if need be. Raises `TrialError` where none can run at all."""
        limits = limits or self.limits
        server = self._start()
        folder = tempfile.mkdtemp(prefix="memlint-trial-")
        try:
            file = Path(folder, "spec.json")
            file.write_text(json.dumps({**asdict(spec), "folder": folder}))
            request = {"spec": str(file), "timeout": limits.timeout, "memory": limits.memory}
            assert server.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has just died; that it does not answer says so
                server.stdin.write(json.dumps(request) + "\n")
                server.stdin.flush()
            reply = self._read(limits.timeout + MARGIN)
            log = Path(folder, "log.txt")
            text = log.read_text(errors="replace")[-20_000:] if log.exists() else ""
            answer = Path(folder, "answer.json")
            data = {}
            with contextlib.suppress(OSError, ValueError):
                data = json.loads(answer.read_text())
            return Answer(reply.get("fate") or f"ended with the trial process: {self._why()}", data, text)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def gpus(self) -> int:
        """How many CUDA devices a child sees."""
        server = self._start()
        assert server.stdin is not None
        server.stdin.write('{"probe": true}\n')
        server.stdin.flush()
        return int(self._read(60).get("gpus", 0))

    def close(self) -> None:
        """End the process and whatever it still runs. No other is started."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        if self._server is None:
            return
        self._server.terminate()  # it ends the trial that it may be running
        with contextlib.suppress(OSError):
            self._server.stdin and self._server.stdin.close()
        try:
            self._server.wait(5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
        self._server.stdout and self._server.stdout.close()
        self._server = None

    def _start(self) -> subprocess.Popen[str]:
        if self._closed:
            raise TrialError(CLOSED)
        if self._server is not None and self._server.poll() is None:
            return self._server
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
            "MPLBACKEND": "Agg",
            "WANDB_MODE": "disabled",
            "HF_HUB_OFFLINE": "1",
            "PIP_NO_INDEX": "1",  # for packages that install others when they are imported
            "UV_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        child = Path(__file__).with_name("child.py")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # lives as long as the server
        self._server = subprocess.Popen(
            [self._python, str(child)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        ready = self._read(START)
        if "ready" not in ready:
            self._end()
            raise TrialError(self._why())
        self.torch = ready["ready"]
        if tuple(int(part) for part in re.findall(r"\d+", self.torch)[:2]) < OLDEST:
            self._end()
            raise TrialError(f"confirm needs torch {'.'.join(map(str, OLDEST))} or newer; this Python has {self.torch}")
        return self._server

    def _why(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        last = lines[-1] if lines else "the trial process ended without a word"
        if "No module named 'torch'" in last:
            return "confirm needs torch in this Python: pip install 'torch-memlint[confirm]'"
        return f"the trial process did not start: {last}"

    def _read(self, seconds: float) -> dict[str, Any]:
        """The server's next line; empty where it has ended, and the fate "timeout", and it killed, where none comes."""
        server = self._server
        assert server is not None and server.stdout is not None
        deadline = time.monotonic() + seconds
        fate = {"fate": "timeout"}
        while (left := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([server.stdout], [], [], left)
            if readable:
                if line := server.stdout.readline():
                    return dict(json.loads(line))
                fate = {}
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(5)  # so that the next trial starts another
        return fate
