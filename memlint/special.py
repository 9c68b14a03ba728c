"""Python's own functions that no row can describe: they call, look up or pair their arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from memlint.extract import Class
from memlint.facts import NOTHING, UNKNOWN, UNSET, Value
from memlint.library import Row
from memlint.values import EMPTY, Partial, chain, join

if TYPE_CHECKING:
    from memlint.calls import Calling


def _super(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    cls = flow.definition.cls or (flow.definition.outer.cls if flow.definition.outer is not None else None)
    receiver = flow.env.get(flow.definition.positional[0]) if flow.definition.positional else None
    if cls is None or receiver is None:
        return UNKNOWN
    for base in flow.names.mro(cls)[1:]:
        if isinstance(base, Class):
            return receiver.but(type=base.full_name)
        return Value(receiver.kind, type=flow.library.canonical(base), objs=receiver.objs)
    return UNKNOWN


def _partial(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if not args:
        return UNKNOWN
    return Value("function", target=Partial(args[0], args[1:], keywords))


def _getattr(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if len(args) >= 2 and isinstance(args[1].const, str):
        base = chain(node.args[0])
        return flow.attribute(args[0], args[1].const, node, f"{base}.{args[1].const}" if base else "")
    return Value("unknown", args[0].deps if args else EMPTY)


def _setattr(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if (
        len(args) == 3
        and isinstance(args[1].const, str)
        and args[1].const == "requires_grad"
        and args[2].const is False
    ):
        flow.freeze(args[0], node)
    return NOTHING


def _deepcopy(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    value = args[0] if args else UNKNOWN
    obj = flow.make(value.kind, node, name=value.path)
    source = value.obj
    if source is not None:
        obj.type, obj.elem, obj.items, obj.bounded = source.type, source.elem, dict(source.items), source.bounded
        obj.frozen = source.frozen
    if value.kind == "module":
        flow.event("build", node, value=value, args=tuple(args), keywords=keywords, name="copy",
                   receiver=Value("class", type="copy.deepcopy"))  # fmt: skip
    return value.but(objs=(obj,), path="", site=node)


def _zip(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    obj = flow.make("iterator", node)
    obj.elem = Value("tuple", items=tuple(flow.element(a, node) for a in args))
    return Value("iterator", objs=(obj,), receiver=args[0] if args else None)


def _enumerate(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    obj = flow.make("iterator", node)
    obj.elem = Value("tuple", items=(Value("number"), flow.element(args[0], node) if args else UNKNOWN))
    return Value("iterator", objs=(obj,), receiver=args[0] if args else None)


def _map(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    obj = flow.make("iterator", node)
    obj.elem = flow.call(args[0], [flow.element(a, node) for a in args[1:]], {}, node) if len(args) > 1 else UNKNOWN
    return Value("iterator", objs=(obj,))


def _sum(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    element = flow.element(args[0], node) if args else UNKNOWN
    return flow.arithmetic((element, Value("number")), node) if element.kind != "number" else Value("number")


def _extreme(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if len(args) == 1:
        return flow.element(args[0], node).but(const=UNSET)
    result = args[0] if args else UNKNOWN
    for other in args[1:]:
        result = join(result, other)
    return result.but(const=UNSET)


def _compiled(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    return args[0] if args else UNKNOWN


def _checkpoint(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    if not args:
        return UNKNOWN
    given = {name: value for name, value in keywords.items() if name not in _CHECKPOINTING}
    return flow.call(args[0], args[1:], given, node)


def _random_split(flow: Calling, args: list[Value], keywords: dict[str, Value], node: ast.Call, row: Row) -> Value:
    obj = flow.make("list", node)
    flow.put(obj, args[0].but(kind="dataset", path="") if args else UNKNOWN)
    return Value("list", objs=(obj,), site=node)


_CHECKPOINTING = frozenset("use_reentrant preserve_rng_state context_fn determinism_check debug early_stop".split())

SPECIAL: dict[str, Callable[[Calling, list[Value], dict[str, Value], ast.Call, Row], Value]] = {
    "super": _super,
    "functools.partial": _partial,
    "getattr": _getattr,
    "setattr": _setattr,
    "copy.deepcopy": _deepcopy,
    "zip": _zip,
    "enumerate": _enumerate,
    "map": _map,
    "sum": _sum,
    "max": _extreme,
    "min": _extreme,
    "torch.compile": _compiled,
    "torch.utils.data.random_split": _random_split,
    "torch.utils.checkpoint.checkpoint": _checkpoint,
}
