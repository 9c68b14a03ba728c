"""Results that are thrown away: statements that copy or detach a tensor and give the outcome no name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.extract import Definition
from memlint.facts import Event, Origin, Value
from memlint.function import Function
from memlint.lifetimes import Lifetimes
from memlint.values import chain

METHODS = frozenset({"cpu", "cuda", "to", "detach"})
TENSORS = frozenset({"tensor", "parameter", "indices"})
# What only tensors have, of all that have a `to`: graphs, batches and encodings are moved in place by some libraries.
ARITHMETIC = frozenset(
    """item argmax softmax log_softmax sigmoid mean std var norm view reshape permute transpose unsqueeze squeeze
    backward masked_fill requires_grad_ topk bmm matmul flatten numel""".split()
)
VAGUE = METHODS | {"clone", "contiguous"}  # methods that other things than tensors have as well
TIMED = re.compile(r"\b(?:time|perf_counter|monotonic|elapsed_time|timeit|Timer|record)\b|[Ss]ync")


def discarded(fn: Function) -> Iterator[Event]:
    """Calls of `cpu`, `cuda`, `to` and `detach` on a tensor that is used further, whose result goes nowhere."""
    calls = {}
    for stmt in fn.nodes_of(ast.Expr):
        call = stmt.value  # type: ignore[attr-defined]
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in METHODS:
            if chain(call.func.value):
                calls[call] = call.func.attr
    if not calls or fn.is_test:
        return
    lifetimes = fn.lifetimes
    for event in fn.own("call"):
        attr = calls.get(event.site)  # type: ignore[call-overload]
        tensor = event.receiver.receiver
        if attr is None or tensor is None or not _is_tensor(fn, tensor, event.site.func.value):  # type: ignore[attr-defined]
            continue
        if isinstance(event.callee, Definition) or (tensor.kind == "unknown" and _defined(fn, attr)):
            continue  # a method of the project's own may change the object
        if _is_shown(fn, event.stmt) or (attr == "detach" and not _has_graph(fn, tensor)):
            continue
        if attr != "detach" and (_is_wait(fn, event) or not _used_after(fn, lifetimes, event)):
            continue
        yield event


def _is_tensor(fn: Function, value: Value, expression: ast.expr) -> bool:
    """Whether a value is known to be a tensor: by what made it, or by what only a tensor can do."""
    use = fn.project.uses(fn.definition).get(chain(expression))
    if value.kind not in TENSORS and value.kind != "unknown":
        return False
    if (use is not None and not ARITHMETIC.isdisjoint(use.attributes)) or _is_buffer(fn, chain(expression)):
        return True
    return value.kind in TENSORS and _made_as_tensor(fn, value)


def _has_graph(fn: Function, value: Value) -> bool:
    """Whether a tensor may have a graph that goes on: one made of numbers alone has none, nor what `.data` gives."""
    defaults = fn.definition.defaults
    numbers = {n for n, d in defaults.items() if isinstance(d, ast.Constant) and isinstance(d.value, (int, float))}
    return any(n.origin is not Origin.PARAMETER or n.name not in numbers for n in fn.nodes(value))


def _is_buffer(fn: Function, name: str) -> bool:
    """Whether a name is an attribute of the method's own object that its class registers as a buffer."""
    owner, _, attribute = name.partition(".")
    cls = fn.definition.cls
    if cls is None or not attribute or owner not in fn.definition.positional[:1]:
        return False
    registers = re.compile(rf"""register_buffer\(\s*["']{re.escape(attribute)}["']""")
    return any(registers.search(method.text) for method in cls.methods.values())


def _made_as_tensor(fn: Function, value: Value) -> bool:
    site = value.site
    if site is None:  # an annotation says so
        return any(n.origin is Origin.PARAMETER and n.owner is fn.definition for n in value.deps)
    if not isinstance(site, ast.Call):
        return True
    made = next((e for e in fn.own("call") if e.site is site), None)
    if made is None:
        return False
    if made.receiver.kind in ("function", "library", "class"):
        return made.receiver.type.startswith("torch.")
    if isinstance(site.func, ast.Attribute) and site.func.attr in VAGUE:
        owner = made.receiver.receiver
        return owner is not None and _is_tensor(fn, owner, site.func.value)
    return not isinstance(made.callee, Definition)


def _defined(fn: Function, method: str) -> bool:
    """Whether a class of the project, modules aside, has a method of that name."""
    found = fn.project.methods_named(method)
    return any(d.cls is not None and not fn.project.is_module(d.cls) for d in found)


def _is_shown(fn: Function, stmt: ast.AST) -> bool:
    """Whether a notebook shows what a statement gives: it is the last of its cell."""
    body = getattr(fn.parents[stmt], "body", [])
    if not fn.source.is_notebook or not isinstance(fn.parents[stmt], ast.Module):
        return False
    cells = [fn.source.cell_of(s.lineno) for s in body[body.index(stmt) :][:2]]
    return len(set(cells)) == len(cells)


def _is_wait(fn: Function, event: Event) -> bool:
    """Whether a copy is made to wait for the device, or to see whether it works: beside a clock, or under ``try``."""
    block = next(
        (body for _, body in ast.iter_fields(fn.parents[event.stmt]) if isinstance(body, list) and event.stmt in body),
        [],
    )
    at = block.index(event.stmt)
    near = block[max(at - 1, 0) : at + 2]
    if TIMED.search(fn.source.rows(near[0], near[-1])):
        return True
    above: ast.AST | None = event.stmt
    while above is not None and above is not fn.node:
        if isinstance(above, ast.Try):
            return True
        above = fn.parents.get(above)
    return False


def _used_after(fn: Function, lifetimes: Lifetimes, event: Event) -> bool:
    """Whether what should have been moved is used further on, or in the next iteration."""
    name = chain(event.site.func.value)  # type: ignore[attr-defined]
    if "." in name:
        return True
    end = (event.stmt.end_lineno, event.stmt.end_col_offset)  # type: ignore[attr-defined]
    uses = lifetimes.uses(name, lifetimes.reaching(name, event.stmt))
    return any((u.lineno, u.col_offset) > end for u in uses)
