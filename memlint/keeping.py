"""Questions about what is kept for nothing: models in records that nobody reads, outputs through the next forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.becomes import Path, Search
from memlint.extract import Class, Definition, Module, walk
from memlint.facts import Event, Grad, Value
from memlint.function import Function
from memlint.hoard import container
from memlint.lifetimes import COMPREHENSIONS, LOOPS
from memlint.parameters import Parameters
from memlint.trace import active, note, unseen
from memlint.values import chain

STORES = frozenset("append extend add insert setdefault put update add_batch add_all_batch log push".split())
LARGE = 10_000  # outputs a position: a vocabulary, a catalogue
_RETURNED = re.compile(r"\breturn[\s(\\]*self\.([\w.]+)")
_WIDTH = re.compile(  # how many outputs a layer has, as a number or by a name
    r"Linear\((?:[^,]{0,200},|[^)]{0,200}out_features\s*=)\s*(?:out_features\s*=\s*)?(?:\d[\d_]{4,}|([A-Za-z_]\w*))\s*[,)]"
)
CHOOSES = frozenset({"min", "max", "sorted", "list", "enumerate", "zip", "reversed", "len"})
_NO_RECORDS = (ast.Constant, ast.JoinedStr, ast.Tuple, ast.List, ast.ListComp, ast.BinOp, ast.UnaryOp, ast.Compare)
VIEWS = frozenset("view reshape squeeze unsqueeze transpose permute flatten detach t T data".split())


class Readers(Search):
    """Whether anything ever reads one entry of the records that a container holds: ``lost`` is the first that may."""

    def in_attribute(self, where: Definition, node: ast.AST, parent: ast.Attribute, path: Path, reduced: bool) -> None:
        call = self.parent(where, parent)
        if parent.attr == "sort" and isinstance(call, ast.Call):
            self.keys(where, call, path)
        elif parent.attr in ("append", "clear", "insert", "reverse"):
            return
        else:
            self.lose(node)

    def in_dict(self, where: Definition, node: ast.AST, parent: ast.AST, path: Path, reduced: bool) -> None:
        self.lose(node)

    def in_subscript(self, where: Definition, node: ast.AST, parent: ast.Subscript, path: Path, reduced: bool) -> None:
        index = parent.slice
        if parent.value is not node:
            self.lose(node)
        elif isinstance(index, ast.Constant) and isinstance(index.value, str):
            if index.value in self.entries:
                self.lose(node)
        elif isinstance(index, ast.Constant) and path and self.record:
            if index.value == path[0]:
                self.lose(node)
        else:
            self.follow(where, parent, path, reduced)

    def in_call(self, where: Definition, node: ast.AST, parent: ast.Call, path: Path, reduced: bool) -> None:
        if isinstance(parent.func, ast.Name) and parent.func.id in CHOOSES:
            self.keys(where, parent, path)
            if parent.func.id != "len":
                self.follow(where, parent, path, reduced)
        else:
            self.lose(node)

    def keys(self, where: Definition, call: ast.Call, path: Path) -> None:
        """The ``key=`` of a choice reads each record."""
        for keyword in call.keywords:
            if keyword.arg != "key" or not isinstance(keyword.value, ast.Lambda):
                self.lose(call)
                continue
            name = keyword.value.args.args[0].arg if keyword.value.args.args else ""
            for n in walk(keyword.value.body):
                if isinstance(n, ast.Name) and n.id == name:
                    self.record = True
                    self.follow(where, n, path, False)

    entries: frozenset[str] = frozenset()
    record = False


def may_keep_models(fn: Function) -> bool:
    """Whether a loop may both build models and append records to a list: what syntax alone says of `models_kept`."""
    calls = {n: None for loop in fn.nodes_of(*LOOPS, *COMPREHENSIONS) for n in walk(loop) if isinstance(n, ast.Call)}
    named = any(map(_names_entry, fn.definition.nodes))
    return any(_appends_record(fn, call, named) for call in calls) and _names_models(fn)


def _appends_record(fn: Function, call: ast.Call, named: bool) -> bool:
    """Whether a call may append a dict with a named entry to a list; ``named``: the function makes such entries."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr == "append" and isinstance(func.value, ast.Name)):
        return False
    values, names = list(call.args), set[str]()
    for value in values:  # grows as it goes
        if isinstance(value, ast.IfExp):
            values += (value.body, value.orelse)
        elif isinstance(value, ast.Call):
            if (named and chain(value.func) == "dict") or _may_be_given(fn, value):
                return True
        elif isinstance(value, ast.Name):
            if value.id not in names:
                names.add(value.id)
                given = fn.values_of(value.id)
                if named and (None in given or value.id in fn.definition.parameters):
                    return True
                values += (g for g in given if g is not None)
        elif named and not isinstance(value, _NO_RECORDS):
            return True
    return False


