"""Recovery from out-of-memory: what an ``except`` block does while the traceback still holds the failed frames."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memlint import edits
from memlint.extract import Definition
from memlint.facts import Event
from memlint.function import Function
from memlint.library import Row
from memlint.rule import Fix
from memlint.values import chain

SAYS = "out of memory"
LETS_GO = ("clear_frames", "__traceback__", "with_traceback(None)")
LIGHT = frozenset("info warning warn error debug log write append update close get put put_nowait send emit".split())
JUMPS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True, slots=True)
class Recovery:
    """A call that runs the failed work again (``retries``), or empties the cache, inside the ``except`` block."""

    call: ast.Call
    retries: bool
    attempt: ast.Try
    handler: ast.ExceptHandler


def early_recoveries(fn: Function) -> Iterator[Recovery]:
    """Where a function recovers from out-of-memory too early: one call for each ``except`` block."""
    for attempt in fn.nodes_of(ast.Try):
        assert isinstance(attempt, ast.Try)
        for handler in attempt.handlers:
            if not _catches(fn, handler):
                continue
            segment = fn.source.segment(fn.source.span(handler))
            if any(word in segment for word in LETS_GO):
                continue
            work = list(_recovering(handler.body))
            calls = [n for stmt in work for n in _own(stmt) if isinstance(n, ast.Call)]
            events = {e.site: e for e in fn.own("call")}
            tried = {chain(n.func) for s in attempt.body for n in ast.walk(s) if _heavy(events.get(n))} - {""}  # type: ignore[attr-defined]
            retry = next((c for c in calls if _again(fn, c, events.get(c), tried)), None)
            if retry is not None:
                yield Recovery(retry, True, attempt, handler)
            elif not (work and isinstance(work[-1], ast.Raise)):
                empty = next((c for c in calls if _empties(fn, c)), None)
                if empty is not None:
                    yield Recovery(empty, False, attempt, handler)


def _catches(fn: Function, handler: ast.ExceptHandler) -> bool:
    """Whether a handler is there for out-of-memory: by what it catches, what it looks for, or what it does."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [fn.project.names.resolve(t, fn.definition) or chain(t) for t in types if t is not None]
    if any(isinstance(n, str) and n.endswith("OutOfMemoryError") for n in names):
        return True
    if any(n not in ("RuntimeError", "Exception") for n in names):
        return False
    nodes = [n for s in handler.body for n in ast.walk(s)]
    return any(isinstance(n, ast.Constant) and isinstance(n.value, str) and SAYS in n.value.lower() for n in nodes) or (
        "RuntimeError" in names and any(isinstance(n, ast.Call) and _empties(fn, n) for n in nodes)
    )


def _recovering(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a handler that run for out-of-memory, without the branches for other errors."""
    for stmt in body:
        if not isinstance(stmt, ast.If) or SAYS not in ast.unparse(stmt.test).lower():
            yield stmt
            continue
        denied = isinstance(stmt.test, ast.UnaryOp) or any(isinstance(n, ast.NotIn) for n in ast.walk(stmt.test))
        yield from _recovering(stmt.orelse if denied else stmt.body)
        if not denied and (not stmt.orelse or isinstance(stmt.orelse[-1], JUMPS)) and isinstance(stmt.body[-1], JUMPS):
            return


def _own(stmt: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement in the order in which they stand, without what is inside nested functions."""
    yield stmt
    for child in ast.iter_child_nodes(stmt):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _own(child)  # type: ignore[arg-type]


def _heavy(event: Event | None) -> bool:
    """Whether a call may run a model: the project's own functions, modules, and whatever nobody knows."""
    if event is None or not isinstance(event.site, ast.Call):
        return False
    last = chain(event.site.func).rpartition(".")[2]
    known = isinstance(event.receiver.target, Row) or event.receiver.kind == "class"
    library = event.receiver.kind in ("function", "library") and not isinstance(event.callee, Definition)
    return not (known or library) and last not in LIGHT


def _again(fn: Function, call: ast.Call, event: Event | None, tried: set[str]) -> bool:
    if not _heavy(event) or event is None:
        return False
    if event.callee is fn.definition:
        return True
    if isinstance(event.callee, Definition) and not _runs_a_model(fn, event.callee):
        return False
    return chain(call.func) in tried


def _runs_a_model(fn: Function, callee: Definition) -> bool:
    """Whether a function of the project runs, or may run, a model: one that only reads figures holds no tensors."""
    flow = fn.project.flow(callee)
    return flow is None or any(
        e.verb in ("forward", "backward")
        or (e.verb == "call" and e.callee is None and e.receiver.kind == "unknown" and e.receiver.receiver is None)
        for e in flow.events
    )


def _empties(fn: Function, call: ast.Call) -> bool:
    name = fn.project.names.resolve(call.func, fn.definition)
    row = fn.project.library.lookup(name) if isinstance(name, str) else None
    return name.name == "empty_cache" if isinstance(name, Definition) else row is not None and "empty_cache" in row


def after_the_block(fn: Function, recovery: Recovery) -> Fix:
    """The handler's work moved behind the whole statement, where that is the same; else only the advice."""
    what = "retry" if recovery.retries else "empty the cache"
    advice = Fix(f"only set a flag in the `except` block, and {what} after it")
    attempt, handler = recovery.attempt, recovery.handler
    if len(attempt.handlers) > 1 or attempt.orelse or attempt.finalbody or not isinstance(attempt.body[-1], JUMPS):
        return advice
    nodes = [n for s in handler.body for n in ast.walk(s)]
    if any(isinstance(n, ast.Raise) or (isinstance(n, ast.Name) and n.id == handler.name) for n in nodes):
        return advice
    if any(isinstance(n, ast.Constant) and n.lineno != n.end_lineno for n in nodes) or handler.type is None:
        return advice
    if SAYS in fn.source.segment(fn.source.span(handler)).lower() or handler.body[0].lineno == handler.lineno:
        return advice
    lines = fn.source.rows(handler.body[0], handler.body[-1])
    fix = edits.insert_after(fn.source, attempt, textwrap.dedent(lines).rstrip())
    for stmt in handler.body:
        fix += edits.delete(fn.source, stmt)
    return fix.titled(f"{what} after the `except` block").unsafe(
        "an error while retrying no longer names the first one as its context"
    )
