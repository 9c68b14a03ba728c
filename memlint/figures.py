"""Figures that pyplot keeps: made again and again, and closed by nobody who could."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.answers import LIMIT
from memlint.extract import Class, Definition
from memlint.facts import Event
from memlint.function import Function
from memlint.library import Row
from memlint.lifetimes import Lifetimes
from memlint.values import chain

RUNS = frozenset({"forward", "backward", "step", "zero_grad"})
CLOSES = frozenset({"close", "clf", "show"})  # on whatever: it may be a figure's, or pyplot's
TELLS = frozenset({"print", "len", "type", "id", "repr", "str", "isinstance", "hasattr"})
_ONE = re.compile(r"(\w+) == -?\d+$")
_ONCE = re.compile(r"test|predict|_start$|setup|teardown")


@dataclass
class Figure:
    """A figure that is left open. ``last``: the statement of its own block after which nothing uses it, if any."""

    call: ast.Call
    name: str  # of the variable that holds it, "" for none
    last: ast.stmt | None


def left_open(fn: Function) -> Iterator[Figure]:
    """The figures that a function makes each time round a loop that trains or runs models, and that stay open."""
    makes = [e for e in fn.own("call") if _effect(fn, e, "figure") and not _again(e)]
    for event in makes:
        if not _recurs(fn, event, set()) or not _dropped(fn, event.site, 0):
            continue
        assert isinstance(event.site, ast.Call)
        names = _bound(fn, event.site) or []
        yield Figure(event.site, names[0] if names else "", _last(fn, event.site, names) if len(makes) == 1 else None)


def _effect(fn: Function, event: Event, effect: str) -> bool:
    """Whether a call has an effect, by what the library says of the function or method that is called."""
    row = event.callee if isinstance(event.callee, Row) else None
    if row is None and event.name:
        row = fn.project.library.lookup(event.name)
    return row is not None and effect in row


def _again(event: Event) -> bool:
    """Whether a call may come back to a figure that is there: one that is asked for by number or name."""
    given = {*event.keywords}
    return not given.isdisjoint({"num", "*", "**"}) or (event.name.endswith(".figure") and bool(event.args))


# ---------------------------------------------------------------------------------------- again and again


def _recurs(fn: Function, event: Event, seen: set[Definition]) -> bool:
    """Whether an event is in a loop that trains or runs models, here or around a call of the function."""
    if fn.definition in seen or len(seen) > LIMIT:
        return False
    seen.add(fn.definition)
    running = {loop for other in fn.events(*RUNS) for loop in other.loops}
    if any(loop in running and not _once(fn, event, loop) for loop in event.loops) or _each_epoch(fn):
        return True
    project = fn.project
    return any(_recurs(project.function(flow.definition), call, seen) for flow, call in project.callers(fn.definition))


def _once(fn: Function, event: Event, loop: ast.AST) -> bool:
    """Whether a loop gets to an event in one iteration alone: under ``if i == 0``, or before it is left."""
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} if isinstance(loop, ast.For) else set()
    for test, truth in event.guards:
        match = _ONE.match(test)
        if match and truth and match[1] in names:
            return True
    block: ast.AST | None = fn.parents.get(fn.statements.get(event.site, event.site))
    while block is not None and block is not loop:
        if any(isinstance(s, (ast.Break, ast.Return)) for s in getattr(block, "body", ())):
            return True
        block = fn.parents.get(block)
    return any(isinstance(s, (ast.Break, ast.Return)) for s in getattr(loop, "body", ()))


def _each_epoch(fn: Function) -> bool:
    """Whether a framework calls the method at every step or epoch."""
    cls, name = fn.definition.cls, fn.definition.name
    if cls is None or _ONCE.search(name):
        return False
    library = fn.project.library
    words = {w for base in fn.project.names.library_bases(cls) for w in library.hook(base, name)}
    return "batch" in words or (bool(words) and "epoch" in name)


# ---------------------------------------------------------------------------------------- closed by nobody


def _dropped(fn: Function, node: ast.AST, depth: int) -> bool:
    """Whether a figure that a call gives is neither closed nor handed to where it could be."""
    if depth > LIMIT or _closes(fn):
        return False
    lifetimes = fn.lifetimes
    parent = lifetimes.parents.get(node)
    if isinstance(parent, (ast.Expr, ast.Attribute)):
        return not _closed_above(fn, set())
    if isinstance(parent, ast.Return):
        return _returned(fn, depth)
    names = _bound(fn, node)
    if names is None:
        return _logged(fn, lifetimes, node) and not _closed_above(fn, set())
    fate = {_use(fn, lifetimes, use, i == 0) for i, n in enumerate(names) for use in _uses(lifetimes, n, node)}
    if "leaves" in fate:
        return False
    return _returned(fn, depth) if "returned" in fate else not _closed_above(fn, set())


def _closes(fn: Function, seen: frozenset[Definition] = frozenset()) -> bool:
    """Whether a function, or one that it calls, closes, empties or shows figures."""
    if fn.definition in seen or len(seen) > LIMIT:
        return False
    seen |= {fn.definition}
    for event in fn.events("call"):
        if _effect(fn, event, "close"):
            return True
        func = event.site.func if isinstance(event.site, ast.Call) and event.inner is None else None
        if isinstance(func, ast.Attribute) and func.attr in CLOSES and event.callee is None and not event.name:
            return True
        if isinstance(event.callee, Definition) and _closes(fn.project.function(event.callee), seen):
            return True
    return False


def _closed_above(fn: Function, seen: set[Definition]) -> bool:
    """Whether a caller, or a caller of one, closes figures: all of them, it may be."""
    if fn.definition in seen or len(seen) > LIMIT:
        return False
    seen.add(fn.definition)
    cls = fn.definition.cls
    project = fn.project
    if isinstance(cls, Class) and any(_closes(project.function(m)) for m in cls.methods.values() if "close" in m.text):
        return True
    callers = {flow.definition: project.function(flow.definition) for flow, _ in project.callers(fn.definition)}
    return any(_closes(caller) or _closed_above(caller, seen) for caller in callers.values())


def _returned(fn: Function, depth: int) -> bool:
    """Whether every caller drops the figure that a function returns, all of them being in sight."""
    project, definition = fn.project, fn.definition
    calls = [(flow, call) for flow, call in project.callers(definition) if flow.definition is not definition]
    if not calls or definition in project.crowded or definition in project.addressed:
        return False
    return all(_dropped(project.function(flow.definition), call.site, depth + 1) for flow, call in calls)


def _bound(fn: Function, node: ast.AST) -> list[str] | None:
    """The names that take what a call gives, the figure's first; None where something else does."""
    statement = fn.statements.get(node)
    if not isinstance(statement, ast.Assign) or statement.value is not node or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        return [target.elts[0].id, *(n.id for e in target.elts[1:] for n in ast.walk(e) if isinstance(n, ast.Name))]
    return None


