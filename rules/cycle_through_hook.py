"""A tensor's hook holds the tensor itself: a cycle through C++ that the collector cannot see."""

from memlint.function import Function
from memlint.hooks import self_capturing_hooks
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM310", claim=Claim.GROWTH, triggers=("register_hook(",))
def cycle_through_hook(fn: Function) -> Findings:
    for hook, name in self_capturing_hooks(fn):
        yield fn.finding(
            hook.site,
            Level.WARNING,
            f"the hook on `{name}` holds `{name}` itself: neither is ever freed, nor the graph behind them",
            Fix(f"let the hook hold what it needs of `{name}`: a number, or a detached tensor made before"),
        )
