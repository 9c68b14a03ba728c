"""Fixes as requests, and the text that carries them out.

A rule asks for a change with one of the builders below: each returns a `Fix` of one `Operation`, and ``+`` joins
several into one remedy. Nothing is edited until `resolve`, which hands the statement concerned to LibCST, compares the
outcome with the file and gives the smallest edits; where it does not know the shape it gives None, and the finding goes
without a fix.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace as _with

from memlint.imports import import_change, spelling
from memlint.layout import Change, Region, applied, as_edit, differences, indent_unit, merged, newline_of, region_of
from memlint.rule import Edit, Fix, Operation, Span
from memlint.source import Source, SourceError

# These change a block and not only what a statement says, so LibCST has to see the block's owner as well.
_BLOCK_VERBS = frozenset({"enclose", "hoist", "move", "delete", "insert_before", "insert_after"})
_FORMATTED = re.compile(r"\b(?:[fF][rR]?|[rR][fF])['\"]")
# LibCST takes time and memory by the square of the depth, and ends the process where its stack is used up.
_DEEPEST = 500
# These throw something away on purpose.
_LOSING_VERBS = frozenset({"replace", "set_keyword", "drop_keyword", "drop_call", "delete"})


# --- What rules ask for -----------------------------------------------------------------------------------------------


_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.Await, ast.NamedExpr)
"""What binds less tightly than an attribute."""


def wrap(source: Source, expression: ast.AST | Span, template: str) -> Fix:
    """Put an expression in the place of ``{}`` in ``template``, in parentheses where its operators need them."""
    brief = _brief(source, expression)
    if isinstance(expression, _OPERATORS) and "{}." in template:
        brief = f"({brief})"
    return _fix(source, f"write `{template.replace('{}', brief)}`", "wrap", (expression,), template)


def replace(source: Source, expression: ast.AST | Span, text: str) -> Fix:
    """Write the expression ``text`` in the place of another."""
    return _fix(source, f"write `{text}`", "replace", (expression,), text)


def restate(source: Source, statement: ast.AST | Span, text: str) -> Fix:
    """Write the simple statement ``text`` in the place of another, which keeps its comments and its line."""
    return _fix(source, f"write `{_shortened(text)}`", "restate", (statement,), text)


def set_keyword(source: Source, call: ast.AST | Span, name: str, value: str) -> Fix:
    """Add the argument ``name=value`` to a call, or replace its value. No fix where ``**`` may pass it already."""
    return _fix(source, f"pass `{name}={value}`", "set_keyword", (call,), name, value)


def drop_keyword(source: Source, call: ast.AST | Span, name: str) -> Fix:
    """Take the keyword argument ``name`` out of a call."""
    return _fix(source, f"drop `{name}`", "drop_keyword", (call,), name)


def drop_call(source: Source, call: ast.Call) -> Fix:
    """Leave of a method call what the method is called on: ``x.cpu()`` becomes ``x``."""
    return _fix(source, f"drop `{_brief(source, call)}`", "drop_call", (call,))


def enclose(source: Source, first: ast.AST | Span, last: ast.AST | Span, header: str) -> Fix:
    """Put the statements from ``first`` to ``last``, of one block, under ``header`` such as ``with torch.no_grad():``.

    No fix for statements joined by semicolons, and none around a ``yield`` or ``await``.
    """
    return _fix(source, f"put it under `{header}`", "enclose", (first, last), header)


def decorate(source: Source, function: ast.AST | Span, decorator: str) -> Fix:
    """Put ``@decorator`` directly above ``def``, below all others. No fix for ``async def``."""
    return _fix(source, f"decorate it with `@{decorator}`", "decorate", (function,), decorator)


def hoist(source: Source, statement: ast.AST | Span, loop: ast.AST | Span) -> Fix:
    """Move a simple statement, its comments with it, out of a loop, to stand directly before it.

    No fix where the body would be empty, or where anything but loops and with-blocks lies between.
    """
    return _fix(source, f"move `{_brief(source, statement)}` before the loop", "hoist", (statement, loop))


def move(source: Source, statement: ast.AST | Span, before: ast.AST | Span) -> Fix:
    """Move a statement, its comments with it, before another of the same block."""
    title = f"move `{_brief(source, statement)}` before `{_brief(source, before)}`"
    return _fix(source, title, "move", (statement, before))


def delete(source: Source, statement: ast.AST | Span) -> Fix:
    """Take a statement away, not its comments, and write ``pass`` where its block would be empty."""
    return _fix(source, f"delete `{_brief(source, statement)}`", "delete", (statement,))


def insert_before(source: Source, statement: ast.AST | Span, text: str) -> Fix:
    """Write the statements ``text``, indented as at module level, before a statement."""
    return _fix(source, f"write `{_shortened(text)}` before it", "insert_before", (statement,), text)


def insert_after(source: Source, statement: ast.AST | Span, text: str) -> Fix:
    """Write the statements ``text``, indented as at module level, after a statement."""
    return _fix(source, f"write `{_shortened(text)}` after it", "insert_after", (statement,), text)


def ensure_import(module: str) -> Fix:
    """Import a top-level module beside the imports that the file begins with."""
    return Fix(f"import `{module}`", (Operation("ensure_import", (), (module,)),))


def qualified(source: Source, name: str, at: ast.AST | Span) -> tuple[str, Fix] | None:
    """How to spell the dotted ``name``, say ``torch.no_grad``, where ``at`` stands, and the fix that makes it so.

    The fix is empty where an import of the file serves, under whatever alias. For a decorator, ``at`` is the function.
    None where the name is shadowed, or where the file takes care to import the module late.
    """
    found = spelling(source, name, _span(source, at))
    if found is None:
        return None
    text, module = found
    return text, _with(ensure_import(module), title="") if module else Fix("")


torch_name = qualified


# --- From requests to text --------------------------------------------------------------------------------------------


def resolve(source: Source, fix: Fix) -> Fix | None:
    """The fix with its edits worked out: sorted, apart from each other, as small as they can be.

    None where the shape is not one that the verbs know, or where the outcome would not parse, would change a comment or
    a string that no operation is about, or would change nothing. A fix without operations comes back as it is.
    """
    if not fix.operations:
        return fix
    from tokenize import TokenError

    from memlint.surgery import UnknownShape

    operations = list(dict.fromkeys(fix.operations))
    try:
        if any(_in_string(source, op) for op in operations):
            return None
        changes = [import_change(source, op.arguments[0]) for op in operations if op.verb == "ensure_import"]
        for region, group in _groups(source, [op for op in operations if op.verb != "ensure_import"]):
            changes += _operated(source, region, group)
        text = applied(source.text, changes)
        if ast.get_docstring(ast.parse(text)) != ast.get_docstring(source.tree):
            return None
    except (UnknownShape, SourceError, SyntaxError, ValueError, RecursionError, TokenError):
        return None
    edits = tuple(as_edit(source, change) for change in merged(changes))
    return _with(fix, edits=edits) if edits else None


def apply_edits(text: str | Source, edits: Iterable[Edit]) -> str:
    """The text with the edits made. Raises `ValueError` where two of them overlap."""
    source = text if isinstance(text, Source) else Source("", text)
    return applied(
        source.text,
        (
            Change(source.offset(span.line, span.column), source.offset(span.end_line, span.end_column), new)
            for span, new in edits
        ),
    )


def _operated(source: Source, region: Region, operations: Sequence[Operation]) -> list[Change]:
    """What the operations change in a region. Raises `UnknownShape`."""
    from memlint.surgery import VERBS, Patient, UnknownShape

    if _depth(source, region) > _DEEPEST:
        raise UnknownShape("nested too deeply")
    start = source.offset(region.first, 1)
    text = source.text[start : source.offset(region.last + 1, 1)]
    # The line above makes a block of indented statements, and a comment above the first one its own and not the file's.
    newline = newline_of(source)
    opening = ("if 1:" if region.depth else "pass") + newline
    patient = Patient(opening + text, region.first - 1, indent_unit(source, region.first), newline)
    for operation in operations:
        VERBS[operation.verb](patient, operation.nodes, *operation.arguments)
    outcome = patient.operate()
    if not outcome.startswith(opening):
        raise ValueError("nothing is left of a file without a final line end")
    losing = any(operation.verb in _LOSING_VERBS for operation in operations)
    if not losing and any(count(opening + text) - count(outcome) for count in (_strings, _comments)):
        raise ValueError("a string or a comment is lost")
    return list(differences(start, text, outcome.removeprefix(opening)))


def _depth(source: Source, region: Region) -> int:
    """How deep LibCST would nest the statements of a region: a chain of ``and``, and strings side by side, too."""
    deepest = 0
    stack: list[tuple[ast.AST, int]] = [(source.tree, 0)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, ast.BoolOp):
            depth += len(node.values)
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and not isinstance(
            getattr(node, "value", ""), (int, float)
        ):
            text = source.segment(source.span(node))
            depth += (text.count("'") + text.count('"')) // 2
        deepest = max(deepest, depth)
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", region.first), getattr(child, "end_lineno", region.last)
            if isinstance(child, (ast.stmt, ast.expr)) and (last < region.first or region.last < first):
                continue
            stack.append((child, depth + 1))
    return deepest


def _in_string(source: Source, operation: Operation) -> bool:
    """Whether an operation may be about the inside of an f-string: Python before 3.12 gives false positions there."""
    if sys.version_info >= (3, 12) or not _FORMATTED.search(source.text):
        return False  # `memlint.surgery` sees for itself where a position can be trusted
    return any(
        source.span(node) in operation.nodes
        for string in ast.walk(source.tree)
        if isinstance(string, ast.JoinedStr)
        for node in ast.walk(string)
        if isinstance(node, ast.expr) and node is not string
    )


def _groups(source: Source, operations: Iterable[Operation]) -> list[tuple[Region, list[Operation]]]:
    """The operations by the statements they work on, those with common statements together. Raises `ValueError`."""
    groups: list[tuple[Region, list[Operation]]] = []
    for operation in operations:
        members = [operation]
        while True:
            region = region_of(
                source,
                [span for member in members for span in member.nodes],
                whole=any(member.verb in _BLOCK_VERBS for member in members),
            )
            meeting = [group for group in groups if group[0].first <= region.last and region.first <= group[0].last]
            if not meeting:
                break
            groups = [group for group in groups if group not in meeting]
            members = [*(member for group in meeting for member in group[1]), *members]
        groups.append((region, members))
    return groups


def _strings(text: str) -> Counter[object]:
    """The strings of a program, each with whether it documents something."""
    tree = ast.parse(text)
    owners = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    heads = (node.body[0] for node in ast.walk(tree) if isinstance(node, owners))
    first = {id(head.value) for head in heads if isinstance(head, ast.Expr)}
    return Counter(
        (node.value, id(node) in first)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _comments(text: str) -> Counter[object]:
    import io
    import tokenize

    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


# --- Small parts of the builders --------------------------------------------------------------------------------------


def _span(source: Source, node: ast.AST | Span) -> Span:
    return node if isinstance(node, Span) else source.span(node)


def _fix(source: Source, title: str, verb: str, nodes: tuple[ast.AST | Span, ...], *arguments: str) -> Fix:
    return Fix(title, (Operation(verb, tuple(_span(source, node) for node in nodes), arguments),))


def _brief(source: Source, node: ast.AST | Span) -> str:
    return _shortened(source.segment(_span(source, node)))


def _shortened(text: str) -> str:
    """The first line, cut at 60 characters."""
    head, _, rest = text.strip().partition("\n")
    return f"{head.rstrip()[:60]}…" if rest or len(head) > 60 else head
