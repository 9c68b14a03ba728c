"""Checkpoints that are still there while something long runs: the names that hold them, their last use, what runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.extract import Definition, walk
from memlint.facts import Event, Obj, Value
from memlint.function import Function
from memlint.lifetimes import LOOPS
from memlint.restoring import READERS, files_in, restores, run_as_module
from memlint.trace import note

READS = frozenset("items keys values get pop copy popitem setdefault update".split())
RUNS = frozenset({"fit", "train", "test", "validate", "evaluate", "predict", "run"})  # of a framework's trainer
DEPTH = 3  # functions below a call in which a loop is looked for
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Lingering:
    """A checkpoint that nobody needs any more. ``end`` is the statement of its block after which that is so."""

    load: Event
    names: tuple[str, ...]
    last: ast.stmt
    end: ast.stmt | None
    during: ast.stmt


def lingering(fn: Function) -> Iterator[Lingering]:
    """The checkpoints of a function that outlast their last use by a whole training or evaluation loop."""
    seen: set[ast.AST] = set()
    for load in fn.events("load"):
        found = _Stay(fn, load).found() if load.value.obj is not None else None
        if found is not None and found.last not in seen:
            seen.add(found.last)
            yield found


class _Stay:
    """One file's content in one function."""

    def __init__(self, fn: Function, load: Event) -> None:
        self.fn, self.load = fn, load
        assert load.value.obj is not None
        self.file: Obj = load.value.obj
        self.lifetimes = fn.lifetimes

    def found(self) -> Lingering | None:
        fn, file = self.fn, self.file
        copies = [e for e in fn.events("restore") if restores(fn, e, file)]
        if not copies or any(_assigns(e) for e in copies) or any(run_as_module(e, file) for e in fn.own("call")):
            return None
        weights = {o for e in copies for o in _entries(e.value, file)}
        binds = [e for e in fn.own("bind") if self._holds(e.value, weights)]
        if not binds or self._kept_elsewhere(weights):
            return None
        names = {e.name for e in binds}
        uses = [u for e in binds for u in self.lifetimes.uses(e.name, e.stmt)]
        uses += [u for n in names for u in self.lifetimes.loads.get(n, ()) if isinstance(u, ast.Name)]
        if not all(self._harmless(u, names) for u in uses):
            return None
        last = max((fn.statements[u] for u in uses if u in fn.statements), key=_end, default=binds[-1].stmt)
        if not isinstance(last, ast.stmt):
            return None
        for during in self._long(binds, last):
            alive = [e for e in binds if not self._gone(e, during)]
            if alive and not any(_end(u) > (during.lineno, 0) for u in uses):
                held = tuple(dict.fromkeys(e.name for e in alive))
                return Lingering(self.load, held, last, self._end_in_block(alive, last, during), during)
        return None

    def _holds(self, value: Value, weights: set[Obj]) -> bool:
        """Whether a value keeps weights of the file: all of it, an entry that is copied, a collection of them."""
        if self.file in value.objs:
            return True
        entries = [o for o in value.objs if o.whole is self.file]
        if entries:
            return any(_within(w, o) for w in weights for o in entries)
        if value.kind not in ("dict", "list") or self.file not in files_in(value):
            return False
        parts = set(_entries(value, self.file))
        loose = {o for o in parts if o.parent is self.file and o.name.endswith("[]")}  # an epoch as well as weights
        return not parts or self.file in weights or not parts <= loose

    def _kept_elsewhere(self, weights: set[Obj]) -> bool:
        """Whether something that the function does not own holds it too, or may."""
        for event in self.fn.events("set", "store", "yield"):
            if event.verb == "store" and event.target is not None and not event.target.shared:
                continue  # into a collection of the function's own, which is a name like any other
            if self._holds(event.value, weights):
                return True
        return self.fn.flow is None or self._holds(self.fn.flow.returns, weights)

    def _harmless(self, use: ast.expr, names: set[str]) -> bool:
        """Whether a use leaves nothing behind that holds the file, as far as one can see."""
        parent = self.lifetimes.parents.get(use)
        if isinstance(parent, ast.Attribute):
            return parent.attr in READS
        if isinstance(parent, ast.keyword):
            parent = self.lifetimes.parents.get(parent)
        if isinstance(parent, ast.Call) and use is not parent.func:
            return self._only_reads(parent)
        if isinstance(parent, (ast.Tuple, ast.List, ast.Dict, ast.Yield, ast.Return, ast.Lambda, ast.Starred)):
            return False
        if isinstance(parent, ast.Assign):
            return all(isinstance(t, ast.Name) for t in parent.targets)
        return True

    def _only_reads(self, call: ast.Call) -> bool:
        event = next((e for e in self.fn.own("call") if e.site is call), None)
        if event is None:
            return False
        if isinstance(event.callee, Definition):
            return event.callee.name != "__init__" and not self._keeps(event.callee)
        name = event.receiver.type or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
        if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict":
            return True
        return name in READERS or name in (
            "dict",
            "collections.OrderedDict",
            "copy.deepcopy",
            "enumerate",
            "torch.save",
        )

    def _keeps(self, definition: Definition) -> bool:
        """Whether a function puts what it is handed where it stays."""
        flow = self.fn.project.flow(definition)
        return flow is None or any(
            o.parameter >= 0 and o.home is definition
            for e in flow.events
            if e.verb in ("set", "store", "yield")
            for o in e.value.objs
        )

    def _long(self, binds: list[Event], last: ast.stmt) -> Iterator[ast.stmt]:
        """Statements after the last use, reached from all that it is bound by, that train or evaluate for long."""
        first = binds[0].stmt
        for stmt in sorted((n for n in self.fn.definition.nodes if isinstance(n, ast.stmt)), key=_begin):
            if _begin(stmt) > _end(last) and self._follows(stmt, first) and self._runs(stmt):
                yield stmt

    def _follows(self, later: ast.stmt, earlier: ast.AST) -> bool:
        """Whether control gets from one statement to a later one: no branch parts them, and none leaves before."""
        above: dict[tuple[ast.AST | None, str], ast.AST] = dict(self._chain(later))
        for block, child in self._chain(earlier):
            if block in above:
                return _begin(above[block]) > _begin(child)
            body = getattr(block[0], block[1], ())
            if any(isinstance(s, _LEAVES) and _begin(s) > _begin(child) for s in body):
                return False
        return False

    def _chain(self, node: ast.AST) -> Iterator[tuple[tuple[ast.AST | None, str], ast.AST]]:
        """The blocks around a statement, innermost first, each with the statement of it that holds the node."""
        at: ast.AST | None = node
        while at is not None:
            parent = self.lifetimes.parents.get(at)
            if parent is None:
                return
            if isinstance(at, ast.stmt):
                name = next((n for n, v in ast.iter_fields(parent) if isinstance(v, list) and at in v), "")
                yield (parent, name), at
            at = parent

    def _runs(self, stmt: ast.stmt) -> bool:
        fn = self.fn
        if isinstance(stmt, LOOPS):
            inside = any(stmt in e.loops for e in fn.events("forward", "backward", "step"))
            calls = [e for e in fn.own("call") if stmt in e.loops and isinstance(e.callee, Definition)]
            if inside or any(runs_model(fn, e.callee, 0, False) for e in calls):
                return True
            return any(stmt in e.loops and self._handed(e) for e in fn.own("call"))
        if isinstance(stmt, (ast.Expr, ast.Assign, ast.AnnAssign)):
            return any(e.stmt is stmt and _long_call(fn, e) for e in fn.own("call"))
        return False

    def _handed(self, call: Event) -> bool:
        """Whether what is called was handed over, or chosen among several functions of the project: it may well run
        the model that the checkpoint is for."""
        site, callee = call.site, call.receiver
        if not isinstance(site, ast.Call) or not isinstance(site.func, ast.Name) or not call.args:
            return False
        name, own = site.func.id, callee.target is None and not callee.type
        chosen = callee.kind == "function" and name in self.lifetimes.binds
        return own and (chosen or (callee.kind in ("unknown", "module") and name in self.fn.definition.parameters))

    def _gone(self, bind: Event, before: ast.stmt) -> bool:
        """Whether a name lets go of it before a statement: deleted, or bound to something else."""
        start, end = _end(bind.stmt), _begin(before)
        for node in self.fn.definition.nodes:
            if isinstance(node, ast.Name) and node.id == bind.name and not isinstance(node.ctx, ast.Load):
                if start < _begin(node) < end:
                    return True
        return False

    def _end_in_block(self, binds: list[Event], last: ast.stmt, during: ast.stmt) -> ast.stmt | None:
        """The statement of the bindings' one block that holds the last use."""
        blocks = {next(self._chain(e.stmt))[0] for e in binds}
        if len(blocks) != 1:
            return None
        (block,) = blocks
        found = next((child for b, child in self._chain(last) if b == block), None)
        inside = found is not None and any(n is during for n in walk(found))
        return found if isinstance(found, ast.stmt) and not inside else None


