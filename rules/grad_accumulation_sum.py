"""The losses of several batches are summed, and differentiated once."""

import ast
import re

from memlint import edits
from memlint.batches import Summed, summed_batches
from memlint.facts import Event
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule

CHANGE = "the same gradients, added in another order, and what is left of the sum has no graph"


@rule(code="MEM107", claim=Claim.PEAK, triggers=(".backward(",))
def grad_accumulation_sum(fn: Function) -> Findings:
    told: set[tuple[str, Event]] = set()
    for found in summed_batches(fn):
        if (found.total.name, found.backward) in told:
            continue  # another part of the same sum
        told.add((found.total.name, found.backward))
        yield fn.finding(
            found.total.site,
            Level.WARNING,
            f"`{found.total.name}` adds up the losses of all batches before it is differentiated: the graph of every "
            "forward lives until then",
            _fix(fn, found),
        )


def _fix(fn: Function, found: Summed) -> Fix:
    """A backward for each part, and the sum of the parts without their graphs."""
    shown = Fix("call `backward()` on each batch's loss, and add up `loss.detach()`")
    total, backward = found.total, found.backward
    name = next((n for n in ("part", "batch_loss", "part_loss") if not re.search(rf"\b{n}\b", fn.text)), "")
    if total.expr is None or not name or not _plain(fn, total):
        return shown
    same_block = backward.guards == total.guards and backward.loops == total.loops[:-1]
    if any(total.order < e.order < backward.order for e in fn.events("zero_grad", "clear_grad")) or not same_block:
        return shown  # what each part's backward gives would be cleared
    if ast.unparse(backward.stmt) != f"{total.name}.backward()":
        return shown
    text = fn.source.segment(fn.source.span(total.expr))
    steps = edits.insert_before(fn.source, total.stmt, f"{name} = {text}\n{name}.backward()")
    steps += edits.replace(fn.source, total.expr, f"{name}.detach()") + edits.delete(fn.source, backward.stmt)
    return steps.unsafe(CHANGE).titled("call `backward()` on each batch's loss")


def _plain(fn: Function, total: Event) -> bool:
    """Whether the statement adds one expression of one line to the total, and is the only one that does."""
    site, part = total.site, total.expr
    assert part is not None
    if part.lineno != part.end_lineno or sum(e.name == total.name for e in fn.own("sum")) > 1:  # type: ignore[attr-defined]
        return False
    if isinstance(site, ast.AugAssign):
        return isinstance(site.op, ast.Add)
    return isinstance(site, ast.Assign) and ast.unparse(site.value) == f"{total.name} + {ast.unparse(part)}"
