"""What one iteration hands to the next: recurrent state that comes back with the graph of all iterations before."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.extract import Class, Definition
from memlint.facts import Event, Node, Obj, Origin, Value
from memlint.function import Function
from memlint.reuse import asks, below, carried
from memlint.trace import note


@dataclass(frozen=True, slots=True)
class Feedback:
    """A call that takes the state of the iteration before, as its ``argument``, and the backward through both."""

    call: Event
    argument: ast.expr
    value: Value
    backward: Event


def fed_back(fn: Function) -> Iterator[Feedback]:
    """Calls that take state with its graph from the iteration before, in a loop whose backward keeps every graph."""
    flow = fn.flow
    seen: set[ast.AST] = set()
    for backward in fn.backwards:
        if flow is None or not backward.loops or not asks(backward.root, "retain_graph"):
            continue
        graph = below(flow.held(backward.value))
        for mark in graph:
            if carried(mark) and mark.site in backward.loops and not (_is_total(fn, mark.name) or _cut(fn, mark)):
                found = _taker(fn, mark, graph, backward)
                if found is not None and found.call.site not in seen:
                    seen.add(found.call.site)
                    yield found


def _is_total(fn: Function, name: str) -> bool:
    return any(e.name == name for e in fn.sums)


def _cut(fn: Function, mark: Node) -> bool:
    """Whether the state is detached in place: itself, its parts one by one, or by a function that gets it."""
    assert fn.flow is not None
    for event in fn.events("detach", "call"):
        if mark.site not in event.loops:
            continue
        in_place = event.verb == "detach" or getattr(getattr(event.site, "func", None), "attr", "") == "detach_"
        if in_place and mark in fn.flow.held(event.receiver):
            return True
        helps = isinstance(event.callee, Definition) and "detach" in event.callee.text
        if event.verb == "call" and helps and any(mark in fn.flow.held(a) for a in event.args):
            return True
    return False


def _taker(fn: Function, mark: Node, graph: set[Node], backward: Event) -> Feedback | None:
    """The first call of the loop that a carried state goes into and that the backward goes through."""
    assert fn.flow is not None
    for call in fn.own("call"):
        site = call.site
        if not isinstance(site, ast.Call) or mark.site not in call.loops or not _computes(fn, call):
            continue
        if graph.isdisjoint(fn.flow.held(call.value)):
            continue
        for expression, value in arguments(call):
            if mark in fn.flow.held(value) and _moves_on(fn, site, mark):
                return Feedback(call, expression, value, backward)
    return None


def arguments(call: Event) -> Iterator[tuple[ast.expr, Value]]:
    """The arguments of a call as written, each with its value."""
    site = call.site
    assert isinstance(site, ast.Call)
    yield from zip(site.args, call.args, strict=False)
    yield from ((k.value, call.keywords[k.arg]) for k in site.keywords if k.arg in call.keywords)


def _computes(fn: Function, call: Event) -> bool:
    """Whether a call runs a model: a module, or a function of the project with a forward in it."""
    if any(e.site is call.site for e in fn.forwards):
        return True
    return call.receiver.kind == "module"


def _moves_on(fn: Function, call: ast.Call, mark: Node) -> bool:
    """Whether the call gets something new in each iteration besides the state: else it refines one result."""
    others = [*call.args, *(k.value for k in call.keywords)]
    others = [o for o in others if not any(ast.unparse(n) == mark.name for n in ast.walk(o) if isinstance(n, ast.expr))]
    return any(not fn.fixed(o, mark.site) for o in others)


# ---------------------------------------------------------------------- state that a module keeps


def kept_state(fn: Function) -> Iterator[Feedback]:
    """Calls in a module's forward that take the state that the forward before left on the module with its graph."""
    cls = fn.definition.cls
    if (
        cls is None
        or fn.definition.name != "forward"
        or not any(d.cls is not cls and _knows(d, cls) for d in fn.project.mentioning("retain_graph"))
    ):
        return
    flow = fn.flow
    if flow is None or not fn.project.is_module(cls):
        return
    for kept in fn.own("set"):
        if kept.target is None or not kept.target.shared:
            continue
        state = fn.project.place_node(kept.target)
        graph = below(flow.held(kept.value))
        for call in fn.own("call"):
            if not isinstance(call.site, ast.Call) or not _computes(fn, call):
                continue
            if graph.isdisjoint(flow.held(call.value)):
                continue
            taken = [(e, v) for e, v in arguments(call) if state in flow.held(v)]
            backward = _retaining(fn, cls, kept.target) if taken else None
            if backward is not None:
                yield Feedback(call, *taken[0], backward)
                return


def _retaining(fn: Function, cls: Class, state: Obj) -> Event | None:
    """A backward that keeps its graph while a loop runs the module and does not put the state back in between."""
    project = fn.project
    attribute = state.name.removeprefix("self.")
    resets = {w.name for w in project.writers(cls, attribute)} - {"forward"} | {attribute}
    for definition in project.mentioning("retain_graph"):
        if definition.cls is cls or not _knows(definition, cls):
            continue
        trainer = project.function(definition)
        for backward in trainer.own("backward"):
            if not backward.loops or not asks(backward, "retain_graph"):
                continue
            loop = backward.loops[-1]
            names = {n.attr for n in ast.walk(loop) if isinstance(n, ast.Attribute)}
            if names.isdisjoint(resets) and _runs(trainer, cls, backward):
                return backward
    return None


def _knows(definition: Definition, cls: Class) -> bool:
    note(("holds", cls.name))
    return definition.module is cls.module or definition.module.holds(cls.name)


def _runs(trainer: Function, cls: Class, backward: Event) -> bool:
    """Whether a backward goes through a module of this class, or of one that cannot be told where it alone fits."""
    assert trainer.flow is not None
    loop = backward.loops[-1]
    project = trainer.project
    others = [c for c in project.names.classes(cls.module) if c is not cls and project.is_module(c)]
    for node in below(trainer.flow.held(backward.value)):
        if node.origin not in (Origin.FORWARD, Origin.CALL) or node.module is None or loop not in node.loops:
            continue
        use = project.uses(trainer.definition).get(node.name)
        alike = node.module.kind == "module" or (use is not None and not use.attributes.isdisjoint(cls.methods))
        if node.module.type == cls.full_name or (alike and not node.module.type and not others):
            return True
    return False
