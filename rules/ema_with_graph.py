"""A moving average of parameters is computed with autograd on."""

from functools import reduce

from memlint import edits
from memlint.averages import averages
from memlint.function import CONSTRUCTORS, Function
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM108", claim=Claim.GROWTH, triggers=("parameters(",))
def ema_with_graph(fn: Function) -> Findings:
    if fn.definition.name in CONSTRUCTORS or "for " not in fn.text:
        return  # parameters are met in loops, and averaged again and again
    for average in averages(fn):
        target, part = fn.source_of(average.target), fn.source_of(average.parts[0])
        fix: Fix = reduce(Fix.__add__, (edits.wrap(fn.source, p, "{}.detach()") for p in average.parts))
        yield fn.finding(
            average.update.stmt,
            Level.WARNING,
            f"`{target}` takes in `{part}` with autograd on: its graph goes back over every update so far",
            fix.safe().titled(f"write `{part}.detach()`"),
        )
