"""Recovery from out-of-memory inside the `except` block, where the traceback still holds what did not fit."""

from memlint.function import Function
from memlint.recovery import after_the_block, early_recoveries
from memlint.rule import Claim, Findings, Level, rule


@rule(code="MEM307", claim=Claim.PEAK, triggers=("except",))
def oom_retry_in_except(fn: Function) -> Findings:
    if "emory" not in fn.text and "empty_cache" not in fn.text:
        return
    for recovery in early_recoveries(fn):
        does = "runs again" if recovery.retries else "empties the cache"
        yield fn.finding(
            recovery.call,
            Level.WARNING,
            f"`{fn.source_of(recovery.call)}` {does} inside the `except` block, while the error's traceback "
            "still holds the tensors of the frames that failed",
            after_the_block(fn, recovery),
        )
