"""How a name of a library is spelled at some place of a file, and where an import that it needs belongs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from memlint.layout import Change, first_line, last_line, newline_of, starts_line
from memlint.rule import Span
from memlint.source import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def spelling(source: Source, name: str, place: Span) -> tuple[str, str | None] | None:
    """How to write the dotted ``name`` at ``place``, and the module that has to be imported for it, if one has.

    None where the name is shadowed, or where the file takes care to import the module late.
    """
    tables = [_bindings(scope) for scope in _scopes(source, place)]
    spellings: list[tuple[int, str]] = []
    hidden: set[str] = set()
    for table in reversed(tables):
        for local, nodes in table.items():
            target = _imported(local, nodes, place.line)
            if target and local not in hidden and f"{name}.".startswith(f"{target}."):
                spellings.append((len(target), local + name[len(target) :]))
        hidden |= table.keys()
    if spellings:
        return min(spellings)[1], None
    root = name.partition(".")[0]
    late = any(root in _import_roots(node) for node in ast.walk(source.tree))
    early = any(root in _import_roots(node) for node in _own_nodes(source.tree))
    if root in hidden or (late and not early) or _import_site(source, root) > source.offset(place.line, 1):
        return None
    return name, root


def import_change(source: Source, module: str) -> Change:
    newline = newline_of(source)
    site = _import_site(source, module)
    text = f"import {module}{newline}"
    above, below = source.text[:site], source.text[site:]
    if above and not above.endswith(("\n", "\r")):
        text = newline + text
    body = source.tree.body
    preamble = _preamble(body)
    if not any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in body[: preamble + 1]):
        # Alone under a docstring or above the code, it gets the empty line that imports have around them.
        text = (
            (newline if preamble and above.strip() else "")
            + text
            + (newline if below.strip() and below[:1] not in "\r\n" else "")
        )
    return Change(site, site, text)


def _preamble(body: list[ast.stmt]) -> int:
    """How many statements come before the first import: a docstring, or none."""
    return int(bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))


def _import_site(source: Source, module: str) -> int:
    """Where in the text a line that imports ``module`` belongs: above an import from it, else below the first imports.

    ``from __future__`` stays first, and so does a docstring.
    """
    body = source.tree.body
    for statement in body:
        if module in _import_roots(statement) and starts_line(source, statement):
            return source.offset(statement.lineno, 1)
    index = _preamble(body)
    while index < len(body) and isinstance(body[index], (ast.Import, ast.ImportFrom)):
        index += 1
    if index:
        last = max(last_line(statement) for statement in body[:index])
        return source.offset(last + 1, 1)
    return source.offset(first_line(body[0]), 1) if body else len(source.text)


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
