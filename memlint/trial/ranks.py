"""How many dimensions a tensor has, and which names are sizes, by what code does with them.

That is a guess at what to feed, from which nothing follows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.trial.batches import dotted

_SAME = frozenset(
    """to cuda cpu float double half long int bool type type_as detach clone contiguous abs exp log sqrt relu softmax
    sigmoid tanh clamp requires_grad_ transpose""".split()
)
_REDUCE = frozenset("mean sum max min amax amin prod std var norm argmax argmin logsumexp any all median".split())
_ASKED = ("dim", "ndimension")
_SHAPES = ("shape", "size")
_LAYERS = re.compile(r"^(Linear|Bilinear|Conv\w*|\w*Norm\w*|Embedding|GRU\w*|LSTM\w*|RNN\w*|MultiheadAttention)$")
_WIDTHS = frozenset(
    """in_features out_features in_channels out_channels normalized_shape num_features num_embeddings embedding_dim
    input_size hidden_size embed_dim""".split()
)
_LONG = frozenset("repeat expand tile view reshape".split())
_Known = dict[str, tuple[int, bool]]  # by name: dimensions, and whether they are exact or the fewest


def ranks(scope: ast.AST) -> dict[str, int]:
    """The dimensions of the names in ``scope`` by what is done with them before they are bound anew.

    Of its parameters that is before they are bound at all.
    """
    known: _Known = {}
    made: dict[str, ast.expr] = {}
    times = {argument.arg: 1 for argument in ast.walk(scope) if isinstance(argument, ast.arg)}  # it was bound
    for statement in _in_order(getattr(scope, "body", [])):
        for name, dimensions, exact in _told(statement):
            before = known.get(name, (0, False))
            if times.get(name, 0) < 2 and not before[1] and (exact, dimensions) > before[::-1]:
                known[name] = dimensions, exact
        for node in _own(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                times[node.id] = times.get(node.id, 0) + 1
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            made.setdefault(statement.targets[0].id, statement.value)
    for name, value in reversed(made.items()):
        dimensions, exact = known.get(name, (0, False))
        if exact and times[name] == 1 and (source := _source(value, dimensions, guess=True)):
            if not known.get(source[0], (0, False))[1]:
                known[source[0]] = source[1], True
    return {name: dimensions for name, (dimensions, _) in known.items() if 0 < dimensions < 6}


def sizes(scope: ast.AST) -> dict[str, str]:
    """What the dotted names in ``scope`` that are sizes may be: the width of a layer, or how many there are."""
    found: dict[str, str] = {}
    for node in ast.walk(scope):
        if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        if _LAYERS.match(called):
            given = [*node.args[:2], *(k.value for k in node.keywords if k.arg in _WIDTHS)]
            found |= {name: "WIDTH" for value in given if (name := dotted(value))}
        elif called in _LONG and isinstance(node.func, ast.Attribute):
            inner = [n for argument in node.args for n in _counted(argument)]
            found = {name: "TOKENS" for n in inner if (name := dotted(n))} | found
    return found


def _counted(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a number that are whole, as far as operators tell."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Div, ast.FloorDiv)):
        yield from _counted(node.left)
        yield from _counted(node.right)
    else:
        yield node


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield statement
        for field in ("body", "orelse", "handlers", "finalbody"):
            for inner in getattr(statement, field, ()):
                yield from _in_order(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _own(statement: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement without the statements in it."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
            yield from _own(child)


def _told(statement: ast.stmt) -> Iterator[tuple[str, int, bool]]:
    """Names, their dimensions, and whether these are exact."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Tuple, ast.List)):
        parts, value = statement.targets[0].elts, statement.value
        sliced = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice)
        whole = not sliced and not any(isinstance(part, ast.Starred) for part in parts)
        if name := _shaped(value.value if sliced and isinstance(value, ast.Subscript) else value):
            yield name, len(parts) if whole or sliced else len(parts) - 1, whole
    required = _required(statement)
    for node in _own(statement):
        if isinstance(node, ast.Compare) and node is required and isinstance(node.comparators[0], ast.Constant):
            if (name := _asked(node.left)) and isinstance(node.comparators[0].value, int):
                yield name, node.comparators[0].value, True
        elif isinstance(node, ast.Subscript):
            yield from _indexed(node)
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _required(statement: ast.stmt) -> ast.AST | None:
    """The comparison without which the program does not go on."""
    if isinstance(statement, ast.Assert):
        test = statement.test
        return test if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) else None
    if not isinstance(statement, ast.If) or not statement.body or not isinstance(statement.body[-1], ast.Raise):
        return None
    tests = statement.test.values if isinstance(statement.test, ast.BoolOp) else [statement.test]
    unequal = [t for t in tests if isinstance(t, ast.Compare) and isinstance(t.ops[0], ast.NotEq) and _asked(t.left)]
    return unequal[0] if unequal else None


