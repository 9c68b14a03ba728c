"""One function, read abstractly: which value each expression has, on which graph it hangs, and what happens to it.

A `Flow` is made by walking a function's statements in order, twice through every loop so that what one iteration
leaves behind is seen by the next. Branches are joined; a branch whose condition is known is taken alone. Calls of the
project's own functions are replaced by what they do (`Flow.splice`), so that one walk sees across functions and files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from memlint.calls import TENSOR_ONLY
from memlint.expressions import Evaluating, Exit
from memlint.extract import Class, Definition
from memlint.facts import NOTHING, UNKNOWN, UNSET, Grad, Origin, Value
from memlint.values import CONTAINERS, EMPTY, GRAPHLESS, Mode, Symbol, chain, join, written


class Flow(Evaluating):
    """One reading of ``definition`` with what is known of its arguments.

    ``events`` is what it does, in order; ``returns`` what it returns; ``arguments`` its parameters' values;
    ``entry`` the gradient mode that its own decorators and framework give it, ``Grad.ENTRY`` where callers decide.
    """

    def read(self) -> None:
        """Walk the function, once."""
        try:
            self.block(self.definition.body)
        except (Exit, RecursionError):
            self.complete = False
        self.returns = self._returns()
        self.forget()

    def _returns(self) -> Value:
        if self.definition.generator or not self.returned:
            return NOTHING if not self.definition.generator else UNKNOWN
        value = self.returned[0]
        for other in self.returned[1:]:
            value = join(value, other)
        return value

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
        text = written(node.test)
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

    def do_for(self, node: ast.For | ast.AsyncFor) -> None:
        iterable = self.eval(node.iter)
        if iterable.kind in ("unknown", "loader", "iterator") and not iterable.objs:
            for source in iterable.deps:
                source.data = True
        self.loop(node, lambda: self.assign(node.target, self.element(iterable, node.iter), node))

    def do_while(self, node: ast.While) -> None:
        self.loop(node, lambda: self.eval(node.test))

    def loop(self, node: Any, head: Callable[[], Any]) -> None:
        before, loops, grad = self.env, self.loops, self.grad
        self.loops = (*loops, node)
        always = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        env: dict[str, Value] | None = before
        self.breaks.append([])
        for walk in range(2 if len(loops) < 3 else 1):
            self.env = dict(env or before)
            if walk:
                self.carry(before, node)
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

    def carry(self, before: dict[str, Value], loop: ast.AST) -> None:
        """Mark what one iteration leaves to the next: its graph is not the one that the next iteration makes."""
        for name, value in self.env.items():
            if value is before.get(name) or value.kind in GRAPHLESS or not any(loop in n.loops for n in value.deps):
                continue
            mark = frozenset({self.node(Origin.PLACE, loop, name, key=("carried", name), inputs=value.deps)})
            items = tuple(i.but(deps=i.deps | mark) if i.deps else i for i in value.items) if value.items else None
            self.env[name] = value.but(deps=value.deps | mark, items=items)

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
            mode = self.mode_of(value) or self.entered_mode(item.context_expr)
            if mode is not None:
                self.grad = mode
            if item.optional_vars is not None:
                entered = value if value.kind not in ("context", "unknown") or value.objs else UNKNOWN
                if value.kind == "context" and value.deps:  # a loss, scaled for its backward
                    entered = Value("tensor", value.deps)
                self.assign(item.optional_vars, entered, node)
        self.block(node.body)
        self.grad = grad

    def entered_mode(self, node: ast.expr) -> Grad | None:
        """The gradient mode that a context manager of the project's own brings; that of one which gets a module, and
        comes from a library that nobody here knows, cannot be told."""
        if not isinstance(node, ast.Call):
            return None
        event = self.seen.get(("call", node, None))
        if event is None:
            return None
        target = event.callee
        if isinstance(target, (Definition, Class)):
            return self.project.context_mode(target)
        strange = event.receiver.kind == "library" and self.library.lookup(event.receiver.type) is None
        return Grad.UNKNOWN if strange and any(v.kind == "module" for v in event.args) else None

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
        found = self.definition.functions.get(node.name) if not isinstance(self.definition.node, ast.Module) else None
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

    def assign(
        self, target: ast.expr, value: Value, stmt: ast.AST, expr: ast.expr | None = None, quiet: bool = False
    ) -> None:
        kind = type(target)
        if kind is ast.Name:
            name = target.id  # type: ignore[attr-defined]
            if not quiet and isinstance(stmt, ast.Assign) and expr is not None:
                self.note_total(name, target, value, stmt, expr)
            if self.files and value.objs and isinstance(stmt, (ast.Assign, ast.AnnAssign)):
                self.event("bind", stmt, name, value=value, name=name, expr=expr)
            old = self.env.get(name)
            if name in self.globals or self.definition is self.module.top:
                obj = self.project.global_obj(self.module, name)
                if name in self.globals:
                    self.event("set", stmt, name, value=value, target=obj, name=name, expr=expr)
            self.rebind(name)
            if self.definition is self.module.top and value.kind in CONTAINERS and value.obj is not None:
                value = self.project.global_value(self.module, name, value)
            if value.kind == "unknown" and self.project.role(self.definition, name) == "module":
                value = value.but(kind="module", deps=EMPTY, objs=value.objs or (self.make("module", stmt, name),))
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
                part = (
                    expr.elts[i]
                    if isinstance(expr, (ast.Tuple, ast.List)) and len(expr.elts) == len(elements)
                    else expr
                )
                item = self.item(value, i, len(elements))
                if item.part and self.used_as_tensor(chain(element)):
                    item.part = False
                self.assign(element, item, stmt, part)
        elif kind is ast.Attribute:
            self.assign_attribute(target, value, stmt, expr, quiet)  # type: ignore[arg-type]
        elif kind is ast.Subscript:
            self.assign_item(target, value, stmt, expr, quiet)  # type: ignore[arg-type]
        elif kind is ast.Starred:
            self.assign(target.value, value, stmt, expr)  # type: ignore[attr-defined]

    def used_as_tensor(self, name: str) -> bool:
        """Whether the function does with a name what only a tensor can do."""
        use = self.project.uses(self.definition).get(name)
        return use is not None and not TENSOR_ONLY.isdisjoint(use.attributes)

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
        if (
            isinstance(expr, ast.Call)
            and isinstance(expr.func, ast.Attribute)
            and expr.func.attr == "get"
            and expr.args
        ):
            return f"{written(expr.func.value)}[{written(expr.args[0])}]" == name  # totals.get(name, 0)
        return written(expr) == name if isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)) else False

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
        name = written(target)
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
                if value.objs and self.absent(target):
                    self.stays(obj, value)

    def absent(self, target: ast.Subscript) -> bool:
        """Whether a condition around says that there is no such element yet."""
        if not self.guards:
            return False
        key, holder = written(target.slice), written(target.value)
        return not {(f"{key} not in {holder}", True), (f"{key} in {holder}", False)}.isdisjoint(self.guards)


STATEMENTS: dict[type, Callable[[Flow, Any], None]] = {
    ast.Expr: Flow.do_expr,
    ast.Assign: Flow.do_assign,
    ast.AnnAssign: Flow.do_ann_assign,
    ast.AugAssign: Flow.do_aug_assign,
    ast.If: Flow.do_if,
    ast.For: Flow.do_for,
    ast.AsyncFor: Flow.do_for,
    ast.While: Flow.do_while,
    ast.Try: Flow.do_try,
    ast.With: Flow.do_with,
    ast.AsyncWith: Flow.do_with,
    ast.Return: Flow.do_return,
    ast.Delete: Flow.do_delete,
    ast.Raise: Flow.do_raise,
    ast.Break: Flow.do_break,
    ast.Continue: Flow.do_break,
    ast.FunctionDef: Flow.do_function,
    ast.AsyncFunctionDef: Flow.do_function,
    ast.ClassDef: Flow.do_class,
    ast.Assert: Flow.do_assert,
    ast.Global: Flow.do_global,
    ast.Nonlocal: Flow.do_global,
    ast.Match: Flow.do_match,
}
if hasattr(ast, "TryStar"):
    STATEMENTS[ast.TryStar] = Flow.do_try
