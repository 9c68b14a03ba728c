"""Copies that broadcasting makes needless: `repeat` along dimensions of size one, where all that follows only reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memlint.extract import walk
from memlint.facts import Event
from memlint.function import Function
from memlint.library import Row

METHODS = frozenset({"repeat", "tile", "repeat_interleave"})
KEEPING = frozenset("to cuda cpu float double half bfloat16 long int bool type type_as detach clone contiguous".split())
SIZED = frozenset(f"torch.{name}" for name in "zeros ones empty rand randn".split())
LINES = frozenset(f"torch.{name}" for name in "arange range linspace logspace randperm".split())
FACTS = frozenset("shape dtype device ndim size dim numel requires_grad".split())
# Methods that only tensors have, which tell the receiver from a logger or a set that nothing else is known of.
TENSOR_ONLY = frozenset(
    "gather scatter scatter_ scatter_add scatter_add_ masked_fill masked_fill_ take_along_dim".split()
)
TENSORS = frozenset({"tensor", "parameter", "indices"})
IN_PLACE = re.compile(r"[^_]_$")
EXPORT = re.compile(r"onnx|trac|export|script", re.IGNORECASE)
FEW = 8  # copies that are too few to speak of
DEPTH = 4  # expressions that a shape is followed through


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call that copies a tensor along dimensions of size one. ``expanded`` is the view that does the same, or ""."""

    call: ast.Call
    expanded: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a shape: which dimensions are of size one, from the left and from the right, and how many."""

    left: frozenset[int] = frozenset()
    right: frozenset[int] = frozenset()
    rank: int | None = None

    def ones(self, index: int, count: int) -> bool:
        """Whether dimension ``index`` of ``count`` that a tensor is expanded to is new, or of size one."""
        if self.rank is not None:
            return index < count - self.rank or index - (count - self.rank) in self.left
        return index in self.left or index - count in self.right


UNKNOWN = Shape()


def needless_repeats(fn: Function) -> Iterator[Repeat]:
    """Calls of `repeat`, `tile` and `repeat_interleave` whose result is a broadcast that is only read."""
    calls = [n for n in fn.nodes_of(ast.Call) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") in METHODS]
    if not calls or fn.is_test or fn.flow is None:
        return
    reads = Reads(fn)
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        found = reads.repeat(call)
        shared = {n.id for n in walk(call.func) if isinstance(n, ast.Name)}  # a view changes with what it shows
        if found is not None and not reads.is_written(shared) and reads.is_only_read(call):
            yield found


class Reads:
    """The shapes of one function's tensors, and what is done with them."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.life = fn.lifetimes
        self.calls: dict[ast.AST, Event] = {e.site: e for e in fn.own("call")}

    # ------------------------------------------------------------------ what is repeated

    def repeat(self, call: ast.Call) -> Repeat | None:
        """The call as a broadcast, None where it copies along a dimension that may have more than one element."""
        assert isinstance(call.func, ast.Attribute)
        event = self.calls.get(call)
        receiver = event.receiver.receiver if event is not None else None
        if event is None or receiver is None or receiver.kind not in TENSORS:
            return None
        if any(EXPORT.search(test) for test, _ in event.guards):
            return None  # an exporter may know no other way
        shape = self.shape(call.func.value)
        if shape == UNKNOWN:
            return None
        if call.func.attr == "repeat_interleave":
            return Repeat(call, "") if self._interleaves(call, shape) else None
        factors = _arguments(call.args)
        if not factors or call.keywords or any(isinstance(f, ast.Starred) for f in factors):
            return None
        count = len(factors)
        if call.func.attr == "tile" and shape.rank is None:
            shape = Shape(right=shape.right)  # missing factors are filled up from the left
        repeated = [i for i, factor in enumerate(factors) if _number(factor) != 1]
        if (
            not repeated
            or not all(shape.ones(i, count) for i in repeated)
            or not any(_many(factors[i]) for i in repeated)
        ):
            return None
        new = count - shape.rank if shape.rank is not None else 0
        sizes = [
            self.fn.source_of(f, 400) if i in repeated else "1" if i < new else "-1" for i, f in enumerate(factors)
        ]
        return Repeat(call, f"{self.fn.source_of(call.func.value, 400)}.expand({', '.join(sizes)})")

    def _interleaves(self, call: ast.Call, shape: Shape) -> bool:
        dim = _number(_argument(call, call.args[1:], "dim"))
        count = _argument(call, call.args, "repeats")
        return dim is not None and count is not None and _many(count) and (dim in shape.left or dim in shape.right)

    def shape(self, node: ast.expr, depth: int = 0) -> Shape:
        """What the code shows of an expression's shape."""
        if depth > DEPTH:
            return UNKNOWN
        if isinstance(node, ast.Name):
            bound = self.life.certain(node.id, node)
            single = (
                isinstance(bound, ast.Assign) and len(bound.targets) == 1 and isinstance(bound.targets[0], ast.Name)
            )
            return self.shape(bound.value, depth + 1) if single and isinstance(bound, ast.Assign) else UNKNOWN
        if isinstance(node, ast.Subscript):
            return _indexed(node)
        if not isinstance(node, ast.Call):
            return UNKNOWN
        event = self.calls.get(node)
        name = event.receiver.type if event is not None and event.receiver.kind in ("function", "library") else ""
        arguments = _arguments(node.args)
        if name in LINES:
            return Shape(rank=1)
        if name in SIZED:
            return _of_sizes(arguments)
        if not isinstance(node.func, ast.Attribute):
            return UNKNOWN
        method = name.removeprefix("torch.") if name.startswith("torch.") else node.func.attr
        receiver, arguments = (node.args[0], arguments[1:]) if name and node.args else (node.func.value, arguments)
        if method in KEEPING:
            return self.shape(receiver, depth + 1)
        if method == "unsqueeze" and (dim := _number(_argument(node, arguments, "dim"))) is not None:
            return _widened(self.shape(receiver, depth + 1), dim)
        if method == "view" or (method == "reshape" and self._is_tensor(node)):
            return _of_sizes(arguments)
        if any(
            k.arg == "keepdim" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.keywords
        ):
            dim = _number(_argument(node, arguments, "dim"))
            if dim is not None:
                return Shape(frozenset({dim})) if dim >= 0 else Shape(right=frozenset({dim}))
        return UNKNOWN

    def _is_tensor(self, method: ast.Call) -> bool:
        """Whether the receiver of a method that arrays have as well is a tensor."""
        event = self.calls.get(method)
        owner = event.receiver.receiver if event is not None else None
        return event is not None and (
            event.receiver.type.startswith("torch.") or (owner is not None and owner.kind in TENSORS)
        )

    # ------------------------------------------------------------------ what is done with it

    def is_written(self, names: set[str]) -> bool:
        """Whether something of these names is changed in place anywhere in the function."""
        for node in walk(self.fn.node):
            target: ast.AST | None = None
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                target = node.value
            elif isinstance(node, ast.AugAssign):
                target = node.target
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                target = node.func.value if IN_PLACE.search(node.func.attr) else None
            while isinstance(target, (ast.Subscript, ast.Attribute)):
                target = target.value
            if isinstance(target, ast.Name) and target.id in names:
                return True
        return False

    def is_only_read(self, node: ast.expr) -> bool:
        """Whether all that happens to a value is that its elements are read, whatever its strides."""
        parent = self.life.parents.get(node)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
            name = parent.targets[0].id
            uses = self.life.uses(name, parent)
            seen = [n for n in walk(self.fn.node) if isinstance(n, ast.Name) and n.id == name]
            loads = sum(1 for n in seen if isinstance(n.ctx, ast.Load))  # those of inner functions, too
            if not uses or loads != len(self.life.loads[name]) or isinstance(self.fn.node, ast.Module):
                return False
            if self.is_written({name}):
                return False
            return all(self._reads(use) for use in uses)
        return self._reads(node)

    def _reads(self, node: ast.expr) -> bool:
        parent = self.life.parents.get(node)
        if isinstance(parent, ast.BinOp):
            return not isinstance(parent.op, ast.MatMult)
        if isinstance(parent, (ast.UnaryOp, ast.Compare)):
            return not isinstance(getattr(parent, "op", None), ast.Not)
        if isinstance(parent, ast.AugAssign):
            return node is parent.value and not isinstance(parent.op, ast.MatMult)
        if isinstance(parent, ast.Subscript):
            if node is parent.slice:
                return True
            return isinstance(parent.ctx, ast.Load) and self.is_only_read(parent)
        if isinstance(parent, ast.Attribute):
            above = self.life.parents.get(parent)
            if parent.attr in FACTS:
                return True
            return isinstance(above, ast.Call) and above.func is parent and self._broadcasts(above, in_place=False)
        if isinstance(parent, (ast.List, ast.Tuple, ast.keyword)):
            node, parent = parent, self.life.parents.get(parent)  # type: ignore[assignment]
            if isinstance(parent, ast.Subscript):
                return node is parent.slice
        return isinstance(parent, ast.Call) and node is not parent.func and self._broadcasts(parent)

    def _broadcasts(self, call: ast.Call, in_place: bool = True) -> bool:
        """Whether a call only reads its tensor arguments, element by element."""
        event = self.calls.get(call)
        if event is None:
            return False
        row = event.receiver.target if isinstance(event.receiver.target, Row) else None
        if row is None and event.receiver.type:
            row = self.fn.project.library.lookup(event.receiver.type)
        if row is None and isinstance(call.func, ast.Attribute) and event.receiver.kind == "unknown":
            if call.func.attr in TENSOR_ONLY or not in_place:
                row = self.fn.project.library.method("tensor", call.func.attr)
        return row is not None and "broadcasts" in row and (in_place or "in_place" not in row)


