"""Questions about what a loop over batches collects: where it is, what it pins, and whether the device needs it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memlint.becomes import JOINS, REDUCTIONS, Fate, Path, Search, fate_of, fate_of_value
from memlint.expressions import BUILTINS
from memlint.extract import SCOPES, Definition, children, walk
from memlint.facts import UNKNOWN, Answer, Event, Value
from memlint.function import Function
from memlint.lifetimes import COMPREHENSIONS, LOOPS
from memlint.values import GRAPHLESS, chain

SPREADS = frozenset({"append", "extend", "add", "insert", "appendleft", "put", "item"})
MOVES = frozenset({"to", "cuda"})
SHAPED = frozenset("squeeze unsqueeze view reshape flatten float half bool detach transpose permute t".split())
KEEPS = frozenset("sigmoid softmax log_softmax exp clamp cpu contiguous clone".split())
_NO_TENSORS = frozenset("int float bool str len isinstance list tuple set dict".split())
FEW = 16  # columns: a slice of no more than that is small beside what it was cut from
ROWS = frozenset({"last_hidden_state", "hidden_states", "encoder_last_hidden_state"})
SORTS = frozenset({"sort", "argsort"})


@dataclass
class Part:
    """One tensor of what is stored: its expression and value."""

    expr: ast.expr
    value: Value
    sized: bool = True  # known to be more than one number


def parts(fn: Function, event: Event) -> list[Part]:
    """The tensors that a store or a comprehension puts away: the elements of a tuple or dict each for itself."""
    expr = event.expr
    if not isinstance(expr, ast.expr):
        return []
    return list(_parts(expr, event.value))


def _parts(expr: ast.expr, value: Value) -> Iterator[Part]:
    if isinstance(expr, ast.Tuple) and value.items is not None and len(value.items) == len(expr.elts):
        for element, item in zip(expr.elts, value.items, strict=True):
            yield from _parts(element, item)
    elif isinstance(expr, ast.Dict) and value.obj is not None:
        for key, element in zip(expr.keys, expr.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in value.obj.items:
                yield from _parts(element, value.obj.items[key.value])
    else:
        yield Part(expr, value)


def container(event: Event) -> ast.expr | None:
    """The expression for the container that a store fills."""
    site = event.site
    if isinstance(site, ast.Call) and isinstance(site.func, ast.Attribute):
        return site.func.value
    if isinstance(site, ast.Assign) and isinstance(site.targets[0], ast.Subscript):
        return site.targets[0].value
    return site.target if isinstance(site, ast.AugAssign) else None


def becomes(fn: Function, event: Event) -> Fate | None:
    """What becomes of all that a store or a comprehension collects."""
    if event.verb == "collect":
        return fate_of_value(fn.project, fn.definition, event.site)
    target = container(event)
    return fate_of(fn.project, fn.definition, target) if target is not None else None


def device_parts(fn: Function, event: Event) -> list[Part]:
    """The tensors of a store that are on the device, as far as can be told, with no graph and not one number each."""
    return [
        p
        for p in parts(fn, event)
        if p.value.device in ("device", "model")
        and p.value.kind not in GRAPHLESS - {"indices"}
        and p.value.kind in ("tensor", "indices", "unknown")
        and not p.value.scalar
        and not _loss(p.expr)
        and fn.carries(p.value) is not Answer.YES
    ]


def _loss(expr: ast.expr) -> bool:
    """Whether it is the attribute or key under which models give a single number, alone or in a list of one."""
    if isinstance(expr, ast.List) and len(expr.elts) == 1:
        return _loss(expr.elts[0])
    key = expr.slice if isinstance(expr, ast.Subscript) else None
    return (isinstance(expr, ast.Attribute) and expr.attr == "loss") or (
        isinstance(key, ast.Constant) and key.value == "loss"
    )


def once(fn: Function, event: Event) -> bool:
    """Whether a store happens in one iteration of its loop alone: where the count of them has one value."""
    node, loop = event.site, event.loops[-1] if event.loops else None
    counter = _counter(loop)
    while counter and (outer := fn.parents.get(node)) is not None and outer is not loop:
        if isinstance(outer, ast.If) and node in outer.body:
            tests = outer.test.values if isinstance(outer.test, ast.BoolOp) else [outer.test]
            if not (isinstance(outer.test, ast.BoolOp) and isinstance(outer.test.op, ast.Or)) and any(
                isinstance(t, ast.Compare) and isinstance(t.ops[0], ast.Eq) and chain(t.left) == counter
                and isinstance(t.comparators[0], ast.Constant) for t in tests
            ):  # fmt: skip
                return True
        node = outer
    return False


def _counter(loop: ast.AST | None) -> str:
    """The name by which a loop over an enumeration counts."""
    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.Call):
        if chain(loop.iter.func) == "enumerate":
            return chain(loop.target.elts[0])
    return ""


def over_batches(fn: Function, event: Event, part: Part) -> bool:
    """Whether the loop takes one batch after the other, and what is kept comes of this iteration's batch alone."""
    loop = event.site if event.verb == "collect" else event.loops[-1] if event.loops else None
    if loop is None:
        return False
    body = _Loop(loop)
    if body.carried(part.expr):
        return False  # a state that goes on, a sequence that grows
    part.sized = not body.perhaps_a_number(part.expr)

    def ordinary(call: ast.Call) -> bool:  # a function of a library makes something of a batch, or of a label as well
        return isinstance(fn.project.names.resolve(call.func, fn.definition), str)

    return body.takes_batches(part.expr, ordinary) and not pieces(event)


