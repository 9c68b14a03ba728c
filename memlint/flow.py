"""One function, read abstractly: which value each expression has, on which graph it hangs, and what happens to it.

A `Flow` is made by walking a function's statements in order, twice through every loop so that what one iteration
leaves behind is seen by the next. Branches are joined; a branch whose condition is known is taken alone. Calls of the
project's own functions are replaced by what they do (`Flow.splice`), so that one walk sees across functions and files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memlint.extract import Class, Definition, Module
from memlint.facts import NOTHING, UNKNOWN, UNSET, Event, Grad, Node, Obj, Origin, Summary, Value
from memlint.library import Row

if TYPE_CHECKING:
    from memlint.project import Project

EMPTY: frozenset[Node] = frozenset()
CONTAINERS = frozenset({"list", "dict", "set", "deque", "queue", "defaultdict", "counter"})
GRAPHLESS = frozenset(
    {"number", "string", "bytes", "none", "bool", "ndarray", "indices", "device", "dtype", "shape", "function", "class",
     "optimizer", "scheduler", "scaler", "loader", "dataset", "sampler", "generator", "path", "file", "figure", "context"}
)  # fmt: skip
HANDLERS = frozenset({"scaler", "accelerator", "fabric", "engine", "trainer"})
LEAFY = frozenset({"parameters", "parameter"})
DIFFERENTIATES = re.compile(
    r"backward|optim|train|step|grad|fit|update|attack|penalty|saliency|attribut|scaler|closure|learn", re.I
)
EVENTS = 2_000  # events that a flow takes over from its callees
BUDGET = 40_000  # expressions in one walk: beyond it a function is too long to be worth more


def join(a: Value, b: Value) -> Value:
    """What is known of a value that is one of two."""
    if a is b:
        return a
    if a.kind == "none" and a.const is None and b.kind != "none":
        a, b = b, a
    if b.kind == "none" and b.const is None and a.kind != "none":
        return a if a.const is UNSET else a.but(const=UNSET)
    number_start = {a.kind, b.kind} == {"number", "tensor"}
    kind = a.kind if a.kind == b.kind else "tensor" if number_start else _nearer(a, b)
    items = None
    if a.items is not None and b.items is not None and len(a.items) == len(b.items):
        items = tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True))
    return Value(
        kind,
        a.deps | b.deps,
        a.type if a.type == b.type else "",
        a.objs if a.objs == b.objs else tuple(dict.fromkeys(a.objs + b.objs)),
        items,
        a.const if a.const is b.const or (a.const == b.const and type(a.const) is type(b.const)) else UNSET,
        a.leaf and b.leaf,
        a.device if a.device == b.device else "",
        a.view and b.view,
        a.scalar and b.scalar,
        a.target if a.target is b.target else None,
        a.receiver if a.target is b.target else None,
        a.path if a.path == b.path else "",
        a.site if a.site is b.site else None,
    )


def _nearer(a: Value, b: Value) -> str:
    return "unknown"


def chain(node: ast.AST) -> str:
    """``self.model.head`` as text, or "" where the expression is more than names and dots."""
    parts = []
    while type(node) is ast.Attribute:
        parts.append(node.attr)
        node = node.value
    if type(node) is ast.Name:
        parts.append(node.id)
        return ".".join(reversed(parts))
    return ""


class Exit(Exception):
    """The budget of one walk is spent."""


class Flow:
    """One reading of ``definition`` with what is known of its arguments.

    ``events`` is what it does, in order; ``returns`` what it returns; ``arguments`` its parameters' values;
    ``entry`` the gradient mode that its own decorators and framework give it, ``Grad.ENTRY`` where callers decide.
    """

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
        self.steps = 0
        self.complete = True
        self.breaks: list[list[dict[str, Value]]] = []
        self.proofs: list[frozenset[Node]] = []
        self.globals: set[str] = set()
        self.locals: set[str] | None = None
        try:
            self.block(definition.body)
        except (Exit, RecursionError):
            self.complete = False
        self.returns = self._returns()

    def _returns(self) -> Value:
        if self.definition.generator or not self.returned:
            return NOTHING if not self.definition.generator else UNKNOWN
        value = self.returned[0]
        for other in self.returned[1:]:
            value = join(value, other)
        return value

    # ------------------------------------------------------------------ events, nodes, objects

    def event(self, verb: str, site: ast.AST, key: Any = None, **fields: Any) -> Event:
        """Note an event, or meet again the one that this place made in an earlier walk of the loop."""
        key = (verb, site, key)
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
            self.nodes[origin, site, key] = found
        elif fields.get("inputs"):
            found.inputs |= fields["inputs"]
        return found

    def make(self, kind: str, site: ast.AST, key: Any = None, **fields: Any) -> Obj:
        found = self.objects.get((site, key))
        if found is None:
            found = Obj(kind, site, self.loops, home=self.definition, **fields)
            self.objects[site, key] = found
        return found

    def mark(self, deps: Iterable[Node], retain: bool = False, wanted: bool = False) -> None:
        """A backward (or `torch.autograd.grad`) reaches these nodes and all that they were computed from."""
        stack, seen = list(deps), set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            node.differentiated = True
            node.wanted = node.wanted or wanted
            node.freed = node.freed or not retain
            stack.extend(node.inputs)
            if node.inner is not None:
                stack.append(node.inner)

    def prove(self, deps: frozenset[Node]) -> None:
        """A backward on something that hangs on these nodes works, so one of them at least carries a graph."""
        while deps:
            own = frozenset(n for n in deps if n.origin not in (Origin.PARAMETER, Origin.PLACE)) or deps
            self.proofs.append(own)
            if len(own) != 1:
                return
            (node,) = own
            if node.proved:
                return
            node.proved = True
            deps = node.inputs if node.origin is Origin.CALL else EMPTY
            if all(n.origin in (Origin.PARAMETER, Origin.PLACE) for n in deps):
                return

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

    # ------------------------------------------------------------------ statements

    def block(self, body: Sequence[ast.stmt]) -> None:
        for stmt in body:
            if self.dead:
                return
            self.stmt = stmt
            handler = STATEMENTS.get(type(stmt))
            if handler is not None:
                handler(self, stmt)

    def branch(self, body: Sequence[ast.stmt], env: dict[str, Value]) -> dict[str, Value] | None:
        """Run a block on its own copy of the variables; None where it does not fall through."""
        self.env, self.dead = dict(env), False
        self.block(body)
        result = None if self.dead else self.env
        self.dead = False
        return result

    def merge(self, envs: Sequence[dict[str, Value] | None]) -> None:
        alive = [e for e in envs if e is not None]
        if not alive:
            self.dead = True
            return
        self.env = alive[0]
        for other in alive[1:]:
            merged = {}
            for name, value in self.env.items():
                mine = other.get(name)
                if mine is None:
                    if "." not in name:
                        merged[name] = value
                    continue
                merged[name] = value if mine is value else join(value, mine)
            for name, value in other.items():
                if name not in self.env and "." not in name:
                    merged[name] = value
            self.env = merged

    def do_if(self, node: ast.If) -> None:
        value = self.eval(node.test)
        truth = self.truth(node.test, value)
        if truth is True:
            self.block(node.body)
            return
        if truth is False:
            self.block(node.orelse)
            return
        text = ast.unparse(node.test) if type(node.test) is not ast.Name else node.test.id
        outer, guards, grad = self.env, self.guards, self.grad
        self.guards = (*guards, (text, True))
        env = dict(outer)
        self.narrow(node.test, True, env)
        first = self.branch(node.body, env)
        first_grad, self.grad = self.grad, grad
        self.guards = (*guards, (text, False))
        env = dict(outer)
        self.narrow(node.test, False, env)
        second = self.branch(node.orelse, env)
        self.guards = guards
        if first is None:
            first_grad = self.grad
        if second is not None and first_grad is not self.grad:
            self.grad = Grad.UNKNOWN
        elif second is None:
            self.grad = first_grad
        self.merge((first, second))

    def narrow(self, test: ast.expr, truth: bool, env: dict[str, Value]) -> None:
        """Use what a condition says of a name: ``isinstance(x, Tensor)``, ``x is None``, ``if flag``."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.narrow(test.operand, not truth, env)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
            name = chain(test.left)
            if name and test.comparators[0].value is None and name in env:
                if isinstance(test.ops[0], ast.Is) is truth and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
                    env[name] = NOTHING
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and truth:
            for part in test.values:
                self.narrow(part, True, env)
        elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
            if len(test.args) == 2:
                name = chain(test.args[0])
                known = env.get(name)
                kind = self.instance_kind(test.args[1])
                if known is None or not kind:
                    return
                if truth and known.kind == "unknown":
                    env[name] = known.but(kind=kind)
                elif not truth and kind == "tensor":
                    env[name] = known.but(kind="unknown", deps=EMPTY)

    def instance_kind(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            kinds = {self.instance_kind(e) for e in node.elts}
            return kinds.pop() if len(kinds) == 1 else ""
        meaning = self.meaning(node)
        if isinstance(meaning, str):
            if meaning in ("int", "float", "bool"):
                return "number"
            if meaning in ("list", "dict", "tuple", "set"):
                return meaning
            row = self.library.lookup(meaning)
            return row.kind if row is not None else ""
        if isinstance(node, ast.Name):
            return {"int": "number", "float": "number", "list": "list", "dict": "dict", "tuple": "tuple",
                    "str": "string"}.get(node.id, "")  # fmt: skip
        return ""

    def truth(self, test: ast.expr, value: Value) -> bool | None:
        if value.const is not UNSET and not isinstance(value.const, Symbol):
            return bool(value.const)
        return None

    def do_for(self, node: ast.For | ast.AsyncFor) -> None:
        iterable = self.eval(node.iter)
        self.loop(node, lambda: self.assign(node.target, self.element(iterable, node.iter), node))

    def do_while(self, node: ast.While) -> None:
        self.loop(node, lambda: self.eval(node.test))

    def loop(self, node: Any, head: Callable[[], Any]) -> None:
        before, loops, grad = self.env, self.loops, self.grad
        self.loops = (*loops, node)
        always = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        env: dict[str, Value] | None = before
        self.breaks.append([])
        for _ in range(2 if len(loops) < 3 else 1):
            self.env = dict(env or before)
            self.stmt = node
            head()
            self.block(node.body)
            left = None if self.dead else self.env
            self.dead = False
            self.merge([before if not always else None, left, *self.breaks[-1]])
            if self.dead:
                self.dead = False
                self.env = before
            env = self.env
        self.breaks.pop()
        self.loops, self.grad = loops, grad if self.grad is not grad else self.grad
        self.env = env or before
        if node.orelse:
            self.block(node.orelse)

    def do_try(self, node: ast.Try) -> None:
        before = dict(self.env)
        body = self.branch(node.body, self.env)
        middle = dict(body) if body is not None else dict(self.env)
        ends: list[dict[str, Value] | None] = []
        if body is not None and node.orelse:
            body = self.branch(node.orelse, body)
        ends.append(body)
        for handler in node.handlers:
            self.env = before
            self.merge((before, middle))
            if handler.name:
                self.env = {**self.env, handler.name: UNKNOWN}
            ends.append(self.branch(handler.body, self.env))
        self.merge(ends)
        if node.finalbody:
            dead, self.dead = self.dead, False
            if dead:
                self.env = middle
            self.block(node.finalbody)
            self.dead = dead or self.dead

    def do_with(self, node: ast.With | ast.AsyncWith) -> None:
        grad = self.grad
        for item in node.items:
            value = self.eval(item.context_expr)
            mode = self.mode_of(value)
            if mode is not None:
                self.grad = mode
            if item.optional_vars is not None:
                entered = value if value.kind not in ("context", "unknown") or value.objs else UNKNOWN
                self.assign(item.optional_vars, entered, node)
        stack = any("ExitStack" in ast.unparse(i.context_expr) for i in node.items) if len(node.items) else False
        self.block(node.body)
        if stack or any(self.mode_is_scoped(i.context_expr) for i in node.items):
            self.grad = grad

    def mode_is_scoped(self, _node: ast.expr) -> bool:
        return True

    def mode_of(self, value: Value) -> Grad | None:
        """The gradient mode that entering this context manager brings, None for no change."""
        return value.const.mode if isinstance(value.const, Mode) else None

    def do_return(self, node: ast.Return) -> None:
        value = self.eval(node.value) if node.value is not None else NOTHING
        self.event("return", node, value=value, expr=node.value)
        self.returned.append(value)
        self.dead = True

    def do_expr(self, node: ast.Expr) -> None:
        self.eval(node.value)

    def do_assign(self, node: ast.Assign) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value, node, node.value)

    def do_ann_assign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value), node, node.value)

    def do_aug_assign(self, node: ast.AugAssign) -> None:
        old = self.eval(node.target)
        new = self.eval(node.value)
        if isinstance(node.op, ast.Add) and old.kind in CONTAINERS and old.objs:
            for obj in old.objs:
                self.store(obj, self.element(new, node.value), node, "extend", expr=node.value, holder=old.receiver)
            return
        value = self.arithmetic((old, new), node)
        self.total(node.target, old, new, node, node.value)
        value = self.with_place(value, node.target, node)
        self.assign(node.target, value, node, node.value, quiet=True)

    def total(self, target: ast.expr, old: Value, new: Value, node: ast.stmt, expr: ast.expr) -> None:
        """Note a running total: ``t += x``, ``t = t + x``, ``t.add_(x)``."""
        name = ast.unparse(target)
        self.event("sum", node, value=new, target=self.place(target), name=name, old=old, expr=expr, receiver=old)

    def with_place(self, value: Value, target: ast.expr, node: ast.stmt) -> Value:
        """Let the running total remember that it is one, so that later uses of it can be found."""
        mark = self.node(Origin.PLACE, node, ast.unparse(target), key="total")
        return value.but(deps=value.deps | {mark})

    def do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                owner = self.eval(target.value)
                for obj in owner.objs:
                    self.clear(obj, node)
            else:
                name = chain(target)
                self.env.pop(name, None)
                if "." in name:
                    place = self.place(target)
                    if place is not None:
                        self.clear(place, node)

    def do_raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.eval(node.exc)
        self.dead = True

    def do_break(self, node: ast.Break | ast.Continue) -> None:
        if self.breaks:
            self.breaks[-1].append(self.env)
        self.dead = True

    def do_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        found = self.definition.functions.get(node.name) if self.definition.node is not self.module.source.tree else None
        if found is None and self.definition is self.module.top:
            found = self.module.functions.get(node.name)
        value = Value("function", target=found) if found is not None else UNKNOWN
        for decorator in node.decorator_list:
            self.eval(decorator)
        if found is not None and self.definition is not self.module.top:
            self.env[node.name] = value
            self.project.closures.setdefault(found, self.env)

    def do_class(self, node: ast.ClassDef) -> None:
        return None

    def do_assert(self, node: ast.Assert) -> None:
        self.eval(node.test)

    def do_global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.globals.update(node.names)

    def do_match(self, node: ast.Match) -> None:
        self.eval(node.subject)
        before = self.env
        ends: list[dict[str, Value] | None] = [before]
        for case in node.cases:
            ends.append(self.branch(case.body, before))
        self.merge(ends)

    # ------------------------------------------------------------------ places

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

    def assign(
        self, target: ast.expr, value: Value, stmt: ast.AST, expr: ast.expr | None = None, quiet: bool = False
    ) -> None:
        kind = type(target)
        if kind is ast.Name:
            name = target.id  # type: ignore[attr-defined]
            if not quiet and isinstance(stmt, ast.Assign) and expr is not None:
                self.note_total(name, target, value, stmt, expr)
            old = self.env.get(name)
            if name in self.globals or self.definition is self.module.top:
                obj = self.project.global_obj(self.module, name)
                if name in self.globals:
                    self.event("set", stmt, name, value=value, target=obj, name=name, expr=expr)
            self.rebind(name)
            if self.definition is self.module.top and value.kind in CONTAINERS and value.obj is not None:
                value = self.project.global_value(self.module, name, value)
            for obj in value.objs:
                obj.name = obj.name or name
            self.env[name] = value if value.path or not value.objs else value.but(path=name)
            if old is not None and self.loops:
                self.event("rebind", stmt, name, value=value, name=name, old=old, expr=expr)
        elif kind is ast.Tuple or kind is ast.List:
            elements = target.elts  # type: ignore[attr-defined]
            for i, element in enumerate(elements):
                if isinstance(element, ast.Starred):
                    self.assign(element.value, Value("list", value.deps), stmt)
                    continue
                part = expr.elts[i] if isinstance(expr, (ast.Tuple, ast.List)) and len(expr.elts) == len(elements) else expr
                self.assign(element, self.item(value, i, len(elements)), stmt, part)
        elif kind is ast.Attribute:
            self.assign_attribute(target, value, stmt, expr, quiet)  # type: ignore[arg-type]
        elif kind is ast.Subscript:
            self.assign_item(target, value, stmt, expr, quiet)  # type: ignore[arg-type]
        elif kind is ast.Starred:
            self.assign(target.value, value, stmt, expr)  # type: ignore[attr-defined]

    def note_total(self, name: str, target: ast.expr, value: Value, stmt: ast.Assign, expr: ast.expr) -> None:
        """See ``t = t + x`` (and ``t = a * t + b * x``, ``t = t + x if … else x``) as a running total."""
        added = self.added_to(name, expr)
        if added is not None and name in self.env:
            self.total(target, self.env[name], self.eval(added), stmt, added)
            mark = self.node(Origin.PLACE, stmt, name, key="total")
            value.deps = value.deps | {mark} if value.kind not in GRAPHLESS else value.deps

    def added_to(self, name: str, expr: ast.expr) -> ast.expr | None:
        if isinstance(expr, ast.IfExp):
            return self.added_to(name, expr.body) or self.added_to(name, expr.orelse)
        if not isinstance(expr, ast.BinOp) or not isinstance(expr.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            return None
        if isinstance(expr.op, (ast.Add, ast.Sub)):
            if self.reads(name, expr.left):
                return expr.right
            if isinstance(expr.op, ast.Add) and self.reads(name, expr.right):
                return expr.left
        if isinstance(expr.op, (ast.Mult, ast.Div)):
            return self.added_to(name, expr.left) or (
                self.added_to(name, expr.right) if isinstance(expr.op, ast.Mult) else None
            )
        return None

    def reads(self, name: str, expr: ast.expr) -> bool:
        """Whether ``expr`` is ``name``, or ``name`` scaled."""
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, (ast.Mult, ast.Div, ast.Add, ast.Sub)):
            return self.reads(name, expr.left) or self.reads(name, expr.right)
        return ast.unparse(expr) == name if isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)) else False

    def rebind(self, name: str) -> None:
        prefix = name + "."
        stale = [k for k in self.env if k.startswith(prefix)]
        for k in stale:
            del self.env[k]

    def assign_attribute(
        self, target: ast.Attribute, value: Value, stmt: ast.AST, expr: ast.expr | None, quiet: bool
    ) -> None:
        owner = self.eval(target.value)
        attr = target.attr
        name = chain(target)
        if attr == "requires_grad" and owner.kind in ("parameter", "tensor", "unknown"):
            if value.const is False:
                self.freeze(owner, stmt)
            elif value.const is True and owner.kind != "parameter":
                self.input_gradient(owner, target.value, stmt)
            return
        if attr == "grad" and value.kind == "none":
            self.event("clear_grad", stmt, value=value, receiver=owner, name="none")
            return
        if not quiet and isinstance(stmt, ast.Assign) and expr is not None and name:
            added = self.added_to(name, expr)
            if added is not None:
                self.total(target, self.eval(target), self.eval(added), stmt, added)
                value = self.with_place(value, target, stmt)
        cls = self.project.class_named(owner.type)
        obj = None
        if cls is not None:
            setter = self.project.setter(cls, attr)
            if setter is not None:
                self.call_definition(setter, [owner, value], {}, stmt, receiver=owner)
                return
            obj = self.project.attribute_obj(cls, attr, owner)
            if value.kind in CONTAINERS or value.kind == "none":
                self.clear(obj, stmt, "rebuild")
            self.event("set", stmt, name, value=value, target=obj, receiver=owner, name=name or attr, expr=expr)
        elif owner.obj is not None and owner.kind in ("unknown", "instance", "module", "context"):
            self.event("set", stmt, name, value=value, target=owner.obj, receiver=owner, name=name or attr, expr=expr)
        if name:
            self.rebind(name)
            if obj is not None and value.kind in CONTAINERS:
                value = value.but(objs=(obj,), path=name)
            elif obj is not None and not value.objs:
                value = value.but(path=name)
            self.env[name] = value

    def assign_item(
        self, target: ast.Subscript, value: Value, stmt: ast.AST, expr: ast.expr | None, quiet: bool
    ) -> None:
        owner = self.eval(target.value)
        key = self.eval(target.slice)
        name = ast.unparse(target)
        if not quiet and isinstance(stmt, ast.Assign) and expr is not None:
            added = self.added_to(name, expr)
            if added is not None:
                self.total(target, self.eval(target), self.eval(added), stmt, added)
                value = self.with_place(value, target, stmt)
                quiet = True
        cls = self.project.class_named(owner.type)
        if cls is not None:
            method = self.names.method(cls, "__setitem__")
            if method is not None:
                self.call_definition(method, [owner, key, value], {}, stmt, receiver=owner)
                return
        if owner.kind in ("tensor", "ndarray", "indices", "parameter"):
            self.event("write", stmt, value=value, receiver=owner, name=name, expr=expr)
            if owner.kind == "tensor" and value.deps and chain(target.value):
                self.env[chain(target.value)] = owner.but(deps=owner.deps | value.deps)
            return
        for obj in owner.objs:
            constant = key.const if key.const is not UNSET and not isinstance(key.const, (Symbol, Mode)) else UNSET
            if quiet:
                self.put(obj, value, constant)
            else:
                self.store(obj, value, stmt, "item", expr=expr, key=constant, index=key, holder=owner.receiver)

    def put(self, obj: Obj, value: Value, key: Any = UNSET) -> None:
        """Let an object hold a value, without noting an event."""
        if obj.shared and value.deps:  # other functions read it: to them its graph begins at the place
            value = value.but(deps=frozenset({self.project.place_node(obj)}), path="")
        if key is not UNSET and isinstance(key, (str, int, bool, tuple, float, bytes)):
            old = obj.items.get(key)
            obj.items[key] = value if old is None else join(old, value)
        obj.elem = value if obj.elem is None else join(obj.elem, value)

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

    def clear(self, obj: Obj, site: ast.AST, how: str = "clear") -> None:
        self.event("clear", site, id(obj), target=obj, name=how)
        obj.clears.append((self.definition, self.loops, self.guards, how))

    def freeze(self, owner: Value, site: ast.AST) -> None:
        model = owner.receiver if owner.kind in LEAFY and owner.receiver is not None else owner
        self.event("freeze", site, value=model, receiver=model)
        for obj in model.objs:
            obj.frozen = True

    def input_gradient(self, owner: Value, target: ast.expr | None, site: ast.AST) -> None:
        """``x.requires_grad_()``: somebody wants the gradient for this value."""
        leaf = self.node(Origin.WEIGHT, site, ast.unparse(target) if target is not None else "input")
        leaf.wanted = True
        name = chain(target) if target is not None else ""
        if name:
            self.env[name] = owner.but(kind="tensor", deps=owner.deps | {leaf}, leaf=True)
        self.event("input_gradient", site, receiver=owner)

    # ------------------------------------------------------------------ expressions

    def eval(self, node: ast.expr) -> Value:
        self.steps += 1
        if self.steps > BUDGET:
            raise Exit
        handler = EXPRESSIONS.get(type(node))
        return handler(self, node) if handler is not None else UNKNOWN

    def meaning(self, node: ast.expr) -> object | None:
        """What a name or dotted name means beyond the function's own variables."""
        if type(node) is ast.Name:
            if node.id in self.env:
                return None
            return self.names.local(node.id, self.definition) or (node.id if node.id in BUILTINS else None)
        if type(node) is ast.Attribute:
            return self.names.attribute(self.meaning(node.value), node.attr)
        return None

    def do_name(self, node: ast.Name) -> Value:
        value = self.env.get(node.id)
        if value is not None:
            return value
        return self.named(node.id)

    def named(self, name: str) -> Value:
        closure = self.project.captured(self.definition, name)
        if closure is not None:
            return closure
        meaning = self.names.local(name, self.definition)
        if meaning is None:
            return Value("function", type=name) if name in BUILTINS else UNKNOWN
        return self.of_meaning(meaning, name)

    def of_meaning(self, meaning: object, name: str) -> Value:
        if isinstance(meaning, Definition):
            return Value("function", target=meaning)
        if isinstance(meaning, Class):
            return Value("class", type=meaning.full_name, target=meaning)
        if isinstance(meaning, str):
            return self.of_library(meaning)
        if isinstance(meaning, ast.expr):
            return self.project.global_read(self.names, self.module, self.definition, name, meaning)
        if isinstance(meaning, Module):
            return Value("namespace", target=meaning)
        return UNKNOWN

    def of_library(self, name: str) -> Value:
        row = self.library.lookup(name)
        if row is not None and row.attribute:
            return self.from_row(row, UNKNOWN, [], {}, None)
        if row is not None and row.kind:
            return Value("class", type=self.library.canonical(name))
        return Value("function" if row is not None else "library", type=self.library.canonical(name))

    def do_attribute(self, node: ast.Attribute) -> Value:
        name = chain(node)
        if name:
            value = self.env.get(name)
            if value is not None:
                return value
            if name.split(".", 1)[0] not in self.env:
                meaning = self.meaning(node)
                if meaning is not None:
                    return self.of_meaning(meaning, node.attr)
        return self.attribute(self.eval(node.value), node.attr, node, name)

    def attribute(self, owner: Value, attr: str, node: ast.expr, name: str = "") -> Value:
        if owner.kind == "namespace" and isinstance(owner.target, Module):
            meaning = self.names.member(owner.target, attr)
            return self.of_meaning(meaning, attr) if meaning is not None else UNKNOWN
        if owner.kind in ("library", "function", "class") and owner.type and not isinstance(owner.target, Class):
            return self.of_library(f"{owner.type}.{attr}")
        cls = owner.target if owner.kind == "class" and isinstance(owner.target, Class) else None
        cls = cls or self.project.class_named(owner.type)
        if cls is not None:
            method = self.names.method(cls, attr)
            if method is not None:
                if self.project.is_property(method):
                    return self.call_definition(method, [owner], {}, node, receiver=owner)
                receiver = None if owner.kind == "class" and not self.project.is_classmethod(method) else owner
                return Value("function", target=method, receiver=receiver)
            if owner.kind == "class":
                return Value("constant", const=Symbol(f"{cls.full_name}.{attr}"))
            if attr not in MODULE_ATTRIBUTES or not self.project.is_module(cls):
                found = self.project.attribute(cls, attr, owner, name)
                if found is not None:
                    return found
        if attr == "grad" and owner.kind in ("parameter", "tensor", "unknown", "parameters"):
            self.event("read_grad", node, receiver=owner)
            return Value("gradient", receiver=owner, path=name)
        kind = owner.kind if owner.kind != "library_instance" else ""
        row = (self.library.member(owner.type, attr) if owner.type and owner.kind != "class" else None) or (
            self.library.method(kind, attr)
        )
        if row is not None and row.attribute:
            return self.from_row(row, owner, [], {}, node)
        if kind == "module" and row is None:  # a part of a model of which nothing is known
            return self.submodule(owner, attr, name)
        if kind == "unknown" and attr in TENSOR_FACTS:
            duck = self.library.method("tensor", attr)
            if duck is not None:
                return self.from_row(duck, owner, [], {}, node)
        return Value("method" if row is not None else "unknown", owner.deps if kind == "unknown" else EMPTY,
                     type=attr if row is not None else "", receiver=owner, path=name, target=row,
                     objs=self.unknown_objs(owner, attr, name))  # fmt: skip

    def unknown_objs(self, owner: Value, attr: str, name: str) -> tuple[Obj, ...]:
        """An attribute of something unknown that a parameter leads to is one object each time it is read."""
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

    def do_constant(self, node: ast.Constant) -> Value:
        value = node.value
        if value is None:
            return NOTHING
        kind = _CONSTANT_KINDS.get(type(value), "unknown")
        return Value(kind, const=value)

    def do_call(self, node: ast.Call) -> Value:
        callee = self.eval(node.func)
        args: list[Value] = []
        starred = False
        for arg in node.args:
            if type(arg) is ast.Starred:
                starred = True
                args.append(self.eval(arg.value).but(const=UNSET))
            else:
                args.append(self.eval(arg))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            keywords[keyword.arg or "**"] = value
        if starred:
            keywords.setdefault("*", UNKNOWN)
        result = self.call(callee, args, keywords, node)
        self.event("call", node, value=result, receiver=callee, args=tuple(args), keywords=keywords,
                   callee=callee.target, name=callee.type)  # fmt: skip
        return result

    def call(self, callee: Value, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        target = callee.target
        if isinstance(target, Definition):
            full = [callee.receiver, *args] if target.bound and callee.receiver is not None else args
            return self.call_definition(target, full, keywords, node, receiver=callee.receiver)
        if isinstance(target, Class):
            return self.construct(target, args, keywords, node)
        if isinstance(target, Partial):
            return self.call(target.callee, [*target.args, *args], {**target.keywords, **keywords}, node)
        if callee.kind == "unknown" and isinstance(node.func, ast.Attribute) and node.func.attr == "enter_context":
            return self.duck(UNKNOWN, "enter_context", args, keywords, node)
        if callee.kind == "method" and isinstance(target, Row):
            return self.from_row(target, callee.receiver or UNKNOWN, args, keywords, node, callee.type)
        if callee.kind in ("function", "class", "library") and callee.type:
            row = self.library.lookup(callee.type)
            if row is not None:
                return self.call_library(callee.type, row, args, keywords, node)
            if callee.kind == "library":
                return self.unknown_call(callee, args, keywords, node, callee.type)
        if callee.kind in ("module", "engine") or (callee.kind == "instance" and callee.type):
            return self.call_instance(callee, args, keywords, node)
        if callee.kind == "unknown" and isinstance(node.func, ast.Attribute) and callee.receiver is not None:
            return self.duck(callee.receiver, node.func.attr, args, keywords, node)
        return self.unknown_call(callee, args, keywords, node, ast.unparse(node.func) if node is not None else "")

    # -- calls of the project

    def call_definition(
        self, target: Definition, args: Sequence[Value | None], keywords: dict[str, Value], site: ast.AST,
        receiver: Value | None = None,
    ) -> Value:  # fmt: skip
        given = [a if a is not None else UNKNOWN for a in args]
        bound = self.project.bind(target, given, keywords, self)
        flow = self.project.summary(target, bound, self.depth + 1)
        if flow is None:
            deps = frozenset().union(*(a.deps for a in given), *(k.deps for k in keywords.values())) if given else EMPTY
            node = self.node(Origin.CALL, site, target.name, inputs=deps)
            return Value("unknown", frozenset({node}))
        return self.splice(flow, bound, site, receiver)

    def splice(self, flow: Flow, bound: dict[str, Value], site: ast.AST, receiver: Value | None) -> Value:
        """Replace a call by what the callee does, in the caller's own terms."""
        return Splice(self, flow, bound, site).result()

    def construct(self, cls: Class, args: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        kind = self.project.class_kind(cls)
        obj = self.make(kind, node, type=cls.full_name, name=cls.name)
        value = Value(kind, type=cls.full_name, objs=(obj,), site=node)
        init = self.names.method(cls, "__init__")
        if init is not None:
            self.call_definition(init, [value, *args], keywords, node, receiver=value)
        obj.items.update({i: a for i, a in enumerate(args)})
        obj.items.update(keywords)
        self.event("build", node, value=value, receiver=Value("class", type=cls.full_name, target=cls),
                   args=tuple(args), keywords=keywords, name=kind, callee=cls)  # fmt: skip
        return value

    def call_instance(self, callee: Value, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        cls = self.project.class_named(callee.type)
        if callee.kind in ("module", "engine"):
            return self.forward(callee, args, keywords, node, cls)
        if cls is not None:
            method = self.names.method(cls, "__call__") or self.names.method(cls, "forward")
            if method is not None:
                return self.call_definition(method, [callee, *args], keywords, node, receiver=callee)
        return self.unknown_call(callee, args, keywords, node, ast.unparse(node.func))

    def forward(
        self, module: Value, args: list[Value], keywords: dict[str, Value], node: ast.Call, cls: Class | None
    ) -> Value:
        """A module is called: the result hangs on its weights, and on its arguments."""
        inputs = frozenset().union(*(a.deps for a in args), *(k.deps for k in keywords.values()))
        mark = self.node(Origin.FORWARD, node, ast.unparse(node.func), module=module, inputs=inputs)
        row = self.library.lookup(module.type) if module.type and cls is None else None
        if row is not None and row.graph == "none":
            return Value("unknown")
        deps = frozenset({mark}) if self.grad is not Grad.OFF else EMPTY
        result = Value("tensor" if row is not None and row.forward == "tensor" else "unknown", deps, site=node, device="device")
        if row is not None:
            if row.items:
                parts = tuple(Value("tensor" if i in ("tensor", "same") else i, deps) for i in row.items)
                result = Value("tuple", deps, items=parts, site=node)
            if not row.parameters and row.forward in ("tensor", "same"):
                # Nothing of its own to learn: only the arguments' graph.
                deps = inputs if self.grad is not Grad.OFF else EMPTY
                scalar = module.type.rpartition(".")[2].endswith("Loss")
                return Value("tensor", deps, site=node, scalar=scalar)
        if cls is not None:
            shape = self.project.forward_shape(cls, [module, *args], keywords, self)
            if shape is not None:
                result = self.shaped(shape, deps)
        self.event("forward", node, value=result, receiver=module, args=tuple(args), keywords=keywords, node=mark)
        return result

    def shaped(self, shape: Value, deps: frozenset[Node]) -> Value:
        """A result of a project module: the parts that its ``forward`` returns without a graph have none here."""
        if shape.items is not None:
            return Value("tuple", deps, items=tuple(self.shaped(i, deps) for i in shape.items))
        if shape.kind in GRAPHLESS and not shape.deps:
            return Value(shape.kind, const=UNSET)
        if shape.kind == "tensor" and not shape.deps:
            return Value("tensor")
        return Value(shape.kind if shape.kind in ("tensor", "dict", "list", "tuple") else "unknown", deps,
                     scalar=shape.scalar, device="device")  # fmt: skip

    # -- calls of libraries

    def call_library(
        self, name: str, row: Row, args: list[Value], keywords: dict[str, Value], node: ast.Call
    ) -> Value:
        name = self.library.canonical(name)
        special = SPECIAL.get(name)
        if special is not None:
            return special(self, args, keywords, node, row)
        if row.kind:
            return self.build(name, row, args, keywords, node)
        return self.from_row(row, UNKNOWN, args, keywords, node, name)

    def build(self, name: str, row: Row, args: list[Value], keywords: dict[str, Value], node: ast.Call) -> Value:
        """An instance of a library class is made."""
        kind = row.kind
        if kind == "context":
            return self.from_row(row, UNKNOWN, args, keywords, node, name)
        obj = self.make("dict" if kind in ("defaultdict", "counter") else kind, node, type=name, name=name.rpartition(".")[2])
        value = Value(obj.kind if obj.kind in CONTAINERS else kind, type=name, objs=(obj,), site=node)
        if kind in ("distribution", "tensor", "packed", "batch_encoding", "unknown"):
            value.deps = EMPTY.union(*(self.held(a) for a in (*args, *keywords.values()))) if self.grad is not Grad.OFF else EMPTY
        if kind == "deque":
            limit = keywords.get("maxlen", args[1] if len(args) > 1 else NOTHING)
            obj.bounded = limit.kind != "none"
        if kind in CONTAINERS and args and kind != "defaultdict":
            self.put(obj, self.element(args[0], node))
        if kind == "queue":
            limit = keywords.get("maxsize", args[0] if args else Value("number", const=0))
            obj.bounded = limit.const is UNSET or limit.const not in (0, None)
        if kind == "defaultdict":
            obj.elem = self.factory(args[0] if args else UNKNOWN, node)
        if kind == "module":
            for i, arg in enumerate(args):
                obj.items[i] = arg
            if any(b in ("torch.nn.Module",) for b in ("torch.nn.Module",)) and any(a.kind == "module" for a in args):
                inner = [a for a in args if a.kind == "module"]
                obj.items["wrapped"] = inner[0]
        if kind == "optimizer":
            model = self.owner_of(args[0] if args else keywords.get("params", UNKNOWN))
            obj.model = model
            for o in model.objs if model is not None else ():
                o.trains = True
        if kind in ("scheduler", "optimizer", "scaler", "module"):
            self.event("build", node, value=value, args=tuple(args), keywords=keywords, name=kind,
                       receiver=Value("class", type=name))  # fmt: skip
        return value

    def factory(self, maker: Value, node: ast.Call) -> Value:
        name = maker.type
        if name in ("list", "set", "dict"):
            inner = self.make(name, node, "factory")
            return Value(name, objs=(inner,))
        if name in ("float", "int"):
            return Value("number")
        if isinstance(maker.target, Class):
            return self.construct(maker.target, [], {}, node)
        return UNKNOWN

    def owner_of(self, params: Value) -> Value | None:
        """The model whose parameters these are, where one can be told."""
        if params.kind in ("parameters", "parameter") and params.receiver is not None:
            return params.receiver
        if params.kind in ("list", "tuple") and params.obj is not None and params.obj.elem is not None:
            return self.owner_of(params.obj.elem)
        if params.kind == "dict" and params.obj is not None and "params" in params.obj.items:
            return self.owner_of(params.obj.items["params"])
        return None

    def from_row(
        self, row: Row, receiver: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST | None,
        name: str = "",
    ) -> Value:  # fmt: skip
        """Apply what the library says of a function, method or attribute."""
        effects = row.effects
        inputs: list[Value] = [receiver, *args, *(v for k, v in keywords.items() if k not in ("*",))]
        if effects and node is not None:
            done = self.apply_effects(row, receiver, args, keywords, node, name)
            if done is not None:
                return done
        returns = row.returns
        if returns == "same":
            subject = receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN
            if args and receiver.kind in HANDLERS:  # scaler.scale(loss), accelerator.prepare(model)
                subject = args[0]
            if row.graph == "none":
                subject = subject.but(deps=EMPTY, kind="tensor" if subject.kind == "unknown" else subject.kind, path="")
            if row.device == "host":
                return subject.but(device="host") if subject.kind != "module" else subject
            if row.device == "argument":
                return subject.but(device=self.device_of(args, keywords)) if subject.kind != "module" else subject
            return subject
        if returns == "arguments":
            if len(args) == 1:
                return args[0]
            return Value("tuple", items=tuple(args))
        if returns == "element":
            subject = receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN
            return self.element(subject, node)
        if returns == "parameters" or (returns == "iterator" and row.of == "parameter"):
            return Value("parameters", receiver=receiver)
        deps = EMPTY
        if row.graph == "arguments":
            deps = frozenset().union(*(self.held(v) for v in inputs))
        elif row.graph == "unknown" and returns in ("tensor", "unknown", "tuple", "list", "dict"):
            below = frozenset().union(*(self.held(v) for v in inputs))
            deps = frozenset({self.node(Origin.CALL, node or self.stmt, name, key="row", inputs=below)}) if below else EMPTY
        if self.grad is Grad.OFF and deps and not self.passes_through(name):
            deps = EMPTY
        device = row.device if row.device == "host" else self.device_of(args, keywords) if row.device == "argument" else receiver.device
        kind = returns
        if row.items and (not row.items_with or row.items_with in keywords):
            parts = tuple(
                Value("tensor" if i in ("tensor", "same") else i, deps if i in ("tensor", "same") else EMPTY, device=device)
                for i in row.items
            )
            return Value("tuple", deps, items=parts, device=device)
        objs: tuple[Obj, ...] = ()
        if kind in CONTAINERS or kind == "defaultdict":
            obj = self.make("dict" if kind == "defaultdict" else kind, node or self.stmt)
            kind = obj.kind
            element = self.element_of(row, receiver, args, node)
            if element is not None:
                self.put(obj, element)
            objs = (obj,)
        elif kind in ("iterator", "tuple") and row.of in ("tensor", "element", "elements", "argument", "arguments"):
            element = self.element_of(row, receiver, args, node)
            obj = self.make("iterator", node or self.stmt)
            if element is not None:
                self.put(obj, element if row.of != "tensor" else Value("tensor", deps, view=row.view, device=device))
            objs = (obj,)
            kind = "iterator" if kind == "iterator" else "tuple"
        elif kind == "module":
            obj = self.make("module", node or self.stmt, name=name.rpartition(".")[2])
            objs = (obj,)
            if node is not None:
                self.event("build", node, value=Value("module", objs=objs), args=tuple(args), keywords=keywords,
                           name="module", receiver=Value("class", type=name))  # fmt: skip
        subject = receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN
        view = row.view and subject.kind in ("tensor", "unknown")
        scalar = name.rpartition(".")[2] in REDUCTIONS and not [a for a in args[(0 if receiver is not UNKNOWN else 1):] if a.kind == "number"] and "dim" not in keywords and "axis" not in keywords
        if name in SCALAR_LOSSES and keywords.get("reduction", UNKNOWN).const in (UNSET, "mean", "sum") and "reduction" not in keywords:
            scalar = True
        return Value(kind, deps, objs=objs, device=device, view=view, scalar=scalar or (subject.scalar and row.graph == "arguments" and not args), site=node)

    def passes_through(self, name: str) -> bool:
        """Whether a call only hands its arguments on, so that the gradient mode does not matter."""
        return name in ("list", "tuple", "dict", "zip", "enumerate", "reversed", "sorted", "iter", "next", "max", "min")

    def element_of(self, row: Row, receiver: Value, args: list[Value], node: ast.AST | None) -> Value | None:
        if row.of == "element":
            return self.element(receiver if receiver is not UNKNOWN else args[0] if args else UNKNOWN, node)
        if row.of in ("elements", "argument", "arguments") and args:
            value = args[0] if row.of != "elements" else self.element(args[0], node)
            for other in args[1:]:
                value = join(value, other if row.of != "elements" else self.element(other, node))
            return value
        return None

    def held(self, value: Value) -> frozenset[Node]:
        """The graph nodes that a value and what it contains hang on."""
        deps = value.deps if value.kind not in GRAPHLESS else EMPTY
        for obj in value.objs:
            if obj.elem is not None and obj.elem.kind not in GRAPHLESS:
                deps = deps | obj.elem.deps
        if value.items:
            deps = deps.union(*(self.held(i) for i in value.items))
        return deps

    def device_of(self, args: list[Value], keywords: dict[str, Value]) -> str:
        for value in (*args, *keywords.values()):
            if value.const == "cpu":
                return "host"
            if value.kind in ("dtype", "number", "bool") and value.kind != "number":
                continue
            return "device"
        return "device"

    def apply_effects(
        self, row: Row, receiver: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST, name: str
    ) -> Value | None:
        """Note what a call does besides returning. A value returned here is the call's result."""
        effects = row.effects
        last = name.rpartition(".")[2]
        if "backward" in effects:
            subject = receiver if receiver.kind in ("tensor", "unknown") and receiver.kind not in ("accelerator", "fabric", "engine", "scaler", "module") else args[0] if args else receiver
            if receiver.kind in ("accelerator", "fabric", "engine", "scaler", "module", "optimizer", "instance") and args:
                subject = args[0]
            self.backward(subject, keywords, node, args)
            return NOTHING
        if "differentiates" in effects:
            keep = keywords.get("retain_graph", keywords.get("create_graph", NOTHING)).const is True
            for value in (*args, *keywords.values()):
                self.mark(self.held(value), retain=keep, wanted=True)
            self.event("grad", node, args=tuple(args), keywords=keywords)
            return None
        if "step" in effects and receiver.kind in ("optimizer", "scaler", "engine", "unknown", "scheduler", "accelerator"):
            self.event("step", node, receiver=receiver, args=tuple(args), keywords=keywords, name=receiver.kind)
            for value in args:
                if isinstance(value.target, Definition):
                    self.call_definition(value.target, [], {}, node)
                elif value.kind in ("tensor",) or (value.kind == "unknown" and value.deps):
                    self.escape(value.deps)
            return None
        if "zero_grad" in effects:
            flag = keywords.get("set_to_none", args[0] if args else Value(const=UNSET))
            self.event("zero_grad", node, value=flag, receiver=receiver, args=tuple(args), keywords=keywords, name=receiver.kind)
            return None
        if "eval" in effects or "train" in effects:
            mode = args[0].const if args else keywords.get("mode", Value(const="eval" not in effects)).const
            if "eval" in effects:
                mode = False
            self.event("eval" if mode is False else "train", node, receiver=receiver, value=args[0] if args else UNKNOWN)
            for obj in receiver.objs:
                if mode is not True:
                    obj.evaluates = True
                if mode is not False:
                    obj.trains = True
            return None
        if "freeze" in effects or "requires_grad" in effects or "unfreeze" in effects:
            flag = args[0] if args else keywords.get("requires_grad", Value("bool", const=True))
            if flag.const is False:
                self.freeze(receiver, node)
            elif flag.const is True and receiver.kind not in ("module", "parameter", "parameters"):
                target = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
                self.input_gradient(receiver, target, node)
                leaf = self.node(Origin.WEIGHT, node, "input")
                leaf.wanted = True
                return receiver.but(kind="tensor", deps=receiver.deps | {leaf}, leaf=True)
            return None
        mode = MODES.get(next((e for e in effects if e in MODES), ""))
        if mode is not None or "set_grad_enabled" in effects:
            if "set_grad_enabled" in effects:
                flag = args[0] if args else keywords.get("mode", UNKNOWN)
                mode = Grad.UNKNOWN if flag.const is UNSET or isinstance(flag.const, Symbol) else Grad.ON if flag.const else Grad.OFF
                if isinstance(self.stmt, ast.Expr) and self.stmt.value is node:
                    self.grad = mode
            elif "inference_mode" in effects or "no_grad" in effects:
                flag = args[0] if args else keywords.get("mode", Value("bool", const=True))
                if flag.kind == "function" and flag.target is not None:
                    return flag  # no_grad(fn)
                if flag.const is UNSET:
                    mode = Grad.UNKNOWN
                elif flag.const is False:
                    mode = Grad.ON if "inference_mode" in effects else mode
            return Value("context", const=Mode(mode or Grad.UNKNOWN))
        if effects & STORES and receiver.objs:
            how = next(e for e in effects if e in STORES)
            self.store_method(how, receiver, args, keywords, node)
            if how == "setdefault" or row.returns == "none":
                return self.element(receiver, node) if how == "setdefault" else NOTHING
            return None
        if effects & {"pop", "clear"} and receiver.objs:
            for obj in receiver.objs:
                self.clear(obj, node, "pop" if "pop" in effects else "clear")
            return self.element(receiver, node) if "pop" in effects else NOTHING
        if "detach_" in effects:
            path = receiver.path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                path = chain(node.func.value)
            clean = receiver.but(deps=EMPTY)
            if path:
                self.env[path] = clean
            self.event("detach", node, receiver=receiver)
            return clean
        if "in_place" in effects and args and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            added = args[0]
            target = node.func.value
            if last in ("add_", "sub_", "lerp_", "addcmul_", "addcdiv_", "copy_", "mul_", "div_"):
                if last in ("add_", "lerp_", "sub_"):
                    self.total(target, receiver, added, node, node.args[0] if node.args else node)  # type: ignore[arg-type]
                self.event("write", node, value=added, receiver=receiver, name=last, expr=node.args[0] if node.args else None)
                deps = (receiver.deps | self.held(added)) if self.grad is not Grad.OFF else receiver.deps
                value = receiver.but(kind="tensor" if receiver.kind == "unknown" else receiver.kind, deps=deps)
                if chain(target):
                    self.env[chain(target)] = value
                return value
        if "hook" in effects:
            self.event("hook", node, receiver=receiver, args=tuple(args), keywords=keywords, name=last)
            for value in (*args, *keywords.values()):
                if isinstance(value.target, Definition):
                    self.project.hooked(value.target, receiver, last, self)
            return Value("handle", site=node)
        if "calls" in effects:
            for value in (*args, *keywords.values()):
                if isinstance(value.target, Definition) and value.kind == "function":
                    self.project.called_by(value.target, row, self, self.grad)
        if "autocast" in effects or "profile" in effects or "anomaly" in effects:
            self.event("context", node, receiver=receiver, args=tuple(args), keywords=keywords, name=name)
            return Value("context")
        return None

    def store_method(
        self, how: str, receiver: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST
    ) -> None:
        exprs = node.args if isinstance(node, ast.Call) else []
        expr = exprs[-1] if exprs else None
        for obj in receiver.objs:
            if how == "extend":
                value = self.element(args[0], node) if args else UNKNOWN
                self.store(obj, value, node, how, expr, holder=receiver.receiver)
            elif how == "update":
                for i, arg in enumerate(args):
                    if arg.obj is not None and arg.obj.items:
                        for key, item in arg.obj.items.items():
                            self.store(obj, item, node, how, exprs[i] if i < len(exprs) else None, key, holder=receiver.receiver)
                    else:
                        self.store(obj, self.element(arg, node), node, how, exprs[i] if i < len(exprs) else None, holder=receiver.receiver)
                for key, item in keywords.items():
                    self.store(obj, item, node, how, None, key, holder=receiver.receiver)
            elif how in ("append", "add", "put", "insert", "setdefault") and args:
                self.store(obj, args[-1], node, how, expr, index=args[0] if len(args) > 1 else UNKNOWN, holder=receiver.receiver)

    def backward(self, subject: Value, keywords: dict[str, Value], node: ast.AST, args: list[Value]) -> None:
        keep = keywords.get("retain_graph", NOTHING)
        create = keywords.get("create_graph", NOTHING)
        retain = keep.const is not None and keep.const is not False if keep is not NOTHING else False
        retain = retain or create.const is True
        deps = self.held(subject)
        self.mark(deps, retain=bool(retain))
        self.prove(deps)
        expr: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            expr = node.func.value
        self.event("backward", node, value=subject, keywords=keywords, args=tuple(args), expr=expr, receiver=subject)

    def duck(
        self, owner: Value, attr: str, args: list[Value], keywords: dict[str, Value], node: ast.Call
    ) -> Value:
        """A method of something of which nothing is known, judged by what its name always means."""
        if attr == "enter_context" and args:
            mode = self.mode_of(args[0])
            if mode is not None:
                self.grad = mode
            return args[0]
        if attr in MOVES:
            return owner.but(device="host" if attr == "cpu" else self.device_of(args, keywords) if args or attr == "cuda" else owner.device)
        evidence = self.project.role_of(owner, self)
        if evidence:
            row = self.library.method(evidence, attr)
            if row is not None:
                return self.from_row(row, owner.but(kind=evidence), args, keywords, node, attr)
        row = self.library.duck(attr)
        if row is not None:
            return self.from_row(row, owner, args, keywords, node, attr)
        row = self.library.method("tensor", attr)
        if row is not None and owner.deps and (attr in TENSOR_ONLY or not self.library.method("list", attr)):
            tensor = owner.but(kind="tensor") if attr in TENSOR_ONLY else owner
            return self.from_row(row, tensor, args, keywords, node, attr)
        if row is not None and attr in TENSOR_ONLY:
            return self.from_row(row, owner.but(kind="tensor"), args, keywords, node, attr)
        for kind in ("list", "dict", "deque", "set"):
            found = self.library.method(kind, attr)
            if found is not None and owner.objs and found.effects & (STORES | {"pop", "clear"}):
                return self.from_row(found, owner, args, keywords, node, attr)
        return self.unknown_call(Value("unknown", receiver=owner, objs=owner.objs), args, keywords, node, attr)

    def unknown_call(
        self, callee: Value, args: list[Value], keywords: dict[str, Value], node: ast.AST, name: str
    ) -> Value:
        """Something unknown is called. Its result may hang on its arguments, and on weights that nobody here sees."""
        values = [*args, *keywords.values()]
        deps = frozenset().union(EMPTY, *(self.held(v) for v in values))
        if callee.receiver is not None:
            deps |= self.held(callee.receiver)
        optimizing = any(v.kind in ("optimizer", "scaler") for v in values)
        if deps and (optimizing or DIFFERENTIATES.search(name.rpartition(".")[2])):
            self.escape(deps)
        for value in values:
            if value.kind in CONTAINERS and value.obj is not None and value.obj.node is not None:
                self.escape((value.obj.node,))
        for value in values:
            if isinstance(value.target, Definition) and value.kind == "function":
                self.project.taken(value.target)
        mark = self.node(Origin.CALL, node, name, module=callee, inputs=deps)
        if self.grad is Grad.OFF:
            return Value("unknown", EMPTY, site=node)
        return Value("unknown", frozenset({mark}), site=node)

    # -- operators

    def arithmetic(self, values: Sequence[Value], node: ast.AST) -> Value:
        kinds = {v.kind for v in values}
        if kinds <= {"number", "bool"}:
            return Value("number")
        if "string" in kinds and kinds <= {"string", "number", "unknown", "tuple", "list"}:
            return Value("string")
        if kinds & {"list"} and kinds <= {"list", "unknown", "number"} and not any(v.kind == "unknown" and not v.objs for v in values):
            obj = self.make("list", node)
            for value in values:
                if value.kind == "list":
                    self.put(obj, self.element(value, node))
            return Value("list", objs=(obj,), site=node)
        if kinds <= {"ndarray", "number"}:
            return Value("ndarray", device="host")
        deps = frozenset().union(*(self.held(v) for v in values))
        if self.grad is Grad.OFF:
            deps = EMPTY
        tensor = "tensor" if kinds & {"tensor", "parameter", "indices"} else "unknown"
        known = [v for v in values if v.kind not in ("number", "bool")]
        device = known[0].device if known else ""
        scalar = all(v.scalar or v.kind == "number" for v in values)
        return Value(tensor, deps, device=device, scalar=scalar, site=node)

    def do_binop(self, node: ast.BinOp) -> Value:
        left, right = self.eval(node.left), self.eval(node.right)
        if left.const is not UNSET and right.const is not UNSET and left.kind == right.kind == "number":
            return Value("number")
        return self.arithmetic((left, right), node)

    def do_unary(self, node: ast.UnaryOp) -> Value:
        value = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            if value.const is not UNSET and not isinstance(value.const, (Symbol, Mode)):
                return Value("bool", const=not value.const)
            return Value("bool")
        if value.kind == "number":
            return Value("number", const=-value.const if isinstance(value.const, (int, float)) and isinstance(node.op, ast.USub) else UNSET)
        return self.arithmetic((value,), node)

    def do_compare(self, node: ast.Compare) -> Value:
        left = self.eval(node.left)
        rights = [self.eval(c) for c in node.comparators]
        if len(rights) == 1:
            answer = self.compare(left, node.ops[0], rights[0])
            if answer is not None:
                return Value("bool", const=answer)
        kinds = {left.kind, *(r.kind for r in rights)}
        if kinds & {"tensor", "indices"} or (kinds & {"unknown"} and (left.deps or any(r.deps for r in rights))):
            if not isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
                return Value("indices", device=left.device)
        return Value("bool")

    def compare(self, a: Value, op: ast.cmpop, b: Value) -> bool | None:
        if isinstance(op, (ast.Is, ast.IsNot)) and b.kind == "none":
            if a.kind == "none":
                return isinstance(op, ast.Is)
            if a.kind != "unknown" and (a.site is not None or a.kind in ("optimizer", "module", "number", "string", "bool")) and a.receiver is None and a.const is not UNSET:
                return isinstance(op, ast.IsNot)
            if a.kind == "optimizer" and a.objs and a.objs[0].parameter < 0:
                return isinstance(op, ast.IsNot)
            return None
        if a.const is UNSET or b.const is UNSET:
            return None
        if isinstance(op, (ast.Eq, ast.Is)):
            return bool(a.const == b.const)
        if isinstance(op, (ast.NotEq, ast.IsNot)):
            return bool(a.const != b.const)
        if isinstance(a.const, Symbol) or isinstance(b.const, Symbol):
            return None
        try:
            if isinstance(op, ast.Lt):
                return bool(a.const < b.const)
            if isinstance(op, ast.Gt):
                return bool(a.const > b.const)
            if isinstance(op, ast.LtE):
                return bool(a.const <= b.const)
            if isinstance(op, ast.GtE):
                return bool(a.const >= b.const)
        except TypeError:
            return None
        return None

    def do_boolop(self, node: ast.BoolOp) -> Value:
        values = [self.eval(v) for v in node.values]
        truths = [self.truth(n, v) for n, v in zip(node.values, values, strict=True)]
        if isinstance(node.op, ast.And):
            if False in truths:
                return Value("bool", const=False)
            if all(truths):
                return values[-1]
        else:
            if truths[0] is True:
                return values[0]
            if all(t is False for t in truths):
                return values[-1]
            values = [v for v, t in zip(values, truths, strict=True) if t is not False] or values
        result = values[0]
        for value in values[1:]:
            result = join(result, value)
        return result if result.const is UNSET else result.but(const=UNSET)

    def do_ifexp(self, node: ast.IfExp) -> Value:
        truth = self.truth(node.test, self.eval(node.test))
        if truth is not None:
            return self.eval(node.body if truth else node.orelse)
        return self.either(self.eval(node.body), self.eval(node.orelse))

    def either(self, a: Value, b: Value) -> Value:
        if isinstance(a.const, Mode) or isinstance(b.const, Mode):
            modes = {v.const.mode if isinstance(v.const, Mode) else None for v in (a, b)}
            return Value("context", const=Mode(modes.pop() if len(modes) == 1 else Grad.UNKNOWN))  # type: ignore[arg-type]
        return join(a, b)

    def do_tuple(self, node: ast.Tuple) -> Value:
        items = tuple(self.eval(e.value if isinstance(e, ast.Starred) else e) for e in node.elts)
        if any(isinstance(e, ast.Starred) for e in node.elts):
            obj = self.make("tuple", node)
            for e, item in zip(node.elts, items, strict=True):
                self.put(obj, self.element(item, node) if isinstance(e, ast.Starred) else item)
            return Value("tuple", objs=(obj,))
        const = tuple(i.const for i in items) if all(i.const is not UNSET for i in items) else UNSET
        return Value("tuple", items=items, const=const)

    def do_list(self, node: ast.List | ast.Set) -> Value:
        kind = "list" if isinstance(node, ast.List) else "set"
        obj = self.make(kind, node)
        for element in node.elts:
            if isinstance(element, ast.Starred):
                self.put(obj, self.element(self.eval(element.value), element))
            else:
                self.put(obj, self.eval(element))
        return Value(kind, objs=(obj,), site=node)

    def do_dict(self, node: ast.Dict) -> Value:
        obj = self.make("dict", node)
        for key, element in zip(node.keys, node.values, strict=True):
            value = self.eval(element)
            if key is None:
                if value.obj is not None:
                    obj.items.update(value.obj.items)
                self.put(obj, self.element(value, node))
            else:
                self.put(obj, value, self.eval(key).const)
        return Value("dict", objs=(obj,), site=node)

    def do_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        outer = dict(self.env)
        loops = self.loops
        for generator in node.generators:
            iterable = self.eval(generator.iter)
            self.loops = (*self.loops, node)
            self.assign(generator.target, self.element(iterable, generator.iter), node)
            for test in generator.ifs:
                self.eval(test)
        if isinstance(node, ast.DictComp):
            self.eval(node.key)
            value = self.eval(node.value)
            kind = "dict"
        else:
            value = self.eval(node.elt)
            kind = {ast.ListComp: "list", ast.SetComp: "set"}.get(type(node), "iterator")
        self.env = outer
        self.loops = loops
        obj = self.make(kind, node)
        self.put(obj, value)
        if kind != "iterator":
            self.event("collect", node, value=value, target=obj, expr=node.elt if not isinstance(node, ast.DictComp) else node.value)
        return Value(kind, objs=(obj,), site=node, receiver=value.receiver if value.kind in LEAFY else None)

    def do_subscript(self, node: ast.Subscript) -> Value:
        owner = self.eval(node.value)
        key = self.eval(node.slice)
        name = ast.unparse(node) if type(node.value) is ast.Name else ""
        if owner.items is not None and isinstance(key.const, int) and -len(owner.items) <= key.const < len(owner.items):
            return owner.items[key.const]
        cls = self.project.class_named(owner.type)
        if cls is not None and owner.kind != "class":
            method = self.names.method(cls, "__getitem__")
            if method is not None:
                return self.call_definition(method, [owner, key], {}, node, receiver=owner)
        if owner.kind in ("tensor", "parameter", "indices"):
            advanced = key.kind in ("tensor", "indices", "list")
            return Value("indices" if owner.kind == "indices" else "tensor", self.held(owner) if self.grad is not Grad.OFF or True else EMPTY,
                         view=not advanced, device=owner.device, site=node)  # fmt: skip
        if owner.kind == "module":
            return self.submodule(owner, ast.unparse(node.slice), name).but(kind="module")
        if owner.kind in CONTAINERS and owner.obj is not None:
            found = [o.items[key.const] for o in owner.objs if isinstance(key.const, (str, int)) and key.const in o.items]
            if isinstance(node.slice, ast.Slice):
                return owner.but(site=node) if owner.obj.elem is not None else owner
            if len(found) == len(owner.objs):
                value = found[0]
                for other in found[1:]:
                    value = join(value, other)
                return value
        if isinstance(node.slice, ast.Slice):
            return owner.but(const=UNSET, view=owner.kind in ("tensor", "unknown"))
        element = self.element(owner, node)
        if element is UNKNOWN and owner.deps:
            return Value("unknown", owner.deps, view=True, device=owner.device, site=node, objs=self.unknown_objs(owner, ast.unparse(node.slice), name))
        if element is UNKNOWN:
            return Value("unknown", objs=self.unknown_objs(owner, ast.unparse(node.slice), name), device=owner.device)
        return element

    def item(self, value: Value, index: int, count: int) -> Value:
        """Element ``index`` of a value that is unpacked into ``count`` names."""
        if value.items is not None:
            return value.items[index] if index < len(value.items) else UNKNOWN
        if value.kind in ("tensor", "unknown") and not value.objs:
            return Value("unknown" if value.kind == "unknown" else "tensor", value.deps, view=value.kind == "tensor", device=value.device)
        return self.element(value, None)

    def element(self, value: Value, node: ast.AST | None) -> Value:
        """What iterating a value yields."""
        if value.kind == "parameters":
            leaf = Value("parameter", leaf=True, receiver=value.receiver)
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
            return found
        if value.kind in ("tensor", "indices"):
            return Value(value.kind, value.deps, view=True, device=value.device)
        if value.kind == "number" or value.kind == "range":
            return Value("number")
        if value.kind in ("loader", "dataset"):
            return Value("unknown", device="host", type="batch")
        return Value("unknown", value.deps, device=value.device) if value.deps else UNKNOWN

    def do_lambda(self, node: ast.Lambda) -> Value:
        found = self.project.lambda_definition(node, self.definition)
        self.project.closures.setdefault(found, self.env)
        return Value("function", target=found)

    def do_starred(self, node: ast.Starred) -> Value:
        return self.eval(node.value)

    def do_named(self, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.assign(node.target, value, node)
        return value

    def do_await(self, node: ast.Await) -> Value:
        return self.eval(node.value)

    def do_yield(self, node: ast.Yield) -> Value:
        if node.value is not None:
            value = self.eval(node.value)
            self.event("yield", node, value=value)
            self.escape(self.held(value))
        return UNKNOWN

    def do_yield_from(self, node: ast.YieldFrom) -> Value:
        self.eval(node.value)
        return UNKNOWN

    def do_joined(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.eval(part.value)
        return Value("string")

    def do_slice(self, node: ast.Slice) -> Value:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.eval(part)
        return Value("slice")


class Symbol(str):
    """A constant known by its dotted name only: an enumeration's member."""

    __slots__ = ()


class Mode:
    """The constant of a context manager that sets the gradient mode."""

    __slots__ = ("mode",)

    def __init__(self, mode: Grad) -> None:
        self.mode = mode


class Partial:
    """`functools.partial`: a callee with some of its arguments."""

    def __init__(self, callee: Value, args: list[Value], keywords: dict[str, Value]) -> None:
        self.callee, self.args, self.keywords = callee, args, keywords


class Splice:
    """A callee's flow in its caller's terms: parameters become arguments, its nodes get a copy for this call."""

    def __init__(self, caller: Flow, flow: Flow, bound: dict[str, Value], site: ast.AST) -> None:
        self.caller, self.flow, self.bound, self.site = caller, flow, bound, site
        self.by_index = {i: bound[n] for i, n in enumerate(flow.definition.parameters) if n in bound}
        self.off = caller.grad is Grad.OFF and flow.entry is Grad.ENTRY
        self.copies: dict[Node, frozenset[Node]] = {}
        self.values: dict[int, Value] = {}

    def result(self) -> Value:
        for event in self.flow.events:
            if event.verb in SPLICED and self.matters(event):
                self.repeat(event)
        return self.value(self.flow.returns)

    def matters(self, event: Event) -> bool:
        """Whether a caller can be concerned: what a callee does with plain values of its own stays its own affair."""
        verb = event.verb
        if verb in ("set", "sum"):
            return bool(event.value.deps) and event.value.kind not in GRAPHLESS
        if verb == "store":
            return bool(self.flow.held(event.value)) or (event.target is not None and event.target.parameter >= 0)
        if verb == "build":
            return event.name in ("optimizer", "scheduler", "scaler")
        if verb == "forward":
            return event.grad is not Grad.OFF
        return len(self.caller.events) < EVENTS

    def deps(self, deps: frozenset[Node]) -> frozenset[Node]:
        if not deps:
            return deps
        return EMPTY.union(*(self.copy(n) for n in deps))

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
            if argument is not None and node.differentiated:
                self.caller.mark(result, retain=not node.freed, wanted=node.wanted)
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
                caller.nodes["copy", self.site, node] = mine
                node.copies.append(mine)
            self.copies[node] = result = frozenset({mine})  # before what lies below: loops make cycles
            mine.inputs |= self.deps(node.inputs)
            mine.differentiated = mine.differentiated or node.differentiated
            mine.freed = mine.freed or node.freed
            mine.wanted = mine.wanted or node.wanted
            mine.escapes = mine.escapes or node.escapes
        self.copies[node] = result
        return result

    def module(self, node: Node) -> Value | None:
        return self.value(node.module) if node.module is not None else None

    def obj(self, obj: Obj) -> Obj:
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
            made.frozen, made.evaluates, made.trains = obj.frozen, obj.evaluates, obj.trains
            made.model = obj.model
            if obj.elem is not None and obj.elem is not UNKNOWN:
                made.elem = self.value(obj.elem)
            made.items = {k: self.value(v) for k, v in obj.items.items()}
        return made

    def value(self, value: Value) -> Value:
        if value is UNKNOWN or value is NOTHING:
            return value
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
            path="",
        )
        self.values[id(value)] = result
        return result

    def repeat(self, event: Event) -> None:
        """Let the caller do what its callee does, at the call."""
        caller = self.caller
        target = self.obj(event.target) if event.target is not None else None
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
            target.clears.append((caller.definition, loops, new.guards, event.name))
        elif event.verb == "backward":
            caller.prove(self.deps(self.flow.held(event.value)))
        elif event.verb in ("eval", "train", "freeze"):
            for obj in receiver.objs:
                obj.evaluates = obj.evaluates or event.verb == "eval"
                obj.trains = obj.trains or event.verb == "train"
                obj.frozen = obj.frozen or event.verb == "freeze"


SPLICED = frozenset(
    {"forward", "backward", "store", "sum", "build", "clear", "zero_grad", "step", "eval", "train", "freeze", "grad", "hook", "set"}
)
STORES = frozenset({"append", "extend", "insert", "add", "update", "setdefault", "put"})
MODES = {"no_grad": Grad.OFF, "inference_mode": Grad.OFF, "enable_grad": Grad.ON}
MODULE_ATTRIBUTES = frozenset({"training", "parameters", "state_dict", "eval", "train", "to", "modules", "children"})
TENSOR_FACTS = frozenset({"data", "shape", "dtype", "device", "grad", "T", "mT", "requires_grad", "grad_fn", "is_cuda", "ndim", "loss", "logits"}) - {"loss", "logits"}  # fmt: skip
TENSOR_ONLY = frozenset(
    """detach item backward argmax softmax log_softmax sigmoid tolist numpy requires_grad_ mean sum unsqueeze
    squeeze view reshape permute transpose flatten clone contiguous long chunk norm clamp exp log sqrt pow abs
    max min std var gather scatter masked_fill expand repeat detach_ topk sort bmm matmul mm numel dim""".split()
)
MOVES = frozenset({"to", "cuda", "cpu", "half", "float", "double", "bfloat16"})  # of tensors and modules alike
REDUCTIONS = frozenset({"mean", "sum", "norm", "std", "var", "prod"})
SCALAR_LOSSES = frozenset(
    f"torch.nn.functional.{n}"
    for n in """cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div
    binary_cross_entropy_with_logits hinge_embedding_loss margin_ranking_loss cosine_embedding_loss triplet_margin_loss
    ctc_loss poisson_nll_loss gaussian_nll_loss multi_margin_loss soft_margin_loss""".split()
)
BUILTINS = frozenset(
    """abs all any bool bytes callable dict divmod enumerate filter float format frozenset getattr hasattr hash id int
    isinstance issubclass iter len list map max min next object open pow print range repr reversed round set setattr slice
    sorted str sum super tuple type vars zip""".split()
)
_CONSTANT_KINDS = {bool: "bool", int: "number", float: "number", complex: "number", str: "string", bytes: "bytes"}


def _super(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    cls = flow.definition.cls or (flow.definition.outer.cls if flow.definition.outer is not None else None)
    receiver = flow.env.get(flow.definition.positional[0]) if flow.definition.positional else None
    if cls is None or receiver is None:
        return UNKNOWN
    for base in flow.names.mro(cls)[1:]:
        if isinstance(base, Class):
            return receiver.but(type=base.full_name)
        return Value(receiver.kind, type=flow.library.canonical(base), objs=receiver.objs)
    return UNKNOWN


def _partial(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if not args:
        return UNKNOWN
    return Value("function", target=Partial(args[0], args[1:], keywords))


def _getattr(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if len(args) >= 2 and isinstance(args[1].const, str):
        base = chain(node.args[0])
        return flow.attribute(args[0], args[1].const, node, f"{base}.{args[1].const}" if base else "")
    return Value("unknown", args[0].deps if args else EMPTY)


def _setattr(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if len(args) == 3 and isinstance(args[1].const, str) and args[1].const == "requires_grad" and args[2].const is False:
        flow.freeze(args[0], node)
    return NOTHING


def _deepcopy(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    value = args[0] if args else UNKNOWN
    obj = flow.make(value.kind, node, name=value.path)
    source = value.obj
    if source is not None:
        obj.type, obj.elem, obj.items, obj.bounded = source.type, source.elem, dict(source.items), source.bounded
        obj.frozen = source.frozen
    if value.kind == "module":
        flow.event("build", node, value=value, args=tuple(args), keywords=keywords, name="copy",
                   receiver=Value("class", type="copy.deepcopy"))  # fmt: skip
    return value.but(objs=(obj,), path="", site=node)


def _zip(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    obj = flow.make("iterator", node)
    obj.elem = Value("tuple", items=tuple(flow.element(a, node) for a in args))
    return Value("iterator", objs=(obj,), receiver=args[0] if args else None)


def _enumerate(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    obj = flow.make("iterator", node)
    obj.elem = Value("tuple", items=(Value("number"), flow.element(args[0], node) if args else UNKNOWN))
    return Value("iterator", objs=(obj,), receiver=args[0] if args else None)


def _map(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    obj = flow.make("iterator", node)
    obj.elem = flow.call(args[0], [flow.element(a, node) for a in args[1:]], {}, node) if len(args) > 1 else UNKNOWN
    return Value("iterator", objs=(obj,))


def _sum(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    element = flow.element(args[0], node) if args else UNKNOWN
    return flow.arithmetic((element, Value("number")), node) if element.kind != "number" else Value("number")


def _extreme(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if len(args) == 1:
        return flow.element(args[0], node).but(const=UNSET)
    result = args[0] if args else UNKNOWN
    for other in args[1:]:
        result = join(result, other)
    return result.but(const=UNSET)


def _compiled(flow: Flow, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    return args[0] if args else UNKNOWN


SPECIAL: dict[str, Callable[[Flow, list[Value], dict[str, Value], ast.Call, Row], Value]] = {
    "super": _super,
    "functools.partial": _partial,
    "getattr": _getattr,
    "setattr": _setattr,
    "copy.deepcopy": _deepcopy,
    "zip": _zip,
    "enumerate": _enumerate,
    "map": _map,
    "sum": _sum,
    "max": _extreme,
    "min": _extreme,
    "torch.compile": _compiled,
}

STATEMENTS: dict[type, Callable[[Flow, Any], None]] = {
    ast.Expr: Flow.do_expr, ast.Assign: Flow.do_assign, ast.AnnAssign: Flow.do_ann_assign, ast.AugAssign: Flow.do_aug_assign,
    ast.If: Flow.do_if, ast.For: Flow.do_for, ast.AsyncFor: Flow.do_for, ast.While: Flow.do_while, ast.Try: Flow.do_try,
    ast.With: Flow.do_with, ast.AsyncWith: Flow.do_with, ast.Return: Flow.do_return, ast.Delete: Flow.do_delete,
    ast.Raise: Flow.do_raise, ast.Break: Flow.do_break, ast.Continue: Flow.do_break, ast.FunctionDef: Flow.do_function,
    ast.AsyncFunctionDef: Flow.do_function, ast.ClassDef: Flow.do_class, ast.Assert: Flow.do_assert,
    ast.Global: Flow.do_global, ast.Nonlocal: Flow.do_global, ast.Match: Flow.do_match,
}  # fmt: skip
if hasattr(ast, "TryStar"):
    STATEMENTS[ast.TryStar] = Flow.do_try
EXPRESSIONS: dict[type, Callable[[Flow, Any], Value]] = {
    ast.Name: Flow.do_name, ast.Attribute: Flow.do_attribute, ast.Constant: Flow.do_constant, ast.Call: Flow.do_call,
    ast.BinOp: Flow.do_binop, ast.UnaryOp: Flow.do_unary, ast.Compare: Flow.do_compare, ast.BoolOp: Flow.do_boolop,
    ast.IfExp: Flow.do_ifexp, ast.Tuple: Flow.do_tuple, ast.List: Flow.do_list, ast.Set: Flow.do_list, ast.Dict: Flow.do_dict,
    ast.ListComp: Flow.do_comprehension, ast.SetComp: Flow.do_comprehension, ast.DictComp: Flow.do_comprehension,
    ast.GeneratorExp: Flow.do_comprehension, ast.Subscript: Flow.do_subscript, ast.Lambda: Flow.do_lambda,
    ast.Starred: Flow.do_starred, ast.NamedExpr: Flow.do_named, ast.Await: Flow.do_await, ast.Yield: Flow.do_yield,
    ast.YieldFrom: Flow.do_yield_from, ast.JoinedStr: Flow.do_joined, ast.Slice: Flow.do_slice,
}  # fmt: skip
__all__ = ["Flow", "Summary", "join"]
