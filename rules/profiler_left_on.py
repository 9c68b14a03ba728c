"""A profiler or memory recorder is on over a whole training run, and keeps all that it records in host memory."""

from memlint.function import Function
from memlint.profiling import left_on
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM308", claim=Claim.GROWTH, triggers=("profile", "_record_memory_history"))
def profiler_left_on(fn: Function) -> Findings:
    for event, what in left_on(fn):
        bound = "a `schedule`" if "operator" in what else "`max_entries`"
        yield fn.finding(
            event.site,
            Level.WARNING,
            f"`{fn.source_of(event.site)}` records {what} of the whole training run, and keeps it in host memory",
            Fix(f"record a few steps only: give it {bound}, or switch it off after them"),
        )
