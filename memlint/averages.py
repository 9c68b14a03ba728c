"""Moving averages of parameters: what is mixed into what, and whether autograd watches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.calls import REDUCTIONS
from memlint.facts import Answer, Event, Grad, Value
from memlint.function import Function


@dataclass(frozen=True, slots=True)
class Average:
    """An update of something that lives on by parameters that require gradients; ``parts`` are these."""

    update: Event
    target: ast.expr
    parts: tuple[ast.expr, ...]


def averages(fn: Function) -> Iterator[Average]:
    """The updates in a function's own text that tie what they update to the graph of trainable parameters."""
    updates = list(fn.own("sum", "write"))
    if not updates:
        return  # before callers are read for the gradient mode
    leaves = {e.site: e.receiver for e in fn.own("weigh") if e.receiver.leaf and fn.grad(e) is Grad.ON}
    for call in fn.own("call"):
        if isinstance(call.site, ast.Call):
            found = [(n, v) for n, v in zip(call.site.args, call.args, strict=False) if v.leaf]
            if call.receiver.receiver is not None and call.receiver.receiver.leaf:
                found.append((getattr(call.site.func, "value", call.site), call.receiver.receiver))
            if found and fn.grad(call) is Grad.ON:
                leaves.update(found)
    seen: set[ast.AST] = set()
    for update in updates if leaves else ():
        target, mixed = _sides(update)
        if update.stmt in seen or target is None or fn.grad(update) is not Grad.ON or not _lives_on(fn, target, update):
            continue
        parts = tuple(p for m in mixed for p in _weighed(fn, m, leaves) if _trains(fn, leaves[p]))
        if parts and not (update.verb == "sum" and fn.total_fate(update) is Answer.YES):
            seen.add(update.stmt)
            yield Average(update, target, parts)


def _sides(update: Event) -> tuple[ast.expr | None, list[ast.expr]]:
    """What an update changes, and the expressions that go into it."""
    site = update.site
    if isinstance(site, (ast.Assign, ast.AugAssign)) and update.verb == "sum":
        return (site.targets[0] if isinstance(site, ast.Assign) else site.target), [site.value]
    if isinstance(site, ast.Call) and isinstance(site.func, ast.Attribute):
        target = site.func.value
        while (
            isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr.endswith("_")
        ):
            target = target.func.value
        return target, list(site.args)
    return None, []


def _weighed(fn: Function, expression: ast.expr, leaves: dict[ast.AST, Value]) -> Iterator[ast.expr]:
    """The parameters whose graph goes through arithmetic into the expression's value."""
    inner: list[ast.expr] = []
    if expression in leaves:
        yield expression
    elif isinstance(expression, ast.BinOp):
        inner = [expression.left, expression.right]
    elif isinstance(expression, ast.UnaryOp):
        inner = [expression.operand]
    elif (
        isinstance(expression, ast.Call)
        and isinstance(expression.func, ast.Attribute)
        and expression.func.attr not in REDUCTIONS  # a norm of parameters is a penalty, and no average of them
    ):
        row = fn.project.library.method("tensor", expression.func.attr)
        if row is not None and row.graph == "arguments" and row.returns in ("tensor", "same"):
            inner = [expression.func.value, *expression.args]
    for part in inner:
        yield from _weighed(fn, part, leaves)


def _trains(fn: Function, parameter: Value) -> bool:
    return parameter.receiver is not None and fn.trainable(parameter.receiver) is Answer.YES


def _lives_on(fn: Function, target: ast.expr, update: Event) -> bool:
    """Whether what is updated is still there at the next update, and can have a graph at all."""
    if any(isinstance(n, ast.Attribute) and n.attr in ("data", "detach") for n in ast.walk(target)):
        return False
    if update.receiver.kind == "parameter":  # in place on a leaf: PyTorch refuses, unless it is frozen
        module = update.receiver.receiver
        return module is not None and fn.project.answer_frozen(module) is Answer.YES
    if isinstance(target, ast.Name):
        return isinstance(update.site, ast.Call) and _element(fn, target.id, update)
    obj = update.target
    if isinstance(target, ast.Subscript) and isinstance(update.site, ast.Call):
        return isinstance(target.value, ast.Attribute) or _outside(fn, target.value)
    return obj is not None and (obj.shared or obj.parameter >= 0 or update.loops[-1:] != obj.loops[-1:])


def _outside(fn: Function, container: ast.expr) -> bool:
    return isinstance(container, ast.Name) and container.id in fn.definition.parameters


def _element(fn: Function, name: str, update: Event) -> bool:
    """Whether a name is an element of a container that lives on: of an attribute, or of one that is handed over."""
    for loop in update.loops:
        if not isinstance(loop, ast.For):
            continue
        target, source = loop.target, loop.iter
        pairs: list[tuple[ast.expr, ast.expr]] = [(target, source)]
        if isinstance(source, ast.Call) and isinstance(target, ast.Tuple) and getattr(source.func, "id", "") == "zip":
            pairs = list(zip(target.elts, source.args, strict=False))
        for bound, container in pairs:
            if isinstance(bound, ast.Name) and bound.id == name:
                if isinstance(container, ast.Call) and getattr(container.func, "attr", "") == "values":
                    container = container.func.value  # type: ignore[attr-defined]
                return isinstance(container, ast.Attribute) or _outside(fn, container)
    return False
