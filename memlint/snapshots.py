"""Copies of a model's weights that are put aside while it goes on training, to be restored or written later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.extract import Definition, own_nodes, walk
from memlint.function import CONSTRUCTORS, Function
from memlint.lifetimes import LOOPS
from memlint.lingering import runs_model
from memlint.restoring import on_host_alone
from memlint.values import chain

COPIES = frozenset({"clone", "detach", "data", "contiguous", "copy"})  # what keeps a copy where it was
MODELS = ("module", "engine")


@dataclass(frozen=True)
class Snapshot:
    """``copy`` is the expression that makes it, ``state`` the state dict that is copied (None: a whole module), and
    ``restored`` whether all that ever becomes of it is to be copied back or written to a file."""

    copy: ast.expr
    state: ast.expr | None
    name: str
    restored: bool


def snapshots(fn: Function) -> Iterator[Snapshot]:
    """Copies on the device that an iteration leaves behind, and that nothing reads while training goes on."""
    if fn.definition.name in CONSTRUCTORS or on_host_alone(fn):
        return
    for stmt in fn.nodes_of(ast.Assign, ast.AnnAssign):
        value = stmt.value  # type: ignore[attr-defined]
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]  # type: ignore[attr-defined]
        name = chain(targets[0]) if len(targets) == 1 else ""
        copied = _copied(fn, value) if name and isinstance(value, (ast.Call, ast.DictComp)) else None
        if copied is None:
            continue
        uses = list(_uses(fn, name))
        loop = _training_loop(fn, stmt)
        kept = "." in name and _guarded(fn, stmt) and any(_restores(u) for _, u in uses)
        if (loop is None and not kept) or (loop is not None and _by_count(fn, stmt)):
            continue
        if not _guarded(fn, stmt) and any(_restores(u) and _inside(f, u.node, loop) for f, u in uses):
            continue  # taken and put back in every iteration
        if not any(u.parent is not None for _, u in uses) or any(_computes(f, u, loop) for f, u in uses):
            continue
        yield Snapshot(value, copied.state, name, all(_restores(u) or _asks(u) for _, u in uses))


@dataclass(frozen=True)
class _Copied:
    state: ast.expr | None


def _copied(fn: Function, value: ast.expr) -> _Copied | None:
    """What an expression copies: a module, or the state dict of one, leaving it on the device."""
    if isinstance(value, ast.DictComp):
        source = value.generators[0].iter
        items = isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and source.func.attr == "items"
        state = source.func.value if items else None  # type: ignore[attr-defined]
        names = {n.attr for n in walk(value.value) if isinstance(n, ast.Attribute)}
        if state is not None and _is_state(fn, state) and "clone" in names and names <= COPIES:
            return _Copied(state)
        return None
    call = next((e for e in fn.own("call") if e.site is value), None)
    if call is None or call.receiver.type != "copy.deepcopy" or not call.args:
        return None
    first = value.args[0] if isinstance(value, ast.Call) and value.args else None
    if first is not None and _is_state(fn, first):
        return _Copied(first)
    known = call.args[0].kind in MODELS and call.args[0].device != "host"
    return _Copied(None) if known else None


def _is_state(fn: Function, node: ast.expr) -> bool:
    """Whether an expression is the state dict of a module: ``model.state_dict()``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict"):
        return False
    call = next((e for e in fn.own("call") if e.site is node), None)
    owner = call.receiver.receiver if call is not None else None
    return owner is not None and owner.kind in (*MODELS, "unknown") and owner.device != "host"


# ---------------------------------------------------------------------- when it is taken


def _training_loop(fn: Function, stmt: ast.AST) -> ast.AST | None:
    """The innermost loop around a statement in which a model is trained."""
    at = fn.parents.get(stmt)
    while at is not None:
        if isinstance(at, LOOPS) and _trains(fn, at):
            return at
        at = fn.parents.get(at)
    return None


def _trains(fn: Function, loop: ast.AST) -> bool:
    if any(loop in e.loops for e in fn.events("backward", "step")):
        return True
    calls = (e for e in fn.own("call") if loop in e.loops and isinstance(e.callee, Definition))
    return any(runs_model(fn, e.callee, 0, False) for e in calls)


def _guarded(fn: Function, stmt: ast.AST) -> bool:
    """Whether a statement stands under a condition that may compare scores, as what keeps the best does."""
    at = fn.parents.get(stmt)
    while at is not None and not isinstance(at, LOOPS):
        if isinstance(at, ast.If):
            return not _counts(at.test)
        at = fn.parents.get(at)
    return False


def _by_count(fn: Function, stmt: ast.AST) -> bool:
    around = fn.parents.get(stmt)
    return isinstance(around, ast.If) and _counts(around.test)


def _counts(test: ast.expr) -> bool:
    """Whether a condition is about the number of the step: ``step == 1``, ``step % 100 == 0``."""
    return isinstance(test, ast.Compare) and all(isinstance(op, (ast.Eq, ast.NotEq)) for op in test.ops)


# ---------------------------------------------------------------------- what becomes of it


@dataclass(frozen=True)
class _Use:
    node: ast.expr
    parent: ast.AST | None


def _uses(fn: Function, name: str) -> Iterator[tuple[Function, _Use]]:
    """The reads of a name in the function, of an attribute in all methods of its class."""
    functions = [fn]
    cls = fn.definition.cls
    if cls is not None and "." in name:
        family = fn.project.names.family(cls)
        methods = [d for c in (family, *fn.project.names.derived(family)) for d in c.methods.values()]
        functions = [fn.project.function(d) for d in methods]
    for each in functions:
        if name.rpartition(".")[2] in each.text:
            for node in own_nodes(each.node):
                if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                    if chain(node) == name:
                        yield each, _Use(node, each.parents.get(node))


def _call_of(use: _Use) -> str:
    """The last name of the function that a use is an argument of."""
    call = use.parent
    if not isinstance(call, ast.Call) or use.node is call.func:
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _restores(use: _Use) -> bool:
    return _call_of(use) in ("load_state_dict", "save")


def _asks(use: _Use) -> bool:
    """Whether a use only asks whether there is one."""
    return isinstance(use.parent, (ast.Compare, ast.If, ast.UnaryOp, ast.BoolOp, ast.Assert))


def _computes(fn: Function, use: _Use, loop: ast.AST | None) -> bool:
    """Whether a use may need it on the device while training goes on."""
    if _restores(use) or _asks(use):
        return False
    if loop is not None:
        return _inside(fn, use.node, loop)
    return not isinstance(use.parent, (ast.Return, ast.keyword, ast.Dict))


def _inside(fn: Function, node: ast.AST, loop: ast.AST | None) -> bool:
    return loop is not None and fn.within(node, loop)