def _uses(lifetimes: Lifetimes, name: str, node: ast.AST) -> list[ast.expr]:
    return lifetimes.uses(name, lifetimes.parents.get(node))


def _use(fn: Function, lifetimes: Lifetimes, use: ast.expr, figure: bool) -> str:
    """What a use does with a figure, or with its axes: "" for drawing and saving, else "returned" or "leaves"."""
    parent = lifetimes.parents.get(use)
    if isinstance(parent, ast.Return):
        return "returned" if figure else "leaves"
    if isinstance(parent, (ast.Attribute, ast.Subscript, ast.Compare, ast.For, ast.comprehension, ast.If)):
        return ""
    if isinstance(parent, (ast.Call, ast.keyword)) and not figure:
        return ""  # drawn on
    return "" if _logged(fn, lifetimes, use) else "leaves"


def _logged(fn: Function, lifetimes: Lifetimes, node: ast.AST) -> bool:
    """Whether an expression is an argument of something that reads it and does not keep it: a logger, pyplot."""
    parent = lifetimes.parents.get(node)
    while isinstance(parent, (ast.Dict, ast.List, ast.Tuple, ast.keyword)):
        node, parent = parent, lifetimes.parents.get(parent)
    if not isinstance(parent, ast.Call) or parent.func is node:
        return False
    event = next((e for e in fn.own("call") if e.site is parent), None)
    if event is None:
        return False
    row = event.callee if isinstance(event.callee, Row) else fn.project.library.lookup(event.name)
    if event.name.startswith("matplotlib.") or chain(parent.func) in TELLS:
        return True
    if row is None or not (row.accepts in ("number", "reads") or "log" in row):
        return False
    outer = lifetimes.parents.get(parent)
    logged = row.returns in ("none", "unknown") and isinstance(outer, ast.Expr)
    return logged or "log" in row or _logged(fn, lifetimes, parent)


# ---------------------------------------------------------------------------------------- where it may be closed


def _last(fn: Function, call: ast.Call, names: list[str]) -> ast.stmt | None:
    """The last statement of the block that a figure is made in which may still draw on it; None where it goes on."""
    start = fn.statements[call]
    owner = fn.parents.get(start)
    block = next((b for _, b in ast.iter_fields(owner) if isinstance(b, list) and start in b), None) if owner else None
    if block is None:
        return None
    known, last = set(names), start
    for statement in block[block.index(start) :]:
        words = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
        pyplot = any(str(fn.project.names.local(w, fn.definition)).startswith("matplotlib") for w in words)
        if pyplot or words & known:
            last = statement
            known |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    leaving = (ast.Return, ast.Yield, ast.YieldFrom, ast.Continue, ast.Break, ast.Raise)
    return None if any(isinstance(n, leaving) for n in ast.walk(last)) else last
