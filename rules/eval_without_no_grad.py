"""A forward builds a graph that nobody differentiates."""

import ast

from memlint.facts import Event
from memlint.function import CONSTRUCTORS, Function
from memlint.rule import Claim, Findings, Level, rule


@rule(code="MEM101", claim=Claim.PEAK)
def eval_without_no_grad(fn: Function) -> Findings:
    if fn.definition.name in CONSTRUCTORS or fn.is_test or not fn.project.may_run(fn.definition):
        return  # see `Function.needless`
    regions: dict[ast.AST, list[Event]] = {}  # by the block that they stand in: one finding each
    for forward in fn.forwards:
        if fn.needless(forward) and fn.at_fault(forward):
            regions.setdefault(fn.around(fn.region(forward)), []).append(forward)
    for forwards in regions.values():
        first = min(forwards, key=lambda e: fn.source.span(e.site))
        piled = [s for s in fn.events("store", "sum") if fn.piles_up(s, forwards)]
        call = fn.source_of(first.site)
        dropped = all(map(fn.drops, forwards))
        kept = (
            "all its activations are kept to its end" if dropped else "its graph is kept until the next one replaces it"
        )
        yield fn.finding(
            first.site,
            Level.ERROR if piled else Level.WARNING,
            f"`{call}` runs with autograd on, nothing differentiates the results, and their graphs pile up"
            if piled
            else f"`{call}` runs with autograd on, and nothing differentiates the result: {kept}",
            fn.no_grad([fn.region(f) for f in forwards], first),
            tuple(step for s in piled for step in fn.step(s, "the result is kept here"))
            + fn.trail(first, "the forward is here"),
        )
