"""A backward keeps its graph for a second backward that never comes."""

from memlint import edits
from memlint.facts import Answer
from memlint.function import Function
from memlint.reuse import asks, differentiated_again
from memlint.rule import Claim, Findings, Level, rule


@rule(code="MEM104", claim=Claim.PEAK, triggers=("retain_graph",))
def retain_graph(fn: Function) -> Findings:
    for backward in fn.own("backward"):
        if not asks(backward, "retain_graph") or "create_graph" in backward.keywords:
            continue
        if differentiated_again(fn, backward) is not Answer.NO:
            continue
        yield fn.finding(
            backward.site,
            Level.WARNING,
            f"`{fn.source_of(backward.site)}` keeps its graph, and no other backward reaches it: the activations stay "
            "until the next forward has made its own",
            edits.drop_keyword(fn.source, backward.site, "retain_graph").safe(),
        )