def _may_be_given(fn: Function, call: ast.Call) -> bool:
    """Whether a function of the project may be what is called, which may put models into what it returns, or a copy."""
    meaning = fn.project.names.named(chain(call.func), fn.definition)
    if meaning is None and isinstance(call.func, ast.Attribute):
        of_self = chain(call.func.value) in fn.definition.positional[:1] and fn.definition.bound
        return not of_self and fn.project.library.method("tensor", call.func.attr) is None
    return isinstance(meaning, Definition) or (isinstance(meaning, str) and meaning.startswith("copy."))


def _names_entry(node: ast.AST) -> bool:
    """Whether a piece of syntax gives a dict an entry that has a name."""
    if isinstance(node, ast.Dict):
        return any(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in node.keys)
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return called == "setdefault" or (called in ("dict", "update") and bool(node.keywords))
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Constant)


def _names_models(fn: Function) -> bool:
    """Whether a function names a class of models, or calls an attribute that one may be put in."""
    definition = fn.definition
    if any(_may_be_model(fn, n, definition) for n in fn.nodes_of(ast.Name, ast.Attribute)):
        return True
    if definition.cls is None or not definition.bound:
        return False
    for name in definition.called:
        me, _, attr = name.partition(".")
        for writer in fn.project.writers(definition.cls, attr) if me == definition.positional[0] else ():
            assigned = (n for n in writer.nodes if isinstance(n, ast.Assign) and name in map(chain, n.targets))
            if any(_may_be_model(fn, n.value, writer) for n in assigned):
                return True
    return False


def _may_be_model(fn: Function, node: ast.AST, where: Definition) -> bool:
    """Whether a name may mean a class of models, or what holds some."""
    meaning = fn.project.names.resolve(node, where) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if isinstance(meaning, Class):
        return fn.project.is_module(meaning)
    if isinstance(meaning, str):
        row = fn.project.library.lookup(meaning)
        return row is not None and "module" in (row.kind, row.returns)
    return isinstance(meaning, ast.expr) and not isinstance(meaning, ast.Constant)


def models_kept(fn: Function) -> Iterator[tuple[Event, Event]]:
    """Models built anew in a loop, each with the store that keeps every one of them, though nobody reads it there."""
    builds = [e for e in fn.own("build") if e.name == "module" and e.loops]
    for build in builds:
        for store in fn.own("store"):
            if store.loops[:1] != build.loops[:1] or store.name != "append" or not fn.outlives(store):
                continue
            entries = frozenset(_entries(store.value, build))
            target = container(store)
            if not entries or not isinstance(target, ast.Name) or not fn.outlives(store):
                continue
            search = Readers(fn.project)
            search.entries = entries
            search.container(fn.definition, target, ())
            if search.fate.lost is None:
                yield build, store
                break


def _entries(record: Value, build: Event) -> Iterator[str]:
    """The keys under which a dict holds a model, or an optimizer of its parameters."""
    if record.kind != "dict" or record.obj is None:
        return
    for key, value in record.obj.items.items():
        model = value.obj.model if value.obj is not None and value.kind == "optimizer" else value
        if isinstance(key, str) and model is not None and set(model.objs) & set(build.value.objs):
            yield key


def stale_outputs(fn: Function) -> Iterator[tuple[Event, ast.Assign, ast.stmt, int]]:
    """Forwards without autograd whose large result stays bound into the next one: with its statement and last use."""
    for forward in fn.own("forward") if active() or _wide(fn.project) else ():
        stmt = forward.stmt
        if not forward.loops or not isinstance(stmt, ast.Assign):
            continue
        if stmt.value is not forward.site or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        cls = fn.project.class_named(forward.receiver.type)
        width = _width(fn.project, cls) if cls is not None else 0
        name, loop = stmt.targets[0].id, forward.loops[-1]
        if width < LARGE or not isinstance(loop, (ast.For, ast.While)):
            continue
        last = _last_use(fn, name, loop, stmt)
        if last is not None and fn.grad(forward) is Grad.OFF:
            yield forward, stmt, last, width


