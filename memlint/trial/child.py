"""The process in which trials run. It is started by path, under any interpreter that has torch, and speaks JSON lines.

It imports torch once, then forks a child for every trial before any device is touched. A trial runs both arms of one
specification (`memlint.trial.run.Spec`) in a temporary folder, within limits of time and memory, and leaves its
readings in a file. Everything that is killed is killed with its whole process group.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any


def _find_siblings() -> None:
    """Make `memlint.trial` importable from where this file lies, and nothing else of this folder."""
    here = Path(__file__).resolve().parent
    if sys.path and Path(sys.path[0] or ".").resolve() == here:
        del sys.path[0]
    for name, folder in (("memlint", here.parent), ("memlint.trial", here)):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [str(folder)]
            sys.modules[name] = package


if __name__ == "__main__":
    _find_siblings()

import torch  # noqa: E402

from memlint.trial.arms import run_trial, where_failed  # noqa: E402
from memlint.trial.fence import protect  # noqa: E402


def die_with(parent: int) -> None:
    """End this process as soon as ``parent`` has, even where it is killed and can end nothing itself (on Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def trial_process(spec: dict[str, Any], parent: int) -> None:
    """The forked child's whole life: run the trial in its folder, leave ``answer.json``, end."""
    os.setsid()
    die_with(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(spec["folder"])
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdin = open(0)  # noqa: SIM115
    sys.dont_write_bytecode = True
    sys.argv = [spec["path"]]
    sys.path[:0] = spec["paths"]
    status = 1
    try:
        protect(spec["root"], spec["folder"])
        answer = run_trial(spec)
        status = 0
    except BaseException as error:
        answer = {"error": where_failed(error, spec["path"])}
        traceback.print_exc()
    with open(os.path.join(spec["folder"], "answer.json"), "w") as file:
        json.dump(answer, file)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(status)


def watch_over(pid: int, timeout: float, memory: int | None, parent: int) -> str:
    """Wait for the trial ``pid``; whatever happens here, it and its group are dead afterwards."""
    deadline = time.monotonic() + timeout
    try:
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return _fate(os.waitstatus_to_exitcode(status))
            if time.monotonic() > deadline:
                return "timeout"
            if memory is not None and _resident(pid) > memory:
                return "memory"
            if os.getppid() != parent:
                return "orphan"
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _fate(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return "ended" if code in (0, 1) else f"ended by exit status {code}"


def _resident(pid: int) -> int:
    """Resident bytes of a process and of the children it has started, 0 where the system does not tell."""
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            todo += [int(p) for p in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
    return total


def _gpus() -> int:
    """CUDA devices, counted in a child so that this process stays untouched."""
    pid = os.fork()
    if pid == 0:
        count = 0
        with contextlib.suppress(Exception):
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        os._exit(count)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve() -> None:
    """Run the ``spec`` file that each line of standard input names, within its ``timeout`` and ``memory``."""
    parent, server = os.getppid(), os.getpid()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"ready": torch.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "probe" in request:
            print(json.dumps({"gpus": _gpus()}), file=answers, flush=True)
            continue
        spec = json.loads(Path(request["spec"]).read_text())
        if not spec["device"].startswith("cuda"):  # what dispatch modes import at their first operator
            importlib.import_module("torch._dynamo")
        if spec["device"] == "fake":
            importlib.import_module("memlint.trial.fake")
        gc.freeze()  # what is loaded by now need not be searched for garbage in every child
        pid = os.fork()
        if pid == 0:
            answers.close()
            trial_process(spec, server)
        fate = watch_over(pid, request["timeout"], request["memory"], parent)
        print(json.dumps({"fate": fate}), file=answers, flush=True)
        if fate == "orphan":
            return


if __name__ == "__main__":
    serve()
