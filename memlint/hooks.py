"""Hooks: whether the same thing is hooked again and again, and whether a hook holds the tensor that it hangs on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memlint.extract import Definition, walk
from memlint.facts import Answer, Event
from memlint.function import Function
from memlint.values import chain

HANDLED = ("_forward_hooks", "_backward_hooks", "_forward_pre_hooks")  # somebody empties the tables themselves


def leaked_hooks(fn: Function) -> Iterator[Event]:
    """Registrations that come round on the same object, whose handle nobody can ever use."""
    for hook in fn.own("hook"):
        call = hook.site
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if hook.guards or hook.receiver.kind == "tensor" or not _dropped(fn, hook):
            continue
        if any(map(fn.source.says, HANDLED)):
            continue
        if _comes_round(fn, hook, call.func.value):
            yield hook


def _dropped(fn: Function, hook: Event) -> bool:
    """Whether the handle goes nowhere: it is not bound, or bound to a name that nobody reads."""
    stmt = hook.stmt
    if isinstance(stmt, ast.Expr):
        return stmt.value is hook.site
    if not (isinstance(stmt, ast.Assign) and stmt.value is hook.site and len(stmt.targets) == 1):
        return False
    target = stmt.targets[0]
    return isinstance(target, ast.Name) and not any(
        isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load) for n in walk(fn.node)
    )


def _comes_round(fn: Function, hook: Event, hooked: ast.expr) -> bool:
    """Whether the same object is hooked in every step of a loop that runs the model, or at every call."""
    for loop in reversed(hook.loops):
        if fn.fixed(hooked, loop):
            return _runs(fn, loop, hooked)
        if not isinstance(loop, (ast.For, ast.AsyncFor)):
            return False
        hooked = loop.iter  # one loop over the layers, itself inside another loop
    return _outlives_call(fn, hook, hooked) and _called_round(fn, hooked)


def _runs(fn: Function, loop: ast.AST, hooked: ast.expr) -> bool:
    """Whether a loop runs a model: loops that only register several hooks do not."""
    if any(loop in e.loops for e in fn.events("forward", "backward", "step")):
        return True
    model = _root(hooked)
    return any(loop in e.loops and chain(e.site.func) == model for e in fn.own("call") if isinstance(e.site, ast.Call))


def _outlives_call(fn: Function, hook: Event, hooked: ast.expr) -> bool:
    """Whether what is hooked is there before and after the call: an attribute of ``self``, or a parameter's part."""
    definition = fn.definition
    root = _root(hooked)
    return root in definition.parameters and fn.fixed(hooked, definition.node) and chain(hooked) != "self"


def _called_round(fn: Function, hooked: ast.expr) -> bool:
    """Whether the project calls the function over and over for one and the same object."""
    definition = fn.definition
    if definition.name == "__init__":
        return False
    if definition.name == "forward" and definition.cls is not None and fn.project.is_module(definition.cls):
        return _root(hooked) == definition.positional[0]
    for flow, event in fn.project.callers(definition):
        call = event.site
        if not event.loops or not isinstance(call, ast.Call) or flow.definition is definition:
            continue
        caller = Function(fn.project, flow.definition)
        given = _given(definition, _root(hooked), call)
        if given is not None and caller.fixed(given, event.loops[-1]) and _runs(caller, event.loops[-1], given):
            return True
    return False


def _given(definition: Definition, name: str, call: ast.Call) -> ast.expr | None:
    """The expression that a call hands over for a parameter."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    index = definition.positional.index(name) if name in definition.positional else -1
    if definition.bound and isinstance(call.func, ast.Attribute):
        if index == 0:
            return call.func.value
        index -= 1
    return call.args[index] if 0 <= index < len(call.args) else None


def _root(expression: ast.expr) -> str:
    """The name that an expression such as ``model.layers[0].norm`` or ``model.modules()`` starts from."""
    node: ast.AST = expression
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def self_capturing_hooks(fn: Function) -> Iterator[tuple[Event, str]]:
    """Hooks on computed tensors that hold the tensor itself, one for every tensor; with the tensor's name."""
    for hook in fn.own("hook"):
        call = hook.site
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
            continue
        name = chain(call.func.value).removesuffix(".grad_fn")
        if not name or "." in name or not _computed(fn, hook, call.func.value):
            continue
        held = _held(fn, call.args[0], name)
        if (held == "value" and fn.repeated(hook)) or (held == "cell" and fn.project_repeats()):
            yield hook, name


def _computed(fn: Function, hook: Event, expression: ast.expr) -> bool:
    """Whether a tensor has a ``grad_fn``: a leaf keeps its hooks where the collector sees them."""
    node = isinstance(expression, ast.Attribute) and expression.attr == "grad_fn"
    return node or (not hook.receiver.leaf and fn.makes(hook.receiver) is Answer.YES)


def _held(fn: Function, hook: ast.expr, name: str) -> str:
    """How a hook holds a name: its ``value``, for ever; the ``cell`` of the variable, whose last value stays; or ""."""
    if isinstance(hook, ast.Lambda):
        if any(_reads(d, name) for d in (*hook.args.defaults, *hook.args.kw_defaults) if d is not None):
            return "value"
        own = {a.arg for a in (*hook.args.posonlyargs, *hook.args.args, *hook.args.kwonlyargs)}
        return "cell" if name not in own and _mentions(hook.body, name) else ""
    if isinstance(hook, ast.Call):
        partial = fn.project.names.resolve(hook.func, fn.definition) == "functools.partial"
        given = (*hook.args, *(k.value for k in hook.keywords))
        return "value" if partial and any(_reads(a, name) for a in given) else ""
    nested = fn.definition.functions.get(hook.id) if isinstance(hook, ast.Name) else None
    if nested is None or not isinstance(nested.node, ast.FunctionDef):
        return ""
    if any(_reads(d, name) for d in nested.defaults.values()):
        return "value"
    bound = {n.id for n in walk(nested.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    free = name not in nested.parameters and name not in bound
    return "cell" if free and any(_mentions(s, name) for s in nested.node.body) else ""


def _reads(node: ast.expr, name: str) -> bool:
    """Whether an expression is the named object itself."""
    return isinstance(node, ast.Name) and node.id == name


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in walk(node))
