"""Questions about data loaders: which of them have worker processes, and what those read and run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlint.extract import Class, Definition, Module
from memlint.facts import Event, Value
from memlint.flow import Flow
from memlint.stems import stems
from memlint.trace import question
from memlint.values import Partial

if TYPE_CHECKING:
    from memlint.project import Project

LOADER = "torch.utils.data.DataLoader"
NESTING = 5  # datasets in datasets, and callers that hand one over
_AFRESH = re.compile(r"set_start_method\(\s*['\"](?:spawn|forkserver)")
COUNTS = frozenset({"cpu_count", "process_cpu_count", "sched_getaffinity"})


@dataclass
class Loading:
    """A loader with worker processes: where it is made, what its datasets are, and what puts its batches together."""

    flow: Flow
    event: Event
    datasets: frozenset[Class]
    collates: frozenset[Definition]
    forks: bool


@question(0)
def loadings(project: Project) -> list[Loading]:
    """The project's loaders that are known to have worker processes."""
    if "loadings" not in project.answers:
        project.answers["loadings"] = list(_loadings(project))
    return project.answers["loadings"]  # type: ignore[no-any-return]


def _loadings(project: Project) -> Iterator[Loading]:
    for definition in project.mentioning("DataLoader"):
        if "num_workers" not in definition.text:
            continue
        flow = project.flow(definition)
        for event in flow.events if flow is not None else ():
            if flow is not None and event.verb == "call" and event.receiver.type == LOADER:
                yield from _one(project, flow, event)


def _spawns(project: Project, module: Module) -> bool:
    """Whether a file, or one that imports it or is imported with it, has processes start afresh rather than fork."""
    saying = {d.module for d in project.mentioning("set_start_method") if _AFRESH.search(d.text)}
    near = {module, *project.imported(module)}
    return any(m in near or near & {m, *project.imported(m)} for m in saying)


def _one(project: Project, flow: Flow, event: Event) -> Iterator[Loading]:
    call = event.site
    given = {k.arg: k.value for k in call.keywords} if isinstance(call, ast.Call) else {}
    if not has_workers(project, flow.definition, given.get("num_workers")):
        return
    dataset = event.keywords.get("dataset", event.args[0] if event.args else Value())
    collate = event.keywords.get("collate_fn", Value())
    yield Loading(
        flow,
        event,
        frozenset(_classes(project, flow, dataset, 0)),
        frozenset(_functions(project, collate)),
        "multiprocessing_context" not in given and not _spawns(project, flow.module),
    )


def has_workers(project: Project, where: Definition, number: ast.expr | None) -> bool:
    """Whether a number of workers is known to be more than none, in one of the ways that it may be set."""
    for definition, stem in stems(project, where, number):
        if isinstance(stem, ast.Constant):
            if isinstance(stem.value, int) and stem.value > 0:
                return True
        elif isinstance(stem, ast.Call):
            named = project.names.resolve(stem.func, definition)
            if isinstance(named, str) and named.rpartition(".")[2] in COUNTS:
                return True
    return False


def _classes(project: Project, flow: Flow, value: Value, depth: int) -> Iterator[Class]:
    """The project's classes of a dataset, of those that it wraps, and of those that callers hand over for it."""
    if depth > NESTING:
        return
    for name in dict.fromkeys((value.type, *(o.type for o in value.objs))):
        cls = project.class_named(name)
        if cls is not None:
            yield cls
    for obj in value.objs:
        inner = [*obj.items.values(), *([obj.elem] if obj.elem is not None else [])]
        for part in (*inner, *(value.items or ())):
            if part is not value:
                yield from _classes(project, flow, part, depth + 1)
        if obj.parameter >= 0 and obj.home is flow.definition:
            name = flow.definition.parameters[obj.parameter]
            for caller, event in project.callers(flow.definition):
                handed = project.argument(flow.definition, name, caller, event)
                if handed is not None:
                    yield from _classes(project, caller, handed, depth + 1)


def _functions(project: Project, collate: Value) -> Iterator[Definition]:
    """What puts batches together: a function, what a lambda calls, the function of a `functools.partial`, a method."""
    target = collate.target
    while isinstance(target, Partial):
        target = target.callee.target
    cls = project.class_named(collate.type)
    if isinstance(target, Definition):
        yield target
        flow = project.flow(target) if isinstance(target.node, ast.Lambda) else None
        yield from (e.callee for e in (flow.events if flow else ()) if isinstance(e.callee, Definition))
    elif cls is not None and (method := project.names.method(cls, "__call__")) is not None:
        yield method


def loads(project: Project, cls: Class) -> Loading | None:
    """A loader with workers that reads a dataset of that class, or of one derived from it."""
    return next((x for x in loadings(project) if any(cls in project.names.mro(c) for c in x.datasets)), None)


def runs_in_worker(project: Project, definition: Definition, depth: int = 0) -> Loading | None:
    """The loader in whose worker processes a function runs: it reads one example, puts a batch together, or serves."""
    found = next((x for x in loadings(project) if definition in x.collates), None)
    cls = definition.cls
    if found is None and cls is not None and project.class_kind(cls) == "dataset":
        words = [project.library.hook(b, definition.name) for b in project.names.library_bases(cls)]
        found = loads(project, cls) if any("worker" in w for w in words) else None
    if found is None and depth < 2 and (cls is not None or definition.outer is None):
        for flow, _ in project.callers(definition):
            found = found or runs_in_worker(project, flow.definition, depth + 1)
    return found
