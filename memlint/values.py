"""What is known of values: how two are joined, which kinds carry no graph, how names are spelled."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from memlint.facts import UNSET, Grad, Node, Value

EMPTY: frozenset[Node] = frozenset()
CONTAINERS = frozenset({"list", "dict", "set", "deque", "queue", "defaultdict", "counter"})
GRAPHLESS = frozenset(
    """number string bytes none bool ndarray indices device dtype shape function class optimizer
    scheduler scaler loader dataset sampler generator path file figure context""".split()
)
IDENTITIES = 6  # objects that one value may be: more than that is as good as unknown
HANDLERS = frozenset({"scaler", "accelerator", "fabric", "engine", "trainer"})
LEAFY = frozenset({"parameters", "parameter"})


LOADED = "loaded"  # the type of an object that a file holds: a checkpoint, or data


def of_file(value: Value) -> bool:
    """Whether a value is what a file holds, or a part of it."""
    return any(o.whole.type == LOADED for o in value.objs)


def together(sets: Iterable[frozenset[Node]]) -> frozenset[Node]:
    """All nodes of some sets; where one of them holds all, that very set, of which there are then fewer in memory."""
    found = EMPTY
    grown: set[Node] | None = None  # of hundreds of sets, each sum of some would be made anew
    for each in sets:
        if grown is not None:
            grown |= each
        elif not found:
            found = each
        elif not each <= found:
            grown = {*found, *each}
    return found if grown is None else frozenset(grown)


def join(a: Value, b: Value) -> Value:
    """What is known of a value that is one of two."""
    if a is b:
        return a
    if a.kind == "none" and a.const is None and b.kind != "none":
        a, b = b, a
    if b.kind == "none" and b.const is None and a.kind != "none":
        return a if a.const is UNSET else a.but(const=UNSET)
    number_start = {a.kind, b.kind} == {"number", "tensor"}
    kind = a.kind if a.kind == b.kind else "tensor" if number_start else "unknown"
    items = None
    if a.items is not None and b.items is not None and len(a.items) == len(b.items):
        items = tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True))
    return Value(
        kind,
        together((a.deps, b.deps)),
        a.type if a.type == b.type else "",
        a.objs if a.objs == b.objs else tuple(dict.fromkeys(a.objs + b.objs))[:IDENTITIES],
        items,
        a.const if a.const is b.const or (a.const == b.const and type(a.const) is type(b.const)) else UNSET,
        a.leaf and b.leaf,
        _place(a, b),
        a.view and b.view,
        a.scalar and b.scalar,
        kind == "unknown" and (a.part or b.part),
        a.target if a.target is b.target else None,
        a.receiver if a.target is b.target else None,
        a.path if a.path == b.path else "",
        a.site if a.site is b.site else None,
    )


def _place(a: Value, b: Value) -> str:
    """Where a value is that is one of two: with the model if one is, and nobody says that the other is not."""
    places = {v.device or next((i.device for i in v.items or () if i.device), "") for v in (a, b)}
    if len(places) == 1:
        return places.pop()
    return "model" if places == {"device", "model"} else ""


def chain(node: ast.AST) -> str:
    """``self.model.head`` as text, or "" where the expression is more than names and dots."""
    parts = []
    while type(node) is ast.Attribute:
        parts.append(node.attr)
        node = node.value
    if type(node) is ast.Name:
        parts.append(node.id)
        return ".".join(reversed(parts))
    return ""


def written(node: ast.AST) -> str:
    """An expression as `ast.unparse` writes it. What is asked for again and again is kept with the node itself."""
    if type(node) is ast.Name:
        return node.id
    kept = vars(node)
    text = kept.get("_written")
    if text is None:
        text = kept["_written"] = ast.unparse(node)
    return text


class Symbol(str):
    """A constant known by its dotted name only: an enumeration's member."""

    __slots__ = ()


class Mode:
    """The constant of a context manager that sets the gradient mode."""

    __slots__ = ("mode",)

    def __init__(self, mode: Grad) -> None:
        self.mode = mode


class Partial:
    """`functools.partial`: a callee with some of its arguments."""

    def __init__(self, callee: Value, args: list[Value], keywords: dict[str, Value]) -> None:
        self.callee, self.args, self.keywords = callee, args, keywords
