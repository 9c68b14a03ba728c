"""The last batch's large output is still bound while the next one is computed."""

from memlint import edits
from memlint.function import Function
from memlint.keeping import stale_outputs
from memlint.rule import Claim, Findings, Level, rule


@rule(code="MEM309", claim=Claim.PEAK, triggers=("for ", "while "))
def stale_loop_locals(fn: Function) -> Findings:
    if fn.constructs:
        return
    for _, stmt, last, width in stale_outputs(fn):
        name = fn.source_of(stmt.targets[0])
        yield fn.finding(
            last,
            Level.NOTE,
            f"`{name}`, {width:,} numbers a position, stays bound after this last use of it until the next forward "
            "is done: at the peak there are two of it",
            edits.insert_after(fn.source, last, f"del {name}").unsafe(f"`{name}` is unbound after the loop"),
        )
