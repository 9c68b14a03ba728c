"""A tensor is copied along a dimension of size one, where broadcasting would read it in place."""

from memlint import edits
from memlint.function import Function
from memlint.repeats import METHODS, needless_repeats
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM604", claim=Claim.PEAK, triggers=tuple(f".{method}(" for method in sorted(METHODS)), anywhere=True)
def repeat_not_expand(fn: Function) -> Findings:
    for repeat in needless_repeats(fn):
        fix = Fix("use `expand`: a view in the place of a copy")
        if repeat.expanded:
            fix = edits.replace(fn.source, repeat.call, repeat.expanded)
            fix = fix.unsafe("the result is a view: it changes with what it was made from, and cannot be written to")
        yield fn.finding(
            repeat.call,
            Level.NOTE,
            f"`{fn.source_of(repeat.call)}` copies along a dimension of size one what is only read afterwards: "
            "`expand` gives the same without a copy",
            fix,
        )
