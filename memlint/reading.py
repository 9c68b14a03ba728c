"""One reading of a function: its variables, the events and graph nodes it has met, and what they are marked with."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memlint.extract import Definition
from memlint.facts import NOTHING, UNKNOWN, UNSET, Event, Grad, Node, Obj, Origin, Value
from memlint.values import (
    CONTAINERS,
    EMPTY,
    GRAPHLESS,
    LEAFY,
    LOADED,
    Mode,
    Symbol,
    chain,
    join,
    of_file,
    together,
    written,
)

if TYPE_CHECKING:
    from memlint.project import Project

_CONSTANT_KINDS = {bool: "bool", int: "number", float: "number", complex: "number", str: "string", bytes: "bytes"}
NESTING = 4  # containers in containers that are looked into
EMPTY_MARKS: frozenset[str] = frozenset()
BUDGET = 40_000  # expressions in one walk: beyond it a function is too long to be worth more


class Reading:
    """The state of one reading, and what can be done to it without looking at syntax."""

    def __init__(self, project: Project, definition: Definition, arguments: dict[str, Value], depth: int) -> None:
        self.project = project
        self.names = project.names
        self.library = project.library
        self.definition = definition
        self.module = definition.module
        self.depth = depth
        self.arguments = arguments
        self.env: dict[str, Value] = dict(arguments)
        self.events: list[Event] = []
        self.returned: list[Value] = []
        self.entry = project.decorated_grad(definition)
        self.grad = self.entry
        self.loops: tuple[ast.AST, ...] = ()
        self.guards: tuple[tuple[str, bool], ...] = ()
        self.tests: list[ast.AST] = []
        self.stmt: ast.AST = definition.node
        self.nodes: dict[Any, Node] = {}
        self.objects: dict[Any, Obj] = {}
        self.seen: dict[Any, Event] = {}
        self.dead = False
        self.files = False  # whether anything has been loaded from a file
        self.steps = 0
        self.complete = True
        self.breaks: list[list[dict[str, Value]]] = []
        self.proofs: list[frozenset[Node]] = []
        self.globals: set[str] = set()
        self.locals: set[str] | None = None

    def forget(self) -> None:
        """Drop what only the walk itself needs."""
        self.seen, self.objects, self.tests, self.breaks, self.returned = {}, {}, [], [], []

    def eval(self, node: ast.expr) -> Value:
        """The value of an expression."""
        raise NotImplementedError

    def attribute(self, owner: Value, attr: str, node: ast.expr, name: str = "") -> Value:
        """The value of ``owner.attr``, reached by the dotted ``name``."""
        raise NotImplementedError

    def assign(
        self, target: ast.expr, value: Value, stmt: ast.AST, expr: ast.expr | None = None, quiet: bool = False
    ) -> None:
        """Bind a target of whatever form to a value."""
        raise NotImplementedError

    @staticmethod
    def constant(node: ast.Constant) -> Value:
        """The value of a literal."""
        return (
            NOTHING if node.value is None else Value(_CONSTANT_KINDS.get(type(node.value), "unknown"), const=node.value)
        )

    def event(self, verb: str, site: ast.AST, key: Any = None, **fields: Any) -> Event:
        """Note an event, or meet again the one that this place made in an earlier walk of the loop."""
        key = (verb, site, key)
        self.files = self.files or verb == "load"
        event = self.seen.get(key)
        if event is None:
            event = Event(verb, site, self.stmt, loops=self.loops, guards=self.guards, grad=self.grad,
                          home=self.definition, **fields)  # fmt: skip
            event.order = len(self.events)
            self.seen[key] = event
            self.events.append(event)
        else:
            value = fields.get("value")
            if value is not None:
                event.value = join(event.value, value) if event.value is not UNKNOWN else value
            for name, field in fields.items():
                if name != "value" and (name != "node" or field is not None):
                    setattr(event, name, field)
        return event

    def node(self, origin: Origin, site: ast.AST, name: str, key: Any = None, **fields: Any) -> Node:
        found = self.nodes.get((origin, site, key))
        if found is None:
            found = Node(
                origin, site, name, self.grad, self.loops, path=self.module.source.path, owner=self.definition, **fields
            )
            found.key = (origin, site, key)
            self.nodes[found.key] = found
        elif fields.get("inputs"):
            found.inputs = together((found.inputs, fields["inputs"]))
        return found

    def make(self, kind: str, site: ast.AST, key: Any = None, **fields: Any) -> Obj:
        found = self.objects.get((site, key))
        if found is None:
            found = Obj(kind, site, self.loops, home=self.definition, **fields)
            self.objects[site, key] = found
        return found

    def mark(self, deps: Iterable[Node], retain: bool = False, wanted: bool = False) -> None:
        """A backward (or `torch.autograd.grad`) reaches these nodes and all that they were computed from."""
        marks = {"differentiated": True, "wanted": wanted, "freed": not retain}
        here = frozenset(name for name, told in marks.items() if told)
        stack, seen = [(node, here) for node in deps], set()
        while stack:
            node, own = stack.pop()
            if node in seen and own <= node.here:
                continue
            seen.add(node)
            for name in here:
                setattr(node, name, True)
            node.here |= own
            stack.extend((below, own) for below in node.inputs)
            if node.inner is not None:
                stack.append((node.inner, EMPTY_MARKS))  # to the callee it is this caller's doing, not its own

    @staticmethod
    def may_be_source(node: Node) -> bool:
        """Whether a graph may well begin in a node: not in data, nor in what only marks the uses of a store."""
        if node.origin is Origin.PLACE:
            return node.place is not None and node.place.shared and node.place.kind not in GRAPHLESS
        return node.origin is not Origin.PARAMETER and not node.data

    def prove(self, deps: frozenset[Node]) -> None:
        """A backward on something that hangs on these nodes works, so one of them at least carries a graph."""
        while deps:
            own = frozenset(n for n in deps if self.may_be_source(n)) or deps
            self.proofs.append(own)
            if len(own) != 1:
                return
            (node,) = own
            if node.proved:
                return
            node.proved = True
            deps = node.inputs if node.origin is Origin.CALL else EMPTY
            owner = node.module.receiver if node.module is not None else None
            if owner is not None:
                deps = deps - self.held(owner)  # an object that gives back what it was handed need not be a graph
            if not any(n.origin is not Origin.PLACE and self.may_be_source(n) for n in deps):
                return

    def reduce(self, deps: Iterable[Node], detached: bool = False) -> None:
        """Something that needs no graph is computed from what hangs on these nodes."""
        stack, seen = list(deps), set()
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                node.detached = node.detached or detached
                node.reduced = node.reduced or not detached
                stack.extend(node.inputs)

    def escape(self, deps: Iterable[Node]) -> None:
        stack, seen = list(deps), set()
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                node.escapes = True
                stack.extend(node.inputs)
                if node.inner is not None:
                    stack.append(node.inner)

    def truth(self, test: ast.expr, value: Value) -> bool | None:
        if value.const is not UNSET and not isinstance(value.const, Symbol):
            return bool(value.const)
        return None

    def mode_of(self, value: Value) -> Grad | None:
        """The gradient mode that entering this context manager brings, None for no change."""
        return value.const.mode if isinstance(value.const, Mode) else None

    def total(self, target: ast.expr, old: Value, new: Value, node: ast.stmt, expr: ast.expr) -> None:
        """Note a running total: ``t += x``, ``t = t + x``, ``t.add_(x)``."""
        name = written(target)
        self.event("sum", node, value=new, target=self.place(target), name=name, old=old, expr=expr, receiver=old)

    def with_place(self, value: Value, target: ast.expr, node: ast.stmt) -> Value:
        """Let the running total remember that it is one, so that later uses of it can be found."""
        mark = self.node(Origin.PLACE, node, written(target), key="total")
        return value.but(deps=value.deps | {mark})

    def place(self, target: ast.expr) -> Obj | None:
        """The object that assigning to ``target`` changes: the container of an element, the owner of an attribute."""
        if isinstance(target, ast.Subscript):
            owner = self.eval(target.value)
            return owner.obj
        if isinstance(target, ast.Attribute):
            owner = self.eval(target.value)
            cls = self.project.class_named(owner.type)
            if cls is not None:
                return self.project.attribute_obj(cls, target.attr, owner)
            return owner.obj
        if isinstance(target, ast.Name) and target.id in self.globals:
            return self.project.global_obj(self.module, target.id)
        return None

    def put(self, obj: Obj, value: Value, key: Any = UNSET) -> None:
        """Let an object hold a value, without noting an event."""
        if obj.shared and value.deps:  # other functions read it: to them its graph begins at the place
            value = value.but(deps=frozenset({self.project.place_node(obj)}), path="")
        if key is not UNSET and isinstance(key, (str, int, bool, tuple, float, bytes)):
            old = obj.items.get(key)
            obj.items[key] = value if old is None else join(old, value)
        old = obj.elem
        if old is None:
            obj.elem = value
        elif not (old.kind == value.kind and old.type == value.type and value.deps <= old.deps and not value.objs):
            obj.elem = join(old, value)

    def store(
        self,
        obj: Obj,
        value: Value,
        stmt: ast.AST,
        how: str,
        expr: ast.expr | None = None,
        key: Any = UNSET,
        index: Value = UNKNOWN,
        holder: Value | None = None,
    ) -> None:
        """Put a value into a container: the value then also hangs on the place, so that reads find the store."""
        event = self.event(
            "store", stmt, (id(obj), how, expr and (expr.lineno, expr.col_offset)), value=value, target=obj, name=how,
            expr=expr, args=(index,), receiver=holder or UNKNOWN,
        )  # fmt: skip
        if obj.shared:
            event.node = self.project.place_node(obj)
        elif not event.node:
            event.node = self.node(Origin.PLACE, stmt, obj.name, key=("store", id(obj)), place=obj)
        kept = value if value.kind in GRAPHLESS else value.but(deps=value.deps | {event.node})
        self.put(obj, kept, key)
        if how == "setdefault":
            self.stays(obj, value)

    @staticmethod
    def stays(obj: Obj, value: Value) -> None:
        """A container that is made where a key is missing, and put there: it is as old as what holds it."""
        for inner in value.objs:
            if inner.kind in CONTAINERS and not (obj.shared or inner.shared):
                inner.loops, inner.name = inner.loops[: len(obj.loops)], inner.name or obj.name

    def clear(self, obj: Obj, site: ast.AST, how: str = "clear") -> None:
        self.event("clear", site, id(obj), target=obj, name=how)
        obj.clears += ((self.definition, self.loops, self.guards, how),)

    def freeze(self, owner: Value, site: ast.AST) -> None:
        if owner.type == "named" and self.guards:
            return  # only the parameters of certain names
        model = owner.receiver if owner.kind in LEAFY and owner.receiver is not None else owner
        self.event("freeze", site, value=model, receiver=model)
        for obj in model.objs:
            obj.frozen = True

    def input_gradient(self, owner: Value, target: ast.expr | None, site: ast.AST) -> None:
        """``x.requires_grad_()``: somebody wants the gradient for this value."""
        leaf = self.node(Origin.WEIGHT, site, written(target) if target is not None else "input")
        leaf.wanted, leaf.here = True, leaf.here | {"wanted"}
        name = chain(target) if target is not None else ""
        if name:
            self.env[name] = owner.but(kind="tensor", deps=owner.deps | {leaf}, leaf=True)
        self.event("input_gradient", site, receiver=owner)

    def unknown_objs(self, owner: Value, attr: str, name: str) -> tuple[Obj, ...]:
        """An attribute of something unknown that a parameter leads to is one object each time it is read."""
        if of_file(owner):
            name = name or f"{owner.objs[0].name}.{attr}"
        if owner.obj is None or not name:
            return ()
        parent = owner.obj
        found = self.project.part(parent, attr)
        found.name = name
        return (found,)

    def submodule(self, owner: Value, attr: str, name: str) -> Value:
        parent = owner.obj
        if parent is None:
            return Value("unknown", owner.deps, receiver=owner)
        part = self.project.part(parent, attr)
        part.kind, part.name = "module", name or attr
        part.frozen = part.frozen or parent.frozen
        return Value("unknown", EMPTY, objs=(part,), path=name, receiver=owner)

    def passes_through(self, name: str) -> bool:
        """Whether a call only hands its arguments on, so that the gradient mode does not matter."""
        return name in ("list", "tuple", "dict", "zip", "enumerate", "reversed", "sorted", "iter", "next", "max", "min")

    def held(self, value: Value, leaves: bool = True, depth: int = 0) -> frozenset[Node]:
        """The graph nodes that a value and what it contains hang on; without ``leaves``, those of leaf tensors not."""
        deps = value.deps if value.kind not in GRAPHLESS and (leaves or not value.leaf) else EMPTY
        if depth < NESTING:
            for obj in value.objs:
                if obj.elem is not None and obj.elem is not value:
                    deps = together((deps, self.held(obj.elem, leaves, depth + 1)))
            for item in value.items or ():
                deps = together((deps, self.held(item, leaves, depth + 1)))
        return deps

    def device_of(self, args: list[Value], keywords: dict[str, Value]) -> str:
        """Where ``.to(…)``, ``.cuda(…)`` or a constructor puts its result; "" where the arguments name no device."""
        for value in (*args, *keywords.values()):
            if value.kind in ("dtype", "bool", "none", "library"):
                continue
            if isinstance(value.const, str):
                return "host" if value.const.startswith("cpu") and not isinstance(value.const, Symbol) else "device"
            site = value.site
            if value.kind == "device" and isinstance(site, ast.Call) and site.args:
                named = site.args[0]
                return "host" if isinstance(named, ast.Constant) and str(named.value).startswith("cpu") else "device"
            if value.kind in ("tensor", "device") and value.device:
                return value.device
            return "device"
        return "" if args or keywords else "device"

    def placed(self, values: Iterable[Value]) -> str:
        """Where tensors that are computed with together are: one known place is that of all."""
        places = set()
        for value in values:
            if value.kind in GRAPHLESS - {"indices"}:
                continue
            places.add(value.device)
            if value.items is not None:
                places.add(self.placed(value.items))
            places.update(o.elem.device for o in value.objs if o.elem is not None)
        return next((p for p in ("device", "model", "host") if p in places), "")

    def arithmetic(self, values: Sequence[Value], node: ast.AST) -> Value:
        kinds = {v.kind for v in values}
        if kinds <= {"number", "bool"}:
            return Value("number")
        if "string" in kinds and kinds <= {"string", "number", "unknown", "tuple", "list"}:
            return Value("string")
        if (
            kinds & {"list"}
            and kinds <= {"list", "unknown", "number"}
            and not any(v.kind == "unknown" and not v.objs for v in values)
        ):
            obj = self.make("list", node)
            for value in values:
                if value.kind == "list":
                    self.put(obj, self.element(value, node))
            return Value("list", objs=(obj,), site=node)
        if kinds <= {"ndarray", "number"}:
            return Value("ndarray", device="host")
        deps = together(self.held(v) for v in values)
        if self.grad is Grad.OFF:
            deps = EMPTY
        tensor = "tensor" if kinds & {"tensor", "parameter", "indices"} else "unknown"
        device = self.placed(values)
        scalar = all(v.scalar or v.kind == "number" for v in values)
        part = tensor == "unknown" and all(v.part or not v.deps for v in values) and any(v.part for v in values)
        return Value(tensor, deps, device=device, scalar=scalar, part=part, site=node)

    def item(self, value: Value, index: int, count: int) -> Value:
        """Element ``index`` of a value that is unpacked into ``count`` names."""
        if value.items is not None:
            return value.items[index] if index < len(value.items) else UNKNOWN
        if value.kind == "tensor" and not value.objs:
            return Value("tensor", value.deps, view=True, device=value.device)
        if value.kind == "unknown" and not value.objs:
            called = any(
                n.origin is Origin.CALL or (n.origin is Origin.FORWARD and (n.module is None or not n.module.type))
                for n in value.deps
            )
            return Value("unknown", value.deps, device=value.device, part=called)
        return self.element(value, None)

    def entry_of(self, value: Value, key: Value) -> Value:
        """An entry of what a file holds: the one of a constant key, or any of them."""
        name = f"[{key.const}]" if isinstance(key.const, (str, int)) else "[]"
        objs = tuple(self.project.part(o, name) for o in value.objs if o.whole.type == LOADED)
        return Value("unknown", objs=objs, device=value.device)

    def element(self, value: Value, node: ast.AST | None) -> Value:
        """What iterating a value yields."""
        if value.kind == "parameters":
            leaf = Value("parameter", leaf=True, receiver=value.receiver, type=value.type)
            return Value("tuple", items=(Value("string"), leaf)) if value.type == "named" else leaf
        if value.items is not None:
            if not value.items:
                return UNKNOWN
            result = value.items[0]
            for other in value.items[1:]:
                result = join(result, other)
            return result
        found = None
        for obj in value.objs:
            if obj.elem is not None:
                found = obj.elem if found is None else join(found, obj.elem)
        if found is not None:
            if value.device and not found.device and found.kind in ("tensor", "indices", "unknown"):
                return found.but(device=value.device)
            return found
        if of_file(value):
            return self.entry_of(value, UNKNOWN)
        if value.kind in ("tensor", "indices"):
            return Value(value.kind, value.deps, view=True, device=value.device)
        if value.kind in ("number", "range", "shape"):
            return Value("number")
        if value.kind in ("loader", "dataset"):
            return Value("unknown", device="host", type="batch")
        return Value("unknown", value.deps, device=value.device, part=value.part) if value.deps else UNKNOWN