def runs_model(fn: Function, definition: Definition, depth: int, loops: bool) -> bool:
    """Whether a function runs a model, or where ``loops`` is set, runs one in a loop."""
    flow = fn.project.flow(definition) if depth < DEPTH else None
    for event in flow.events if flow is not None else ():
        if event.verb in ("forward", "backward") and (event.loops or not loops):
            return True
        if event.verb == "call" and event.inner is None and isinstance(event.callee, Definition):
            if event.callee is not definition and runs_model(fn, event.callee, depth + 1, loops and not event.loops):
                return True
    return False


def _long_call(fn: Function, call: Event) -> bool:
    """Whether a call trains or evaluates: a function that runs a model in a loop, a trainer's ``fit``."""
    if isinstance(call.callee, Definition):
        return runs_model(fn, call.callee, 0, True)
    owner = call.receiver.receiver
    func = call.site.func if isinstance(call.site, ast.Call) else None
    return owner is not None and owner.kind == "trainer" and isinstance(func, ast.Attribute) and func.attr in RUNS


def _entries(value: Value, file: Obj, depth: int = 0) -> Iterator[Obj]:
    """The parts of a file that a value consists of."""
    yield from (o for o in value.objs if o.whole is file)
    if depth < DEPTH:
        for obj in value.objs:
            for inner in (obj.elem, *obj.items.values()):
                if inner is not None and inner is not value:
                    yield from _entries(inner, file, depth + 1)


