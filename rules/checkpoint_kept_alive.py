"""What was read from a checkpoint stays while the loop runs that it was read for."""

from memlint import edits
from memlint.function import Function
from memlint.lingering import Lingering, lingering, shared_name
from memlint.restoring import may_read
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM502", claim=Claim.KEPT, triggers=("load",))
def checkpoint_kept_alive(fn: Function) -> Findings:
    for stay in () if fn.is_test or not may_read(fn) else lingering(fn):
        if any(shared_name(fn, name) for name in stay.names):
            continue
        names = " and ".join(f"`{name}`" for name in stay.names)
        verb = "keep" if len(stay.names) > 1 else "keeps"
        yield fn.finding(
            stay.last,
            Level.WARNING,
            f"{names} {verb} all that was read from the checkpoint alive while line {stay.during.lineno} runs, and "
            "nobody reads it after this",
            _fix(fn, stay),
        )


def _fix(fn: Function, stay: Lingering) -> Fix:
    statement = f"del {', '.join(stay.names)}"
    if stay.end is None:
        return Fix(f"let go of it before line {stay.during.lineno}: `{statement}`")
    return edits.insert_after(fn.source, stay.end, statement).titled(f"`{statement}` after its last use").safe()
