"""Both arms of one trial: what is run as written and what is run repaired, each watched and measured alike."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from memlint.trial import standins
from memlint.trial.checkpoints import Checkpoints
from memlint.trial.compare import compare, snapshot
from memlint.trial.distributed import group_of_one, stood, trained
from memlint.trial.ledger import Ledger
from memlint.trial.lenient import soften
from memlint.trial.meter import CudaAllocator, LedgerAllocator, Meter
from memlint.trial.missing import Missing, MissingFinder
from memlint.trial.substitutes import Substitutes, arrays_given, lenient_torch, options_given
from memlint.trial.ticks import LEAST, Enough, Watch
from memlint.trial.watch import (
    EACH,
    HIT,
    TICK,
    WATCH,
    Place,
    count_hits,
    definition,
    loop_at,
    rewrite,
    statement_at,
    wrap,
)

MANY = 64  # what an unknown whole number, and the length of a sequence, is with larger batches


class OneModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a syntax tree in memory, with the watched loop wrapped; all others come as ever.

    Attributes:
        unfinished: whether the module has begun to run, and not come to its end.
        bare: whether the packages that it lies in are no more than folders, so that nothing of theirs runs before it.
    """

    def __init__(self, name: str, path: str, tree: ast.Module, names: dict[str, Any]) -> None:
        self._name, self._path, self._tree, self._names = name, path, tree, names
        self.unfinished = self.bare = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The specification of the one module, or of a package that is to be bare, None for others."""
        if self.bare and self._name.startswith(f"{fullname}."):
            package = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            package.submodule_search_locations = [str(self._folder(fullname))]
            return package
        if fullname != self._name:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=self._path)
        spec.has_location = True
        if Path(self._path).name == "__init__.py":
            spec.submodule_search_locations = [str(Path(self._path).parent)]
        return spec

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the module, with the names that the wrapped loop calls."""
        self.unfinished = True
        vars(module).update(self._names)
        exec(compile(self._tree, self._path, "exec", dont_inherit=True), vars(module))
        self.unfinished = False

    def _folder(self, package: str) -> Path:
        """Where ``package`` lies, in which the module does."""
        inner = Path(self._path)
        own = inner.parent if inner.name == "__init__.py" else inner
        return own.parents[self._name.count(".") - package.count(".") - 1]