def may_hoard(fn: Function) -> bool:
    """Whether a loop or a comprehension may collect, batch by batch, what is made of the batches on a device, to be
    wanted on the host or as a view: what text and syntax alone say, before the function is read."""
    text = fn.definition.code
    if "for " not in text and "while " not in text:
        return False
    if not fn.project.may_place(fn.definition):
        return False
    return any(_collects(fn, node) for node in fn.nodes_of(*LOOPS, ast.ListComp, ast.SetComp, ast.DictComp))


def _collects(fn: Function, node: ast.AST) -> bool:
    """Whether an expression that a loop puts away is made of the batches that the loop takes: what syntax alone says of
    `over_batches`. What a loop inside it puts away is that one's."""
    put: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(node, COMPREHENSIONS):
        put.append((None, node.value if isinstance(node, ast.DictComp) else node.elt))
    stack = children(node)
    while stack:
        each = stack.pop()
        if type(each) not in SCOPES and not isinstance(each, (*LOOPS, *COMPREHENSIONS)):
            put += _put_away(each)
            stack += children(each)
    found = [(target, part) for target, expression in put for part in _split(expression) if _may_be_tensor(fn, part)]
    if not found:
        return False
    loop = _Loop(node)
    return any(
        loop.takes_batches(part) and (_may_be_hosted(fn, target, node) or _may_be_view(fn, target, part))
        for target, part in found
    )


def _may_be_tensor(fn: Function, part: ast.expr) -> bool:
    """Whether syntax leaves open that an expression is a tensor: no text, no number, and no container."""
    if isinstance(part, ast.Call):
        return chain(part.func) not in _NO_TENSORS
    return not isinstance(part, (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict))


def _may_be_view(fn: Function, target: ast.expr | None, part: ast.expr) -> bool:
    return small_view(fn, Part(part, UNKNOWN), ast.unparse(target) if target is not None else "") is not None


def _may_be_hosted(fn: Function, target: ast.expr | None, collected: ast.AST) -> bool:
    """Whether all uses of what a container holds may be conversions to the host: what syntax says of `becomes`."""
    outlook = _Outlook(fn.project)
    if target is not None:
        outlook.container(fn.definition, target, ())
    else:
        outlook.follow(fn.definition, collected)
    return outlook.open or outlook.fate.hosted


