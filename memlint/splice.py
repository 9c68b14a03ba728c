"""A callee's reading in its caller's terms."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from memlint.facts import UNKNOWN, Event, Grad, Node, Obj, Origin, Value
from memlint.values import EMPTY, GRAPHLESS, together

if TYPE_CHECKING:
    from memlint.flow import Flow
    from memlint.reading import Reading

EVENTS = 800  # events that a flow takes over from its callees
PLAIN = frozenset({"number", "bool", "string", "ndarray"})
SPLICED = frozenset(
    {
        "forward",
        "backward",
        "store",
        "sum",
        "build",
        "clear",
        "zero_grad",
        "step",
        "eval",
        "train",
        "freeze",
        "grad",
        "hook",
        "load",
        "restore",
        "set",
    }
)


class Splice:
    """A callee's flow in its caller's terms: parameters become arguments, its nodes get a copy for this call."""

    def __init__(self, caller: Reading, flow: Flow, bound: dict[str, Value], site: ast.AST) -> None:
        self.caller, self.flow, self.bound, self.site = caller, flow, bound, site
        self.by_index = {i: bound[n] for i, n in enumerate(flow.definition.parameters) if n in bound}
        self.off = caller.grad is Grad.OFF and flow.entry is Grad.ENTRY
        self.copies: dict[Node, frozenset[Node]] = {}
        self.values: dict[int, Value] = {}
        self.objs: dict[Obj, Obj] = {}

    def result(self) -> Value:
        if self.flow.returns.kind in PLAIN:
            self.reduce_arguments()
        for event in self.flow.events:
            if event.verb in SPLICED and self.matters(event):
                self.repeat(event)
        return self.value(self.flow.returns)

    def reduce_arguments(self) -> None:
        """See that the callee makes something plain of its arguments' graphs, as ``to_numpy(x)`` does."""
        for value in self.flow.arguments.values():
            for node in value.deps:
                if (node.reduced or node.detached) and node.index in self.by_index and node not in self.handed_on:
                    self.caller.reduce(self.caller.held(self.by_index[node.index]), detached=not node.reduced)

    def matters(self, event: Event) -> bool:
        """Whether a caller can be concerned: what a callee does with plain values of its own stays its own affair."""
        if len(self.caller.events) > EVENTS:
            return False
        verb = event.verb
        if verb == "set":
            value = event.value
            return value.kind not in GRAPHLESS and bool(value.deps) and self.hangs(value)
        if verb == "sum":
            return bool(event.value.deps) and event.value.kind not in GRAPHLESS
        if verb == "store":
            if event.target is None or self.seen(event.target):
                return True
            return bool(event.loops) and self.hangs(event.value)
        if verb == "clear":
            return event.target is not None and self.seen(event.target)
        if verb == "build":
            return event.name in ("optimizer", "scheduler", "scaler")
        if verb == "forward":
            return event.grad is not Grad.OFF
        return True

    def seen(self, obj: Obj) -> bool:
        """Whether the caller has the object: not one of the callee alone, nor ``**kwargs`` made for it."""
        if obj.home is not self.flow.definition or obj.parent is not None or obj in self.flow.returns.objs:
            return True
        argument = self.by_index.get(obj.parameter)
        mine = argument.obj if argument is not None else None
        return mine is not None and not (mine.site is obj.site and mine.home is None and mine.owner is None)

    def hangs(self, value: Value) -> bool:
        """Whether a value hangs on anything in the caller: what comes from arguments without a graph has none."""
        for node in self.flow.held(value):
            if node.origin is not Origin.PARAMETER or node.index < 0 or node.owner is not self.flow.definition:
                return True
            argument = self.by_index.get(node.index)
            if argument is not None and self.caller.held(argument):
                return True
        return False

    def deps(self, deps: frozenset[Node]) -> frozenset[Node]:
        return together(map(self.copy, deps)) if deps else deps

    def copy(self, node: Node) -> frozenset[Node]:
        found = self.copies.get(node)
        if found is not None:
            return found
        self.copies[node] = EMPTY  # graphs are finite; a cycle here comes from joining the walks of a loop
        if node.owner is not self.flow.definition:  # captured, or read from a place that others fill
            result = frozenset({node})
        elif node.origin is Origin.PARAMETER and node.index >= 0:
            argument = self.by_index.get(node.index)
            result = self.caller.held(argument) if argument is not None else EMPTY
            if argument is not None and "differentiated" in node.here:
                self.caller.mark(result, retain="freed" not in node.here, wanted="wanted" in node.here)
            if argument is not None and node.escapes:
                self.caller.escape(result)
        elif node.origin is Origin.PLACE and node.place is not None and node.place.shared:
            result = frozenset({node})
        elif self.off and node.grad is Grad.ENTRY:
            result = EMPTY
        else:
            caller = self.caller
            grad = caller.grad if node.grad is Grad.ENTRY else node.grad
            mine = caller.nodes.get(("copy", self.site, node))
            if mine is None:
                mine = Node(node.origin, self.site, node.name, grad, caller.loops, self.module(node), EMPTY, node,
                            path=caller.module.source.path, owner=caller.definition,
                            place=self.obj(node.place) if node.place else None)  # fmt: skip
                mine.key = ("copy", self.site, node)
                caller.nodes[mine.key] = mine
                node.copies += (mine,)
            self.copies[node] = result = frozenset({mine})  # before what lies below: loops make cycles
            mine.inputs = together((mine.inputs, self.deps(node.inputs)))
            for mark in node.here:
                setattr(mine, mark, True)
            mine.here |= node.here
            mine.escapes = mine.escapes or node.escapes
            if node.reduced and node not in self.handed_on:
                mine.reduced = True
        self.copies[node] = result
        return result

    @cached_property
    def handed_on(self) -> frozenset[Node]:
        """The nodes of which the callee hands what hangs on them to code that nobody knows."""
        return together(node.inputs for node in self.flow.nodes.values() if node.origin is Origin.CALL)

    def module(self, node: Node) -> Value | None:
        return self.value(node.module) if node.module is not None else None

    def obj(self, obj: Obj) -> Obj:
        found = self.objs.get(obj)
        if found is None:
            found = self.objs[obj] = self.own(obj)
        return found

    def own(self, obj: Obj) -> Obj:
        """The caller's object for one of the callee's."""
        if obj.parameter >= 0 and obj.home is self.flow.definition:
            argument = self.by_index.get(obj.parameter)
            if argument is not None and argument.obj is not None:
                return argument.obj
        if obj.parent is not None:
            mine = self.obj(obj.parent)
            return obj if mine is obj.parent else self.caller.project.part(mine, obj.name.rpartition(".")[2])
        if obj.shared or obj.site is None or obj.home is not self.flow.definition:
            return obj
        made = self.caller.make(obj.kind, self.site, ("copy", obj))
        if made.name == "":
            made.name, made.type, made.bounded = obj.name, obj.type, obj.bounded
            made.loops = self.caller.loops + obj.loops
            made.frozen, made.evaluates, made.trains = obj.frozen, obj.evaluates, obj.trains
            made.model = obj.model
            if obj.elem is not None and obj.elem is not UNKNOWN:
                made.elem = self.value(obj.elem)
            made.items = {k: self.value(v) for k, v in obj.items.items()}
        return made

    def value(self, value: Value) -> Value:
        if not (value.deps or value.objs or value.items or value.receiver or value.path):
            return value  # the same to everybody
        found = self.values.get(id(value))
        if found is not None:
            return found
        parameters = [n.index for n in value.deps if n.origin is Origin.PARAMETER]
        if len(parameters) == 1 and len(value.deps) == 1 and value.objs and value.objs[0].parameter == parameters[0]:
            argument = self.by_index.get(parameters[0])
            if argument is not None:  # the argument itself comes back
                self.copy(next(iter(value.deps)))
                return argument
        self.values[id(value)] = UNKNOWN
        result = value.but(
            deps=self.deps(value.deps),
            objs=tuple(dict.fromkeys(self.obj(o) for o in value.objs)),
            items=tuple(self.value(i) for i in value.items) if value.items is not None else None,
            receiver=self.value(value.receiver) if value.receiver is not None else None,
            part=value.part or (value.kind == "unknown" and self.of_parts(value.deps)),
            path="",
        )
        self.values[id(value)] = result
        return result

    def of_parts(self, deps: frozenset[Node]) -> bool:
        """Whether all that a value hangs on here is an argument that need not be a tensor."""
        if not all(n.origin is Origin.PARAMETER and n.owner is self.flow.definition for n in deps):
            return False
        arguments = [a for a in (self.by_index.get(n.index) for n in deps) if a is not None and self.caller.held(a)]
        return bool(arguments) and all(a.part for a in arguments)

    def repeat(self, event: Event) -> None:
        """Let the caller do what its callee does, at the call."""
        caller = self.caller
        target = self.obj(event.target) if event.target is not None else None
        if event.verb == "store" and target is not None and not self.flow.held(event.value):
            if not target.shared:  # what has no graph only says what the container holds
                caller.put(target, self.value(event.value))
            return
        value, receiver = self.value(event.value), self.value(event.receiver)
        grad = caller.grad if event.grad is Grad.ENTRY else event.grad
        loops = caller.loops + event.loops
        node = None
        if event.node is not None:
            copied = self.copy(event.node) if event.node.origin is not Origin.PARAMETER else EMPTY
            node = next(iter(copied), None)
        new = caller.event(
            event.verb, self.site, event, value=value, target=target, receiver=receiver, name=event.name, inner=event,
            callee=event.callee, node=node, expr=event.expr, args=tuple(self.value(a) for a in event.args),
            old=self.value(event.old) if event.old is not None else None,
            keywords={k: self.value(v) for k, v in event.keywords.items()},
        )  # fmt: skip
        new.loops, new.grad, new.guards = loops, grad, caller.guards + event.guards
        if event.verb == "store" and target is not None and not target.shared:
            caller.put(target, value.but(deps=value.deps | ({node} if node else EMPTY)))
        elif event.verb == "clear" and target is not None:
            target.clears += ((caller.definition, loops, new.guards, event.name),)
        elif event.verb == "backward":
            caller.prove(self.deps(self.flow.held(event.value)))
        elif event.verb in ("eval", "train", "freeze"):
            for obj in receiver.objs:
                obj.evaluates = obj.evaluates or event.verb == "eval"
                obj.trains = obj.trains or event.verb == "train"
                obj.frozen = obj.frozen or event.verb == "freeze"
