"""Trials as tasks of a Ray cluster: a specification goes there as plain data, and what was measured comes back.

A trial needs the code around the flagged file, which the cluster's nodes do not have: the project's files travel as one
archive (`packed`), are unpacked for each trial in a folder of its own, and are gone with it. memlint travels too. What
the nodes must have is Python with torch and with the packages that the code imports.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import socket
import tempfile
import threading
import zipfile
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlint.trial.run import AGAIN, CLOSED, Answer, Limits, Spec, TrialError, Trials

if TYPE_CHECKING:
    from memlint.trial.confirm import Confirmer, Settings

MIB = 2**20
TRAVELS = 64 * MIB  # bytes of a project's files at most: its Python first, then the smallest
FILES = 20_000  # of a project that are looked at
PATIENCE = 5.0  # seconds that a cluster may take to take a connection
ALIVE = 1.0  # seconds between two looks at whether the cluster can still run what waits
WORKERS = 64  # trials at a time
NO_RAY = "--ray needs Ray in this Python: pip install 'torch-memlint[ray]'"

_running: dict[str, Trials] = {}  # in a Ray worker: by the GPU that the task was given


def packed(root: str) -> bytes:
    """The files of the project at ``root`` as a zip archive, nearest to the root first, of at most `TRAVELS` bytes.

    Hidden folders, virtual environments, caches and what is built there stay behind.
    """
    found: list[tuple[bool, int, str]] = []
    folders = deque([root])
    while folders and len(found) < FILES:
        with contextlib.suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    if not _stays_behind(entry):
                        folders.append(entry.path)
                elif entry.is_file():
                    found.append((not entry.name.endswith(".py"), entry.stat().st_size, entry.path))
    archive, left = io.BytesIO(), TRAVELS
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as file:
        for _, size, path in sorted(found):
            if (left := left - size) < 0:
                break
            with contextlib.suppress(OSError):  # unreadable, or gone meanwhile
                file.write(path, os.path.relpath(path, root))
    return archive.getvalue()


def _stays_behind(folder: os.DirEntry[str]) -> bool:
    from memlint.files import USUAL_FOLDERS

    if folder.name.startswith(".") or os.path.exists(os.path.join(folder.path, "pyvenv.cfg")):
        return True
    return folder.name in USUAL_FOLDERS and not os.path.exists(os.path.join(folder.path, "__init__.py"))


def run_here(spec: dict[str, Any], project: bytes, limits: dict[str, Any]) -> dict[str, Any]:
    """What a task does, on the node that it runs on: one trial, in the unpacked ``project``.

    Paths come back as they were in ``spec``. Where no trial can run at all, the answer has the reason as "impossible".
    """
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    trials = _running.setdefault(gpu, Trials())
    with tempfile.TemporaryDirectory(prefix="memlint-project-") as folder:
        there, here = spec["root"], os.path.realpath(folder)
        with zipfile.ZipFile(io.BytesIO(project)) as archive:
            archive.extractall(here)
        moved = partial(_moved, there, here)
        paths = tuple(map(moved, spec["paths"]))
        given = Spec(**{**spec, "root": here, "path": moved(spec["path"]), "paths": paths})
        try:
            answer = trials.run(given, Limits(**limits))
        except TrialError as error:
            return {"impossible": f"on the node {socket.gethostname()}, {error}"}
    old, new = json.dumps(here)[1:-1], json.dumps(there)[1:-1]
    data = json.loads(json.dumps(answer.data).replace(old, new))
    return {"fate": answer.fate, "data": data, "log": answer.log.replace(here, there), "torch": trials.torch}


def _moved(there: str, here: str, path: str) -> str:
    return os.path.normpath(os.path.join(here, os.path.relpath(path, there)))


def needs(device: str) -> str:
    """Of what a trial on ``device`` takes one from its node: a "GPU" or a "CPU"."""
    return "GPU" if device.startswith("cuda") else "CPU"


class Cluster:
    """A context: the Ray cluster at ``address`` ("auto": that of RAY_ADDRESS, or the one of this machine).

    Raises `TrialError` where Ray is not installed or no cluster answers.
    """

    def __init__(self, address: str) -> None:
        self._address = address if address != "auto" else os.environ.get("RAY_ADDRESS") or "auto"
        self._projects: dict[str, Any] = {}
        self._tasks: dict[str, Any] = {}
        self._lock = threading.Lock()
        try:
            self.ray: Any = importlib.import_module("ray")
        except ImportError:
            raise TrialError(NO_RAY) from None

    def __enter__(self) -> Cluster:
        unreachable = f"no Ray cluster at {self._address!r}" if self._address != "auto" else "no Ray cluster is running"
        package = str(Path(__file__).resolve().parents[1])
        try:
            _knock(self._address)
            self.ray.init(
                self._address,
                runtime_env={"py_modules": [package]},
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
            )
        except (OSError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TrialError(f"{unreachable}: {said}") from None
        return self

    def __exit__(self, *exception: object) -> None:
        self.ray.shutdown()

    def slots(self, kind: str) -> int:
        """How many of a ``kind`` ("GPU", "CPU") the cluster has, in use or not."""
        return int(self.ray.cluster_resources().get(kind, 0))

    def start(self, spec: Spec, limits: Limits) -> Any:
        """A task for one trial."""
        kind = needs(spec.device)
        with self._lock:
            if spec.root not in self._projects:
                self._projects[spec.root] = self.ray.put(packed(spec.root))
            if kind not in self._tasks:  # after a task on a GPU, too, a worker goes on, as it has imported torch
                takes = {"num_gpus": int(kind == "GPU"), "num_cpus": int(kind == "CPU")}
                self._tasks[kind] = self.ray.remote(max_retries=0, max_calls=0, **takes)(run_here)
        return self._tasks[kind].remote(asdict(spec), self._projects[spec.root], asdict(limits))


def _knock(address: str) -> None:
    """See whether anybody takes connections at HOST:PORT, for which Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()


