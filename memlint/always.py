"""Whether a statement is carried out in every run of a program, or only under some condition."""

from __future__ import annotations

import ast
from pathlib import PurePath

from memlint.answers import LIMIT
from memlint.extract import Definition
from memlint.function import Function

_CONDITIONAL = (ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler, ast.Match, ast.While)
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def unconditional(fn: Function, node: ast.AST) -> bool:
    """Whether a function that is entered gets to ``node``: no condition stands around it, no early exit before it."""
    child, parent = node, fn.parents.get(node)
    while parent is not None:
        if isinstance(parent, _CONDITIONAL) and not _is_main(parent):
            return False
        if parent is not fn.node and isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        body = getattr(parent, "body", None)
        if isinstance(body, list) and child in body and any(_may_leave(s) for s in body[: body.index(child)]):
            return False
        child, parent = parent, fn.parents.get(parent)
    return True


def in_every_run(fn: Function, node: ast.AST) -> bool:
    """Whether whoever trains with this code cannot help getting to ``node``."""
    return unconditional(fn, node) and _reached(fn, set(), 0)


def is_test(path: str) -> bool:
    """Whether a file holds tests: what is slow or wasteful there is meant."""
    parts = PurePath(path).parts
    return (
        parts[-1].startswith(("test_", "conftest"))
        or parts[-1].endswith("_test.py")
        or bool({"test", "tests", "testing"} & set(parts[:-1]))
    )


def _reached(fn: Function, seen: set[Definition], depth: int) -> bool:
    """Whether a function is training code or the top level of a file, or is always called by such."""
    definition = fn.definition
    if isinstance(definition.node, ast.Module) or fn.differentiates or _trains(fn):
        return True
    if definition in seen or depth > LIMIT:
        return False
    seen.add(definition)
    for flow, call in fn.project.callers(definition):
        caller = Function(fn.project, flow.definition)
        if unconditional(caller, call.site) and _reached(caller, seen, depth + 1):
            return True
    return False


def _trains(fn: Function) -> bool:
    """Whether the function is a method of a class that trains: what it switches on is on while the others run."""
    cls = fn.definition.cls
    if cls is None:
        return False
    project = fn.project
    if any(
        "differentiated" in project.library.hook(b, m) for b in project.names.library_bases(cls) for m in cls.methods
    ):
        return True
    return any(Function(project, m).differentiates for m in cls.methods.values() if "backward" in m.text)


def _may_leave(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(isinstance(s, _LEAVING) for s in statement.body)


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
