"""The process in which `memlint run` runs the user's own program: started by path, it is that program's interpreter.

Ticks, and in the second run fixes, are laid over the flagged functions in memory while their files are imported; no
file is changed. Everything else is as without memlint: arguments, `sys.path`, `__main__`, streams, signals and exit
status. Torch is imported by the program alone. What is read goes line by line into a file, so that no death of the
program takes it along.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import linecache
import os
import sys
import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    for package, folder in (("memlint", here.parent), ("memlint.trial", here)):
        module = types.ModuleType(package)
        module.__path__ = [str(folder)]
        sys.modules[package] = module
    importlib.import_module("memlint.trial.traced").main()
    sys.exit()

from memlint.trial.ticks import Enough, Watch
from memlint.trial.watch import CALL, HIT, TICK, WATCH, Place, count_hits, rewrite

WHOLE = 50  # iterations that are read where the program is not stopped
PATIENCE = 60.0  # seconds without headway, and times what it has taken so far, after which the rest is given up
LONGER = 3
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Bench:
    """Everything that is watched in one program: the one allocator, the watches, and when there is enough.

    ``steps`` is None where the program runs to its own end.
    """

    def __init__(self, steps: int | None, keys: Iterable[int], out: int) -> None:
        self.stops = steps is not None
        self._limit = steps or WHOLE
        self._out = out
        self._process = os.getpid()
        self._shared: Shared | None = None
        self._ledger: Any = None
        self._began = self._moved = time.monotonic()
        self._hits: set[int] = set()
        self._running: set[int] = set()
        self._during: set[tuple[int, int]] = set()
        self.watches = {key: ProgramWatch(self, key, PlaceMeter(self, key), self._limit) for key in keys}

    def say(self, **event: Any) -> None:
        """Write an event down, for good."""
        with contextlib.suppress(OSError):
            os.write(self._out, json.dumps(event).encode() + b"\n")

    @property
    def here(self) -> bool:
        """Whether this is the program's own process, and not one that it has forked."""
        return os.getpid() == self._process

    def hit(self, key: int) -> None:
        """The statement ``key`` runs."""
        if key not in self._hits and self.here:
            self._hits.add(key)
            self.say(hit=key)

    def starts(self, key: int) -> None:
        """The loop ``key`` starts; those that are running now have it within their iterations."""
        for other in self._running - {key}:
            if (other, key) not in self._during:
                self._during.add((other, key))
                self.say(during=[other, key])
        self._running.add(key)

    def ends(self, key: int) -> None:
        """The loop ``key`` has ended. Of ``while`` loops and of functions that are called, nobody tells."""
        self._running.discard(key)

    def allocator(self) -> Shared | None:
        """Whose bytes are counted: of the GPU that the program uses, else of a ledger; None before torch is there."""
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "cuda"):
            return None
        if self._shared is not None and self._ledger is None:
            return self._shared
        device = _gpu(torch)
        if device is not None:
            from memlint.trial.meter import CudaAllocator

            self._close_ledger()
            self._attach(Shared(CudaAllocator(device)), torch.cuda.get_device_name(device), torch)
        elif self._shared is None:
            importlib.import_module("torch._dynamo")  # which a dispatch mode imports at its first operator
            modes = importlib.import_module("torch.utils._python_dispatch")
            if modes._get_current_dispatch_mode() is not None:
                return None  # whoever ends that mode would end ours
            from memlint.trial.ledger import Ledger
            from memlint.trial.meter import LedgerAllocator

            self._ledger = Ledger(late=True)
            self._ledger.__enter__()
            self._attach(Shared(LedgerAllocator(self._ledger, real=True)), "cpu", torch)
        return self._shared

    def _attach(self, shared: Shared, device: str, torch: Any) -> None:
        self._shared = shared
        self.say(device=device, torch=torch.__version__)
        for watch in self.watches.values():
            watch.meter.restart()

    @property
    def _recorder(self) -> Any:
        return self._shared.allocator.recorder if self._shared is not None else None

    def _stop_looking(self) -> None:
        """Nobody notes allocations any more, so that the rest of the program goes at its own pace."""
        self._close_ledger()
        if self._recorder is not None:
            self._recorder.stop()

    def _close_ledger(self) -> None:
        if self._ledger is None:
            return
        modes = importlib.import_module("torch.utils._python_dispatch")
        if modes._get_current_dispatch_mode() is self._ledger:
            self._ledger.__exit__(None, None, None)
        self._ledger = None

    def progress(self) -> None:
        """Some loop has made an iteration. Raises `Enough` where all have made theirs."""
        self._moved = time.monotonic()
        if all(watch.done for watch in self.watches.values()):
            self._stop_looking()
            if self.stops:
                raise Enough
        elif self._recorder is not None and all(watch.meter.content for watch in self.watches.values()):
            self._recorder.stop()  # until another loop starts: see `PlaceMeter.read`

    def idle(self) -> None:
        """A loop that is done has started again. Raises `Enough` where nothing else has happened for long."""
        took = self._moved - self._began
        if self.stops and time.monotonic() - self._moved > max(PATIENCE, LONGER * took):
            raise Enough

    def end(self, error: BaseException | None) -> None:
        """The program has ended, by ``error`` if that is not None."""
        if not self.here:
            return
        for watch in self.watches.values():
            watch.meter.testify()
        ended, message = "returned", ""
        if isinstance(error, Enough):
            ended = "cut short"
        elif error is not None and not isinstance(error, SystemExit):
            ended = "out of memory" if _is_out_of_memory(error) else "failed"
            text = str(error).strip() or type(error).__name__
            message = f"{type(error).__name__}: {text.splitlines()[0][:300]}"
        peaks = {key: peak for key, watch in self.watches.items() if (peak := watch.meter.peak) is not None}
        self.say(ended=ended, message=message, peaks=peaks)
        self._close_ledger()