class LateWatch(Watch):
    """A watch whose meter begins with the watched loop, because the set-up is the program's own."""

    def __init__(self, meter: Meter, steps: int, patience: float) -> None:
        super().__init__(meter, steps, patience)
        self._begin = meter.begin
        self._resume = meter.resume
        self._absent: list[str] = []

    def enter(self) -> bool:
        """The loop starts (again)."""
        if self.count < 0:
            self._begin()
            Missing.computed.clear()
        return super().enter()

    def tick(self) -> None:
        """An iteration has ended: what it has wrapped to be trained is."""
        trained()
        super().tick()

    def each_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, each of whose calls is an iteration."""
        each = super().each_call(function)

        def alone(*args: Any, **kwargs: Any) -> Any:
            Missing.computed.clear()
            if self.count >= 0:
                self._resume()  # what runs between the calls is not the finding's
            try:
                return each(*args, **kwargs)
            finally:
                self._absent += Missing.computed

        return alone

    def absent(self, looped: bool) -> list[str]:
        """The torch functions that were to compute with something absent, in the loop or in the calls."""
        return list(dict.fromkeys(Missing.computed if looped else self._absent))


def prepared(text: str, spec: dict[str, Any], flagged: list[int] | None) -> ast.Module:
    """The tree of ``text`` to run: lenient along the chain, with its loop watched and the flagged statement counted."""
    tree, place = ast.parse(text, spec["path"]), Place(spec["function"], spec["loop"])
    loop = loop_at(tree, place)
    goal: ast.AST | None = loop
    if flagged and loop is None:
        goal = statement_at(tree, flagged[0], flagged[1])[1]
    if flagged:
        count_hits(tree, flagged[0], flagged[1], 0)
    if not spec["chain"]:
        return rewrite(tree, place)
    soften(tree, spec["chain"], goal, ends=spec["ends"] and loop is None)
    function = definition(tree, place)
    if loop is not None:
        wrap(loop, [])
    elif spec["chain"][0] == "" and isinstance(function, ast.FunctionDef):
        function.decorator_list.append(ast.copy_location(ast.Name(EACH, ast.Load()), function))
    return ast.fix_missing_locations(tree)


def seed() -> None:
    """Put every generator of random numbers that is loaded at the same start."""
    random.seed(0)
    torch.manual_seed(0)  # type: ignore[no-untyped-call,unused-ignore]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def run_arm(
    spec: dict[str, Any], arm: str, device: torch.device, meter: Meter, answer: dict[str, Any]
) -> dict[str, Any]:
    """Run one arm under ``meter`` and put into ``answer`` what happened; returns the snapshot of its results."""
    chain, looped = spec["chain"], spec["loop"] is not None
    script = bool(chain) and chain[0] == ""
    late = bool(chain) and (looped or script)  # what comes before the flagged code is the program's own
    watch = (LateWatch if late else Watch)(meter, spec["steps"], spec["patience"] or math.inf)
    hits: list[int] = []

    def hit(key: int) -> None:
        if spec["begins"] and watch.count >= 0 and watch.count not in hits[-1:]:
            meter.resume()
        hits.append(watch.count)

    names: dict[str, Any] = {WATCH: watch.over, TICK: watch.condition, EACH: watch.each_call, HIT: hit}
    before = set(sys.modules)
    stage, arguments, returned = "import", {}, None
    stood.clear()
    with contextlib.ExitStack() as stack:
        try:
            seed()
            harness = None
            if spec["fills"]:
                stack.enter_context(filling())
            if chain:
                harness = _harness(spec["harness"])
                substitutes = Substitutes(harness, device, watch.steps)
                Missing.computed.clear()
                names |= substitutes.calls()
                stack.enter_context(options_given())
                stack.enter_context(lenient_torch())
                stack.enter_context(arrays_given())
                stack.enter_context(Checkpoints(device).absent())
                stack.enter_context(group_of_one())
                absent = MissingFinder(spec["root"])
                stack.enter_context(_finder(absent, last=True))
            tree = prepared(spec["arms"][arm], spec, spec["flagged"].get(arm))
            one = OneModule(spec["module"], spec["path"], tree, names)
            stack.enter_context(_finder(one))
            stage = "run" if script else stage
            if script and not looped:
                _again_and_again(spec, watch, meter)
            module = _imported(spec, before, one, absent.wanted if chain else None)
            if not script:
                stage = "setup"
                if harness is not None:
                    vars(harness)["module"] = module
                elif spec["harness"] is not None:
                    harness = _harness(spec["harness"], module)
                arguments = (harness or module).setup(device)
                if chain:
                    substitutes.given(arguments)
                stage = "run"
                target = _target(module, getattr(harness or module, "target", spec["function"]), arguments)
                seed()
                if not late:
                    meter.begin()
                returned = _drive(getattr(harness, "run", None), target, arguments, watch, looped=looped)
            answer.update(ended="returned", **_peak(meter))
        except Enough:
            answer["ended"] = "cut short"
        except (torch.cuda.OutOfMemoryError, MemoryError) as error:
            answer.update(ended="out of memory", message=_first_line(error), **_peak(meter))
        except (Exception, SystemExit) as error:
            answer.update(ended="failed", stage=stage, message=where_failed(error, spec["path"]), **_peak(meter))
    meter.close()
    if meter.evidence is None:
        meter.testify()
    answer.update(readings=meter.readings, evidence=meter.evidence)
    if arm in spec["flagged"]:
        answer["hits"] = len(hits)
    answer["own"] = not standins.StandIn.used and (script or not chain)
    if chain:
        answer["whole"] = script and not looped and not spec["function"]
        answer |= {
            "stood": substitutes.stood + stood + ["arguments"] * (not script),
            "failures": substitutes.failures,
            "stumbled": substitutes.stumbled,
        }
        answer["absent"] = watch.absent(looped) if isinstance(watch, LateWatch) else Missing.computed[:9]
    real = spec["device"] != "fake"
    compared = snapshot(returned, arguments) if real and spec["compare"] and answer["ended"] == "returned" else {}
    _forget(spec, before)
    return compared


def _imported(spec: dict[str, Any], before: set[str], one: OneModule, wanted: set[str] | None) -> types.ModuleType:
    """The module under test. With ``wanted``, a package that is absent and without which it raises is wanted there,
    and where the packages around the module raise all the same, nothing of them is run."""
    while True:
        try:
            return importlib.import_module(spec["module"])
        except (Exception, SystemExit) as error:
            name = error.name if isinstance(error, ModuleNotFoundError) else None
            if wanted is None or (one.bare and (not name or name in wanted)):
                raise
            if name and name not in wanted:
                wanted.add(name)
            elif one.unfinished:
                raise
            else:
                one.bare = True
            _forget(spec, before)


def _forget(spec: dict[str, Any], before: set[str]) -> None:
    """Take back the imports of the project's own modules since ``before``."""
    root = spec["root"] + os.sep
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__dict__", {}).get("__file__")  # asking a lazy module would import it
        if str(file or "").startswith(root) or name == spec["module"]:
            del sys.modules[name]


