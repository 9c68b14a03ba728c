"""Differences of all pairs of rows, materialised for a distance: N x M x D numbers where N x M are wanted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from memlint.function import Function
from memlint.values import chain

FEW = 16  # columns: coordinates, boxes; with so few the differences are not much more than the distances
SAME = frozenset("expand expand_as repeat contiguous float double half to type type_as detach clone".split())
SIZED = frozenset("view reshape expand repeat".split())
SQUARES = {"pow": 2, "square": 2, "abs": 1}
# A name proves nothing. It is reason enough to say nothing.
_GEOMETRY = re.compile(
    r"xyz|(?<![a-z])xy|coord|(?<![a-z])pos(?:es|itions?)?(?![a-z])|points?(?![a-z])|pts|bbox|box|vert(?:s|ices|ex)"
    r"|joint|keyp|kpt|atom|corner|(?<![a-z])loc(?:s|ations?)?(?![a-z])|traj|(?<![a-z])grid",
    re.IGNORECASE,
)


@dataclass
class Distance:
    """What a difference is for: the expression, its norm, and its dimension. ``squared``: without the square root.

    ``torch``: something in it is torch's own, so that it is no array of NumPy's.
    """

    whole: ast.expr
    p: int
    dim: int
    squared: bool = False
    plain: bool = True  # no mean
    torch: bool = False


@dataclass
class Pairs:
    """A subtraction of all pairs of ``rows``, two matrices, and the distance that it is for.

    ``exact``: the matrices are known to be such, and everything stands in one expression.
    """

    subtraction: ast.BinOp
    distance: Distance
    rows: tuple[ast.expr, ast.expr]
    exact: bool


@dataclass
class _Step:
    whole: ast.expr
    method: str
    args: list[ast.expr]
    keywords: dict[str | None, ast.expr]
    torch: bool


@dataclass
class _Broadcast:
    base: ast.expr
    axis: int
    rank: int | None = None  # of the broadcast tensor, where it is written out
    torch: bool = False
    named: bool = False  # made in another statement


def pairs(fn: Function) -> Iterator[Pairs]:
    """The subtractions of a function that serve nothing but distances of all pairs."""
    subtractions = [n for n in fn.nodes_of(ast.BinOp) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub)]
    search = _Search(fn)
    for node in sorted(subtractions, key=lambda n: (n.lineno, n.col_offset)):
        found = search.of(node)
        if found is not None:
            yield found


class _Search:
    def __init__(self, fn: Function) -> None:
        self.fn = fn

    def of(self, node: ast.BinOp) -> Pairs | None:
        left, right = self.broadcast(node.left), self.broadcast(node.right)
        if left is None or right is None or abs(left.axis - right.axis) != 1 or -1 in (left.axis, right.axis):
            return None
        distance = self.distance(node)
        if distance is None or not (distance.torch or left.torch or right.torch):
            return None
        rank, last = left.rank or right.rank, max(left.axis, right.axis) + 1
        if left.axis < 0:
            exact = distance.dim == -1
        else:
            exact = distance.dim == last or (distance.dim == -1 and rank == last + 1)
        if not exact and not (distance.dim == -1 and distance.p == 2):
            return None  # of vectors, it may be, which have no last dimension to sum over
        if any(map(self.few, (left.base, right.base, node.left, node.right))) or self.integers(node):
            return None
        rows = (left.base, right.base) if left.axis > right.axis else (right.base, left.base)
        together = any(n is node for n in ast.walk(distance.whole)) and not (left.named or right.named)
        return Pairs(node, distance, rows, exact and together)

    # ------------------------------------------------------------------ the two sides

    def broadcast(self, node: ast.expr) -> _Broadcast | None:
        """The matrix that an expression gives one more axis, of length one or expanded, and which axis."""
        if isinstance(node, ast.Name):
            given = self.given(node)
            found = self.broadcast(given) if given is not None else None
            return replace(found, named=True) if found is not None else None
        if isinstance(node, ast.Subscript):
            return _indexed(node)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        method, args = node.func.attr, node.args
        if method == "unsqueeze":
            axis = _integer(args[0]) if len(args) == 1 else None
            return _Broadcast(node.func.value, axis, torch=True) if axis is not None else None
        found = self.broadcast(node.func.value) if method in SAME else None
        if found is not None and method in ("expand", "repeat") and len(args) > 1:
            found.rank = found.rank or len(args)
        return found

    def integers(self, node: ast.AST) -> bool:
        """Whether a subtraction stands under a condition that asks for the type: `torch.cdist` takes no integers."""
        above = self.fn.lifetimes.parents.get(node)
        while above is not None:
            if isinstance(above, (ast.If, ast.IfExp)) and "is_floating_point" in ast.unparse(above.test):
                return True
            above = self.fn.lifetimes.parents.get(above)
        return False

    def given(self, node: ast.Name) -> ast.expr | None:
        """The expression of the only binding that a use of a name sees."""
        bindings = self.fn.lifetimes.seen_by(node) if node.id not in self.fn.lifetimes.changed else []
        return self.fn.lifetimes.given(bindings[0], node.id) if len(bindings) == 1 else None

    # ------------------------------------------------------------------ what is made of the difference

    def distance(self, node: ast.expr) -> Distance | None:
        """The distance that a difference is for, and for nothing else."""
        power, torch = 0, False  # of the elements: 0 as they are, 1 absolute, 2 squared
        while True:
            parent = self.fn.lifetimes.parents.get(node)
            if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
                if parent.targets[0].id in self.fn.lifetimes.changed:
                    return None
                uses = self.fn.lifetimes.uses(parent.targets[0].id, parent)
                square = self.own_product(uses)
                if square is not None and not power:
                    node, power = square, 2
                elif len(uses) == 1:
                    node = uses[0]
                else:
                    return None
                continue
            step = self.step(node)
            if step is None:
                return None
            torch = torch or step.torch
            if step.method in SQUARES:
                exponent = _integer(step.args[0]) if step.args else SQUARES[step.method]
                if power or exponent != SQUARES[step.method]:
                    return None
                node, power = step.whole, exponent
                continue
            found = self.reduced(step, power)
            return replace(found, torch=found.torch or torch) if found is not None else None

    def step(self, node: ast.expr) -> _Step | None:
        """The call, or the power, that takes an expression as its receiver or first argument."""
        parent = self.fn.lifetimes.parents.get(node)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Pow) and parent.left is node:
            return _Step(parent, "pow", [parent.right], {}, False)
        call, name, skip = self.fn.lifetimes.parents.get(parent) if parent is not None else None, "", 0
        if isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent:
            name = parent.attr
        elif isinstance(parent, ast.Call) and parent.args and parent.args[0] is node:
            call, skip = parent, 1
            meaning = self.fn.project.names.resolve(parent.func, self.fn.definition)
            name = meaning.rpartition(".")[2] if isinstance(meaning, str) and meaning.startswith("torch.") else ""
        if not name or not isinstance(call, ast.Call):
            return None
        keywords = {k.arg: k.value for k in call.keywords}
        torch = bool(skip) or "dim" in keywords or name in ("pow", "square", "norm", "abs") or self.is_tensor(node)
        return _Step(call, name, list(call.args[skip:]), keywords, torch)

    def is_tensor(self, node: ast.expr) -> bool:
        flow = self.fn.flow
        value = flow.env.get(node.id) if flow is not None and isinstance(node, ast.Name) else None
        return value is not None and value.kind == "tensor"

    def own_product(self, uses: list[ast.expr]) -> ast.expr | None:
        """``d * d``, where that is all that is done with ``d``."""
        parents = {self.fn.lifetimes.parents.get(u) for u in uses}
        product = parents.pop() if len(uses) == 2 and len(parents) == 1 else None
        return product if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult) else None

    def reduced(self, step: _Step, power: int) -> Distance | None:
        """The distance that a reduction of (powers of) differences is."""
        args, keywords = step.args, step.keywords
        norm = step.method in ("norm", "vector_norm")
        if not norm and not (power and step.method in ("sum", "mean")):
            return None
        first = args.pop(0) if norm and args else keywords.get("p", keywords.get("ord"))
        dim = _integer(args[0] if args else keywords.get("dim"))
        if dim is None or not keywords.keys() <= {"p", "ord", "dim"} or len(args) > 1:
            return None  # a dimension that is kept is there to be multiplied with the differences, or their like
        plain = step.method != "mean"
        if norm:
            euclidean = first is None or (isinstance(first, ast.Constant) and first.value in (None, "fro"))
            p = 2 if euclidean else _integer(first)
            return Distance(step.whole, p, dim, plain=plain, torch=step.torch) if p in (1, 2) and not power else None
        root = self.step(step.whole) if power == 2 and step.method == "sum" else None
        if root is not None and root.method == "sqrt" and not root.args:
            return Distance(root.whole, 2, dim, plain=plain, torch=step.torch or root.torch)
        return Distance(step.whole, power, dim, squared=power == 2, plain=plain, torch=step.torch)

    # ------------------------------------------------------------------ how many columns

    def few(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether the last dimension is known to be a handful of numbers, or may well be by all that is said of it."""
        if depth > 6:
            return False
        if _GEOMETRY.search(ast.unparse(node)):
            return True
        if isinstance(node, ast.Name):
            given = self.given(node)
            return given is not None and self.few(given, depth + 1)
        if isinstance(node, ast.Subscript):
            index = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else None
            if isinstance(index, ast.Slice) and index.upper is not None:
                low, high = _integer(index.lower) or 0, _integer(index.upper)
                return high is not None and 0 <= low < high <= low + FEW
            if isinstance(index, (ast.List, ast.Tuple)):
                return True
            return self.few(node.value, depth + 1)
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.BinOp) and (self.few(node.left, depth + 1) or self.few(node.right, depth + 1))
        name = _last(node.func)
        args = list(node.args)
        if name in ("nonzero", "argwhere", "cross"):
            return True
        if name in ("stack", "cat", "concat") and args and isinstance(args[0], (ast.List, ast.Tuple)):
            dim = _integer(args[1] if len(args) > 1 else next((k.value for k in node.keywords if k.arg == "dim"), None))
            return dim is not None and dim != 0 and name == "stack" and len(args[0].elts) <= FEW
        sizes = args[-1].elts if args and isinstance(args[-1], (ast.Tuple, ast.List)) else args
        if name in SIZED or name in ("rand", "randn", "zeros", "ones", "empty"):
            last = _integer(sizes[-1]) if len(sizes) > 1 else None
            if last is not None and name != "repeat":
                return 0 < last <= FEW
        return isinstance(node.func, ast.Attribute) and self.few(node.func.value, depth + 1)


def _indexed(node: ast.Subscript) -> _Broadcast | None:
    """``x[:, None, :]``, and so on: nothing but whole axes and one new one."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    new = [i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is None]
    whole = [isinstance(p, ast.Slice) and p.lower is p.upper is p.step is None for p in parts]
    dots = [i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is Ellipsis]
    if len(new) != 1 or len(dots) > 1 or sum(whole) + 1 + len(dots) != len(parts):
        return None
    if dots and dots[0] < new[0]:
        return _Broadcast(node.value, new[0] - len(parts))
    return _Broadcast(node.value, new[0], None if dots or len(parts) < 3 else len(parts))


def _integer(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _integer(node.operand)
        return -value if value is not None else None
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value == int(node.value):
        return int(node.value)
    return None


def _last(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else chain(func)
