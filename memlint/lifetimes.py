"""Which uses of a name see which of its bindings, by the order and the blocks that they stand in."""

from __future__ import annotations

import ast
from collections.abc import Callable

from memlint.extract import children, own_nodes, walk
from memlint.values import chain

BINDINGS = (ast.Assign, ast.AnnAssign, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.NamedExpr, ast.comprehension)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

Position = tuple[int, int]


class Lifetimes:
    """The bindings and uses of the dotted names of one function."""

    def __init__(self, node: ast.AST) -> None:
        self.parents = {child: parent for parent in walk(node) for child in children(parent)}
        self.loads: dict[str, list[ast.expr]] = {}
        self.binds: dict[str, list[ast.AST]] = {}
        self.changed: set[str] = set()  # by ``+=`` and its like
        arguments = getattr(node, "args", None)
        self.arguments = {a.arg for a in walk(arguments) if isinstance(a, ast.arg)} if arguments is not None else set()
        self._seen: dict[ast.Name, list[ast.AST | None]] = {}
        for each in own_nodes(node):
            if isinstance(each, ast.AugAssign):
                self.changed.add(chain(each.target))
            if isinstance(each, (ast.Name, ast.Attribute)):
                name = chain(each)
                if name and isinstance(each.ctx, ast.Load):
                    self.loads.setdefault(name, []).append(each)
                elif name and isinstance(each.ctx, ast.Store):
                    binding = self.binding(each)
                    if binding is not None:
                        self.binds.setdefault(name, []).append(binding)

    def binding(self, target: ast.AST) -> ast.AST | None:
        """The statement or comprehension that binds a target; None for ``+=``, which binds nothing new."""
        node = self.parents.get(target)
        while isinstance(node, (ast.Tuple, ast.List, ast.Starred, ast.withitem)):
            node = self.parents.get(node)
        return node if isinstance(node, BINDINGS) else None

    def uses(self, name: str, binding: ast.AST | None) -> list[ast.expr]:
        """The uses of a name that may see what ``binding`` gave it; None: what it was when the function began."""
        loads = self.loads.get(name, [])
        others = [b for b in self.binds.get(name, ()) if b is not binding]
        if isinstance(binding, ast.comprehension):
            whole = self.parents[binding]
            return [n for n in loads if self.inside(n, whole) and not self.inside(n, binding.iter)]
        start = _start(binding) if binding is not None else (0, 0)
        blocks = self.blocks(binding) if binding is not None else []
        later = [b for b in others if _begin(b) > start]
        kills = [b for b in later if (self.block(b) in blocks if binding is not None else self.top(b))]
        end = min((_start(k) for k in kills), default=(1 << 30, 0))
        found = [n for n in loads if start <= _begin(n) < end]
        loop = self.parents.get(binding) if binding is not None else None
        while loop is not None:
            if isinstance(loop, LOOPS):
                before = [b for b in others if self.inside(b, loop) and self.block(b) == (loop, "body")]
                first = min((_start(b) for b in before), default=start)
                found += [n for n in loads if self.inside(n, loop) and _begin(n) < min(first, start) and n not in found]
            loop = self.parents.get(loop)
        return found

    def seen_by(self, node: ast.Name) -> list[ast.AST | None]:
        """The bindings of its name that a use may see; None among them: what it was when the function began."""
        found = self._seen.get(node)
        if found is None:
            binds: list[ast.AST | None] = [*self.binds.get(node.id, ())]
            if node.id in self.arguments or not binds:
                binds.append(None)
            found = self._seen[node] = [b for b in binds if node in self.uses(node.id, b)]
        return found

    def comes_from(self, node: ast.AST, wanted: Callable[[ast.AST], bool]) -> bool:
        """Whether an expression, or one that a name in it is given, has a part that is wanted."""
        parts, seen = walk(node), {node}
        for part in parts:  # grows as it goes
            if wanted(part):
                return True
            if isinstance(part, ast.Name):
                for given in (self.given(binding, part.id) for binding in self.seen_by(part)):
                    if given is not None and given not in seen:
                        seen.add(given)
                        parts += walk(given)
        return False

    def given(self, binding: ast.AST | None, name: str) -> ast.expr | None:
        """The expression that an assignment gives a name; None where it is not that plain."""
        if not isinstance(binding, ast.Assign) or len(binding.targets) != 1:
            return None
        target, value = binding.targets[0], binding.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            found = [v for t, v in zip(target.elts, value.elts, strict=True) if chain(t) == name]
            return found[0] if len(found) == 1 else None
        return value if isinstance(target, ast.Name) else None

    def reaching(self, name: str, node: ast.AST) -> ast.AST | None:
        """The last binding of a name that stands before a node; None if there is none."""
        binds = [b for b in self.binds.get(name, ()) if not isinstance(b, ast.comprehension)]
        return max((b for b in binds if _start(b) <= _begin(node)), key=_begin, default=None)

    def certain(self, name: str, node: ast.AST) -> ast.AST | None:
        """The one binding that a name has for sure at a node: not one of several paths, or of several iterations."""
        bound = self.reaching(name, node)
        if bound is None or (self.block(bound) not in self.blocks(node) and not self.inside(node, bound)):
            return None
        above: ast.AST | None = node
        while above is not None and not (isinstance(above, LOOPS) and self.inside(bound, above)):
            if isinstance(above, LOOPS) and any(self.inside(b, above) for b in self.binds[name] if b is not bound):
                return None
            above = self.parents.get(above)
        return bound

    def inside(self, node: ast.AST, outer: ast.AST) -> bool:
        above: ast.AST | None = node
        while above is not None and above is not outer:
            above = self.parents.get(above)
        return above is outer

    def top(self, node: ast.AST) -> bool:
        owner, _ = self.block(node)
        return isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module))

    def block(self, node: ast.AST) -> tuple[ast.AST | None, str]:
        """The block that a statement stands in: ``with`` and ``try`` make none of their own."""
        while True:
            parent = self.parents.get(node)
            if parent is None:
                return None, ""
            name = next((n for n, v in ast.iter_fields(parent) if isinstance(v, list) and node in v), "")
            if isinstance(node, ast.stmt) and not (
                isinstance(parent, (ast.With, ast.AsyncWith, ast.Try)) and name in ("body", "finalbody")
            ):
                return parent, name
            node = parent

    def blocks(self, node: ast.AST) -> list[tuple[ast.AST | None, str]]:
        """The blocks around a statement, innermost first."""
        found = []
        above: ast.AST | None = node
        while above is not None:
            found.append(self.block(above))
            above = found[-1][0]
        return found


def _begin(node: ast.AST) -> Position:
    if isinstance(node, ast.comprehension):
        node = node.target
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _start(binding: ast.AST) -> Position:
    """Where uses begin to see a binding."""
    if isinstance(binding, (ast.For, ast.AsyncFor)):
        binding = binding.iter
    elif isinstance(binding, (ast.With, ast.AsyncWith)):
        binding = binding.items[-1].optional_vars or binding.items[-1].context_expr
    elif isinstance(binding, ast.comprehension):
        binding = binding.target
    return binding.end_lineno, binding.end_col_offset  # type: ignore[attr-defined]
