"""Where an expression comes from: through names, parameters, attributes and command lines to what was written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from posixpath import dirname
from typing import TYPE_CHECKING

from memlint.extract import Class, Definition, walk
from memlint.trace import note

if TYPE_CHECKING:
    from memlint.project import Project

Stem = tuple[Definition, ast.expr]

DEPTH = 6
OF_TENSORS = frozenset({"device", "dtype", "shape", "size"})  # what tensors and modules have, and options may be called
SAME = frozenset({"int", "float", "str", "min", "max", "abs", "round"})

MANY = 60  # functions that say a name: beyond that it is too common to tell who means this one


def stems(project: Project, where: Definition, expr: ast.expr | None, depth: int = 0) -> Iterator[Stem]:
    """The expressions that an expression in ``where`` may stand for, each with the function it is written in.

    What cannot be followed stands for itself. Of arithmetic, and of ``int``, ``min`` and their like, the operands.
    """
    if expr is None:
        return
    found = list(_below(project, where, expr)) if depth < DEPTH else []
    if not found:
        yield where, expr
    for definition, inner in found:
        yield from stems(project, definition, inner, depth + 1)


def _below(project: Project, where: Definition, expr: ast.expr) -> Iterator[Stem]:
    if isinstance(expr, ast.IfExp):
        yield from ((where, e) for e in (expr.body, expr.orelse))
    elif isinstance(expr, ast.BoolOp):
        yield from ((where, e) for e in expr.values)
    elif isinstance(expr, (ast.List, ast.Tuple)):
        yield from ((where, e) for e in expr.elts)
    elif isinstance(expr, ast.BinOp):
        yield from ((where, e) for e in (expr.left, expr.right))
    elif isinstance(expr, ast.Call):
        if isinstance(expr.func, ast.Name) and expr.func.id in SAME:
            yield from ((where, e) for e in expr.args)
        elif isinstance(expr.func, ast.Attribute) and expr.func.attr in ("get", "setdefault") and len(expr.args) == 2:
            yield where, expr.args[1]
    elif isinstance(expr, ast.Name):
        yield from _named(project, where, expr.id)
    elif isinstance(expr, ast.Attribute):
        yield from _attribute(project, where, expr)


def _named(project: Project, where: Definition, name: str) -> Iterator[Stem]:
    scope: Definition | None = where
    while scope is not None:
        bound = list(assigned(scope, name))
        yield from ((scope, value) for value in bound)
        if name in scope.parameters:
            yield from handed(project, scope, name)
        if bound or name in scope.parameters:
            return
        scope = scope.outer
    meaning = project.names.local(name, where)
    if isinstance(meaning, ast.expr):
        yield where.module.top, meaning


def assigned(where: Definition, name: str) -> Iterator[ast.expr]:
    """What the function itself assigns to a name or to ``self.name``."""
    for node in where.nodes:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if any(isinstance(t, (ast.Name, ast.Attribute)) and ast.unparse(t) == name for t in targets):
            yield value


def handed(project: Project, where: Definition, name: str) -> Iterator[Stem]:
    """What callers hand over for a parameter, and its default where one of them, or nobody, hands over anything."""
    default, calls = where.defaults.get(name), project.callers(where)
    for flow, event in calls:
        given = argument(where, name, event.site)
        if given is not None:
            yield flow.definition, given
        else:
            default = where.defaults.get(name)
    for definition, call in _indirect(project, where):
        given = argument(where, name, call)
        if given is not None:
            yield definition, given
    if default is not None:
        yield where, default


def _indirect(project: Project, where: Definition) -> Iterator[tuple[Definition, ast.Call]]:
    """Calls in a lambda, and those of `functools.partial`, which give some of the arguments ahead."""
    if len(project.mentioning(where.name)) > MANY:
        return
    for definition in project.saying(where.name, r"lambda|partial\("):
        note(definition)
        for node in walk(definition.node):
            if isinstance(node, ast.Call) and node.args and project.names.resolve(node.args[0], definition) is where:
                yield definition, ast.Call(node.func, node.args[1:], node.keywords)
            elif isinstance(node, ast.Lambda):
                for call in walk(node.body):
                    if isinstance(call, ast.Call) and project.names.resolve(call.func, definition) is where:
                        yield definition, call


def argument(where: Definition, name: str, call: ast.AST) -> ast.expr | None:
    """The expression that a call gives for a parameter of a function or, without its first, of a method."""
    if not isinstance(call, ast.Call):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = where.positional[1:] if where.bound else where.positional
    index = names.index(name) if name in names else len(call.args)
    return call.args[index] if index < len(call.args) and not _starred(call) else None


def _starred(call: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in call.args)


def _attribute(project: Project, where: Definition, expr: ast.Attribute) -> Iterator[Stem]:
    own = where.cls is not None and where.bound and isinstance(expr.value, ast.Name)
    if own and where.cls is not None and expr.value.id == where.positional[0]:  # type: ignore[attr-defined]
        for writer in project.writers(where.cls, expr.attr):
            yield from ((writer, v) for v in assigned(writer, f"{writer.positional[0]}.{expr.attr}"))
        for cls in project.names.mro(where.cls):
            if isinstance(cls, Class) and expr.attr in cls.variables:
                yield cls.module.top, cls.variables[expr.attr]
        return
    if expr.attr not in OF_TENSORS or _parsed(project, where, expr.value):
        yield from _on_command_line(project, where, expr.attr)


def _parsed(project: Project, where: Definition, expr: ast.expr) -> bool:
    """Whether an object is what a parser made of a command line."""
    for definition, stem in stems(project, where, expr):
        if isinstance(stem, ast.Subscript):  # parse_known_args()[0]
            stem = stem.value
        if isinstance(stem, ast.Call):
            meaning = project.names.resolve(stem.func, definition)
            if "parse_" in (meaning.text if isinstance(meaning, Definition) else ast.unparse(stem.func)):
                return True
    return False


def _on_command_line(project: Project, where: Definition, name: str) -> Iterator[Stem]:
    """The defaults of ``parser.add_argument("--name", default=…)`` in the files that lie nearest."""
    note(("option", name))
    option = defaults_of(name)
    found: dict[int, list[Stem]] = {}
    for module in project.names.modules.values() if name.isidentifier() else ():
        if not module.source.says(option):
            continue
        for match in option.finditer(module.source.text):
            try:
                default = ast.parse(match[1], mode="eval").body
            except SyntaxError:
                continue
            near = _shared_folders(module.source.path, where.module.source.path)
            found.setdefault(near, []).append((module.top, default))
    yield from found[max(found)] if found else ()


def defaults_of(name: str) -> re.Pattern[str]:
    """The default of ``parser.add_argument("--name", default=…)``, as its first group."""
    return re.compile(rf"""add_argument\([^)]*["']--{name.replace("_", "[-_]")}["'][^)]*?default\s*=\s*([\w."']+)""")


def _shared_folders(a: str, b: str) -> int:
    """How many folders from the top two paths have in common."""
    folders = zip(dirname(a).split("/"), dirname(b).split("/"), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], folders))
