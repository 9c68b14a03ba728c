"""Gradients are cleared between the forward and the backward, so they live through the forward."""

from memlint import edits
from memlint.clearing import late_clears
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM203", claim=Claim.PEAK, triggers=("zero_grad",))
def zero_grad_before_backward_only(fn: Function) -> Findings:
    for late in late_clears(fn):
        call = late.clear.site
        forward = f"`{fn.source_of(late.forward)}`" if late.forward is not None else "the forward"
        title = f"clear the gradients before {forward}"
        fix = Fix(title)
        if late.sibling is not None:
            fix = edits.move(fn.source, fn.statements[call], late.sibling).safe().titled(title)
        yield fn.finding(
            call,
            Level.NOTE,
            f"`{fn.source_of(call)}` comes after {forward}: the last step's gradients are kept all through it",
            fix,
        )
