"""`del` statements that free nothing: what the name meant is held by another name or by a container all the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.extract import walk
from memlint.facts import Event, Value
from memlint.function import Function
from memlint.lifetimes import LOOPS
from memlint.values import chain

TENSORS = frozenset({"tensor", "parameter", "indices", "module"})
ADDS = frozenset({"append", "add", "insert", "appendleft"})
EMPTIES = frozenset("pop popleft popitem clear remove discard sort reverse __delitem__".split())
READS = frozenset("len print sum zip enumerate sorted reversed list tuple range min max isinstance iter".split())
DISPLAYS = (ast.List, ast.Tuple, ast.ListComp)
DEPTH = 3  # names for names that are followed


class Idle:
    """The idle `del` statements of one function."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.life = fn.lifetimes
        self.calls: dict[ast.AST, Event] = {e.site: e for e in fn.own("call")}
        self.forwards = {e.site for e in fn.forwards}
        self.deleted = {n.id for n in fn.nodes_of(ast.Name) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}

    def holder(self, stmt: ast.Delete, name: str) -> str:
        """What holds the object that a name means when it is deleted, in words; "" where nothing does for sure."""
        bound = self.life.certain(name, stmt)
        if isinstance(bound, ast.For):
            return self._iterated(bound, name)
        if not isinstance(bound, ast.Assign) or not self._is_tensor(bound.value):
            return ""
        return self._other_name(bound, stmt, name) or self._container(bound, stmt, name)

    # ------------------------------------------------------------------ loops that only delete their variable

    def empty_loop(self, stmt: ast.Delete) -> ast.For | None:
        """The outermost loop around a `del` that only deletes its variables, and runs over what holds its elements."""
        found = None
        above: ast.AST | None = self.life.parents.get(stmt)
        while isinstance(above, (ast.If, ast.For)):
            if isinstance(above, ast.For) and not above.orelse and _only_deletes(above.body, _bound(above)):
                found = above
            above = self.life.parents.get(above)
        return found if found is not None and self._stays(found.iter, found) else None

    def _stays(self, over: ast.expr, loop: ast.For) -> bool:
        """Whether what is iterated goes on holding its elements: a container, or the parameters of a module."""
        event = self.calls.get(over)
        if event is not None:
            return event.value.kind == "parameters"
        if not isinstance(over, ast.Name) or self.fn.flow is None:
            return False
        made = self.life.reaching(over.id, loop)
        if made is not None:
            return isinstance(made, ast.Assign) and isinstance(made.value, DISPLAYS)
        value = self.fn.flow.arguments.get(over.id)
        return value is not None and (self._contains(value) or self._given(over.id))

    def _given(self, name: str) -> bool:
        """Whether all calls in sight hand over a container for a parameter."""
        fn = self.fn
        callers = [(f, e) for f, e in fn.project.callers(fn.definition) if f.definition is not fn.definition]
        values = [fn.project.argument(fn.definition, name, flow, event) for flow, event in callers]
        return bool(values) and all(v is not None and self._contains(v) for v in values)

    def _contains(self, value: Value) -> bool:
        cls = self.fn.project.class_named(value.type)
        named = cls is not None and "typing.NamedTuple" in self.fn.project.names.library_bases(cls)
        return named or value.kind in ("list", "tuple", "set", "dict", "deque")

    # ------------------------------------------------------------------ what is held by a list that is looped over

    def _iterated(self, loop: ast.For, name: str) -> str:
        over = _source(loop.iter, loop.target, name)
        if over is None:
            return ""
        shown = over
        if isinstance(over, ast.Name):
            made = self.life.reaching(over.id, loop)
            if not isinstance(made, ast.Assign) or not self._keeps(over.id, made):
                return ""
            shown = made.value
        if isinstance(shown, ast.Call) and chain(shown.func) in ("list", "tuple", "sorted") and len(shown.args) == 1:
            shown = shown.args[0]
        if isinstance(shown, ast.ListComp) and self._is_tensor(shown.elt):
            return f"`{over.id}` holds it" if isinstance(over, ast.Name) else "the list that is looped over holds it"
        if isinstance(shown, (ast.List, ast.Tuple)) and shown.elts and all(map(self._is_tensor, shown.elts)):
            return f"`{over.id}` holds it" if isinstance(over, ast.Name) else "what is looped over holds it"
        return ""

    # ------------------------------------------------------------------ what has another name, or is in a container

    def _other_name(self, bound: ast.Assign, stmt: ast.Delete, name: str) -> str:
        copies = [(chain(bound.value), bound)]
        for other, binds in self.life.binds.items():
            copies += [(other, b) for b in binds if isinstance(b, ast.Assign) and chain(b.value) == name]
        for other, copy in copies:
            if not other or other == name or copy.lineno < bound.lineno or copy.lineno >= stmt.lineno:
                continue
            if self.life.block(copy) not in self.life.blocks(stmt) or not self._keeps(other, copy, bound):
                continue
            if "." not in other and self._is_used(other, stmt):
                return f"`{other}` is the same object"
        return ""

    def _container(self, bound: ast.Assign, stmt: ast.Delete, name: str) -> str:
        for store in self.fn.own("store"):
            call, obj = store.site, store.target
            if store.name not in ADDS or chain(store.expr or call) != name or obj is None or obj.bounded or obj.shared:
                continue
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or obj.parameter >= 0:
                continue
            holder = chain(call.func.value)
            made = self.life.reaching(holder, call)
            inside = bound.lineno <= call.lineno < stmt.lineno and self.life.block(store.stmt) in self.life.blocks(stmt)
            if inside and isinstance(made, ast.Assign) and "." not in holder and self._keeps(holder, made):
                if self._is_used(holder, stmt):
                    return f"`{holder}` holds it"
        return ""

    def _keeps(self, name: str, made: ast.Assign, also: ast.AST | None = None) -> bool:
        """Whether what a name is bound to stays bound to it, and whole, for the rest of the function."""
        if name in self.deleted or any(
            b not in (made, also) and _after(b, made) for b in self.life.binds.get(name, ())
        ):
            return False
        for use in self.life.loads.get(name, ()):
            parent = self.fn.parents.get(use)
            if isinstance(parent, ast.Attribute) and parent.attr in EMPTIES:
                return False
            if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
                return False
            if isinstance(parent, (ast.Call, ast.keyword, ast.Starred)) and isinstance(made.value, DISPLAYS):
                call = parent if isinstance(parent, ast.Call) else self.fn.parents.get(parent)
                if use is not getattr(call, "func", None) and not self._only_reads(call):
                    return False  # whoever gets the container may empty it
        return True

    def _only_reads(self, call: ast.AST | None) -> bool:
        event = self.calls.get(call) if call is not None else None
        kind = event.receiver.type if event is not None else ""
        return kind in READS or kind.startswith(("torch.", "numpy."))

    def _is_used(self, name: str, stmt: ast.stmt) -> bool:
        """Whether a name is read after a statement, or in the next iteration of a loop around it."""
        loops = []
        above = self.life.parents.get(stmt)
        while above is not None:
            loops += [above] if isinstance(above, LOOPS) else []
            above = self.life.parents.get(above)
        return any(
            n.lineno > stmt.lineno or any(self.life.inside(n, loop) for loop in loops)
            for n in self.life.loads.get(name, ())
        )

    # ------------------------------------------------------------------ what is worth freeing

    def _is_tensor(self, expression: ast.AST, depth: int = 0) -> bool:
        """Whether an expression gives a tensor or a module, or what a model returns."""
        if isinstance(expression, ast.Name) and depth < DEPTH:
            made = self.life.reaching(expression.id, expression)
            return isinstance(made, ast.Assign) and self._is_tensor(made.value, depth + 1)
        event = self.calls.get(expression)
        return expression in self.forwards or (event is not None and _weighs(event.value))


