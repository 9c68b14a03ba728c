"""Whether the bytes come from where the finding says: allocation stacks against the flagged statement's own lines."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memlint.rule import Claim, Finding
from memlint.source import Source
from memlint.trial.watch import bytes_at, locate

TABLES = {Claim.GROWTH: "growth", Claim.KEPT: "growth", Claim.PEAK: "peak", Claim.CHURN: "churn"}
SHARE = 0.5  # of the saving that must come from there
SHOWN = 5  # stacks that a verdict names
_OF_GRADIENTS = {"zero_grad", "backward", "DistributedDataParallel", "DDP"}


@dataclass(frozen=True)
class Origin:
    """Where the bytes behind a finding may come from: lines of the flagged function, in the file ``path``.

    Attributes:
        lines: the flagged statement, what it keeps, and what its own result goes into.
        gradients: they may be gradients, which autograd allocates on threads of its own, without a stack.
        anywhere: what it keeps is handed to the function or kept in an attribute, so any of the user's lines may do.
    """

    path: str
    lines: frozenset[int]
    gradients: bool = False
    anywhere: bool = False

    def leads(self, frames: Sequence[Sequence[Any]]) -> bool:
        """Whether a stack, innermost frame first, leads there."""
        if not frames:
            return self.gradients
        return self.anywhere or any(line in self.lines and self._same(file) for file, line in frames)

    def _same(self, file: str) -> bool:
        return file == self.path or os.path.realpath(file) == self.path


@dataclass(frozen=True)
class Evidence:
    """Bytes that lead to the flagged statement or to what it keeps, of those that there are, and the largest stacks."""

    leading: float
    total: float
    stacks: tuple[dict[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As a verdict has it: bytes, and for each stack its frames from the innermost outward."""
        return {"bytes": round(self.leading), "of": round(self.total), "stacks": list(self.stacks)}

    def supports(self, saved: float) -> bool:
        """Whether enough leads there to be what ``saved`` bytes come from."""
        return self.leading >= SHARE * saved


def weigh(claim: Claim, tables: dict[str, Any] | None, origin: Origin | None) -> Evidence | None:
    """What the tables of a `stacks.Witness` say on ``claim``; None where they say nothing."""
    rows = (tables or {}).get(TABLES.get(claim, ""))
    if not rows or origin is None:
        return None
    found = [(origin.leads(row["frames"]), row) for row in rows if row["bytes"] > 0]
    stacks = tuple({"frames": row["frames"][:8], "bytes": round(row["bytes"]), "leads": own} for own, row in found)
    ordered = sorted(stacks, key=lambda stack: not stack["leads"])
    return Evidence(
        sum(row["bytes"] for own, row in found if own), sum(row["bytes"] for _, row in found), tuple(ordered[:SHOWN])
    )


def origin(finding: Finding, source: Source) -> Origin:
    """Where bytes that ``finding`` is about may come from."""
    position = bytes_at(source.text, finding.span.line, finding.span.column)
    scope, flagged = _around(source.tree, position)
    own = _parts(scope)
    here = next((part for part in own if part.node is flagged), None)
    lines = set(range(finding.span.line, finding.span.end_line + 1)) | {step.line for step in finding.trail}
    if here is None:  # a decorator, a class body
        whole = range(scope.lineno, (scope.end_lineno or 0) + 1) if isinstance(scope, _FUNCTIONS) else ()
        return Origin(os.path.realpath(source.path), frozenset(lines.union(whole)), True, True)
    kept = {id(here): here}
    unknown = _backward(here, own, kept)
    _forward(here, own, kept)
    for handler in ast.walk(scope):
        if isinstance(handler, ast.Try) and any(flagged is n for h in handler.handlers for n in ast.walk(h)):
            tried = {id(n) for statement in handler.body for n in ast.walk(statement)}
            kept |= {id(part): part for part in own if id(part.node) in tried}
    gradients = any(part.calls & _OF_GRADIENTS for part in kept.values())
    backward = {id(part): part for part in own if "backward" in part.calls}
    if gradients:
        kept |= backward
    looped = locate(source.text, finding.span.line, finding.span.column).loop is not None
    parameters = _parameters(scope)
    open_ends = {name for name in unknown if "." in name or name in parameters} if not looped else set()
    lines |= {line for part in kept.values() for line in part.lines}
    return Origin(
        os.path.realpath(source.path), frozenset(lines), gradients, bool(open_ends) or (gradients and not backward)
    )


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_INNER = (*_FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True)
class _Part:
    """A statement without the statements inside it: its lines, and the names it reads, binds, calls and calls on.

    A name is dotted; a method's is not among what is read, its owner's is.
    """

    node: ast.stmt
    lines: range
    reads: frozenset[str]
    binds: frozenset[str]
    calls: frozenset[str]
    receivers: frozenset[str]


