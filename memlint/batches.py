"""Sums over batches: whether the graph of every batch waits for one backward at the end."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.facts import Answer, Event, Grad, Origin
from memlint.function import Function
from memlint.reuse import BUILDS, below, carried, may_remember


@dataclass(frozen=True, slots=True)
class Summed:
    """A total of batch losses, and the backward that differentiates it when all batches are through."""

    total: Event
    backward: Event


def summed_batches(fn: Function) -> Iterator[Summed]:
    """Running totals over a loop of batches, each with a forward of its own, that one backward after the loop takes."""
    for total in fn.own("sum"):
        loop = total.loops[-1] if total.loops else None
        if not isinstance(loop, ast.For) or not total.name.isidentifier() or fn.makes(total.value) is not Answer.YES:
            continue
        if any(loop in e.loops for e in fn.events("backward", "grad")) or not fn.running(total):
            continue
        if not (_over_batches(fn, loop) and _stands_alone(fn, total, loop)):
            continue
        for backward in fn.own("backward"):
            if backward.order > total.order and any(_linear(e, total.name) for e in _differentiated(backward)):
                yield Summed(total, backward)
                break


def _over_batches(fn: Function, loop: ast.For) -> bool:
    """Whether a loop gets new data in each iteration: from a loader, or moved to a device as batches are."""
    assert fn.flow is not None
    if any(fn.flow.env[n].kind == "loader" for n in _names(loop.iter) if n in fn.flow.env):
        return True
    fresh = _names(loop.target).union(*(_names(t) for s in _draws(loop) for t in s.targets))
    moved = (
        n.func.value
        for n in ast.walk(loop)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("to", "cuda")
    )
    return any(isinstance(n, ast.Name) and n.id in fresh for m in moved for n in ast.walk(m))


def _stands_alone(fn: Function, total: Event, loop: ast.For) -> bool:
    """Whether what is added hangs on no graph but what its own iteration has made."""
    assert fn.flow is not None
    graph = [n for n in below(fn.flow.held(total.value)) if n.grad is not Grad.OFF]
    sources = _names(loop.iter).union(*(_names(s.value) for s in _draws(loop)))
    for node in graph:
        if node.origin in BUILDS and (loop not in node.loops or node.owner is not fn.definition):
            return False
        if node.origin in BUILDS and may_remember(fn, node.module):
            return False
        if carried(node) and node.name != total.name:
            return False
        if node.origin is Origin.PARAMETER and node.name not in sources and not _is_number(fn, node.name):
            return False
    return True


def _draws(loop: ast.For) -> list[ast.Assign]:
    """The statements of a loop that take the next batch from an iterator."""
    return [
        s
        for s in ast.walk(loop)
        if isinstance(s, ast.Assign) and getattr(getattr(s.value, "func", None), "id", "") == "next"
    ]


def _names(expression: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}


def _is_number(fn: Function, name: str) -> bool:
    """Whether a parameter is a weight or a count: its default is one."""
    default = fn.definition.defaults.get(name)
    return isinstance(default, ast.Constant) and isinstance(default.value, (int, float))


def _differentiated(backward: Event) -> list[ast.AST]:
    """What a backward may be about, as written: the tensor it is called on, or the argument."""
    arguments = backward.site.args if isinstance(backward.site, ast.Call) else []
    return [*([backward.expr] if backward.expr is not None else []), *arguments]


def _linear(expression: ast.AST, name: str) -> bool:
    """Whether the gradient of an expression is the sum of the gradients of what ``name`` adds up."""
    if isinstance(expression, ast.Name):
        return expression.id == name
    if isinstance(expression, ast.BinOp):
        left, right = _linear(expression.left, name), _linear(expression.right, name)
        return left if isinstance(expression.op, ast.Div) else left != right
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute):
        return expression.func.attr == "scale" and any(_linear(a, name) for a in expression.args)
    return False
