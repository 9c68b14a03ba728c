"""Makes a program go on to its flagged loop although data, packages or arguments are not there.

Along the way from a start (the script, or a function) to the loop each statement that fails leaves stand-ins in the
names that it should have bound, branches that lead to the loop are taken, returns before it are passed over, and other
loops end after a short time. What
the loop itself does stays as written, but for values that are absent there too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from memlint.trial.watch import HIT, Place, definition, own

STAND, HOLD, ITEMS, FAILURE = "__memlint_stand__", "__memlint_hold__", "__memlint_items__", "__memlint_failure__"
BRIEFLY, SOON, NOTE = "__memlint_briefly__", "__memlint_soon__", "__memlint_note__"
OPENED, INSTEAD = "__memlint_opened__", "__memlint_instead__"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TIED = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)  # to the function that they stand in
_KEPT = (ast.Global, ast.Nonlocal, ast.Pass, ast.Break, ast.Continue)


def way(tree: ast.Module, function: str) -> tuple[str, ...]:
    """The shortest way from the module's own level ("") to ``function`` by calls in the same file.

    Just ``function`` where no such calls lead there.
    """
    scopes = dict(_scopes(tree))
    todo: list[tuple[str, ...]] = [(function,)]
    seen = {function}
    while todo:
        path = todo.pop(0)
        if path[0] == "":
            return path
        name = path[0].rpartition(".")[2]
        for scope, node in scopes.items():
            if scope not in seen and any(calls(child, name) for child in own(node)):
                seen.add(scope)
                todo.append((scope, *path))
    return (function,)


def calls(node: ast.AST, name: str) -> bool:
    """Whether ``node`` is a call of something called ``name``."""
    if not isinstance(node, ast.Call):
        return False
    return (isinstance(node.func, ast.Name) and node.func.id == name) or (
        isinstance(node.func, ast.Attribute) and node.func.attr == name
    )


def _scopes(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The module's own level and every function in it, by dotted name."""
    if not isinstance(node, ast.ClassDef):
        yield prefix, node
    for inner in own(node):
        if isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
            yield from _scopes(inner, f"{prefix}.{inner.name}" if prefix else inner.name)


def soften(tree: ast.Module, chain: Sequence[str], watched: ast.AST | None, *, ends: bool = False) -> ast.Module:
    """Rewrite ``tree`` itself: every scope of ``chain`` is lenient up to its goal, the call of the next or ``watched``.

    Where it ``ends`` there, the last scope has nothing behind ``watched`` but what reads its results, up to the next
    loop. No line is added, so that tracebacks keep their numbers.
    """
    scopes = chain if chain[0] == "" else ("", *chain)
    found = [(name, definition(tree, Place(name))) for name in scopes]
    for index, (name, scope) in enumerate(found):
        if scope is None:
            continue
        following = found[index + 1][0].rpartition(".")[2] if index + 1 < len(found) else ""
        last = index == len(found) - 1
        softener = _Softener(watched if last else None, following if name in chain else "", _assigned(scope))
        scope.body = softener.body(_until(scope.body, watched) if ends and last else scope.body)
    return ast.fix_missing_locations(tree)


def _assigned(scope: ast.AST) -> Iterator[str]:
    """Names that ``scope`` itself assigns, where they are its own."""
    declared = {name for n in own(scope) if isinstance(n, (ast.Global, ast.Nonlocal)) for name in n.names}
    return (
        name for name in bound(ast.Module(getattr(scope, "body", []), [])) if "." not in name and name not in declared
    )


def _until(statements: list[ast.stmt], goal: ast.AST | None) -> list[ast.stmt]:
    """``statements`` up to the one with ``goal``, and on to the last that reads its results, or to the next loop; and
    so in the blocks around it."""
    at = next((i for i, s in enumerate(statements) if any(n is goal for n in (s, *own(s)))), None)
    if at is None:
        return statements
    if isinstance(statements[at], (ast.If, ast.With)) and statements[at] is not goal:
        for field in ("body", "orelse"):
            block = getattr(statements[at], field, None)
            if block:
                setattr(statements[at], field, _until(block, goal))
    results, end = set(bound(statements[at], definitions=False)), at + 1
    for index, statement in enumerate(statements[at + 1 :], at + 1):
        if isinstance(statement, (ast.For, ast.While)):
            break
        if any(isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) in results for n in own(statement)):
            end = index + 1
    return statements[:end]


