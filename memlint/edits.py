"""Fixes as requests, and the text that carries them out.

A rule asks for a change with one of the builders below: each returns a `Fix` of one `Operation`, and ``+`` joins
several into one remedy. Nothing is edited until `resolve`, which hands the statement concerned to LibCST, compares the
outcome with the file and gives the smallest edits; where it does not know the shape it gives None, and the finding goes
without a fix.
"""

from __future__ import annotations

import ast
import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace as _with
from typing import NamedTuple

from memlint.rule import Edit, Fix, Operation, Span
from memlint.source import Source, SourceError

# These change a block and not only what a statement says, so LibCST has to see the block's owner as well.
_BLOCK_VERBS = frozenset({"enclose", "hoist", "move", "delete", "insert_before", "insert_after"})
# These throw something away on purpose.
_LOSING_VERBS = frozenset({"replace", "set_keyword", "drop_keyword", "delete"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


# --- What rules ask for -----------------------------------------------------------------------------------------------


def wrap(source: Source, expression: ast.AST | Span, template: str) -> Fix:
    """Put an expression in the place of ``{}`` in ``template``, in parentheses where its operators need them."""
    title = f"write `{template.replace('{}', _brief(source, expression))}`"
    return _fix(source, title, "wrap", (expression,), template)


def replace(source: Source, expression: ast.AST | Span, text: str) -> Fix:
    """Write the expression ``text`` in the place of another."""
    return _fix(source, f"write `{text}`", "replace", (expression,), text)


def set_keyword(source: Source, call: ast.AST | Span, name: str, value: str) -> Fix:
    """Add the argument ``name=value`` to a call, or replace its value. No fix where ``**`` may pass it already."""
    return _fix(source, f"pass `{name}={value}`", "set_keyword", (call,), name, value)


def drop_keyword(source: Source, call: ast.AST | Span, name: str) -> Fix:
    """Take the keyword argument ``name`` out of a call."""
    return _fix(source, f"drop `{name}`", "drop_keyword", (call,), name)


def enclose(source: Source, first: ast.AST | Span, last: ast.AST | Span, header: str) -> Fix:
    """Put the statements from ``first`` to ``last``, of one block, under ``header`` such as ``with torch.no_grad():``.

    No fix for statements joined by semicolons, and none around a ``yield``.
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
    """Take a statement away, and write ``pass`` where its block would be empty."""
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
    place = _span(source, at)
    scopes = _scopes(source, place)
    tables = [_bindings(scope) for scope in scopes]
    spellings: list[tuple[int, str]] = []
    hidden: set[str] = set()
    for table in reversed(tables):
        for local, nodes in table.items():
            target = _imported(local, nodes, place.line)
            if target and local not in hidden and f"{name}.".startswith(f"{target}."):
                spellings.append((len(target), local + name[len(target) :]))
        hidden |= table.keys()
    if spellings:
        return min(spellings)[1], Fix("")
    root = name.partition(".")[0]
    late = any(root in _import_roots(node) for node in ast.walk(source.tree))
    early = any(root in _import_roots(node) for node in _own_nodes(source.tree))
    if root in hidden or (late and not early) or not _import_site(source, root) < source.offset(place.line, 1) + 1:
        return None
    return name, _with(ensure_import(root), title="")


torch_name = qualified


# --- From requests to text --------------------------------------------------------------------------------------------


class _Change(NamedTuple):
    """Characters ``start`` to ``end`` of a file's text and what to write there."""

    start: int
    end: int
    text: str


class _Region(NamedTuple):
    """The lines, from 1 and both included, of whole statements of one block; ``depth`` 0 at module level."""

    first: int
    last: int
    depth: int


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
        changes = [_import(source, op.arguments[0]) for op in operations if op.verb == "ensure_import"]
        for region, group in _groups(source, [op for op in operations if op.verb != "ensure_import"]):
            changes += _operated(source, region, group)
        text = _applied(source.text, changes)
        _check(source.tree, ast.parse(text), losing=any(op.verb in _LOSING_VERBS for op in operations))
    except (UnknownShape, SourceError, SyntaxError, ValueError, RecursionError, TokenError):
        return None
    edits = tuple(_edit(source, change) for change in _merged(changes))
    return _with(fix, edits=edits) if edits else None


def apply_edits(text: str | Source, edits: Iterable[Edit]) -> str:
    """The text with the edits made. Raises `ValueError` where two of them overlap."""
    source = text if isinstance(text, Source) else Source("", text)
    return _applied(
        source.text,
        (
            _Change(source.offset(span.line, span.column), source.offset(span.end_line, span.end_column), new)
            for span, new in edits
        ),
    )


def _applied(text: str, changes: Iterable[_Change]) -> str:
    parts, at = [], 0
    for change in _merged(changes):
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join(parts) + text[at:]


def _merged(changes: Iterable[_Change]) -> list[_Change]:
    """The changes in order, neighbours as one. Insertions at one place keep the order they came in."""
    merged: list[_Change] = []
    for change in sorted(changes, key=lambda change: change[:2]):
        last = merged[-1] if merged else None
        if last and change.start < last.end:
            raise ValueError("edits overlap")
        if last and change.start == last.end:
            merged[-1] = _Change(last.start, change.end, last.text + change.text)
        else:
            merged.append(change)
    return merged


def _edit(source: Source, change: _Change) -> Edit:
    starts = [0, *itertools.accumulate(map(len, source.lines))]

    def place(offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(starts, offset, hi=max(len(starts) - 1, 1))
        return line, offset - starts[line - 1] + 1

    return Edit(Span(*place(change.start), *place(change.end)), change.text)


def _operated(source: Source, region: _Region, operations: Sequence[Operation]) -> list[_Change]:
    """What the operations change in a region. Raises `UnknownShape`."""
    from memlint.surgery import VERBS, Patient

    start = source.offset(region.first, 1)
    text = source.text[start : source.offset(region.last + 1, 1)]
    # The line above makes a block of indented statements, and a comment above the first one its own and not the file's.
    newline = _newline(source)
    opening = ("if 1:" if region.depth else "pass") + newline
    patient = Patient(opening + text, region.first - 1, _indent_unit(source, region.first), newline)
    for operation in operations:
        VERBS[operation.verb](patient, operation.nodes, *operation.arguments)
    outcome = patient.operate().removeprefix(opening)
    if not any(operation.verb in _LOSING_VERBS for operation in operations):
        _check_comments(opening + text, opening + outcome)
    return list(_differences(start, _lines(text), _lines(outcome)))


def _groups(source: Source, operations: Iterable[Operation]) -> list[tuple[_Region, list[Operation]]]:
    """The operations by the statements they work on, those with common statements together. Raises `ValueError`."""
    groups: list[tuple[_Region, list[Operation]]] = []
    for operation in operations:
        members = [operation]
        while True:
            region = _region(source, members)
            meeting = [group for group in groups if group[0].first <= region.last and region.first <= group[0].last]
            if not meeting:
                break
            groups = [group for group in groups if group not in meeting]
            members = [*(member for group in meeting for member in group[1]), *members]
        groups.append((region, members))
    return groups


def _region(source: Source, operations: Sequence[Operation]) -> _Region:
    """The fewest whole statements of one block that hold all that the operations work on."""
    spans = [span for operation in operations for span in operation.nodes]
    low, high = min(span.line for span in spans), max(span.end_line for span in spans)
    runs: list[list[ast.stmt]] = []
    block: list[ast.stmt] | None = source.tree.body
    before = 0
    while block:
        run = [statement for statement in block if _first_line(statement) <= high and low <= _last_line(statement)]
        if not run:
            break
        first, last = _first_line(run[0]), _last_line(run[-1])
        run = [statement for statement in block if _first_line(statement) <= last and first <= _last_line(statement)]
        if not runs:
            before = max((_last_line(statement) for statement in block if _last_line(statement) < first), default=0)
        runs.append(run)
        inner = _blocks(run[0]) if len(run) == 1 else ()
        block = next((body for body in inner if _first_line(body[0]) <= low and high <= _last_line(body[-1])), None)
    whole = any(operation.verb in _BLOCK_VERBS for operation in operations)
    if whole and len(runs) > 1:
        runs.pop()
    elif whole and runs:
        return _Region(before + 1, _last_line(runs[0][-1]), 0)
    while runs and not _starts_line(source, runs[-1][0]):
        runs.pop()
    if not runs:
        raise ValueError("no statement there")
    return _Region(_first_line(runs[-1][0]), _last_line(runs[-1][-1]), len(runs) - 1)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            if block := getattr(holder, name, None):
                yield block


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _starts_line(source: Source, statement: ast.stmt) -> bool:
    line = source.lines[_first_line(statement) - 1]
    if isinstance(statement, ast.If) and line.lstrip().startswith("elif"):
        return False
    decorated = _first_line(statement) < statement.lineno
    return decorated or not line.encode()[: statement.col_offset].strip()


def _newline(source: Source) -> str:
    return next((line[len(line.rstrip("\r\n")) :] for line in source.lines if line.endswith(("\r", "\n"))), "\n")


def _indent_unit(source: Source, line: int) -> str:
    """What a block adds to the indentation of its owner, as the code nearest to ``line`` has it."""
    units: list[tuple[int, str]] = []
    for statement in ast.walk(source.tree):
        if isinstance(statement, ast.stmt):
            for block in _blocks(statement):
                outer, inner = (source.lines[n - 1] for n in (_first_line(statement), _first_line(block[0])))
                outer, inner = (text[: len(text) - len(text.lstrip(" \t"))] for text in (outer, inner))
                if len(inner) > len(outer) and inner.startswith(outer):
                    units.append((abs(statement.lineno - line), inner[len(outer) :]))
    return min(units)[1] if units else "    "


def _lines(text: str) -> list[str]:
    return Source("", text).lines


def _differences(start: int, old: list[str], new: list[str]) -> Iterator[_Change]:
    """The changes that make one list of lines of the other; a line that only moves sideways changes its margin."""
    import difflib

    matcher = difflib.SequenceMatcher(None, [line.strip() for line in old], [line.strip() for line in new], False)
    starts = list(itertools.accumulate(map(len, old), initial=start))
    for _, low, high, new_low, new_high in matcher.get_opcodes():
        if high - low == new_high - new_low:
            pairs = [(n, old[n], new[m]) for n, m in zip(range(low, high), range(new_low, new_high), strict=True)]
        else:
            pairs = [(low, "".join(old[low:high]), "".join(new[new_low:new_high]))]
        for n, before, after in pairs:
            if before != after:
                yield _trimmed(starts[n], before, after)


def _trimmed(start: int, before: str, after: str) -> _Change:
    head = _common(before, after)
    before, after = before[head:], after[head:]
    tail = _common(before[::-1], after[::-1])
    return _Change(start + head, start + head + len(before) - tail, after[: len(after) - tail])


def _common(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    return next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def _check(old: ast.Module, new: ast.Module, *, losing: bool) -> None:
    """Raise `ValueError` where a string of the program or its documentation has changed by accident."""
    if ast.get_docstring(old, clean=False) != ast.get_docstring(new, clean=False):
        raise ValueError("the module's docstring changes")
    if not losing and _strings(old) - _strings(new):
        raise ValueError("a string changes")


def _strings(tree: ast.Module) -> Counter[str | bytes]:
    return Counter(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _check_comments(old: str, new: str) -> None:
    if _comments(old) - _comments(new):
        raise ValueError("a comment is lost")


def _comments(text: str) -> Counter[str]:
    import io
    import tokenize

    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


# --- Names and imports ------------------------------------------------------------------------------------------------


def _import(source: Source, module: str) -> _Change:
    newline = _newline(source)
    site = _import_site(source, module)
    text = f"import {module}{newline}"
    above, below = source.text[:site], source.text[site:]
    if above and not above.endswith(("\n", "\r")):
        text = newline + text
    body = source.tree.body
    if not any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body[: _preamble(body) + 1]):
        # Alone under a docstring or above the code, it gets the empty line that imports have around them.
        text = (
            (newline if above.strip() else "") + text + (newline if below.strip() and below[:1] not in "\r\n" else "")
        )
    return _Change(site, site, text)


def _preamble(body: list[ast.stmt]) -> int:
    """How many statements come before the first import: a docstring, or none."""
    return int(bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))


def _import_site(source: Source, module: str) -> int:
    """Where in the text a line that imports ``module`` belongs: above an import from it, else below the first imports.

    ``from __future__`` stays first, and so does a docstring.
    """
    body = source.tree.body
    for statement in body:
        if module in _import_roots(statement) and _starts_line(source, statement):
            return source.offset(statement.lineno, 1)
    index = _preamble(body)
    while index < len(body) and isinstance(body[index], (ast.Import, ast.ImportFrom)):
        index += 1
    if index:
        last = max(_last_line(statement) for statement in body[:index])
        return source.offset(last + 1, 1)
    return source.offset(_first_line(body[0]), 1) if body else len(source.text)


def _import_roots(node: ast.AST) -> set[str]:
    """The top-level modules that an import statement loads."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").partition(".")[0]}
    return set()


def _scopes(source: Source, place: Span) -> list[ast.AST]:
    """The scopes whose names can be read at ``place``, outermost first."""
    around: list[ast.AST] = [source.tree]
    for node in ast.walk(source.tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            span = source.span(node)
            if span != place and span[:2] <= place[:2] and place[2:] <= span[2:]:
                around.append(node)
    return [scope for scope in around if not isinstance(scope, ast.ClassDef) or scope is around[-1]]


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of the scopes inside and of what only a type checker reads."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            pending += getattr(node, "decorator_list", [])
        else:
            pending += ast.iter_child_nodes(node)


def _bindings(scope: ast.AST) -> dict[str, list[ast.AST]]:
    """The names that a scope binds, each with the nodes that do."""
    table: dict[str, list[ast.AST]] = {}
    for node in _own_nodes(scope):
        for name in _bound(node):
            table.setdefault(name, []).append(node)
    fallbacks = {
        id(target)
        for node in _own_nodes(scope)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None
        for target in node.targets
    }
    for name, nodes in table.items():  # `except ImportError: torch = None`: who gets here has the module
        if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes):
            table[name] = [node for node in nodes if id(node) not in fallbacks]
    return table


def _bound(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name.partition(".")[0] for alias in aliases]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
    return []


def _imported(local: str, nodes: list[ast.AST], line: int) -> str | None:
    """The dotted name that ``local`` stands for at ``line``, where nothing but imports binds it."""
    targets: set[str] = set()
    for node in nodes:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or node.lineno >= line:
            return None
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) != local:
                continue
            if isinstance(node, ast.ImportFrom):
                targets.add("." * node.level + f"{node.module or ''}.{alias.name}")
            else:
                targets.add(alias.name if alias.asname else local)
    return targets.pop() if len(targets) == 1 else None


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
