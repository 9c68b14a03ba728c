"""What a graph and its gradients are for after a backward: a second backward, or nothing that anybody can see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from memlint.answers import LIMIT
from memlint.extract import Class, Definition, Module
from memlint.facts import Answer, Event, Grad, Node, Obj, Origin, Value
from memlint.function import CONSTRUCTORS, Function
from memlint.values import GRAPHLESS

BUILDS = (Origin.FORWARD, Origin.CALL)
WALKED_TWICE = 3  # loops deep: further in, nothing is known of what one iteration leaves to the next
_CLEARS = re.compile(
    r"zero_grad|zero_gradients|\.grad\b(?:\.data)?(?:\.zero_|\.detach_| *= *[^=])|del .*\.grad\b|\"grad\""
)


def asks(backward: Event, flag: str) -> bool:
    """Whether a backward is told so in as many words: ``retain_graph=True``."""
    call = backward.site
    return isinstance(call, ast.Call) and any(
        k.arg == flag and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords
    )


def below(nodes: Iterable[Node]) -> set[Node]:
    """These nodes and all that they were computed from."""
    stack, seen = list(nodes), set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.inputs)
    return seen


def carried(node: Node) -> bool:
    """Whether the node stands for what an earlier iteration of a loop has left."""
    mark = node.key[2] if isinstance(node.key, tuple) else None
    return node.origin is Origin.PLACE and isinstance(mark, tuple) and mark[0] == "carried"


# ---------------------------------------------------------------------- a second backward


def differentiated_again(fn: Function, backward: Event, depth: int = 0) -> Answer:
    """Whether another backward, or the same one in a later iteration, reaches a graph that this one goes through."""
    flow = fn.flow
    if flow is None or depth > LIMIT or len(backward.loops) > WALKED_TWICE:
        return Answer.MAYBE
    graph = {n for n in below(flow.held(backward.value)) if n.grad is not Grad.OFF}
    made = {n for n in graph if n.origin in BUILDS}
    if not made or any(n.owner is not fn.definition or n.escapes for n in made):
        return Answer.MAYBE
    around = [loop for loop in backward.loops if fn.within(backward.site, loop)]
    if any(set(around) - set(n.loops) for n in made):
        return Answer.YES
    if any(n in below(n.inputs) for n in made) or any(carried(n) or _goes_on(fn, n, around) for n in graph):
        return Answer.MAYBE
    if any(may_remember(fn, n.module) for n in made):
        return Answer.MAYBE
    leaves = False
    for event in flow.events:
        if event is backward:
            continue
        values = (event.value, *event.args, *event.keywords.values())
        if event.verb in ("backward", "grad"):
            if event.order > backward.order and not _exclude(event, backward) and _share(fn, values, made):
                return Answer.YES
        elif event.verb in ("return", "yield"):
            leaves = leaves or _share(fn, values, made)
        elif (event.verb == "set" or (event.verb == "store" and _visible(event.target))) and _share(fn, values, made):
            return Answer.MAYBE
    handed = [n for n in graph if n.origin is Origin.PARAMETER and not _is_data(fn, n, around)]
    if any(n.owner is not fn.definition or n.index < 0 for n in handed):
        return Answer.MAYBE
    if any(n.place is not None and n.place.shared and _holds_graph(fn, n.place) for n in graph):
        return Answer.MAYBE
    return _in_callers(fn, backward, depth) if leaves or handed else Answer.NO


def _in_callers(fn: Function, backward: Event, depth: int) -> Answer:
    callers = fn.project.callers(fn.definition)
    if not callers or fn.definition in fn.project.addressed or fn.definition in fn.project.crowded:
        return Answer.MAYBE
    answers = []
    for flow, call in callers:
        caller = fn.project.function(flow.definition)
        here = [e for e in caller.backwards if e.site is call.site and e.root.site is backward.root.site]
        answers += [differentiated_again(caller, e, depth + 1) for e in here] or [Answer.MAYBE]
    return Answer.any(answers)


def _share(fn: Function, values: Iterable[Value], graph: set[Node]) -> bool:
    assert fn.flow is not None
    return any(not graph.isdisjoint(below(fn.flow.held(v))) for v in values)


def _exclude(a: Event, b: Event) -> bool:
    """Whether two events stand in the two branches of one condition."""
    return any((text, not truth) in b.guards for text, truth in a.guards)


def _visible(obj: Obj | None) -> bool:
    """Whether others can read what is put into an object: an attribute, a global, an argument."""
    return obj is not None and (obj.shared or obj.parameter >= 0 or _visible(obj.parent))


def _goes_on(fn: Function, node: Node, around: list[ast.AST]) -> bool:
    """Whether the node marks a running total that still holds the graphs of earlier iterations."""
    if node.origin is not Origin.PLACE or not isinstance(node.key, tuple) or node.key[2] != "total" or not around:
        return False
    return not fn.restarted(node.name, around[-1])


def _is_data(fn: Function, node: Node, around: list[ast.AST]) -> bool:
    """Whether a parameter is a loader, whose batches hang on no weights, or a plain number."""
    if node.owner is not fn.definition or node.index < 0:
        return False
    name = fn.definition.parameters[node.index]
    default = fn.definition.defaults.get(name)
    if isinstance(default, ast.Constant) and isinstance(default.value, (int, float)):
        return True
    for loop in around:
        if isinstance(loop, ast.For) and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(loop.iter)):
            return is_batch(loop)
    return False


def is_batch(loop: ast.For) -> bool:
    """Whether what a loop runs over is treated as batches are: taken apart, moved to a device, looked up by key."""
    target = loop.target
    if isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "enumerate":
        target = target.elts[-1] if isinstance(target, ast.Tuple) else target
    if isinstance(target, ast.Tuple):
        return True
    name = target.id if isinstance(target, ast.Name) else ""
    for node in ast.walk(loop):
        taken = isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("to", "cuda"))
        if taken and isinstance(node.value, ast.Name) and node.value.id == name:  # type: ignore[attr-defined]
            return True
    return False


def _holds_graph(fn: Function, place: Obj) -> bool:
    """Whether an attribute may hold a graph that a step has made: any but a constructor puts one there."""
    project = fn.project
    if not isinstance(place.owner, Class) or not place.name.startswith("self."):
        return place.kind not in GRAPHLESS
    for cls in (place.owner, *project.names.derived(place.owner)):
        for writer in project.writers(cls, place.name.removeprefix("self.")):
            if writer.name in CONSTRUCTORS:
                continue
            flow = project.flow(writer)
            if flow is None or any(e.target is place and flow.held(e.value) for e in flow.events if e.verb == "set"):
                return True
    return False


# ---------------------------------------------------------------------- modules that remember


def may_remember(fn: Function, module: Value | None) -> bool:
    """Whether a module may keep a graph from one forward to the next."""
    keepers = list(remembering(fn))
    if not keepers:
        return False
    cls = fn.project.class_named(module.type) if module is not None else None
    if cls is None:
        return module is None or not module.type
    text = "".join(m.text for m in cls.methods.values())
    return any(k is cls or k in fn.project.names.mro(cls) or re.search(rf"\b{k.name}\b", text) for k in keepers)


def remembering(fn: Function) -> Iterator[Class]:
    """Module classes in reach of the function's file whose forward leaves something with a graph on the module."""
    for module in _in_reach(fn):
        for cls in fn.project.names.classes(module):
            forward = cls.methods.get("forward")
            if forward is None or not fn.project.is_module(cls):
                continue
            flow = fn.project.flow(forward)
            if flow is None or any(
                e.verb == "set" and e.target is not None and e.target.shared and flow.held(e.value, leaves=False)
                for e in flow.events
            ):
                yield cls