class _Outlook(Search):
    """A search that reads no function: it is ``open`` how one ends that would have to."""

    open = False

    def callee(self, where: Definition, call: ast.Call) -> object | None:
        meaning = self.project.names.resolve(call.func, where)
        if meaning is None and not (isinstance(call.func, ast.Name) and call.func.id in BUILTINS):
            self.open = True
        return meaning

    def in_return(self, where: Definition, node: ast.AST, parent: ast.Return, path: Path, reduced: bool) -> None:
        if self.calls and self.calls[-1][0] is where:
            super().in_return(where, node, parent, path, reduced)
        else:
            self.open = True


def _put_away(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """What a node puts away, each with the container where it is plain which."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in SPREADS and node.args:
            yield node.func.value, node.args[-1]
    elif isinstance(node, ast.Assign):
        if any(isinstance(t, ast.Subscript) for t in node.targets):
            first = node.targets[0]
            yield first.value if isinstance(first, ast.Subscript) else None, node.value
    elif isinstance(node, ast.AugAssign):
        yield node.target, node.value


def _split(expression: ast.expr) -> Iterator[ast.expr]:
    """The expression, or the elements of a tuple or dict each for itself."""
    if isinstance(expression, ast.Tuple):
        for element in expression.elts:
            yield from _split(element)
    elif isinstance(expression, ast.Dict):
        for value in expression.values:
            yield from _split(value)
    yield expression


def pieces(event: Event) -> bool:
    """Whether the loop goes over parts of what a loop around it takes: what it collects belongs to one batch."""
    loops = event.loops if event.verb == "collect" else event.loops[:-1]
    inner = event.site if event.verb == "collect" else event.loops[-1]
    made = event.target.loops if event.target is not None else ()
    if not loops or loops[-1] not in made:
        return False
    around, iterables = _Loop(loops[-1]), _Loop(inner).iterables
    return event.verb == "collect" or any(around.closure(i)[0] & around.targets for i in iterables)


class _Loop:
    """The names that one loop binds, by what they are computed from."""

    def __init__(self, loop: ast.AST) -> None:
        self.loop = loop
        self.targets: set[str] = set()
        self.iterables: list[ast.expr] = []
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            self.take(loop.target, loop.iter)
        for generator in getattr(loop, "generators", ()):
            self.take(generator.target, generator.iter)
        self.sources: dict[str, list[ast.expr]] = {}
        for node in walk(loop):
            self.note(node)

    def take(self, target: ast.expr, iterable: ast.expr) -> None:
        self.targets |= {n.id for n in walk(target) if isinstance(n, ast.Name)}
        self.iterables.append(iterable)

    def note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            bound, value = node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            bound, value = [node.target], node.value
        elif isinstance(node, (ast.For, ast.comprehension)) and node is not self.loop:
            bound, value = [node.target], node.iter
        elif isinstance(node, ast.AugAssign):
            bound, value = [node.target], node.value
        else:
            return
        for target in bound:
            for n in walk(target):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                    self.sources.setdefault(n.id, []).append(value)

    def closure(self, expr: ast.expr) -> tuple[set[str], list[ast.expr]]:
        """The names that an expression depends on inside the loop, and the expressions that they are bound to."""
        names: set[str] = set()
        seen = [expr]
        for each in seen:
            for n in walk(each):
                if isinstance(n, ast.Name) and n.id not in names:
                    names.add(n.id)
                    seen.extend(v for v in self.sources.get(n.id, ()) if v not in seen)
        return names, seen

    def carried(self, expr: ast.expr) -> bool:
        """Whether it depends on what an earlier iteration has left: a state, a sequence that grows."""
        names, _ = self.closure(expr)
        return any(self.reads_before(name) for name in names & self.sources.keys() - self.targets)

    def reads_before(self, name: str) -> bool:
        """Whether the body reads a name before it binds it for the first time."""
        for stmt in getattr(self.loop, "body", ()):
            found = _order(stmt, name)
            if found is not None:
                return found
        return False

    def perhaps_a_number(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether it may be one number a batch: a loss, a mean, what a function makes of outputs and targets."""
        if isinstance(expr, ast.Name) and depth < 4:
            return any(self.perhaps_a_number(v, depth + 1) for v in self.sources.get(expr.id, ()))
        if isinstance(expr, ast.Attribute):
            return expr.attr == "loss"
        if isinstance(expr, ast.Subscript):
            named = isinstance(expr.slice, ast.Constant) and isinstance(expr.slice.value, str)
            return named and not self.reads(expr.value, self.targets)
        if isinstance(expr, ast.Call):
            func = expr.func
            if isinstance(func, ast.Attribute) and (func.attr in SHAPED or func.attr in MOVES or func.attr in KEEPS):
                return self.perhaps_a_number(func.value, depth)
            if isinstance(func, ast.Attribute) and func.attr in REDUCTIONS:
                return not (expr.args or expr.keywords)
            return len(expr.args) > 1
        return isinstance(expr, ast.BinOp) and (
            self.perhaps_a_number(expr.left, depth) and self.perhaps_a_number(expr.right, depth)
        )

    def takes_batches(self, expr: ast.expr, passed_over: Callable[[ast.Call], bool] = lambda _: False) -> bool:
        names, seen = self.closure(expr)
        calls = [n for each in seen for n in walk(each) if isinstance(n, ast.Call)]
        if any(isinstance(c.func, ast.Name) and c.func.id in self.targets for c in calls):
            return False  # for layer in layers: it is the parts of one forward
        if any(isinstance(c.func, ast.Name) and c.func.id == "next" for c in calls):
            return True
        data = names & self.targets
        if not data:
            return False
        for iterable in self.iterables:
            if isinstance(iterable, (ast.Tuple, ast.List)):
                return False
            if isinstance(iterable, ast.Call) and chain(iterable.func) == "range" and len(iterable.args) != 3:
                return False
        for _ in range(3):
            data |= {n for n in names - data if any(self.made_of(v, data) for v in self.sources.get(n, ()))}
        # Slices of one tensor are pieces of one batch, unless each goes to the device by itself.
        sliced = any(_slices(n) for i in self.iterables for n in walk(i) if isinstance(n, ast.Call))
        return any(self.fed(c, data) and (_moves(c) or not (sliced or passed_over(c))) for c in calls)

    @staticmethod
    def reads(expr: ast.expr, names: set[str]) -> bool:
        return any(isinstance(n, ast.Name) and n.id in names for n in walk(expr))

    def fed(self, call: ast.Call, names: set[str]) -> bool:
        """Whether a call moves the loop's element, or is made on it: ``x.to(device)``, ``model(x)``, ``model(**x)``."""
        func = call.func
        if _moves(call):
            return self.made_of(func.value, names)  # type: ignore[attr-defined]
        first = call.args[0] if call.args else call.keywords[0].value if call.keywords else None
        return first is not None and self.made_of(first, names)

    def made_of(self, expr: ast.AST, names: set[str]) -> bool:
        """Whether an expression is one of these names, a part of it, or what a call makes of it."""
        if isinstance(expr, ast.Name):
            return expr.id in names
        if isinstance(expr, (ast.Attribute, ast.Subscript, ast.Starred, ast.Await)):
            return self.made_of(expr.value, names)
        if isinstance(expr, ast.Call):
            own = isinstance(expr.func, ast.Attribute) and self.made_of(expr.func.value, names)
            return own or any(self.made_of(a, names) for a in expr.args)
        if isinstance(expr, ast.IfExp):
            return self.made_of(expr.body, names) or self.made_of(expr.orelse, names)
        if isinstance(expr, (ast.Tuple, ast.List)):
            return any(self.made_of(e, names) for e in expr.elts)
        if isinstance(expr, (ast.DictComp, ast.ListComp, ast.GeneratorExp)):
            return any(self.made_of(g.iter, names) for g in expr.generators)
        return isinstance(expr, ast.Dict) and any(self.made_of(v, names) for v in expr.values)


def _slices(call: ast.Call) -> bool:
    return chain(call.func) == "range" or (
        isinstance(call.func, ast.Attribute) and call.func.attr in ("split", "chunk")
    )


def _moves(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in MOVES


def _order(node: ast.AST, name: str) -> bool | None:
    """True if a statement reads the name first, False if it binds it first, None if it does neither."""
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Load) if node.id == name else None
    below = children(node)
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
        below = [node.value, *(c for c in below if c is not node.value)]
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        below = [node.iter, node.target, *node.body, *node.orelse]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        below = [*node.generators, node.elt]
    elif isinstance(node, ast.DictComp):
        below = [*node.generators, node.key, node.value]
    elif isinstance(node, ast.comprehension):
        below = [node.iter, node.target, *node.ifs]
    for child in below:
        found = _order(child, name)
        if found is not None:
            return found
    return None


def small_view(fn: Function, part: Part, text: str) -> ast.expr | None:
    """The larger tensor of which a part is a small view: one position of every sequence, the first few of a sort."""
    expr = part.expr
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in SHAPED:
        expr = expr.func.value
    if not isinstance(expr, ast.Subscript):
        return None
    index = expr.slice.elts if isinstance(expr.slice, ast.Tuple) else [expr.slice]
    if not all(isinstance(i, ast.Slice) or _number(i) is not None or _dots(i) for i in index):
        return None
    picked = [i for i in index if _number(i) is not None]
    whole = [i for i in index if _dots(i) or (isinstance(i, ast.Slice) and i.lower is None and i.upper is None)]
    base = expr.value
    if picked and whole and (len(index) >= 3 or _sequence(base) or _matrix(fn, text)):
        return base
    first = index[-1]
    if isinstance(first, ast.Slice) and whole and first.lower is None and first.upper is not None:
        count = _number(first.upper)
        if count is not None and 0 < count <= FEW and _sorted(base):
            return base
    return None


def _number(node: ast.AST) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return -inner if inner is not None else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _dots(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _sequence(base: ast.expr) -> bool:
    """Whether it is what model libraries call a hidden state: one vector a position."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return isinstance(base, ast.Attribute) and base.attr in ROWS


def _sorted(base: ast.expr) -> bool:
    """Whether it is all of a row, in order."""
    if isinstance(base, ast.Subscript):
        base = base.value
    call = base.value if isinstance(base, ast.Attribute) else base
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in SORTS


def _matrix(fn: Function, text: str) -> bool:
    """Whether what has been collected is used as a matrix: what its rows were cut from had one dimension more."""
    named = {text}
    for node in fn.nodes_of(ast.Call):
        if joined(fn, node, text):
            above: ast.AST | None = node
            while isinstance(above, ast.expr):
                if _as_rows(above):
                    return True
                above = fn.parents.get(above)
            if isinstance(above, ast.Assign):
                named |= {chain(t) for t in above.targets}
    return any(chain(node) in named and _used_as_rows(fn, node) for node in fn.nodes_of(ast.Name, ast.Attribute))


def _used_as_rows(fn: Function, node: ast.AST) -> bool:
    parent = fn.parents.get(node)
    if isinstance(parent, ast.Call) and node in parent.args:
        return _as_rows(parent) and not joined(fn, parent, ast.unparse(node))
    return not isinstance(parent, ast.Call) and _as_rows(parent)


def joined(fn: Function, call: ast.AST, text: str) -> bool:
    """Whether a call makes one tensor of all that a container holds."""
    if not isinstance(call, ast.Call) or not call.args or ast.unparse(call.args[0]) != text:
        return False
    meaning = fn.project.names.resolve(call.func, fn.definition)
    return isinstance(meaning, str) and fn.project.library.canonical(meaning) in JOINS


def _as_rows(node: ast.AST | None) -> bool:
    """Whether it is something that only a matrix of rows is good for."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if isinstance(node, ast.Attribute):
        return node.attr in ("t", "mT", "mm")
    if isinstance(node, ast.Call):
        given = {k.arg: k.value for k in node.keywords}
        dim = given.get("dim", given.get("axis"))
        return dim is not None and _number(dim) == 1 and not isinstance(node.func, ast.Name)
    return False
