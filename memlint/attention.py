"""Attention written out: a product of queries and keys, its softmax, and a product with values, all kept in memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from memlint.extract import Class, Definition
from memlint.facts import UNKNOWN, Event, Value
from memlint.function import Function
from memlint.values import chain

PRODUCTS = frozenset({"matmul", "bmm"})  # not `mm`: what has no batch is no sequence of tokens
# What the scores may go through that the fused form does as well: scale, mask, bias, precision, shape.
SHAPES = frozenset("float double half bfloat16 to type type_as view reshape contiguous".split())
MASKS = frozenset("masked_fill masked_fill_ add add_ sub sub_".split())
SCALES = frozenset("mul mul_ div div_".split())
RESHAPES = SHAPES | {"permute", "transpose", "flatten"}
FACTS = frozenset("shape size dim ndim dtype device".split())
SOFTMAX = frozenset({"torch.softmax", "torch.nn.functional.softmax"})
DROPS = frozenset({"torch.nn.Dropout", "torch.nn.Identity"})


@dataclass
class Attention:
    """One attention: its softmax, its queries as they enter the first product, its values."""

    softmax: ast.Call
    queries: ast.expr
    values: ast.expr


def attentions(fn: Function) -> Iterator[Attention]:
    """Attention of a function whose weights are used for nothing but the sum of the values."""
    search = _Search(fn)
    calls = sorted(fn.nodes_of(ast.Call), key=lambda n: (n.lineno, n.col_offset))  # type: ignore[attr-defined]
    calls = [call for call in calls if search.may_be(call)]  # type: ignore[arg-type]
    for call in calls if calls and fn.flow is not None else ():
        found = search.of(call)  # type: ignore[arg-type]
        if found is not None:
            yield found


class _Search:
    """The search for attention: syntax first, as far as it goes, and then what the function is known to do."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn

    @cached_property
    def calls(self) -> dict[ast.AST, Event]:
        return {e.site: e for e in self.fn.own("call")}

    @cached_property
    def modules(self) -> dict[ast.AST, Value]:
        return {call: e.receiver for call, e in self.calls.items() if e.receiver.kind == "module"}

    @cached_property
    def parameters(self) -> set[ast.AST]:
        """Expressions that are parameters of a module."""
        found = {e.site for e in self.fn.own("weigh")}
        for call, event in self.calls.items():
            if isinstance(call, ast.Call):
                found |= {n for n, v in zip(call.args, event.args, strict=False) if v.kind == "parameter"}
                if isinstance(call.func, ast.Attribute) and (event.receiver.receiver or UNKNOWN).kind == "parameter":
                    found.add(call.func.value)
        return found

    def may_be(self, call: ast.Call) -> bool:
        """Whether a call may be the softmax of scores: what syntax says of `softmax` and `scored`."""
        name = self.meaning(call)
        given = call.args[:1] if len(call.args) == 1 else []  # of a module
        if isinstance(name, str):
            scores = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "input")]
            given = scores if name in SOFTMAX else []
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "softmax":
            given = [*given, call.func.value]
        elif isinstance(name, (Definition, Class)):
            return False
        return any(self.fn.lifetimes.comes_from(g, lambda n: self.factors(n) is not None) for g in given)

    def of(self, call: ast.Call) -> Attention | None:
        softmax = self.softmax(call)
        if softmax is None:
            return None
        scores, dim = softmax
        self.visited: set[ast.AST] = set()
        self.products: list[tuple[ast.expr, ast.expr, bool]] = []
        self.terms: list[ast.expr] = []
        if not self.scored(scores) or not self.products or not all(map(self.untouched, self.names())):
            return None
        batched = all(three for _, _, three in self.products)
        if dim not in (-1, 3) and not (dim == 2 and batched):
            return None
        queries, keys, _ = self.products[0]
        values = self.weighed(call)
        if values is None or self.single(queries) or self.weight(keys) or self.weight(values):
            return None
        if any(self.drawn_from(term, queries) for term in self.terms):
            return None
        return Attention(call, queries, values)

    # ------------------------------------------------------------------ the softmax

    def softmax(self, call: ast.Call) -> tuple[ast.expr, int] | None:
        """What a softmax is taken of, and along which dimension."""
        name, module = self.meaning(call), self.modules.get(call, UNKNOWN)
        keywords = {k.arg: k.value for k in call.keywords}
        args = list(call.args)
        if module.type == "torch.nn.Softmax" and len(args) == 1 and module.obj is not None:
            dim = module.obj.items.get("dim", module.obj.items.get(0, UNKNOWN)).const
            return (args[0], dim) if isinstance(dim, int) else None
        if name in SOFTMAX:
            scores = args.pop(0) if args else keywords.get("input")
        elif isinstance(name, str) or not isinstance(call.func, ast.Attribute):
            return None
        elif call.func.attr == "softmax" and not module.type:
            scores = call.func.value
        else:
            return None
        dim = _integer(args[0] if args else keywords.get("dim"))
        return (scores, dim) if scores is not None and dim is not None else None

    def meaning(self, call: ast.Call) -> object | None:
        found = self.fn.project.names.resolve(call.func, self.fn.definition)
        return self.fn.project.library.canonical(found) if isinstance(found, str) else found

    # ------------------------------------------------------------------ back from it, to the product

    def scored(self, node: ast.AST) -> bool:
        """Whether an expression is a product of two tensors, scaled, masked or biased."""
        if node in self.visited:
            return True
        self.visited.add(node)
        if isinstance(node, ast.Name):
            bindings = self.fn.lifetimes.seen_by(node)
            given = [self.fn.lifetimes.given(b, node.id) for b in bindings]
            return bool(given) and all(g is not None and self.scored(g) for g in given)
        if isinstance(node, ast.IfExp):
            return self.scored(node.body) and self.scored(node.orelse)
        if isinstance(node, ast.BinOp):
            return self.operated(node)
        if isinstance(node, ast.Call):
            return self.product(node) or self.called(node)
        return False

    def operated(self, node: ast.BinOp) -> bool:
        if isinstance(node.op, ast.MatMult):
            self.products.append((node.left, node.right, False))
            return True
        if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            left, right = self.scores_in(node.left), self.scores_in(node.right)
            other = node.right if left else node.left
            if isinstance(node.op, (ast.Add, ast.Sub)):
                self.terms.append(other)
            return left is not right and (isinstance(node.op, (ast.Add, ast.Sub)) or self.scale(other))
        return False

    def scores_in(self, node: ast.expr) -> bool:
        """`scored`, leaving no trace where it is not so."""
        visited, products = set(self.visited), list(self.products)
        if self.scored(node):
            return True
        self.visited, self.products = visited, products
        return False

    def called(self, call: ast.Call) -> bool:
        name, args = self.meaning(call), call.args
        if name == "torch.where" and len(args) == 3:
            return self.scores_in(args[1]) is not self.scores_in(args[2])
        if isinstance(name, str) or not isinstance(call.func, ast.Attribute):
            return False
        attr = call.func.attr
        if attr in SCALES and not (args and self.scale(args[0])):
            return False
        self.terms += args if attr in MASKS else []
        return attr in SHAPES | MASKS | SCALES and self.scored(call.func.value)

    def product(self, call: ast.Call) -> bool:
        found = self.factors(call)
        if found is None:
            return False
        self.products.append((*found, _last(call.func) in ("bmm", "baddbmm")))
        return True

    def factors(self, node: ast.AST | None) -> tuple[ast.expr, ast.expr] | None:
        """The two tensors that an expression is the matrix product of."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return node.left, node.right
        if not isinstance(node, ast.Call):
            return None
        name, args = self.meaning(node), node.args
        if isinstance(name, str) and name.startswith("torch."):
            last = name.rpartition(".")[2]
            if last in PRODUCTS and len(args) == 2:
                return args[0], args[1]
            if last == "baddbmm" and len(args) == 3:
                return args[1], args[2]
        if isinstance(node.func, ast.Attribute) and node.func.attr in PRODUCTS and len(args) == 1:
            return (node.func.value, args[0]) if not isinstance(name, str) else None
        if name == "torch.einsum" and len(args) == 3 and _contracts(args[0]):
            return args[1], args[2]
        return None

    def scale(self, node: ast.AST) -> bool:
        """Whether an expression scales the scores as a whole: no mask that is known, and no scale that is learned."""
        if self.weight(node):
            return False
        if isinstance(node, ast.Name):
            value = self.fn.flow.env.get(node.id) if self.fn.flow is not None else None
            return value is None or value.kind not in ("tensor", "indices")
        return not isinstance(node, (ast.Compare, ast.Subscript, ast.IfExp, ast.BoolOp))

    # ------------------------------------------------------------------ what else sees the scores

    def names(self) -> list[ast.Name]:
        return [n for n in self.visited if isinstance(n, ast.Name)]

    def untouched(self, node: ast.Name) -> bool:
        """Whether nothing but the way to the softmax reads what a name holds."""
        for binding in self.fn.lifetimes.seen_by(node):
            for use in self.fn.lifetimes.uses(node.id, binding):
                if use not in self.visited and not self.in_passing(use):
                    return False
        return True

    def in_passing(self, use: ast.AST) -> bool:
        """Whether a use looks at the shape, or masks or scales in place."""
        parent = self.fn.lifetimes.parents.get(use)
        if not isinstance(parent, ast.Attribute):
            return False
        if parent.attr in FACTS:
            return True
        call = self.fn.lifetimes.parents.get(parent)
        statement = self.fn.lifetimes.parents.get(call) if call is not None else None
        return parent.attr.endswith("_") and parent.attr in MASKS | SCALES and isinstance(statement, ast.Expr)

    # ------------------------------------------------------------------ on from it, to the values

    def weighed(self, node: ast.expr) -> ast.expr | None:
        """The values that weights are multiplied with, where that is all that becomes of the weights."""
        found: list[ast.expr] = []
        return found[0] if self.ends(node, found, 0) and len(found) == 1 else None

    def ends(self, node: ast.expr, found: list[ast.expr], depth: int) -> bool:
        parent = self.fn.lifetimes.parents.get(node)
        if depth > 12 or parent is None:
            return False
        if isinstance(parent, ast.Assign):
            (target,) = parent.targets if len(parent.targets) == 1 else (None,)
            if not isinstance(target, ast.Name):
                return False
            uses = self.fn.lifetimes.uses(target.id, parent) if target.id not in self.fn.lifetimes.changed else []
            return bool(uses) and all(self.looked_at(u) or self.ends(u, found, depth + 1) for u in uses)
        if isinstance(parent, ast.Attribute):
            call = self.fn.lifetimes.parents.get(parent)
            if not isinstance(call, ast.Call) or call.func is not parent:
                return False
            if parent.attr in PRODUCTS and len(call.args) == 1 and not self.chained(call):
                found.append(call.args[0])
                return True
            return parent.attr in SHAPES and self.ends(call, found, depth + 1)
        factors = self.factors(parent)
        if factors is not None and node is factors[0] and not self.chained(parent):
            found.append(factors[1])
            return True
        return isinstance(parent, ast.Call) and self.drops(parent, node) and self.ends(parent, found, depth + 1)

    def chained(self, product: ast.AST, depth: int = 0) -> bool:
        """Whether a product goes on at once as the left side of another, and so is not with values."""
        parent = self.fn.lifetimes.parents.get(product)
        outer = self.factors(parent)
        if outer is not None:
            return outer[0] is product and outer[1] not in self.parameters
        if depth or not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
            return False
        uses = self.fn.lifetimes.uses(parent.targets[0].id, parent)
        return any(self.chained(use, depth + 1) for use in uses)

    def looked_at(self, use: ast.AST) -> bool:
        parent = self.fn.lifetimes.parents.get(use)
        return isinstance(parent, ast.Attribute) and parent.attr in FACTS

    def drops(self, call: ast.Call, node: ast.expr) -> bool:
        """Whether a call is a dropout of its first argument."""
        if not call.args or call.args[0] is not node:
            return False
        return self.meaning(call) == "torch.nn.functional.dropout" or self.modules.get(call, UNKNOWN).type in DROPS

    # ------------------------------------------------------------------ what makes it no attention worth the name

    def single(self, queries: ast.expr) -> bool:
        """Whether there is one query alone, whose scores are as small as itself."""
        if isinstance(queries, ast.Name):
            given = [self.fn.lifetimes.given(b, queries.id) for b in self.fn.lifetimes.seen_by(queries)]
            return any(g is not None and not isinstance(g, ast.Name) and self.single(g) for g in given)
        if isinstance(queries, ast.BinOp):
            return self.single(queries.left)
        if isinstance(queries, ast.Call) and isinstance(queries.func, ast.Attribute):
            method, args = queries.func.attr, queries.args
            if method == "unsqueeze":
                return bool(args) and _integer(args[0]) in (1, -2)
            if method in ("reshape", "view") and any(_integer(a) == 1 for a in args[1:]):
                return True
            if method in RESHAPES:
                return self.single(queries.func.value)
            return len(args) == 1 and self.calls[queries].receiver.kind == "module" and self.single(args[0])
        if not isinstance(queries, ast.Subscript):
            return False
        parts = queries.slice.elts if isinstance(queries.slice, ast.Tuple) else []
        return any((isinstance(p, ast.Constant) and p.value is None) or _one(p) for p in parts)

    def drawn_from(self, term: ast.expr, queries: ast.expr) -> bool:
        """Whether a term of the scores is computed from the queries: as large as the scores, and kept by any kernel."""
        while not isinstance(queries, ast.Name):
            if isinstance(queries, ast.BinOp):
                queries = queries.left
            elif isinstance(queries, ast.Call) and isinstance(queries.func, ast.Attribute):
                queries = queries.func.value
            else:
                return False
        given: list[ast.expr | None] = [term]
        if isinstance(term, ast.Name):
            given = [self.fn.lifetimes.given(b, term.id) for b in self.fn.lifetimes.seen_by(term)]
        read = [n for g in given if g is not None for n in ast.walk(g) if isinstance(n, ast.Name)]
        return any(n.id == queries.id and not self.looked_at(n) for n in read)

    def weight(self, node: ast.AST) -> bool:
        """Whether an expression is made of a parameter: a codebook and no other tokens, or a scale that is learned."""
        return any(n in self.parameters for n in ast.walk(node))


def _one(part: ast.expr) -> bool:
    """Whether a slice is one element long: ``0:1``."""
    if not isinstance(part, ast.Slice):
        return False
    low, high = _integer(part.lower) if part.lower is not None else 0, _integer(part.upper)
    return low is not None and high is not None and high - low == 1


def _integer(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _integer(node.operand)
        return -value if value is not None else None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _last(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else chain(func)


def _contracts(equation: ast.expr) -> bool:
    """Whether an einsum multiplies two batches of matrices: one index summed, one of each operand left."""
    if not isinstance(equation, ast.Constant) or not isinstance(equation.value, str):
        return False
    inputs, arrow, output = equation.value.replace(" ", "").partition("->")
    left, comma, right = inputs.partition(",")
    if not (arrow and comma):
        return False
    a, b, out = set(left), set(right), set(output)
    return len((a & b) - out) == 1 and len((a - b) & out) == 1 and len((b - a) & out) == 1