class _Softener:
    def __init__(self, watched: ast.AST | None, following: str, names: Iterable[str] = ()) -> None:
        self._watched = watched
        self._bound = set(names)
        self._following = following
        self._there = False  # the goal lies behind

    def _leads(self, node: ast.AST) -> bool:
        """Whether the goal lies in ``node``."""
        if isinstance(node, _DEFINITIONS):
            return False
        return any(n is self._watched or (self._following and calls(n, self._following)) for n in (node, *own(node)))

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of one block, softened."""
        return [made for statement in statements for made in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> Iterator[ast.stmt]:
        if node is self._watched:
            yield from self._bindings(node, node)
            if isinstance(node, ast.For):
                node.iter = _items(node.iter)
            if isinstance(node, (ast.For, ast.While)):
                for inner in node.body:
                    _hold_inside(inner)
                node.body = _stumbling(node.body)
            elif not isinstance(node, _DEFINITIONS):
                _Sparing().visit(node)
            yield node
            self._there = True
        elif self._leads(node):
            yield from self._towards(node)
            self._there = True
        elif isinstance(node, _KEPT) or _first(node):
            yield node
        elif self._there or not (isinstance(node, ast.Return) and (self._watched or self._following)):
            yield from _tried(node, returns=self._there)

    def _bindings(self, node: ast.AST, at: ast.stmt) -> Iterator[ast.stmt]:
        """Stand-ins for the names of this scope that ``node`` reads and that no branch that was taken has bound."""
        own_names = set(bound(node, definitions=False))
        read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        for name in sorted((read & self._bound) - own_names):
            seen = ast.copy_location(ast.Expr(_load(name)), at)
            handler = ast.ExceptHandler(
                ast.Name("NameError", ast.Load()), None, [_assign(name, _call(STAND, ast.Constant(name)), at)]
            )
            yield ast.copy_location(ast.Try([seen], [handler], [], []), at)

    def _towards(self, node: ast.stmt) -> Iterator[ast.stmt]:
        if isinstance(node, ast.If) and not self._leads(node.test):
            met = any(map(self._leads, node.body))
            for name in _given(node.test, met):
                absent = ast.Compare(_load(name), [ast.Is()], [ast.Constant(None)])
                given = _assign(name, _call(STAND, ast.Constant(name)), node)
                yield _try([ast.copy_location(ast.If(absent, [given], []), node)], [ast.Pass()])
            yield from self.body(node.body if met else node.orelse)
            return
        if isinstance(node, ast.For) and not self._leads(node.iter):
            yield from self._bindings(node.iter, node)
            node.iter = _items(node.iter)
        if isinstance(node, ast.With):
            for item in node.items:
                if not self._leads(item.context_expr):
                    item.context_expr = ast.copy_location(_call(OPENED, _later(item.context_expr)), item.context_expr)
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                setattr(node, field, self.body(inner))
        yield node


def _given(test: ast.expr, met: bool) -> Iterator[str]:
    """Names that are not None where ``test`` comes out as ``met``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _given(test.operand, not met)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if met else ast.Or):
        for value in test.values:
            yield from _given(value, met)
    elif isinstance(test, ast.Name) and met:
        yield test.id
    elif isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and len(test.ops) == 1:
        other, operator = test.comparators[0], ast.IsNot if met else ast.Is
        if isinstance(test.ops[0], operator) and isinstance(other, ast.Constant) and other.value is None:
            yield test.left.id


