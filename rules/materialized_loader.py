"""All batches of a loader are put into one list."""

from memlint.function import Function
from memlint.loaders import gathered, may_gather
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM402", claim=Claim.PEAK, triggers=("list(", "tuple(", "set(", "sorted(", "deque(", " for ", "*"))
def materialized_loader(fn: Function) -> Findings:
    for node, loader in () if fn.is_test or not may_gather(fn) else gathered(fn):
        yield fn.finding(
            node,
            Level.WARNING,
            f"every batch of `{loader}` is in memory at once, where one at a time would do",
            Fix("iterate the loader itself, or take so many batches with `itertools.islice`"),
        )