def _indexed(node: ast.Subscript) -> Iterator[tuple[str, int, bool]]:
    index = node.slice
    if (name := _shaped(node.value)) and (number := _number(index)) is not None:
        yield name, number + 1 if number >= 0 else -number, False
    if isinstance(node.value, ast.Name) and isinstance(index, ast.Tuple):
        places = [e for e in index.elts if not (isinstance(e, ast.Constant) and e.value in (None, ...))]
        yield node.value.id, len(places), False


def _called(node: ast.Call) -> Iterator[tuple[str, int, bool]]:
    if not isinstance(node.func, ast.Attribute):
        return
    owner, method, count = node.func.value, node.func.attr, len(node.args)
    numbers = [_number(a) for a in node.args]
    if method == "size" and numbers and numbers[0] is not None and isinstance(owner, ast.Name):
        yield owner.id, numbers[0] + 1 if numbers[0] >= 0 else -numbers[0], False
    plain = count > 1 and not any(isinstance(a, ast.Starred) for a in node.args)
    if method in ("repeat", "expand", "permute") and plain and (method != "permute" or None not in numbers):
        if source := _source(owner, count):
            yield *source, True
    if method == "transpose" and count == 2 and isinstance(owner, ast.Name):
        yield owner.id, max([n + 1 if n >= 0 else -n for n in numbers if n is not None], default=0), False
    along = next((_number(k.value) for k in node.keywords if k.arg == "dim"), None)
    first = node.args[0] if node.args and isinstance(owner, ast.Name) and owner.id in ("torch", "F") else owner
    if along is not None and isinstance(first, ast.Name) and method not in ("cat", "stack", "concat"):
        yield first.id, (along + 1 if along >= 0 else -along) - (method == "unsqueeze"), False


def _source(value: ast.expr, dimensions: int, guess: bool = False) -> tuple[str, int] | None:
    """The name, and its dimensions, that ``value`` of so many ``dimensions`` is made from.

    With ``guess``, what is not known keeps their number.
    """
    if isinstance(value, ast.Name):
        return value.id, dimensions
    if isinstance(value, ast.Subscript):
        parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
        new = sum(isinstance(p, ast.Constant) and p.value is None for p in parts)
        gone = sum(_number(p) is not None for p in parts)
        return _source(value.value, dimensions - new + gone, guess) if new else None
    if not isinstance(value, ast.Call):
        return None
    function = value.func
    if isinstance(function, ast.Attribute):
        torch = isinstance(function.value, ast.Name) and function.value.id in ("torch", "F")
        inner, rest = (value.args[0], value.args[1:]) if torch and value.args else (function.value, value.args)
        along = any(k.arg == "dim" for k in value.keywords) or (rest and _number(rest[0]) is not None)
        if function.attr == "unsqueeze":
            return _source(inner, dimensions - 1, guess)
        if function.attr in _REDUCE and along:
            kept = any(k.arg == "keepdim" for k in value.keywords)
            return _source(inner, dimensions + (not kept), guess)
        if function.attr in _SAME:
            return _source(inner, dimensions, guess)
        guess = guess and not torch
    if guess and len(value.args) == 1 and isinstance(value.args[0], ast.Name):
        return value.args[0].id, dimensions
    return None


def _shaped(node: ast.expr) -> str:
    """The name whose sizes ``node`` gives."""
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in _SHAPES and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def _asked(node: ast.expr) -> str:
    """The name whose number of dimensions ``node`` gives."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
        return _shaped(node.args[0])
    asked = _ASKED if isinstance(node, ast.Call) else ("ndim",)
    attribute = node.func if isinstance(node, ast.Call) else node
    if isinstance(attribute, ast.Attribute) and attribute.attr in asked and isinstance(attribute.value, ast.Name):
        return attribute.value.id
    return ""


def _number(node: ast.AST) -> int | None:
    sign = -1 if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else 1
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return sign * value.value
    return None
