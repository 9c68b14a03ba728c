"""Tensors that are made of numbers on the host and then moved, with nothing done to them that needs the host."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from memlint.answers import LIMIT
from memlint.becomes import JOINS
from memlint.extract import Definition, children
from memlint.facts import UNKNOWN, Event, Value
from memlint.function import Function
from memlint.library import Row
from memlint.lifetimes import LOOPS
from memlint.values import chain

if TYPE_CHECKING:
    from memlint.project import Project

MOVES = frozenset({"to", "cuda", "type_as"})
PLACES = frozenset({"device", "string", "number"})  # what names a device; a dtype is none of them
DEFAULTS = ("set_default_device", "set_default_tensor_type")
TRACERS = {"trace": "torch.jit.trace", "export": "torch.onnx.export"}
SMALL = 128  # numbers: as float32 the smallest block that the caching allocator hands out
# As well done on any device, with the same outcome there.
SHAPES = frozenset(
    """float double half bfloat16 long int short bool byte squeeze unsqueeze view reshape flatten ravel permute
    transpose t T mT contiguous clone detach expand expand_as view_as repeat tile tril triu flip roll unbind eq ne gt lt
    ge le logical_not neg abs round requires_grad_""".split()
)
COMPUTED = frozenset("exp log sqrt rsqrt pow div mul add sub sin cos cumsum softmax sigmoid tanh clamp".split())
FACTS = frozenset("shape size dim ndim numel dtype".split())
_SEEDS = re.compile(r"seed|fork_rng|rng_state")
_HOST = re.compile(r"cpu|torch\.\w+Tensor\)$")
_EXACT = (ast.Add, ast.Sub, ast.Mult)


@dataclass
class Moved:
    """Something made of numbers and moved. ``device`` is how the constructor would be told, None where it cannot be.

    ``random``: drawn by the host's generator; ``rounds``: computed, by what need not round alike elsewhere.
    """

    move: ast.Call
    made: list[Event] = field(default_factory=list)
    like: bool = False  # to where a tensor is that the move names
    old: bool = False  # by a constructor that takes no `device`
    random: bool = False
    rounds: bool = False
    apart: bool = False  # made in one statement and moved in another
    conditional: bool = False
    device: str | None = None


def moved(fn: Function) -> Iterator[Moved]:
    """What a function makes on the host and moves, in order, each thing that it makes once."""
    moves = [
        n
        for n in fn.nodes_of(ast.Call)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in MOVES
    ]
    if not moves or not (moves := _of_made(fn, moves)):
        return
    if fn.flow is None or any(_sets_default(fn, word) for word in DEFAULTS):
        return
    search = _Search(fn)
    seen: set[ast.AST] = set()
    for call in sorted(moves, key=lambda n: (n.lineno, n.col_offset)):
        found = search.of(call)
        if found is not None and seen.isdisjoint(e.site for e in found.made):
            seen.update(e.site for e in found.made)
            yield found


def _of_made(fn: Function, moves: list[ast.Call]) -> list[ast.Call]:
    """The moves of what may be made in the function, as far as syntax can tell."""
    made = {n for n in fn.nodes_of(ast.Call) if isinstance(n, ast.Call) and _constructor(fn, n)}
    if not made:
        return []
    return [
        m
        for m in moves
        if isinstance(m.func, ast.Attribute) and fn.lifetimes.comes_from(m.func.value, made.__contains__)
    ]


def _constructor(fn: Function, call: ast.Call) -> bool:
    """Whether a call makes a tensor of numbers alone."""
    name = fn.project.names.resolve(call.func, fn.definition)
    row = fn.project.library.lookup(name) if isinstance(name, str) else None
    return row is not None and ("makes" in row or row.kind == "tensor")


def _sets_default(fn: Function, function: str) -> bool:
    """Whether the project tells torch somewhere to build on another device than the host."""
    return any(
        isinstance(n, ast.Call) and chain(n.func).endswith(function) and not _HOST.search(ast.unparse(n))
        for definition in fn.project.mentioning(function)
        for n in definition.nodes
    )


def _traces(project: Project) -> bool:
    """Whether the project records forwards: a move to where a tensor is follows it, a device does not."""
    return any(
        isinstance(n, ast.Call)
        and chain(n.func).endswith(word)
        and project.names.resolve(n.func, definition) == function
        for word, function in TRACERS.items()
        for definition in project.mentioning(word)
        for n in definition.nodes
    )


class _Search:
    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.calls = {e.site: e for e in fn.own("call")}
        self.found: Moved  # what is being looked at

    def of(self, call: ast.Call) -> Moved | None:
        assert isinstance(call.func, ast.Attribute)
        self.found = found = Moved(call)
        device = self.device(call.func.attr, call)
        if device is None or not self.made(call.func.value) or not found.made or self.small() or self.meant(call):
            return None
        if not found.apart or self.same_there(device):
            known = hasattr(device, "lineno")
            found.device = (self.fn.source_of(device) if known else '"cuda"') + (".device" if found.like else "")
        return found

    # ------------------------------------------------------------------ where to

    def device(self, method: str, call: ast.Call) -> ast.expr | None:
        """The device that a call moves to, or the tensor to whose device; None for the host, or no move."""
        event = self.calls.get(call)
        keywords = {k.arg: k.value for k in call.keywords}
        expr = call.args[0] if call.args else keywords.get("device")
        if event is None or isinstance(expr, ast.Starred):
            return None
        if expr is None:
            return ast.Constant("cuda") if method == "cuda" else None
        value = event.args[0] if call.args else event.keywords["device"]
        self.found.like = value.kind in ("tensor", "parameter", "indices") or method == "type_as"
        if self.found.like:
            return expr if chain(expr) and not _traces(self.fn.project) else None
        named = value.kind in PLACES or _names_device(self.fn.project, self.fn.definition, chain(expr), 0)
        there = named and event.value.device != "host"
        return expr if there or method == "cuda" else None

    def same_there(self, device: ast.expr) -> bool:
        """Whether a device's expression means at the constructor what it means at the move."""
        if isinstance(device, ast.Constant):
            return True
        name = chain(device).partition(".")[0]
        here = self.fn.lifetimes.reaching(name, self.found.move)
        return bool(name) and all(self.fn.lifetimes.reaching(name, e.site) is here for e in self.found.made)

    # ------------------------------------------------------------------ of what

    def made(self, node: ast.AST) -> bool:
        """Whether an expression is made on the host of numbers alone."""
        if isinstance(node, ast.Call):
            return self.method(node) if self.is_method(node) else self.function(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.UnaryOp):
            return self.made(node.operand)
        if isinstance(node, ast.BinOp):
            self.found.rounds |= not isinstance(node.op, _EXACT)
            return self.sides(node.left, node.right)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.sides(node.left, node.comparators[0])
        if isinstance(node, ast.Subscript):
            return self.plain_index(node.slice) and self.made(node.value)
        if isinstance(node, ast.Attribute) and node.attr in SHAPES:
            return self.made(node.value)
        return False

    def is_method(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and not isinstance(self.meaning(call), str)

    def meaning(self, call: ast.Call) -> object | None:
        found = self.fn.project.names.resolve(call.func, self.fn.definition)
        return self.fn.project.library.canonical(found) if isinstance(found, str) else found

    def sides(self, left: ast.expr, right: ast.expr) -> bool:
        known = [self.number(left), self.number(right)]
        return not all(known) and all(k or self.made(e) for k, e in zip(known, (left, right), strict=True))

    def method(self, call: ast.Call) -> bool:
        assert isinstance(call.func, ast.Attribute)
        attr = call.func.attr
        row = self.fn.project.library.method("tensor", attr)
        if attr in ("expand_as", "view_as"):
            return self.made(call.func.value)
        if self.fills(row):
            return self.made(call.func.value)
        self.found.rounds |= attr in COMPUTED
        return attr in SHAPES | COMPUTED and self.plain(call) and self.made(call.func.value)

    def fills(self, row: Row | None) -> bool:
        """Whether a method writes numbers over all of a tensor, whatever it held."""
        if row is None or "in_place" not in row or row.graph != "none":
            return False
        self.found.random |= "random" in row
        return True

    def function(self, call: ast.Call) -> bool:
        name, event = self.meaning(call), self.calls.get(call)
        if not isinstance(name, str) or event is None:
            return False
        row = self.fn.project.library.lookup(name)
        last = name.rpartition(".")[2]
        if row is not None and "makes" in row:
            return self.constructor(event, row, last)
        if row is not None and row.kind == "tensor" and name.startswith("torch.") and self.sized(event):
            self.found.old = True
            self.found.made.append(event)
            return True
        if name == "torch.autograd.variable.Variable":
            return len(call.args) == 1 and not call.keywords and self.made(call.args[0])
        if name in JOINS and call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):
            return all(map(self.made, call.args[0].elts))
        if name.rpartition(".")[0] == "torch" and (last in SHAPES or last in COMPUTED) and call.args:
            self.found.rounds |= last in COMPUTED
            return self.plain(call, 1) and self.made(call.args[0])
        return False

    def constructor(self, event: Event, row: Row, name: str) -> bool:
        given = event.keywords
        if not given.keys().isdisjoint({"device", "out", "pin_memory", "layout", "**"}):
            return False
        if "generator" in given and given["generator"].kind != "none":
            return False  # numbers of that generator are what is wanted
        self.found.random |= "random" in row
        self.found.rounds |= "rounds" in row or (name in ("arange", "range") and len(event.args) > 2)
        self.found.made.append(event)
        return True

    @staticmethod
    def sized(event: Event) -> bool:
        """Whether an old constructor, ``torch.LongTensor(2, 3)``, gets sizes and not data."""
        kinds = [a.kind for a in event.args]
        if event.keywords or not set(kinds) <= {"number", "shape", "unknown"}:
            return False
        return len(kinds) > 1 or kinds[:1] in (["number"], ["shape"])

    def name(self, node: ast.Name) -> bool:
        """A name that nothing but numbers was put in, and that nothing but the move reads before it is bound again."""
        if node.id in self.fn.lifetimes.changed or any(
            node.id in d.text for d in self.fn.definition.functions.values()
        ):
            return False
        binding, *others = self.fn.lifetimes.seen_by(node) or [None]
        value = self.fn.lifetimes.given(binding, node.id)
        if value is None or binding is None or others or self.loops(binding) != self.loops(node):
            return False
        if not self.made(value):
            return False
        self.found.apart = True
        return all(self.harmless(use, node) for use in self.fn.lifetimes.uses(node.id, binding))

    def harmless(self, use: ast.AST, moved: ast.Name) -> bool:
        """Whether a use of what was made on the host is its move, fills it, or only looks at its shape."""
        parent = self.fn.lifetimes.parents.get(use)
        if use is moved:
            return True
        if self.apart_from(use, moved):
            self.found.conditional = True
            return True
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
            store = self.fn.lifetimes.parents.get(parent)
            if self.loops(parent) != self.loops(moved):
                return False  # piece by piece
            return isinstance(store, ast.Assign) and self.number(store.value) and self.plain_index(parent.slice)
        if not isinstance(parent, ast.Attribute):
            return self.rebound(use, moved)
        if parent.attr in FACTS:
            return True
        call = self.fn.lifetimes.parents.get(parent)
        statement = self.fn.lifetimes.parents.get(call) if call is not None else None
        row = self.fn.project.library.method("tensor", parent.attr)
        fills = isinstance(call, ast.Call) and isinstance(statement, ast.Expr) and self.fills(row)
        return fills or self.rebound(use, moved)

    def apart_from(self, use: ast.AST, moved: ast.AST) -> bool:
        """Whether two places lie in the two branches of one condition."""
        branches = dict(self.branches(moved))
        return any(branches.get(owner, which) != which for owner, which in self.branches(use))

    def branches(self, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        above = self.fn.lifetimes.parents.get(node)
        while above is not None:
            if isinstance(above, ast.If) and node is not above.test:
                yield above, "orelse" if node in above.orelse else "body"
            node, above = above, self.fn.lifetimes.parents.get(above)

    def rebound(self, use: ast.AST, moved: ast.Name) -> bool:
        """Whether a use comes after ``if cuda: x = x.cuda()``, which moves under a condition what is then used."""
        statement = self.fn.statements.get(moved)
        around = self.fn.lifetimes.parents.get(statement) if statement is not None else None
        if not isinstance(around, ast.If) or not isinstance(statement, ast.Assign):
            return False
        after = use.lineno > (around.end_lineno or 0)  # type: ignore[attr-defined]
        self.found.conditional = after and [chain(t) for t in statement.targets] == [moved.id]
        return self.found.conditional

    def loops(self, node: ast.AST) -> list[ast.AST]:
        found: list[ast.AST] = []
        above = self.fn.lifetimes.parents.get(node)
        while above is not None:
            if isinstance(above, LOOPS):
                found.append(above)
            above = self.fn.lifetimes.parents.get(above)
        return found

    # ------------------------------------------------------------------ what else is in it

    def plain(self, call: ast.Call, skip: int = 0) -> bool:
        """Whether the arguments of a call, but for the first ones, are numbers."""
        return all(map(self.number, (*call.args[skip:], *(k.value for k in call.keywords))))

    def plain_index(self, node: ast.AST) -> bool:
        return all(
            isinstance(n, (ast.Slice, ast.Tuple)) or self.number(n)
            for n in ([node, *children(node)] if isinstance(node, (ast.Slice, ast.Tuple)) else [node])
        )

    def number(self, node: ast.AST) -> bool:
        """Whether an expression is known to be a number, a flag, a size, or a tuple of them."""
        if isinstance(node, ast.Constant):
            return not isinstance(node.value, str)
        if isinstance(node, (ast.UnaryOp, ast.BinOp, ast.Tuple, ast.List)):
            return all(map(self.number, children(node)))
        if isinstance(node, ast.Call):
            event = self.calls.get(node)
            return event is not None and event.value.kind in ("number", "shape")
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return True
        if isinstance(node, ast.Name) and self.fn.flow is not None:
            value = self.fn.flow.env.get(node.id)
            return value is not None and value.kind in ("number", "shape", "bool")
        return False

    def small(self) -> bool:
        """Whether all that is made is known to be a few numbers."""
        total = 0
        for event in self.found.made:
            call = event.site
            assert isinstance(call, ast.Call)
            sizes = [*zip(call.args, event.args, strict=False)]
            sizes += [(k.value, event.keywords[k.arg]) for k in call.keywords if k.arg in ("size", "end", "n", "m")]
            if _empty(event):
                continue
            bounds = [_bound(node, value) for node, value in sizes]
            if None in bounds:
                return False
            total += prod(b for b in bounds if b is not None)
        return total <= SMALL

    def meant(self, call: ast.Call) -> bool:
        """Whether it may as well be made on the host: numbers drawn from a seed are, and those drawn only once."""
        fn = self.fn
        if self.found.random and (_SEEDS.search(fn.text) or not (self.loops(call) or fn.project_repeats())):
            return True
        node: ast.AST | None = self.found.made[0].site
        while node is not None:  # `with torch.device(…)`: made there already
            if isinstance(node, ast.With) and any(
                isinstance(i.context_expr, ast.Call) and self.meaning(i.context_expr) == "torch.device"
                for i in node.items
            ):
                return True
            node = self.fn.lifetimes.parents.get(node)
        return False


def _names_device(project: Project, definition: Definition, parameter: str, depth: int) -> bool:
    """Whether a parameter is a device by its default, or by what all callers hand over who are known to do so."""
    if parameter not in definition.parameters or depth > LIMIT:
        return False
    if isinstance(getattr(definition.defaults.get(parameter), "value", None), str):
        return True
    known = set()
    for flow, call in project.callers(definition):
        value = project.argument(definition, parameter, flow, call) if flow.definition is not definition else None
        if value is not None and value.kind != "none":
            passed = value.kind == "unknown" and _names_device(project, flow.definition, value.path, depth + 1)
            known.add(value.kind in PLACES or passed)
    return known == {True}


def _empty(event: Event) -> bool:
    """Whether one of the sizes is written as 0: ``torch.zeros(x.shape[:-1] + (0,))``."""
    call = event.site
    assert isinstance(call, ast.Call)
    sized = event.name.rpartition(".")[2] in ("zeros", "ones", "empty", "rand", "randn")
    tuples = [n for a in call.args for n in ast.walk(a) if isinstance(n, (ast.Tuple, ast.List))]
    sizes = [*call.args, *(e for t in tuples for e in t.elts)]
    return sized and any(isinstance(n, ast.Constant) and n.value == 0 for n in sizes)


def _bound(node: ast.expr, value: Value) -> int | None:
    """How many numbers a size asks for at most, None where that is not written out."""
    if isinstance(node, (ast.Tuple, ast.List)):
        inner = [_bound(e, UNKNOWN) for e in node.elts]
        return None if None in inner else prod(b for b in inner if b is not None)
    const = node.value if isinstance(node, ast.Constant) else value.const
    return max(int(const), 1) if isinstance(const, (int, float)) else None