def _wide(project: Parameters) -> bool:
    """Whether the forward of any class of the project gives so many numbers for each position."""
    note(("wide", ""))
    seen, found = project.answers.get("wide", (0, False))
    more = project.names.beyond(seen)
    if not found and more:
        with unseen():
            found = any(has_wide(project, module) for module in more)
        project.answers["wide"] = seen + len(more), found
    return bool(found)


def has_wide(project: Parameters, module: Module) -> bool:
    """Whether the forward of a class of a file gives so many numbers for each position."""
    known = module.variables.keys() | module.imports.keys()
    given = (not name or name in known or module.stars for name in _WIDTH.findall(module.source.text))
    return any(given) and any(_width(project, cls) >= LARGE for cls in module.every_class())


def _width(project: Parameters, cls: Class) -> int:
    """How many numbers a forward gives for each position, where the last layer of a project's module says so."""
    method = project.names.method(cls, "forward")
    init = project.names.method(cls, "__init__")
    if method is None or init is None or not _may_end_wide(method, init):
        return 0
    end = method.body[-1]
    value = end.value if isinstance(end, ast.Return) else None
    head = chain(value.func) if isinstance(value, ast.Call) else ""
    if not head.startswith("self."):
        return 0
    for node in walk(init.node):
        if isinstance(node, ast.Assign) and any(chain(t) == head for t in node.targets):
            call = node.value
            named = project.names.resolve(call.func, init) if isinstance(call, ast.Call) else None
            if named == "torch.nn.Linear" and isinstance(call, ast.Call):
                given = call.args[1:2] or [k.value for k in call.keywords if k.arg == "out_features"]
                return _whole(project, given[0], init) if given else 0
    return 0


def _may_end_wide(forward: Definition, init: Definition) -> bool:
    """Whether a forward may return what a linear layer gives, by the text alone: most files need not be parsed."""
    return init.says("Linear(") and any(init.says(f"self.{head}") for head in _RETURNED.findall(forward.text))


def _whole(project: Parameters, node: ast.expr, where: Definition) -> int:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else 0
    if isinstance(node, ast.Name) and node.id in where.defaults:
        return 0  # a caller may give less
    meaning = project.names.resolve(node, where)
    return _whole(project, meaning, where) if isinstance(meaning, ast.Constant) else 0


def _last_use(fn: Function, name: str, loop: ast.For | ast.While, stmt: ast.Assign) -> ast.stmt | None:
    """The statement of the loop's body that uses a result last; None where it is let go, shared or wanted later."""
    last: ast.stmt | None = None
    for each in loop.body:
        for node in walk(each):
            if isinstance(node, ast.Name) and node.id == name:
                if isinstance(node.ctx, ast.Del) or (isinstance(node.ctx, ast.Store) and each is not stmt):
                    return None
                if isinstance(node.ctx, ast.Load):
                    last = each
                    if _shared(fn, node):
                        return None
    everywhere = sum(1 for n in fn.nodes_of(ast.Name) if chain(n) == name)
    inside = sum(1 for b in loop.body for n in walk(b) if isinstance(n, ast.Name) and n.id == name)
    if last is None or everywhere != inside or not isinstance(last, (ast.Assign, ast.AugAssign, ast.Expr)):
        return None
    return last if stmt in loop.body else None


def _shared(fn: Function, node: ast.AST) -> bool:
    """Whether a use lets something else hold the same storage: another name, a container, a view."""
    above: ast.AST | None = node
    while True:
        parent = fn.parents.get(above) if above is not None else None
        if (
            isinstance(parent, (ast.Subscript, ast.Starred))
            or (isinstance(parent, ast.Attribute) and parent.attr in VIEWS)
            or (isinstance(parent, ast.Call) and parent.func is above)
        ):
            above = parent
        else:
            break
        if isinstance(above, ast.Call) and not isinstance(
            fn.parents.get(above), (ast.Assign, ast.Tuple, ast.List, ast.Dict)
        ):
            return False
    if isinstance(parent, ast.Call):
        func = parent.func
        return isinstance(func, ast.Attribute) and func.attr in (
            "append",
            "extend",
            "add",
            "insert",
            "setdefault",
            "put",
        )
    return isinstance(parent, (ast.Assign, ast.Tuple, ast.List, ast.Dict, ast.Return, ast.Yield, ast.NamedExpr))