class _Sparing(ast.NodeTransformer):
    """What a call in an argument gives may be absent where it fails."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Spare the arguments that are more than names and numbers."""
        self.generic_visit(node)
        node.args = [self._spared(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self._spared(keyword.value) if keyword.arg else keyword.value
        return node

    def _spared(self, argument: ast.expr) -> ast.expr:
        inner = list(ast.walk(argument))
        bare = isinstance(argument, ast.Starred) or any(isinstance(n, _TIED) for n in inner)
        if bare or not any(isinstance(n, ast.Call) for n in inner):
            return argument
        return ast.copy_location(_call(OPENED, _later(argument), ast.Constant(True)), argument)

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """A function that is only made runs as written."""
        return node


def _tried(node: ast.stmt, *, returns: bool = False) -> Iterator[ast.stmt]:
    """``node``, and stand-ins where it fails or gives what is absent; what it ``returns`` counts behind the goal."""
    names = list(dict.fromkeys(bound(node)))
    if not returns:
        _NoReturns().visit(node)
    if isinstance(node, ast.For):
        node.iter = _call(BRIEFLY, node.iter)
    elif isinstance(node, ast.While):
        node.test = ast.BoolOp(ast.And(), [_call(SOON, ast.Constant(node.lineno)), node.test])
    if isinstance(node, (ast.If, ast.With)):
        for block in (node.body, getattr(node, "orelse", [])):
            block[:] = [made for statement in block for made in _tried(statement, returns=returns)]
    handler = [_assign(name, _either(name), node) for name in names] or [ast.Pass()]
    after = []
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.With, ast.If, ast.For, ast.Try)):
        after = [
            _assign(name, _call(HOLD, ast.Constant(name), _load(name)), node) for name in names if name in _plain(node)
        ]
    yield _try([node, *after], handler)


def _try(body: list[ast.stmt], handler: list[ast.stmt], *arguments: ast.expr) -> ast.stmt:
    """``body``, and where that fails a note of it and ``handler``."""
    noted = ast.copy_location(ast.Expr(_call(NOTE, *arguments)), body[0])
    handlers = [ast.ExceptHandler(ast.Name(FAILURE, ast.Load()), None, [noted, *handler])]
    return ast.copy_location(ast.Try(body, handlers, [], []), body[0])


def _stumbling(block: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a watched loop, which go on where one fails that the finding does not hang on.

    Only the flagged statement, and what differentiates or takes a step, fails as it would.
    """
    made: list[ast.stmt] = []
    for index, node in enumerate(block):
        counted = index > 0 and isinstance(block[index - 1], ast.Expr) and _counts(block[index - 1].value)  # type: ignore[attr-defined]
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if isinstance(inner, list) and inner and not isinstance(node, _DEFINITIONS):
                setattr(node, field, _stumbling(inner))
        for handler in getattr(node, "handlers", []):
            handler.body = _stumbling(handler.body)
        simple = isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Assert, ast.Delete))
        if not simple or counted or any(_counts(n) or _learns(n) for n in ast.walk(node)):
            made.append(node)
            continue
        names = dict.fromkeys(bound(node)) if isinstance(node, (ast.Assign, ast.AnnAssign)) else {}
        handler = [_assign(name, _instead(name, node), node) for name in names]
        made.append(_try([node], handler, ast.Constant(True)))
    return made


def _learns(node: ast.AST) -> bool:
    """Whether ``node`` differentiates, or changes weights or gradients."""
    return isinstance(node, ast.Attribute) and node.attr in ("backward", "step", "zero_grad")


def _first(node: ast.stmt) -> bool:
    """Whether ``node`` is a docstring or an import from the future, which stand where they stand."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _plain(node: ast.stmt) -> set[str]:
    """Names that ``node`` is sure to have bound once it has ended: an assignment's own."""
    return set(bound(node)) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.With)) else set()


class _NoReturns(ast.NodeTransformer):
    """Passes over what would leave the scope before its goal."""

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return node


