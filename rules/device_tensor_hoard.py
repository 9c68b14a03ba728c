"""Every batch's tensors wait on the device for a use that is on the host."""

import ast

from memlint import edits
from memlint.function import Function
from memlint.hoard import SPREADS, Part, becomes, container, device_parts, may_hoard, once, over_batches, small_view
from memlint.rule import Claim, Findings, Fix, Level, Step, rule
from memlint.source import Source


@rule(code="MEM301", claim=Claim.GROWTH, triggers=("for ", "while "))
def device_tensor_hoard(fn: Function) -> Findings:
    if fn.constructs or fn.is_test or not may_hoard(fn):
        return
    for store in fn.own("store", "collect"):
        if store.verb == "store" and (store.name not in SPREADS or not store.loops or not fn.outlives(store)):
            continue
        found = [p for p in device_parts(fn, store) if over_batches(fn, store, p)]
        if not found or once(fn, store):
            continue
        target = container(store)
        text = ast.unparse(target) if target is not None else ""
        fate = becomes(fn, store)
        certain = [p for p in found if p.value.device == "device" or (fate is not None and fate.moved)]
        if fate is not None and fate.hosted and certain and (fate.tensors or all(p.sized for p in certain)):
            yield fn.finding(
                store.site if store.verb == "store" else certain[0].expr,
                Level.WARNING,
                f"{_named(fn, certain)} of every batch {'wait' if len(certain) > 1 else 'waits'} on the device in "
                f"{_where(text)} until all are there, to be wanted on the host alone",
                _wrapped(fn, certain, "{}.cpu()").unsafe("what is collected is on the host, batch by batch"),
                tuple(_moved(w.module.source, node) for w, node in fate.moves[:1]),
            )
            continue
        views = [(p, base) for p in found if (base := small_view(fn, p, text)) is not None]
        if views:
            yield fn.finding(
                store.site if store.verb == "store" else views[0][0].expr,
                Level.WARNING,
                f"`{fn.source_of(views[0][0].expr)}` is a view: while it is in {_where(text)}, "
                f"the whole of `{fn.source_of(views[0][1])}` stays with it, for every batch",
                _wrapped(fn, [p for p, _ in views], "{}.clone()").unsafe("what is stored is a copy"),
            )


def _named(fn: Function, found: list[Part]) -> str:
    return " and ".join(f"`{fn.source_of(p.expr)}`" for p in found)


def _where(text: str) -> str:
    return f"`{text}`" if text else "a list"


def _wrapped(fn: Function, found: list[Part], template: str) -> Fix:
    fix = edits.wrap(fn.source, found[0].expr, template)
    for part in found[1:]:
        fix = fix + edits.wrap(fn.source, part.expr, template)
    return fix


def _moved(source: Source, node: ast.AST) -> Step:
    return Step(source.path, source.span(node).line, "it goes to the host here")
