"""The allocator's cache is emptied at every step."""

from memlint.function import Function
from memlint.rule import Claim, Findings, Level, rule
from memlint.steps import does, helps, repeating, taken_out

WORDS = ("empty_cache",)
REASON = "other programs on the device no longer get the free memory between two steps"


@rule(code="MEM601", claim=Claim.TIME, anywhere=True)
def empty_cache_in_loop(fn: Function) -> Findings:
    for call, when in repeating(fn, "empty_cache", WORDS):
        if does(fn, call, "collect") or helps(fn, call, "collect"):
            continue  # the collection is what costs
        yield fn.finding(
            call.site,
            Level.WARNING,
            f"`{fn.source_of(call.site)}` empties the allocator's cache {when}: nothing that is in use is freed, and "
            "the next step asks the driver for all of it again",
            taken_out(fn, call, "empty_cache", "call it once an epoch, or between phases", REASON),
        )
