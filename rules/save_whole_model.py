"""A module is pickled whole."""

from memlint.function import Function
from memlint.restoring import pickled
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM504", claim=Claim.PEAK, triggers=("save(",))
def save_whole_model(fn: Function) -> Findings:
    for call, module in () if fn.is_test else pickled(fn):
        yield fn.finding(
            call.site,
            Level.NOTE,
            f"`{module}` is pickled whole: whoever reads the file makes a second model with all its weights before "
            "anything can be copied, and needs the same class in the same place",
            Fix("save its `state_dict()`"),
        )
