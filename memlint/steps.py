"""What comes round once a step: with every batch that is trained on or evaluated, and not once an epoch or a phase."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint import edits
from memlint.extract import Definition, own_nodes, walk
from memlint.facts import Event, Grad, Origin
from memlint.function import Function
from memlint.library import Row
from memlint.reuse import below
from memlint.rule import Fix
from memlint.values import chain

LOOPS = (ast.For, ast.AsyncFor, ast.While)
WORK = ("forward", "backward", "step", "grad")
DERIVES = (ast.Assign, ast.comprehension)
SHAPES = frozenset("unsqueeze squeeze view reshape permute float long half contiguous items values".split())
# A loop that does these is not an ordinary one: it measures memory, or looks for a size that fits.
SPECIAL = re.compile(r"max_memory|memory_(?:allocated|reserved|cached|stats)|mem_get_info|out of memory|OutOfMemory")
ON_DEVICE = re.compile(
    r"""is_available\(\)|is_cuda|\bdevice is None|(?:device|type)\b.*[!=]= ?["'](?:cuda|mps|xpu|cpu)"""
)


def repeating(fn: Function, effect: str, words: tuple[str, ...]) -> Iterator[tuple[Event, str]]:
    """The calls with an effect, or of a helper that has it, that come round at every step, and when, in words.

    ``words`` are what the effect goes by: a function is read only if it says one of them, or names a helper that does.
    """
    names = fn.project.callers_of(words) - {"__call__"}  # who calls an object does not name what that does
    if not fn.definition.module.holds(*names) or fn.is_test or not fn.definition.calls(names):
        return
    for call in fn.own("call"):
        if isinstance(call.site, ast.Call) and (does(fn, call, effect) or helps(fn, call, effect)):
            when = every_step(fn, call)
            if when:
                yield call, when


def taken_out(fn: Function, call: Event, effect: str, advice: str, reason: str) -> Fix:
    """The call left out where it is a statement that does nothing else, for that ``reason`` unsafe; else the advice."""
    if isinstance(call.stmt, ast.Expr) and does(fn, call, effect):
        return edits.delete(fn.source, call.stmt).unsafe(reason)
    return Fix(advice)


def does(fn: Function, call: Event, effect: str) -> bool:
    """Whether what is called has an effect, as the library states it."""
    callee = call.receiver
    row = callee.target if isinstance(callee.target, Row) else None
    if row is None and callee.type and callee.target is None:
        row = fn.project.library.lookup(callee.type)
    return row is not None and effect in row


def helps(fn: Function, call: Event, effect: str) -> bool:
    """Whether a function of the project is called that always does it, and runs no model: a helper to clean up."""
    helper = call.callee
    if not isinstance(helper, Definition) or helper is fn.definition:
        return False
    if not helper.calls(fn.project.library.having(effect)):
        return False
    inside = fn.project.function(helper)
    if inside.flow is None or any(True for _ in inside.events(*WORK)):
        return False
    return any(not e.loops and does(inside, e, effect) and always(inside, e.site) for e in inside.own("call"))


def every_step(fn: Function, call: Event) -> str:
    """When a call comes round, if that is at every step; "" where it comes less often, or nobody can tell."""
    loop = _innermost(call)
    if loop is not None:
        return "in every iteration" if is_step(fn, loop) and always(fn, call.site, loop) else ""
    return f"at every call of `{fn.definition.name}`" if always(fn, call.site) and _is_one_step(fn) else ""


def _innermost(event: Event) -> ast.AST | None:
    """The loop statement right around an event."""
    return next((loop for loop in reversed(event.loops) if isinstance(loop, LOOPS)), None)


def always(fn: Function, node: ast.AST, loop: ast.AST | None = None) -> bool:
    """Whether a piece of syntax is reached in every iteration of a loop, or in every run of the function.

    Conditions that only ask which device there is do not count, nor does what is skipped before the work begins.
    """
    inner, outer = node, fn.parents.get(node)
    while outer is not None and outer is not loop:
        if isinstance(outer, (ast.ExceptHandler, ast.IfExp, ast.BoolOp, ast.match_case, *LOOPS)):
            return False
        if isinstance(outer, ast.If) and not (inner in outer.body and _asks_for_the_device(outer.test)):
            return False
        inner, outer = outer, fn.parents.get(outer)
    line = node.lineno  # type: ignore[attr-defined]
    if loop is None:  # a function that may return before is asked at every step, and works only at some
        return not any(isinstance(n, ast.Return) and n.lineno < line and _decides(fn, n) for n in fn.definition.nodes)
    begun = min((e.site.lineno for e in fn.events(*WORK) if loop in e.loops), default=line)  # type: ignore[attr-defined]
    return not any(isinstance(n, ast.Continue) and begun < n.lineno < line for n in own_nodes(loop))


def _decides(fn: Function, jump: ast.stmt) -> bool:
    """Whether a statement leaves for another reason than that there is no such device."""
    around = fn.parents.get(jump)
    return not (isinstance(around, ast.If) and _asks_for_the_device(around.test))


