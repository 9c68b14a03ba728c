"""Recorders of what the program does, and how long they are on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memlint.facts import UNSET, Event
from memlint.function import Function

FEW = 200  # iterations that somebody may mean to record


def left_on(fn: Function) -> Iterator[tuple[Event, str]]:
    """Recorders that are on, unconditionally and without bound, over loops that train; with what they record."""
    for event in fn.own("call"):
        call = event.site
        if not isinstance(call, ast.Call) or event.guards or event.loops:
            continue
        row = fn.project.library.lookup(event.receiver.type) if event.receiver.type else None
        if row is None or "profile" not in row or any(_bounds(name) for name in event.keywords):
            continue
        enabled = event.keywords.get("enabled", event.args[0] if event.args and not row.kind else None)
        if enabled is not None and (enabled.const is UNSET or enabled.const in (False, None)):
            continue
        if row.kind:
            body = _with(fn, event)
            loops = (
                [] if body is None else [n for s in body for n in ast.walk(s) if isinstance(n, (ast.For, ast.While))]
            )
            if any(_trains(fn, loop) for loop in loops):
                yield event, "every operator"
        elif len(_switches(fn, event)) == 1:
            after = (n for n in fn.nodes_of(ast.For, ast.While) if n.lineno > call.lineno)  # type: ignore[attr-defined]
            if any(_trains(fn, loop) for loop in after):
                yield event, "every allocation"


def _bounds(keyword: str) -> bool:
    return keyword in ("schedule", "*", "**") or "max_entries" in keyword


def _with(fn: Function, event: Event) -> list[ast.stmt]:
    """The block that runs under a recorder; nothing where it is started in another way."""
    node = fn.parents.get(event.site)
    stmt = fn.parents.get(node) if isinstance(node, ast.withitem) else None
    return stmt.body if isinstance(stmt, ast.With) else []


def _switches(fn: Function, event: Event) -> list[Event]:
    """All calls in the file's function that switch the same recorder on or off."""
    return [e for e in fn.own("call") if e.receiver.type == event.receiver.type]


def _trains(fn: Function, loop: ast.AST) -> bool:
    """Whether a loop trains on and on: it differentiates, and nothing in sight ends it after a few steps."""
    if not any(loop in e.loops for e in fn.backwards):
        return False
    if any(isinstance(n, ast.Break) for n in ast.walk(loop)):
        return False
    steps = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(steps, ast.Call):
        return True
    bounds = [a.value for a in steps.args if isinstance(a, ast.Constant) and isinstance(a.value, int)]
    inner = any(loop in e.loops and e.loops[-1] is not loop for e in fn.backwards)
    return inner or not bounds or max(bounds) > FEW