def _again_and_again(spec: dict[str, Any], watch: Watch, meter: Meter) -> None:
    """Run a whole script anew until all steps are made: each run is one, or each call of the flagged function in it."""
    if not spec["function"]:
        meter.begin()
    before, known = -2, bool(Checkpoints.learned)
    while before < watch.count < watch.steps and bool(Checkpoints.learned) is known:
        before = watch.count
        importlib.import_module(spec["module"])
        if not spec["function"]:
            watch.tick()
        del sys.modules[spec["module"]]
        gc.collect()  # a module's functions and its names hold each other
    raise Enough


@contextlib.contextmanager
def filling() -> Iterator[None]:
    """While the block runs, ``zero_grad`` fills gradients with zeros unless told otherwise."""
    with contextlib.ExitStack() as stack:
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            clear: Any = owner.zero_grad

            def cleared(self: Any, set_to_none: bool = False, clear: Any = clear) -> Any:
                return clear(self, set_to_none)

            stack.enter_context(mock.patch.object(owner, "zero_grad", cleared))
        yield


@contextlib.contextmanager
def _finder(finder: importlib.abc.MetaPathFinder, *, last: bool = False) -> Iterator[None]:
    """``finder`` finds modules while the block runs, before all others or after them."""
    sys.meta_path.insert(len(sys.meta_path) if last else 0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _harness(text: str, module: types.ModuleType | None = None) -> types.ModuleType:
    harness = types.ModuleType("memlint_harness")
    vars(harness)["module"] = module
    exec(compile(text, "<harness>", "exec", dont_inherit=True), vars(harness))
    return harness


def _target(module: types.ModuleType, name: str, arguments: dict[str, Any]) -> Callable[..., Any]:
    """The function under test; a method is taken from the instance that the set-up gives as ``self``."""
    names = name.split(".")
    if "self" in arguments:
        return getattr(arguments.pop("self"), names[-1])  # type: ignore[no-any-return]
    found: Any = module
    for part in names:
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _drive(
    run: Callable[..., Any] | None, target: Callable[..., Any], arguments: dict[str, Any], watch: Watch, looped: bool
) -> Any:
    """Call ``target`` once, or where each call is an iteration, once a step."""

    def call() -> Any:
        return _drained(run(target, arguments) if run else target(**arguments))

    if looped:
        return call()
    result = None
    while watch.count < watch.steps:
        result = call()
        trained()
        watch.tick()
    return result


def _drained(result: Any) -> Any:
    """The result of a call, a generator's by running it to its end without keeping what it gives."""
    if isinstance(result, types.GeneratorType):
        for _ in result:
            pass
        return None
    return result


def _peak(meter: Meter) -> dict[str, float]:
    with contextlib.suppress(RuntimeError):
        return {"peak": meter.allocator.peak - meter.start}
    return {}


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def where_failed(error: BaseException, path: str) -> str:
    """The error in one line, with the last line of the module under test (or of the harness) that led to it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in (path, "<harness>")]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
    return f"{place}{type(error).__name__}: {_first_line(error)}"


@contextlib.contextmanager
def device_for(name: str, limit: int | None) -> Iterator[tuple[torch.device, Callable[[], Meter], Callable[[], str]]]:
    """The device to hand to a set-up, a maker of its meter, and what makes the run's course doubtful, for one arm."""
    if name == "fake":
        from memlint.trial.fake import FakeLedger, pretended_gpu

        fake = FakeLedger(limit)
        with pretended_gpu(fake):
            yield (
                torch.device("cuda", 0),
                lambda: Meter(LedgerAllocator(fake, real=False), None, kinds=True),
                lambda: fake.doubt,
            )
    elif name == "cpu":
        with Ledger(limit=limit) as ledger:
            yield torch.device("cpu"), lambda: Meter(LedgerAllocator(ledger, real=True), None, kinds=True), lambda: ""
    else:
        device = torch.device(name)
        yield device, lambda: Meter(CudaAllocator(device, limit), device, kinds=True), lambda: ""


def run_trial(spec: dict[str, Any]) -> dict[str, Any]:
    """Run both arms of ``spec`` on deterministic algorithms, or where one has none, on those there are."""
    setattr(importlib.import_module("torch.utils.deterministic"), "fill_uninitialized_memory", False)  # noqa: B010
    torch.use_deterministic_algorithms(True)
    if spec["batch"]:
        if spec["batch"] > standins.BATCH:
            standins.COUNT = standins.TOKENS = MANY
        standins.BATCH = spec["batch"]
    answer = _both_arms(spec)
    if Checkpoints.learned:  # from now on the program finds what it reads
        answer = _both_arms(spec)
    if any("deterministic" in answer[arm].get("message", "") for arm in spec["arms"]):
        torch.use_deterministic_algorithms(True, warn_only=True)
        answer = _both_arms(spec)
    return answer


def _both_arms(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the arm as written, then the repaired one if there is one, and compare their results."""
    answer: dict[str, Any] = {"torch": torch.__version__, "device": _device_name(spec["device"])}
    snapshots = []
    known = bool(Checkpoints.learned)
    for arm in spec["arms"]:
        gc.collect()
        if spec["device"].startswith("cuda"):
            torch.cuda.empty_cache()
        answer[arm] = {}
        with device_for(spec["device"], spec["device_limit"]) as (device, make_meter, doubt):
            snapshots.append(run_arm(spec, arm, device, make_meter(), answer[arm]))
            answer[arm]["doubt"] = doubt()
        if Checkpoints.learned and not known:
            return answer  # it is to be run again
        if arm == "before" and answer[arm]["ended"] == "failed" and len(answer[arm]["readings"]) <= 1:
            answer |= {other: {"ended": "not run", "readings": []} for other in spec["arms"] if other != arm}
            break
        if (made := len(answer[arm]["readings"]) - 1) >= LEAST:  # as many in the other arm
            spec = {**spec, "steps": min(made, spec["steps"]), "patience": None}
    if len(snapshots) == 2:
        answer["results"], answer["differs"] = compare(*snapshots)
    if spec["device"].startswith("cuda"):
        answer["before"]["workspace"] = _workspace(torch.device(spec["device"]))
    return answer


def _workspace(device: torch.device) -> int:
    """Bytes that cuBLAS keeps for the life of the process, freed here: the first arm took them."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is None:
        return 0
    held = torch.cuda.memory_allocated(device)
    clear()
    return held - torch.cuda.memory_allocated(device)


def _device_name(name: str) -> str:
    return torch.cuda.get_device_name(torch.device(name)) if name.startswith("cuda") else name