def _within(part: Obj, whole: Obj) -> bool:
    at: Obj | None = part
    while at is not None and at is not whole:
        at = at.parent
    return at is whole


def _assigns(restore: Event) -> bool:
    """Whether the weights are not copied but taken over as they are."""
    flag = restore.keywords.get("assign")
    return flag is not None and flag.const is not False


def _begin(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def shared_name(fn: Function, name: str) -> bool:
    """Whether code outside the function may read one of its names: nested functions, importers, a notebook's cells."""
    module = fn.definition.module
    if isinstance(fn.node, ast.Module):
        if fn.source.is_notebook or any(_reads(d, name) for d in module.mentioning(name)):
            return True
        note(("holds", name))
        others = [m for m in fn.project.names.modules.values() if m is not module and m.holds(name)]
        return any(module in fn.project.imported(m) for m in others)
    own = {id(n) for n in fn.definition.nodes}
    return any(isinstance(n, ast.Name) and n.id == name and id(n) not in own for n in walk(fn.node))


def _reads(definition: Definition, name: str) -> bool:
    """Whether a function reads a name that it does not bind itself."""
    if isinstance(definition.node, ast.Module) or name in definition.parameters:
        return False
    found = [n for n in walk(definition.node) if isinstance(n, ast.Name) and n.id == name]
    return bool(found) and all(isinstance(n.ctx, ast.Load) for n in found)