class ClusterTrials:
    """Trials of one worker, one after the other, each wherever the cluster has room: what `run.Trials` is here."""

    def __init__(self, cluster: Cluster, limits: Limits) -> None:
        self.torch = ""
        self._cluster = cluster
        self._limits = limits
        self._task: Any = None
        self._closed = False

    def run(self, spec: Spec, limits: Limits | None = None) -> Answer:
        """Run one trial. What dies with its node is an answer that says so. Raises `TrialError`."""
        if self._closed:
            raise TrialError(CLOSED)
        ray = self._cluster.ray
        self._task = task = self._cluster.start(spec, limits or self._limits)
        try:
            while not ray.wait([task], timeout=ALIVE)[0]:
                if self._closed:
                    raise TrialError(CLOSED)
                if not self._cluster.slots(needs(spec.device)):
                    ray.cancel(task, force=True)
                    return Answer(f"found no node any more that can run it: {AGAIN}")
            reply = ray.get(task)
        except ray.exceptions.RuntimeEnvSetupError as error:
            raise TrialError(f"the Ray cluster cannot take memlint: {_in_short(error)}") from None
        except ray.exceptions.RayError as error:
            return Answer(f"was lost with its Ray task ({_in_short(error)}): {AGAIN}")
        if "impossible" in reply:
            raise TrialError(reply["impossible"])
        self.torch = reply.pop("torch")
        return Answer(**reply)

    def gpus(self) -> int:
        """How many GPUs the cluster has."""
        return self._cluster.slots("GPU")

    def close(self) -> None:
        """Cancel what still runs."""
        self._closed = True
        if self._task is not None:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._cluster.ray.cancel(self._task, force=True)


def _in_short(error: BaseException) -> str:
    text = str(getattr(error, "cause", None) or error).strip() or "no word"
    return f"{type(error).__name__}: {text.splitlines()[0].partition('. ')[0].rstrip('.')}"


@contextlib.contextmanager
def workers(settings: Settings, address: str) -> Iterator[list[Confirmer]]:
    """Confirmers for ``settings`` whose trials run on a Ray cluster: as many as it has GPUs, or else CPUs.

    Raises `TrialError` where there is no such cluster, or none with a GPU that was asked for.
    """
    from memlint.trial.confirm import Confirmer

    if ":" in settings.device:
        raise TrialError(f"--device {settings.device}: with --ray it is Ray that gives each trial its GPU: write cuda")
    with Cluster(address) as cluster, contextlib.ExitStack() as stack:
        gpus = cluster.slots("GPU") if settings.device in ("cuda", "auto") else 0
        if settings.device == "cuda" and not gpus:
            raise TrialError("--device cuda: no node of the Ray cluster has a GPU; fake and cpu need none")
        count = min(gpus or cluster.slots("CPU"), WORKERS)
        if not count:
            raise TrialError("no node of the Ray cluster has a CPU for tasks")
        each = replace(settings, device="cuda" if gpus else settings.device)
        yield [stack.enter_context(Confirmer(each, ClusterTrials(cluster, settings.limits))) for _ in range(count)]
