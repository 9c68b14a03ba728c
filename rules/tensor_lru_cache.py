"""A function cache holds modules or device tensors as keys or results."""

from memlint.caching import held_by_cache
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM304", claim=Claim.KEPT, triggers=("cache",))
def tensor_lru_cache(fn: Function) -> Findings:
    for decorator, held, instead in held_by_cache(fn):
        yield fn.finding(
            decorator,
            Level.WARNING,
            f"`@{fn.source_of(decorator)}` on `{fn.definition.name}` keeps {held} for as long as the program runs",
            Fix(instead),
        )