def _hold_inside(node: ast.stmt) -> None:
    """Put stand-ins where an assignment in a watched loop would bind what is absent. Nothing else holds the value.

    What is done every so many iterations is done in each, and branches lead to the flagged statement.
    """
    for inner in (node, *own(node)):
        if isinstance(inner, ast.Assign) and len(inner.targets) == 1:
            names = _names(inner.targets[0])
            if names:
                inner.value = ast.copy_location(_call(HOLD, names, inner.value), inner.value)
        elif isinstance(inner, ast.For):
            inner.iter = _items(inner.iter)
        elif isinstance(inner, ast.If):
            flagged = [any(map(_counts, own(ast.Module(block, [])))) for block in (inner.body, inner.orelse)]
            if any(flagged) or (not inner.orelse and _seldom(inner.test)):
                inner.test = ast.copy_location(ast.Constant(not flagged[1]), inner.test)


def _counts(node: ast.AST) -> bool:
    """Whether ``node`` counts the runs of the flagged statement."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == HIT


def _seldom(test: ast.expr) -> bool:
    """Whether ``test`` is true every so many iterations."""
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))


def _names(target: ast.expr) -> ast.expr | None:
    """The names of a target, nested as they are, as a constant; None where something else is assigned to."""
    if isinstance(target, (ast.Name, ast.Attribute)):
        return ast.Constant(ast.unparse(target))
    if isinstance(target, (ast.Tuple, ast.List)):
        inner = [_names(e) for e in target.elts]
        return ast.Tuple([e for e in inner if e is not None], ast.Load()) if all(inner) else None
    return None


def _items(iterable: ast.expr) -> ast.expr:
    """``iterable``, and where that is absent what a loop runs over in its place."""
    key = ast.unparse(iterable)
    wrapped = ("enumerate", "tqdm", "zip", "iter", "islice", "list", "trange")
    if isinstance(iterable, ast.Call) and iterable.args and ast.unparse(iterable.func).rpartition(".")[2] in wrapped:
        count = len(iterable.args) if ast.unparse(iterable.func) == "zip" else 1
        iterable.args[:count] = [_items(argument) for argument in iterable.args[:count]]
        if "tqdm" not in ast.unparse(iterable.func):
            return iterable
    return ast.copy_location(_call(ITEMS, ast.Constant(key), iterable), iterable)


def bound(node: ast.AST, *, definitions: bool = True) -> Iterator[str]:
    """Names and attributes of ``self`` that ``node`` binds in its own scope: by assignment, and with ``definitions`` by
    definitions and imports. What a comprehension binds is its own."""
    nodes = (node, *(() if isinstance(node, _DEFINITIONS) else own(node)))
    inside = {id(n) for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
    for inner in nodes:
        if id(inner) in inside:
            continue
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            if isinstance(inner.value, ast.Name) and inner.value.id == "self":
                yield f"self.{inner.attr}"
        elif definitions and isinstance(inner, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in inner.names if alias.name != "*")
        elif definitions and isinstance(inner, _DEFINITIONS):
            yield inner.name


def _either(name: str) -> ast.expr:
    """What ``name`` holds already, unless that is None, else a stand-in."""
    if "." in name:
        return _call(STAND, ast.Constant(name))
    held = ast.Call(ast.Attribute(_call("locals"), "get", ast.Load()), [ast.Constant(name)], [])
    known = ast.Compare(held, [ast.IsNot()], [ast.Constant(None)])
    return ast.IfExp(known, _load(name), _call(STAND, ast.Constant(name)))


def _instead(name: str, node: ast.stmt) -> ast.expr:
    """What ``name`` holds where ``node`` failed: it may go on with the graphs of what ``node`` reads."""
    read = dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    own_names = (n for n in read if not n.startswith("__memlint"))
    known = _either(name) if "." in name else _load(name)
    return _call(INSTEAD, ast.Constant(name), _later(known), *(_later(_load(n)) for n in own_names))


def _assign(name: str, value: ast.expr, at: ast.stmt) -> ast.stmt:
    target = _load(name)
    target.ctx = ast.Store()  # type: ignore[attr-defined]
    return ast.copy_location(ast.Assign([target], value), at)


def _later(value: ast.expr) -> ast.expr:
    """A function that gives ``value``."""
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _load(name: str) -> ast.expr:
    base, _, attribute = name.rpartition(".")
    return ast.Attribute(ast.Name(base, ast.Load()), attribute, ast.Load()) if base else ast.Name(name, ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