def _weighs(value: Value) -> bool:
    return value.kind in TENSORS or (value.kind == "unknown" and value.device in ("device", "model"))


def _source(over: ast.expr, target: ast.expr, name: str) -> ast.expr | None:
    """The container whose elements a loop gives to a name: itself, or one of those in `enumerate` and `zip`."""
    if isinstance(target, ast.Name):
        return over if target.id == name else None
    if not isinstance(over, ast.Call) or not isinstance(target, ast.Tuple) or over.keywords:
        return None
    held: dict[str, list[ast.expr | None]] = {"enumerate": [None, *over.args[:1]], "zip": [*over.args]}
    places = held.get(chain(over.func), [])
    for element, source in zip(target.elts, places, strict=False):
        found = _source(source, element, name) if source is not None else None
        if found is not None:
            return found
    return None


def _after(node: ast.AST, other: ast.AST) -> bool:
    return getattr(node, "lineno", 0) > other.lineno or isinstance(node, ast.comprehension)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A `del` that frees nothing, what holds the objects, and the statement that can go: it, or the loop of such."""

    stmt: ast.Delete
    holders: tuple[str, ...]
    whole: ast.stmt


def idle_deletions(fn: Function) -> Iterator[Deletion]:
    """The `del` statements of a function that free nothing of what they name."""
    statements = {s: _names(s) for s in fn.nodes_of(ast.Delete) if isinstance(s, ast.Delete)}
    if isinstance(fn.node, ast.Module) or not any(statements.values()) or fn.flow is None:
        return
    idle = Idle(fn)
    for stmt, names in statements.items():
        loop = idle.empty_loop(stmt)
        if loop is not None:
            if loop.body[0] is stmt or not any(idle.empty_loop(s) is loop and _before(s, stmt) for s in statements):
                yield Deletion(stmt, (f"`{ast.unparse(loop.iter)}` holds what `{names[0]}` meant",), loop)
            continue
        holders = tuple(idle.holder(stmt, name) for name in names)
        if holders and all(holders):
            yield Deletion(stmt, holders, stmt)


def _names(stmt: ast.Delete) -> list[str]:
    """The names that a statement deletes, none if it deletes anything else."""
    targets = [t for target in stmt.targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [t.id for t in targets if isinstance(t, ast.Name)] if all(isinstance(t, ast.Name) for t in targets) else []


def _before(node: ast.stmt, other: ast.stmt) -> bool:
    return (node.lineno, node.col_offset) < (other.lineno, other.col_offset)


def _only_deletes(body: list[ast.stmt], bound: frozenset[str]) -> bool:
    """Whether statements do nothing but delete the variables of the loops that they stand in."""
    for stmt in body:
        if isinstance(stmt, ast.Delete):
            names = _names(stmt)
            if not names or not bound.issuperset(names):
                return False
        elif isinstance(stmt, ast.For) and not stmt.orelse and isinstance(stmt.iter, ast.Name):
            if stmt.iter.id not in bound or not _only_deletes(stmt.body, bound | _bound(stmt)):
                return False
        elif not (isinstance(stmt, ast.If) and not stmt.orelse and _only_deletes(stmt.body, bound)):
            return False
    return True


def _bound(loop: ast.For) -> frozenset[str]:
    return frozenset(n.id for n in walk(loop.target) if isinstance(n, ast.Name))
