"""Whether a value keeps a graph, whether its graph is ever differentiated, whether weights learn: answers that follow
nodes through calls, callers and places that others read. `Function` asks them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from memlint.extract import Definition
from memlint.facts import UNKNOWN, Answer, Grad, Node, Origin, Value
from memlint.flow import Flow
from memlint.values import GRAPHLESS

if TYPE_CHECKING:
    from memlint.project import Project

LIMIT = 5  # callers of callers that a question follows


def carries(project: Project, flow: Flow, deps: frozenset[Node], depth: int) -> Answer:
    if not deps:
        return Answer.NO
    if any(proof <= deps for proof in flow.proofs):
        return Answer.YES
    return Answer.any(node_carries(project, flow, n, depth) for n in deps)


def node_carries(project: Project, flow: Flow, node: Node, depth: int) -> Answer:
    if node.proved:
        return Answer.YES
    if node.grad is Grad.OFF:
        return Answer.NO
    if node.origin is Origin.WEIGHT:
        return Answer.YES
    if node.origin is Origin.FORWARD:
        answer = trainable(project, flow.definition, node.module or UNKNOWN, 0)
        if answer is not Answer.YES and depth < LIMIT:
            answer = Answer.any((answer, carries(project, flow, node.inputs, depth + 1)))
        if answer is not Answer.YES:
            return answer
        mode = project.entry_grad(flow.definition) if node.grad is Grad.ENTRY else node.grad
        return {Grad.ON: answer, Grad.OFF: Answer.NO}.get(mode, Answer.MAYBE)
    if node.origin is Origin.CALL:
        return Answer.MAYBE
    if node.origin is Origin.PARAMETER:
        return parameter_carries(project, flow, node, depth)
    if node.place is not None and node.place.shared:
        return Answer.MAYBE
    return Answer.NO


def parameter_carries(project: Project, flow: Flow, node: Node, depth: int) -> Answer:
    if node.owner is not flow.definition or depth >= LIMIT:
        return Answer.MAYBE
    definition = flow.definition
    hooks = project.hooks.get(definition)
    if hooks and node.index == len(definition.parameters) - 1:
        return Answer.any(
            Answer.YES
            if any(e.verb == "backward" for e in caller.events)
            and any(e.verb in ("forward", "call") and e.grad is not Grad.OFF for e in caller.events)
            else Answer.MAYBE
            for caller, _, how in hooks
            if "forward" in how
        )
    return Answer.all(
        [
            Answer.NO
            if value.kind in GRAPHLESS or value.leaf
            else carries(project, caller, caller.held(value), depth + 1)
            for caller, value in project.handed_over(definition, definition.parameters[node.index])
        ]
    )


def trainable(project: Project, definition: Definition, module: Value, depth: int) -> Answer:
    if module.kind not in ("module", "engine", "unknown"):
        return Answer.MAYBE
    if project.answer_frozen(module) is Answer.YES:
        return Answer.NO
    obj = module.obj
    cls = project.class_named(module.type)
    if obj is not None and any(
        part.kind == "module" and project.answer_frozen(part) is Answer.YES for part in obj.items.values()
    ):
        return Answer.MAYBE  # built around frozen weights
    if cls is not None:
        learns = project.learns(cls)
        if learns is Answer.NO:
            return Answer.NO
        if learns is Answer.MAYBE and not any(
            trainable(project, definition, part, depth + 1) is Answer.YES
            for part in (obj.items.values() if obj is not None and depth < LIMIT else ())
            if part.kind == "module"
        ):
            return Answer.MAYBE
        init = project.names.method(cls, "__init__")
        flow = project.flow(init) if init is not None else None
        if flow is not None and any(
            e.verb == "freeze" and e.receiver.obj is not None and e.receiver.obj.parameter == 0 for e in flow.events
        ):
            return Answer.NO
    elif module.type:
        row = project.library.lookup(module.type)
        if row is not None and not row.parameters and row.kind == "module" and module.type != "torch.nn.Module":
            inner = obj.items.get("wrapped") if obj is not None else None
            if inner is None:
                return Answer.MAYBE if row.forward == "unknown" else Answer.NO
            return trainable(project, definition, inner, depth)
    if obj is not None and obj.parameter >= 0 and obj.home is definition and depth < LIMIT:
        answers = [
            trainable(project, caller.definition, value, depth + 1)
            for caller, value in project.handed_over(definition, definition.parameters[obj.parameter])
        ]
        if Answer.NO in answers:
            return Answer.NO if all(a is Answer.NO for a in answers) else Answer.MAYBE
    return Answer.YES if module.kind in ("module", "engine") else Answer.MAYBE


def fate(project: Project, definition: Definition, node: Node, seen: set[Node], depth: int) -> Answer:
    if node in seen:
        return Answer.NO
    seen.add(node)
    twins = project.twins(definition, node)
    if any(n.differentiated or n.wanted for n in twins):
        return Answer.YES
    found = Answer.MAYBE if any(n.escapes for n in twins) else Answer.NO
    flow = project.flow(definition)
    if flow is None:
        return Answer.MAYBE
    for event in flow.events:
        answer = Answer.NO
        if event.verb == "return" and event.inner is None and below(node, flow.held(event.value)):
            answer = returned(project, definition, node, seen, depth)
        elif (
            event.verb in ("set", "store")
            and event.target is not None
            and (event.target.shared or event.target.parameter >= 0 or event.target.home is not definition)
            and below(node, flow.held(event.value))
        ):
            target = event.target
            if not target.shared:  # the callers', or a part of something that others fill and read
                handed = target.parameter >= 0 and target.home is definition
                answer = returned(project, definition, node, seen, depth) if handed else Answer.MAYBE
            else:
                project.settle(target)
                place = target.node
                if place is not None and place is not node:
                    answer = fate(project, definition, place, seen, depth)
        if answer is Answer.YES:
            return answer
        found = answer if answer is Answer.MAYBE else found
    return found


def below(node: Node, deps: frozenset[Node]) -> bool:
    """Whether a graph that hangs on ``deps`` reaches down to ``node``."""
    stack, seen = list(deps), set()
    while stack:
        other = stack.pop()
        if other is node:
            return True
        if other not in seen:
            seen.add(other)
            stack.extend(other.inputs)
    return False


def returned(project: Project, definition: Definition, node: Node, seen: set[Node], depth: int) -> Answer:
    """What becomes of a node that a function returns: NO only where all calls are in sight and none differentiates."""
    if depth >= LIMIT:
        return Answer.MAYBE
    cls = definition.cls
    if cls is not None:
        for base in project.names.library_bases(cls):
            if "differentiated" in project.library.hook(base, definition.name):
                return Answer.YES
    if definition.name in ("forward", "__call__"):
        twins = project.twins(definition, node)
        return Answer.YES if any(n.differentiated or n.wanted for n in twins) else Answer.MAYBE
    callers = project.callers(definition)
    twins = project.twins(definition, node)
    if any(n.differentiated or n.wanted for n in twins):  # known only now that the callers are read
        return Answer.YES
    if not callers or definition in project.crowded:
        return Answer.MAYBE
    copies = [c for n in twins for c in n.copies if c.owner is not None]
    owners = {c.owner for c in copies}
    outside = definition in project.addressed
    unseen = any(event.callee is not definition or flow.definition not in owners for flow, event in callers)
    answers = [Answer.MAYBE if outside or unseen else Answer.NO]
    answers += [fate(project, c.owner, c, seen, depth + 1) for c in copies]
    return Answer.any(answers)


def repeats(project: Project, definition: Definition, seen: set[Definition], depth: int) -> bool:
    if definition in seen or depth > LIMIT:
        return False
    seen.add(definition)
    if any(
        isinstance(d, ast.Call) and isinstance(d.func, ast.Attribute) and d.func.attr == "on"
        for d in definition.decorators
    ):
        return True  # a handler of events
    for flow, event in (*project.callers(definition), *project.namesakes(definition)):
        if event.loops or repeats(project, flow.definition, seen, depth + 1):
            return True
    if definition in project.hooks:
        return True
    return definition.cls is not None and project.is_module(definition.cls) and definition.name == "forward"
