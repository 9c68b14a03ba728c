"""Questions about gradient checkpointing: whether a model that is run recomputes its activations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.extract import Class
from memlint.facts import Event, Obj, Value
from memlint.function import Function

ENABLE, DISABLE = "gradient_checkpointing_enable", "gradient_checkpointing_disable"
_SWITCHED_OFF = re.compile(r"^\s*use_cache\s*=\s*False\s*$", re.M)


def recomputes(fn: Function, model: Value, before: int) -> bool:
    """Whether checkpointing is on for a library's model when the event number ``before`` of the function happens."""
    switches = [(name, at) for name, at in _switches(fn, set(_objs(fn, model))) if at < before]
    return bool(switches) and switches[-1][0] == ENABLE


def _switches(fn: Function, objs: set[Obj]) -> Iterator[tuple[str, int]]:
    """Where checkpointing is switched for any of these objects: elsewhere first, then here in order."""
    project = fn.project
    for definition in dict.fromkeys((*project.mentioning(ENABLE), fn.definition)):
        flow = project.flow(definition)
        here = definition is fn.definition
        for event in flow.events if flow is not None else ():
            name = _method(event)
            owner = event.receiver.receiver
            if name in (ENABLE, DISABLE) and owner is not None and objs & set(owner.objs) and (here or name == ENABLE):
                yield name, event.order if here else -1


def _method(event: Event) -> str:
    site = event.site
    return (
        site.func.attr
        if event.verb == "call" and isinstance(site, ast.Call) and isinstance(site.func, ast.Attribute)
        else ""
    )


def _objs(fn: Function, model: Value) -> Iterator[Obj]:
    """The objects that a model is, here and where callers hand it over."""
    for obj in model.objs:
        yield obj
        if obj.parameter >= 0 and obj.home is fn.definition:
            name = fn.definition.parameters[obj.parameter]
            for flow, event in fn.project.callers(fn.definition):
                value = fn.project.argument(fn.definition, name, flow, event)
                yield from value.objs if value is not None else ()


def recomputes_by_itself(fn: Function, cls: Class) -> bool:
    """Whether the forward of a project's class always checkpoints, and never switches the cache off for that."""
    forward = fn.project.names.method(cls, "forward")
    if forward is None or "checkpoint" not in forward.text or _SWITCHED_OFF.search(forward.text):
        return False
    parents = {child: node for node in forward.nodes for child in ast.iter_child_nodes(node)}
    for node in forward.nodes:
        if isinstance(node, ast.Call) and _checkpoints(fn, cls, node.func, forward.outer):
            tests = []
            above = parents.get(node)
            while above is not None:
                tests += [above.test] if isinstance(above, (ast.If, ast.IfExp)) else []
                above = parents.get(above)
            if all("training" in ast.unparse(t) for t in tests):
                return True
    return False


def _checkpoints(fn: Function, cls: Class, func: ast.expr, outer: object) -> bool:
    meaning = fn.project.names.resolve(func, cls.module.top)
    row = fn.project.library.lookup(meaning) if isinstance(meaning, str) else None
    return row is not None and "checkpoints" in row