def _gpu(torch: Any) -> Any:
    """The GPU on which the program has most, None where it has nothing on any."""
    if not torch.cuda.is_initialized():
        return None
    sizes = [torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count())]
    return torch.device("cuda", sizes.index(max(sizes))) if any(sizes) else None


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


class Shared:
    """One allocator for several meters, each of which has a peak of its own."""

    def __init__(self, allocator: Any) -> None:
        self.allocator = allocator
        self.views: list[View] = []

    def collect(self) -> None:
        """Tell every view of the peak since the last time."""
        peak = self.allocator.peak
        for view in self.views:
            view.seen = max(view.seen, peak)
        self.allocator.reset_peak()


class View:
    """A shared allocator as one meter sees it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._allocator = shared.allocator
        self.recorder = shared.allocator.recorder
        self.seen = 0
        shared.views.append(self)

    @property
    def live(self) -> int:
        """Bytes now alive."""
        return int(self._allocator.live)

    @property
    def churn(self) -> int:
        """Bytes allocated in all."""
        return int(self._allocator.churn)

    @property
    def area(self) -> int:
        """The sum of `live` after each allocation and each release."""
        return int(self._allocator.area)

    @property
    def host(self) -> int:
        """What of the live bytes stands in this process's own heap."""
        return int(self._allocator.host)

    @property
    def peak(self) -> int:
        """Most bytes alive since `reset_peak`."""
        self._shared.collect()
        return self.seen

    def reset_peak(self) -> None:
        """Start looking for a new peak, from what is alive now."""
        self._shared.collect()
        self.seen = self.live


class PlaceMeter:
    """The meter of one place, which is there as soon as there is something to measure."""

    def __init__(self, bench: Bench, key: int) -> None:
        self._bench = bench
        self._key = key
        self._meter: Any = None

    @property
    def readings(self) -> list[dict[str, float]]:
        """The readings so far."""
        return self._meter.readings if self._meter is not None else []

    @property
    def peak(self) -> float | None:
        """Most bytes alive since the last reading."""
        return self._meter.allocator.peak if self._meter is not None else None

    @property
    def content(self) -> bool:
        """Whether it needs no recorder: it has its evidence, or has not started."""
        return self._meter is None or self._meter.content

    def restart(self) -> None:
        """Forget all readings: they were of another device."""
        self._meter = None

    def read(self) -> None:
        """Take a reading, if there is anything to read."""
        shared = self._bench.allocator()
        if shared is None:
            return
        if self._meter is None:
            from memlint.trial.meter import Meter
            from memlint.trial.stacks import ENOUGH

            view = View(shared)
            if view.recorder is not None:
                view.recorder.start()
            self._meter = Meter(view, None, enough=ENOUGH)
            self._meter.start = 0
            self._meter.open()
        else:
            self._meter.read()
        self._bench.say(place=self._key, count=len(self.readings) - 1, reading=self.readings[-1])
        if self._meter.due:
            self.testify()

    def resume(self) -> None:
        """The loop starts again."""
        if self._meter is not None:
            self._meter.resume()

    def testify(self) -> None:
        """Take evidence, and write it down."""
        if self._meter is None:
            return
        before = self._meter.evidence
        with contextlib.suppress(Exception):  # what an allocator tells of itself differs by version
            self._meter.testify()
        if self._meter.evidence is not before:
            self._bench.say(place=self._key, evidence=self._meter.evidence)


