"""`itertools.cycle` over a loader."""

import ast

from memlint import edits
from memlint.facts import Event
from memlint.function import Function
from memlint.loaders import cycled
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM401", claim=Claim.GROWTH, triggers=("cycle(",))
def cycle_dataloader(fn: Function) -> Findings:
    for call in () if fn.is_test else cycled(fn):
        loader = fn.source_of(call.site.args[0])  # type: ignore[attr-defined]
        yield fn.finding(
            call.site,
            Level.ERROR,
            f"`cycle` keeps every batch that `{loader}` gives in its first pass, for ever, and then repeats them in "
            "the same order",
            _fix(fn, call),
        )


def _fix(fn: Function, call: Event) -> Fix:
    """Ask the loader for a new pass each time the last one ends."""
    site = call.site
    chain = edits.qualified(fn.source, "itertools.chain", site)
    repeat = edits.qualified(fn.source, "itertools.repeat", site)
    if not isinstance(site, ast.Call) or call.args[0].kind == "iterator" or chain is None or repeat is None:
        return Fix("iterate the loader anew in each pass: `while True: yield from loader`")
    text = fn.source.segment(fn.source.span(site.args[0]))
    fix = edits.replace(fn.source, site, f"{chain[0]}.from_iterable({repeat[0]}({text}))") + chain[1] + repeat[1]
    return fix.unsafe("each pass is a new one: shuffled anew, augmented anew")