def _in_reach(fn: Function) -> Iterator[Module]:
    home: Module = fn.definition.module
    yield home
    names = fn.project.names
    definitions: tuple[Definition, ...] = (home.top, fn.definition)
    targets = (*home.imports.values(), *(t for d in definitions for t in d.imports.values()))
    seen = {home}
    for target in targets:
        other = names.module(target, home) or names.module(target.rpartition(".")[0], home)
        if other is not None and other not in seen:
            seen.add(other)
            yield other


# ---------------------------------------------------------------------- gradients that are cleared


def clears_gradients(fn: Function, backward: Event, depth: int = 0) -> bool:
    """Whether gradients are cleared as often as this backward fills them, in whatever form, here or by a caller."""
    loop = backward.loops[-1] if backward.loops and fn.within(backward.site, backward.loops[-1]) else fn.node
    text = fn.text if loop is fn.node else fn.source.segment(fn.source.span(loop))
    if _CLEARS.search(text):
        return True
    for call in fn.own("call"):
        if isinstance(call.callee, Definition) and fn.within(call.site, loop) and _CLEARS.search(call.callee.text):
            return True
    if depth > LIMIT:
        return True
    return any(
        clears_gradients(fn.project.function(flow.definition), call, depth + 1)
        for flow, call in fn.project.callers(fn.definition)
        if flow.definition is not fn.definition
    )