def _arguments(args: Sequence[ast.expr]) -> list[ast.expr]:
    """The arguments, or the elements of the one tuple that they are."""
    if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
        return list(args[0].elts)
    return list(args)


def _argument(call: ast.Call, positional: Sequence[ast.expr], name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), positional[0] if positional else None)


def _number(node: ast.AST | None) -> int | None:
    """The value of a literal integer."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return -inner if inner is not None else None
    literal = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if literal and isinstance(node, ast.Constant) else None  # type: ignore[return-value]


def _many(factor: ast.expr) -> bool:
    """Whether a number of copies may be large."""
    number = _number(factor)
    return number is None or number >= FEW


def _of_sizes(sizes: Sequence[ast.expr]) -> Shape:
    """The shape that literal sizes spell out."""
    if not sizes or any(isinstance(s, ast.Starred) for s in sizes):
        return UNKNOWN
    if len(sizes) == 1 and _number(sizes[0]) is None:
        return UNKNOWN  # a size, or all sizes in one
    ones = frozenset(i for i, size in enumerate(sizes) if _number(size) == 1)
    return Shape(ones, frozenset(i - len(sizes) for i in ones), len(sizes))


def _widened(shape: Shape, dim: int) -> Shape:
    """The shape with a dimension of size one put in."""
    rank = shape.rank + 1 if shape.rank is not None else None
    if rank is not None:
        dim = dim + rank if dim < 0 else dim
        left = frozenset(i + (i >= dim) for i in shape.left) | {dim}
        return Shape(left, frozenset(i - rank for i in left), rank)
    if dim >= 0:
        return Shape(frozenset(i + (i >= dim) for i in shape.left) | {dim})
    return Shape(shape.left if dim == -1 else frozenset(), frozenset(i - (i <= dim) for i in shape.right) | {dim})


def _indexed(node: ast.Subscript) -> Shape:
    """What an index shows of the result's shape: each None is a dimension of size one."""
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    sides: list[list[bool]] = [[]]
    for part in parts:
        if isinstance(part, ast.Constant) and part.value is Ellipsis:
            sides.append([])
        elif isinstance(part, ast.Constant) and part.value is None:
            sides[-1].append(True)
        elif isinstance(part, ast.Slice):
            sides[-1].append(False)
        elif _number(part) is None:
            return UNKNOWN  # a tensor, a mask
    if len(sides) > 2:
        return UNKNOWN
    left = frozenset(i for i, new in enumerate(sides[0]) if new)
    last = sides[1] if len(sides) == 2 else []
    return Shape(left, frozenset(i - len(last) for i, new in enumerate(last) if new))
