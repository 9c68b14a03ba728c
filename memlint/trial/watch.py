"""Where a trial ticks: finds the loop in which a flagged statement recurs and wraps it, the same way in both arms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE_END = re.compile(r"\r\n|\r|\n")  # as Python counts lines: str.splitlines ends some at a form feed
WATCH, TICK, CALL, HIT = "__memlint_watch__", "__memlint_tick__", "__memlint_call__", "__memlint_hit__"
EACH = "__memlint_each__"
Loop = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WITHIN_A_STEP = ("parameters", "named_parameters", "param_groups", "modules", "children", "items", "values", "keys")


@dataclass(frozen=True)
class Place:
    """The loop that a trial watches: the ``loop``-th of ``function``, counted in reading order.

    ``function`` is a dotted path of classes and functions, "" for the module's own level. ``loop`` is None where the
    function has no loop around the statement: then each of its calls is an iteration. ``source`` is the text of what
    the loop runs over.
    """

    function: str
    loop: int | None = None
    source: str = ""

    @property
    def parts(self) -> list[str]:
        """The names from the module down to the function."""
        return self.function.split(".") if self.function else []


def locate(text: str, line: int, column: int) -> Place:
    """The place to watch for what stands at ``line`` and ``column`` (both from 1, in characters) of ``text``.

    It is the innermost loop around it that runs over steps, not over the parts of one.
    """
    tree = ast.parse(text)
    position = bytes_at(text, line, column)
    names: list[str] = []
    scope: ast.AST = tree
    around: list[ast.AST] = []
    node: ast.AST = tree
    while True:
        found = next(((name, child) for name, child in _children(node) if _covers(child, position)), None)
        if found is None:
            break
        field, child = found
        if isinstance(node, _LOOPS) and _recurs(node, field, child):
            around.append(node)
        if isinstance(child, _DEFINITIONS):
            names.append(child.name)
            scope, around = child, []
        node = child
    if not around:
        return Place(".".join(names))
    chosen = [*around[:1], *(loop for loop in around if not _within_a_step(loop))][-1]
    return Place(".".join(names), list(_loops(scope)).index(chosen), ast.unparse(_iterated(chosen)))  # type: ignore[arg-type]


def bytes_at(text: str, line: int, column: int) -> tuple[int, int]:
    """The position as syntax trees have it: the line from 1, the column from 0 in bytes."""
    return line, len(_LINE_END.split(text)[line - 1][: column - 1].encode())


def position(text: str, offset: int) -> tuple[int, int]:
    """The same for an offset in characters."""
    lines = _LINE_END.split(text[:offset])
    return len(lines), len(lines[-1].encode())


def decorated(tree: ast.Module, line: int) -> str:
    """The dotted path of the function that a decorator at ``line`` decorates, or ""."""

    def within(scope: ast.AST, names: tuple[str, ...]) -> str:
        for node in own(scope):
            if isinstance(node, _DEFINITIONS):
                path = (*names, node.name)
                lines = [(d.lineno, d.end_lineno or d.lineno) for d in node.decorator_list]
                if not isinstance(node, ast.ClassDef) and any(start <= line <= end for start, end in lines):
                    return ".".join(path)
                if found := within(node, path):
                    return found
        return ""

    return within(tree, ())


def first(text: str, function: str) -> Place:
    """The place to watch for the whole of ``function`` in ``text``: its first loop, or else its calls."""
    scope = definition(ast.parse(text), Place(function))
    loop = next(_loops(scope), None) if scope is not None else None
    return Place(function) if loop is None else Place(function, 0, ast.unparse(_iterated(loop)))


def called(harness: str) -> str:
    """The function that a harness calls by its ``target = "…"``, "" where it names none or cannot be parsed."""
    try:
        body = ast.parse(harness).body
    except (SyntaxError, ValueError):
        return ""
    found = [
        node.value.value
        for node in body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "target"
        and isinstance(node.value, ast.Constant)
    ]
    return str(found[-1]) if found else ""


def rewrite(tree: ast.Module, place: Place, key: int | None = None) -> ast.Module:
    """Wrap the loop at ``place`` in ``tree`` itself: its iterable, or its condition, first calls the watch.

    A call in the iterable is reached however an iteration ends (its last line, ``continue``), and adds no line, so that
    tracebacks and allocation stacks keep their line numbers. A ``key`` is handed to each call, to tell several places
    apart; with one, a place without a loop gets a call of `CALL` where its function begins.
    """
    scope = definition(tree, place)
    keys: list[ast.expr] = [] if key is None else [ast.Constant(key)]
    if scope is None or (place.loop is None and not keys):
        return tree
    if place.loop is None:
        docstring = ast.get_docstring(scope, clean=False) is not None
        scope.body.insert(int(docstring), _called(CALL, keys, scope.body[0]))
        return ast.fix_missing_locations(tree)
    loop = loop_at(tree, place)
    if loop is not None:
        wrap(loop, keys)
    return ast.fix_missing_locations(tree)


def wrap(loop: Loop, keys: list[ast.expr]) -> None:
    """Make ``loop`` itself call the watch with ``keys`` whenever an iteration begins or ends."""
    if isinstance(loop, ast.While):
        tick = ast.Call(ast.Name(TICK, ast.Load()), keys, [])
        loop.test = ast.BoolOp(ast.And(), [tick, loop.test])
    else:
        owner = loop if isinstance(loop, ast.For) else loop.generators[0]
        owner.iter = ast.Call(ast.Name(WATCH, ast.Load()), [owner.iter, *keys], [])


def loop_at(tree: ast.Module, place: Place) -> Loop | None:
    """The syntax of the loop that ``place`` names, or None where the tree has none."""
    scope = definition(tree, place)
    if scope is None or place.loop is None:
        return None
    return next((loop for number, loop in enumerate(_loops(scope)) if number == place.loop), None)


def count_hits(tree: ast.Module, line: int, column: int, key: int) -> ast.Module:
    """Put a call of `HIT` with ``key`` before the statement in ``tree`` itself at ``line`` and ``column`` (from 0,
    in bytes), so that one knows whether it ran."""
    body, found = statement_at(tree, line, column)
    if found is not None:
        body.insert(body.index(found), _called(HIT, [ast.Constant(key)], found))
    return ast.fix_missing_locations(tree)


def statement_at(tree: ast.Module, line: int, column: int) -> tuple[list[ast.stmt], ast.stmt | None]:
    """The innermost statement in ``tree`` at ``line`` and ``column`` (from 0, in bytes), and the block it is in."""
    node: ast.AST = tree
    body: list[ast.stmt] = tree.body
    found = None
    while True:
        for _, child in _children(node):
            if _covers(child, (line, column)):
                break
        else:
            return body, found
        bodies = [value for _, value in ast.iter_fields(node) if isinstance(value, list) and child in value]
        if isinstance(child, ast.stmt) and bodies:
            body, found = bodies[0], child
        node = child


def _called(name: str, arguments: list[ast.expr], at: ast.stmt) -> ast.Expr:
    """A statement that calls ``name``. It takes up no room, so that nothing is found at its place."""
    statement = ast.Expr(ast.Call(ast.Name(name, ast.Load()), arguments, []))
    for node in ast.walk(statement):
        if isinstance(node, (ast.expr, ast.stmt)):
            node.lineno, node.col_offset = node.end_lineno, node.end_col_offset = at.lineno, at.col_offset
    return statement


def definition(
    tree: ast.Module, place: Place
) -> ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
    """The syntax of the function that ``place`` names, or None where the tree has none."""
    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef = tree
    for name in place.parts:
        found = [child for child in own(node) if isinstance(child, _DEFINITIONS) and child.name == name]
        if not found:
            return None
        node = found[-1]
    return node


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _covers(node: ast.AST, position: tuple[int, int]) -> bool:
    if not hasattr(node, "end_lineno"):  # a comprehension clause or an argument list: no place of its own
        return any(_covers(child, position) for child in ast.iter_child_nodes(node))
    start = node.lineno, node.col_offset  # type: ignore[attr-defined]
    return start <= position < (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _recurs(loop: ast.AST, field: str, child: ast.AST) -> bool:
    """Whether what stands in ``child``, a part of ``loop``, is reached again in each iteration."""
    if isinstance(loop, ast.For):
        return field == "body"
    if isinstance(loop, ast.While):
        return field in ("test", "body")
    return child is not loop.generators[0]  # type: ignore[attr-defined]


def own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of ``scope`` in reading order, without those of the functions and classes inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (*_DEFINITIONS, ast.Lambda)):
            yield from own(child)


def _loops(scope: ast.AST) -> Iterator[Loop]:
    return (node for node in own(scope) if isinstance(node, _LOOPS))


def _iterated(loop: ast.AST) -> ast.expr:
    if isinstance(loop, ast.While):
        return loop.test
    iterable: ast.expr = loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter  # type: ignore[attr-defined]
    return iterable


def _within_a_step(loop: ast.AST) -> bool:
    """Whether ``loop`` runs over the parts of one step (parameters, a dict's items) rather than over steps."""
    if isinstance(loop, ast.While):
        return False
    named = {n.attr for n in ast.walk(_iterated(loop)) if isinstance(n, ast.Attribute)}
    return not named.isdisjoint(_WITHIN_A_STEP)