def _asks_for_the_device(test: ast.expr) -> bool:
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return all(ON_DEVICE.search(ast.unparse(part)) for part in parts)


def is_step(fn: Function, loop: ast.AST) -> bool:
    """Whether an iteration of a loop is one step: it trains, or evaluates, on one batch, with no loop further in."""
    if SPECIAL.search(fn.source.rows(loop)):
        return False
    work = [e for e in fn.events(*WORK) if loop in e.loops]
    if any(isinstance(inner, LOOPS) for e in work for inner in e.loops[e.loops.index(loop) + 1 :]):
        return False
    if any(e.verb == "backward" for e in work):
        return _over_batches(fn, loop) or not _has_phases(fn, loop)
    return _over_batches(fn, loop) and any(_runs(fn, e, loop) for e in fn.events("forward", "call") if loop in e.loops)


def _has_phases(fn: Function, loop: ast.AST) -> bool:
    """Whether an iteration may evaluate the model besides: with autograd off, or by a call that gets the model."""
    if any(e.verb == "forward" and fn.grad(e) is Grad.OFF for e in fn.forwards if loop in e.loops):
        return True
    calls = [n for n in own_nodes(loop) if isinstance(n, ast.Call)]
    called = {chain(c.func) for c in calls}
    return any(chain(a) in called for c in calls for a in (*c.args, *(k.value for k in c.keywords)) if chain(a))


def _runs(fn: Function, event: Event, loop: ast.AST) -> bool:
    """Whether an event of a loop runs a model, or what may well be one, that is the same in each iteration."""
    call = event.site
    if not isinstance(call, ast.Call) or _innermost(event) is not loop:
        return False
    if event.verb == "call":
        callee = event.receiver
        if event.callee is not None or callee.kind != "unknown" or callee.receiver is not None or not event.args:
            return False
    return fn.fixed(call.func, loop) and not fn.fixed(call, loop)


def _over_batches(fn: Function, loop: ast.AST) -> bool:
    """Whether a loop gets new data in each iteration: from a loader, moved to a device, or run through a model."""
    flow = fn.flow
    if flow is None or not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    if any(isinstance(n, ast.Attribute) and n.attr in ("items", "values") for n in walk(loop.iter)):
        return False
    over = {n.id for n in walk(loop.iter) if isinstance(n, ast.Name)}
    if any(flow.env[name].kind == "loader" for name in over if name in flow.env):
        return True
    for event in fn.forwards:
        inputs = below(event.node.inputs) if event.node is not None and loop in event.loops else ()
        if any(n.data or (n.origin is Origin.PARAMETER and n.name in over) for n in inputs):
            return True
    fresh = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}
    for node in sorted((n for n in own_nodes(loop) if isinstance(n, DERIVES)), key=_line):
        source = node.iter if isinstance(node, ast.comprehension) else node.value
        if _root(source) in fresh:  # what is taken out of the batch is new as well
            targets = [node.target] if isinstance(node, ast.comprehension) else node.targets
            fresh.update(n.id for target in targets for n in walk(target) if isinstance(n, ast.Name))
    return any(_moves(fn, node, fresh) for node in own_nodes(loop) if isinstance(node, ast.Call))


def _moves(fn: Function, call: ast.Call, fresh: set[str]) -> bool:
    """Whether a call moves data of these names to a device, and gives it a name: modules are moved in place."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
        return False
    parent = fn.parents.get(call)
    names = [_root(call.func.value), *(chain(t) for t in (parent.targets if isinstance(parent, ast.Assign) else ()))]
    uses = [use for name in names if (use := fn.project.uses(fn.definition).get(name)) is not None]
    return names[0] in fresh and not isinstance(parent, ast.Expr) and not any(u.called or u.role for u in uses)


def _line(node: ast.AST) -> int:
    return (node.iter if isinstance(node, ast.comprehension) else node).lineno  # type: ignore[attr-defined,no-any-return]


def _root(node: ast.AST) -> str:
    """The name that an expression takes a part, or another shape, of."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Attribute) and node.func.attr in SHAPES):
                return ""
            node = node.func.value
        else:
            node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_one_step(fn: Function) -> bool:
    """Whether a function is one step: by what a framework does with it, or because a loop of steps calls it."""
    cls, name = fn.definition.cls, fn.definition.name
    if cls is not None:
        hooks = [fn.project.library.hook(base, name) for base in fn.project.names.library_bases(cls)]
        if any({"batch", "forward"} & words for words in hooks):
            return True
        if fn.project.class_kind(cls) == "function":
            return name in ("forward", "backward")
    if not any(True for _ in fn.events(*WORK)):
        return False  # a helper: its call is at fault
    for flow, event in fn.project.callers(fn.definition):
        loop, caller = _innermost(event), fn.project.function(flow.definition)
        if loop is not None and is_step(caller, loop) and _over_batches(caller, loop):
            if always(caller, event.site, loop):
                return True
    return False