class ProgramWatch(Watch):
    """A watch that leaves the loops of a program that is not to be stopped as long as they are."""

    def __init__(self, bench: Bench, key: int, meter: PlaceMeter, steps: int) -> None:
        super().__init__(meter, steps)
        self.meter = meter
        self._key = key
        self._bench = bench

    @property
    def done(self) -> bool:
        """Whether all iterations are read."""
        return self.count >= self.steps

    def enter(self) -> bool:
        """The loop starts (again); one that is done gets one more iteration."""
        if self._bench.here:
            self._bench.starts(self._key)
            if self.done:
                self._bench.idle()
            elif self.count < 0:
                self.meter.read()
            else:
                self.meter.resume()
        return True

    def leave(self) -> bool:
        """An iteration has ended; whether there may be another."""
        if not self._bench.here:
            return True
        if self.done:
            return not self._bench.stops
        self._step()
        return not (self.done and self._bench.stops)

    def call(self) -> None:
        """The function is called (again): an iteration has ended."""
        if self._bench.here:
            self._bench.starts(self._key)
            if self.done:
                self._bench.idle()
            else:
                self._step()

    def _step(self) -> None:
        before = self.count
        self.tick()
        if self.count > before:
            self._bench.progress()

    def close(self) -> None:
        """The loop has ended."""
        if self._bench.here:
            self._bench.ends(self._key)
            super().close()


class Overlay:
    """The flagged files, with what is laid over them, by real path: each as long as it is what was checked."""

    def __init__(self, files: dict[str, Any], bench: Bench) -> None:
        self._files = files
        self._bench = bench

    def code(self, path: str) -> types.CodeType | None:
        """The code of the file at ``path``, None where nothing is laid over it."""
        plan = self._files.get(os.path.realpath(path))
        if plan is None:
            return None
        try:
            data = Path(path).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() != plan["digest"]:
            self._bench.say(changed=path)
            return None
        try:
            tree = ast.parse(plan["text"], path)
            for line, column, key in plan["hits"]:
                count_hits(tree, line, column, key)
            for function, loop, key in plan["places"]:
                rewrite(tree, Place(function, loop), key)
            code = compile(tree, path, "exec", dont_inherit=True)
        except RecursionError:  # nested more deeply than syntax trees can be worked on: it runs unwatched
            return None
        if plan["repaired"]:
            lines = plan["text"].splitlines(keepends=True)
            linecache.cache[path] = len(plan["text"]), None, lines, path
        return code

    def lay(self) -> None:
        """Have every import of a flagged file, by whichever finder, take its code from here."""
        names = {
            WATCH: lambda items, key: self._bench.watches[key].over(items),
            TICK: lambda key: self._bench.watches[key].condition(),
            CALL: lambda key: self._bench.watches[key].call(),
            HIT: self._bench.hit,
        }
        vars(builtins).update(names)
        loader: Any = importlib.machinery.SourceFileLoader
        get_code = loader.get_code

        def overlaid(this: Any, fullname: str) -> types.CodeType | None:
            code: types.CodeType | None = self.code(this.get_filename(fullname)) or get_code(this, fullname)
            return code

        loader.get_code = overlaid


def program(plan: dict[str, Any], overlay: Overlay, arguments: list[str]) -> None:
    """Run the program as `python SCRIPT` or `python -m MODULE` would."""
    main_module = types.ModuleType("__main__")
    main_module.__builtins__ = builtins  # type: ignore[attr-defined]
    if plan["module"]:
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, os.getcwd())
        sys.argv = ["-m", *arguments]
        spec = _spec(plan["module"])
        path, code = spec.origin or "", spec.loader.get_code(spec.name)
        vars(main_module).update(__spec__=spec, __loader__=spec.loader, __package__=spec.parent, __cached__=spec.cached)
        sys.argv[0] = path
    else:
        path = os.path.abspath(plan["script"])
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        sys.argv = [plan["script"], *arguments]
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        vars(main_module).update(__spec__=None, __loader__=loader, __package__=None, __cached__=None)
        code = overlay.code(path) or compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    if "__annotations__" in vars(sys.modules["__main__"]):  # before Python 3.14
        main_module.__annotations__ = {}
    main_module.__file__ = path
    sys.modules["__main__"] = main_module
    exec(code, vars(main_module))


def _spec(name: str) -> Any:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or spec.loader is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    return spec


def without_own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of this folder."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    if trace is not None:
        trace.tb_next = without_own_frames(trace.tb_next)
    return trace


def main() -> None:
    """Run what the plan, a file named by the first argument, says, on the arguments after it."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = os.open(plan["events"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    bench = Bench(plan["steps"], plan["keys"], out)
    overlay = Overlay(plan["files"], bench)
    overlay.lay()
    try:
        program(plan, overlay, sys.argv[2:])
    except Enough as enough:
        bench.end(enough)
    except BaseException as error:
        bench.end(error)
        hook = sys.excepthook  # the program may have set its own
        sys.excepthook = lambda kind, value, trace: hook(
            kind, value.with_traceback(without_own_frames(trace)), value.__traceback__
        )
        raise
    else:
        bench.end(None)
