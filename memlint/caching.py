"""`functools` caches: what they keep alive as keys and results."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memlint.extract import Class
from memlint.facts import Value
from memlint.function import Function
from memlint.values import chain

FEW = 16  # results that a cache may hold without anybody minding
HOLDERS = frozenset({"module", "engine", "dataset", "tensor", "parameter"})
UNBOUND = frozenset({"staticmethod", "classmethod"})


def held_by_cache(fn: Function) -> Iterator[tuple[ast.expr, str, str]]:
    """Caches of a function: the decorator, what it keeps that is large, and what to do instead."""
    definition = fn.definition
    for decorator in definition.decorators:
        size = _size(fn, decorator)
        if size is None:
            continue
        if definition.cls is not None and not any(_name(d) in UNBOUND for d in definition.decorators):
            held = _what(fn, definition.cls, size)
            if held:
                yield decorator, held, "keep the results in an attribute of the instance"
            continue
        flow = fn.flow
        if flow is None:
            continue
        keyed = next((n for n, v in flow.arguments.items() if v.kind in ("tensor", "module", "engine")), None)
        if keyed is not None:
            yield decorator, f"every `{keyed}` that it is called with", "cache by what identifies it, or not at all"
        elif (
            size == float("inf") and _on_device(flow.returns) and not all(_placed(fn, p) for p in definition.parameters)
        ):
            yield decorator, "all the tensors that it returns", "bound it, or keep them on the host"


def _size(fn: Function, decorator: ast.expr) -> float | None:
    """How many results a `functools` cache keeps; None for another decorator, or a cache switched off."""
    call = decorator if isinstance(decorator, ast.Call) else None
    where = fn.definition.outer or fn.definition.module.top
    name = fn.project.names.resolve(call.func if call is not None else decorator, where)
    row = fn.project.library.lookup(name) if isinstance(name, str) else None
    if row is None or "retains" not in row:
        return None
    if "bounded" not in row:
        return float("inf")
    default = row.default("maxsize")
    if call is None or not (call.args or call.keywords):
        return float(default)
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "maxsize"), None)
    if given is None:
        return float(default)
    if not isinstance(given, ast.Constant) or not isinstance(given.value, (int, type(None))):
        return None
    return float("inf") if given.value is None else float(given.value) or None


def _what(fn: Function, cls: Class, size: float) -> str:
    """What of a class's instances a cache of that size keeps: all, where they are models, or hold models or data."""
    project = fn.project
    kind = project.class_kind(cls)
    every = f"every `{cls.name}` that it is called on"
    if project.is_module(cls):
        return f"{every}, weights and all,"
    if size <= FEW:  # other instances soon push it out
        return ""
    if kind in HOLDERS:
        return f"{every}, with all its data,"
    init = project.names.method(cls, "__init__")
    flow = project.flow(init) if init is not None else None
    for event in flow.events if flow is not None else ():
        own = event.verb == "set" and event.receiver.objs and event.receiver.objs[0].parameter == 0
        if own and event.value.kind in HOLDERS and event.value.device != "host":
            return f"{every}, with its `{event.name}`,"
    return ""


def _placed(fn: Function, parameter: str) -> bool:
    """Whether a parameter only says where a tensor is or of which type: there are few values of it to key on."""
    return all(
        (isinstance(fn.parents[n], ast.keyword) and fn.parents[n].arg in ("device", "dtype"))  # type: ignore[attr-defined]
        or isinstance(fn.parents[n], ast.Compare)
        or (isinstance(fn.parents[n], ast.Call) and chain(fn.parents[n].func).endswith(".to"))  # type: ignore[attr-defined]
        for n in fn.nodes_of(ast.Name)
        if isinstance(n, ast.Name) and n.id == parameter
    )


def _on_device(value: Value) -> bool:
    return value.kind == "tensor" and value.device == "device"


def _count(size: float) -> str:
    return f"up to {size:.0f}" if size != float("inf") else "all the"


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