def _around(tree: ast.Module, position: tuple[int, int]) -> tuple[ast.AST, ast.stmt | None]:
    """The innermost function, or else the module, around a position, and the innermost statement there."""
    scope: ast.AST = tree
    flagged: ast.stmt | None = None
    for node in ast.walk(tree):  # breadth first: what comes later lies further in
        if not isinstance(node, ast.stmt):
            continue
        if (node.lineno, node.col_offset) <= position < (node.end_lineno or 0, node.end_col_offset or 0):
            flagged = node
            if isinstance(node, _FUNCTIONS):
                scope = node
    return scope, flagged


def _parts(scope: ast.AST) -> list[_Part]:
    return [
        _part(node)
        for node in ast.walk(scope)
        if isinstance(node, ast.stmt) and node is not scope and not isinstance(node, _INNER)
    ]


def _part(statement: ast.stmt) -> _Part:
    inner = [n for n in _outer_nodes(statement) if n is not statement]
    last = max((getattr(n, "end_lineno", 0) or 0 for n in inner), default=statement.lineno)
    simple = not any(isinstance(child, ast.stmt) for child in ast.iter_child_nodes(statement))
    end = (statement.end_lineno or statement.lineno) if simple else last
    reads: set[str] = set()
    binds: set[str] = set()
    calls: set[str] = set()
    methods = {id(node.func) for node in inner if isinstance(node, ast.Call)}
    for node in inner:
        if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in methods and (name := _dotted(node)):
            (binds if isinstance(node.ctx, ast.Store) else reads).add(name)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and (name := _dotted(node.value)):
            binds.add(name)
        if isinstance(node, ast.Call):
            calls.add(node.func.attr if isinstance(node.func, ast.Attribute) else _dotted(node.func))
    if isinstance(statement, ast.AugAssign) and (name := _dotted(statement.target)):
        reads.add(name)
    return _Part(
        statement,
        range(statement.lineno, max(end, statement.lineno) + 1),
        *map(frozenset, (reads, binds, calls, _receivers(statement))),
    )


def _receivers(statement: ast.stmt) -> set[str]:
    """What a statement that is nothing but a call calls on: `scaler.scale(loss).backward()` on `scaler` and `loss`."""
    found: set[str] = set()
    node = statement.value if isinstance(statement, ast.Expr) else None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
        found |= {_dotted(node)} | (
            {_dotted(argument) for argument in node.args} if isinstance(node, ast.Call) else set()
        )
    return found - {""}


def _outer_nodes(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
            yield from _outer_nodes(child)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _touches(part: _Part, name: str) -> bool:
    """Whether a statement may change what ``name`` holds: binds it, or is nothing but a call on it."""
    if any(bound == name or bound.startswith(f"{name}.") for bound in part.binds):
        return True
    return name in part.receivers


def _backward(start: _Part, own: Sequence[_Part], kept: dict[int, _Part]) -> set[str]:
    """Add to ``kept`` what the statement's values were made by; returns the names that nothing here makes."""
    todo, seen, unknown = [start], set[str](), set[str]()
    while todo:
        for name in todo.pop().reads - seen:
            seen.add(name)
            makers = [part for part in own if _touches(part, name)]
            if not makers:
                unknown.add(name)
            if not makers and "." in name:  # set by a call on its owner, or by one that is handed it
                owner = name.partition(".")[0]
                makers = [part for part in own if owner in part.receivers]
            for part in makers:
                if id(part) not in kept:
                    kept[id(part)] = part
                    todo.append(part)
    return unknown


def _forward(start: _Part, own: Sequence[_Part], kept: dict[int, _Part]) -> None:
    """Add to ``kept`` what the statement's own result goes into."""
    todo, seen = [start], set[str]()
    while todo:
        for name in todo.pop().binds - seen:
            seen.add(name)
            for part in own:
                if id(part) not in kept and any(read == name or read.startswith(f"{name}.") for read in part.reads):
                    kept[id(part)] = part
                    todo.append(part)


def _parameters(scope: ast.AST) -> set[str]:
    if not isinstance(scope, _FUNCTIONS):
        return set()
    arguments = scope.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in every if argument is not None}
