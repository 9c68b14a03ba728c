"""`backward(create_graph=True)` ties parameters and gradients into cycles."""

from memlint.function import Function
from memlint.reuse import asks, clears_gradients
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM105", claim=Claim.GROWTH, triggers=("create_graph",))
def create_graph_backward(fn: Function) -> Findings:
    for backward in fn.own("backward"):
        if not asks(backward, "create_graph") or not fn.repeated(backward) or clears_gradients(fn, backward):
            continue
        yield fn.finding(
            backward.site,
            Level.ERROR,
            f"`{fn.source_of(backward.site)}` gives each leaf a gradient whose graph holds the leaf: nothing clears "
            "`.grad`, so leaf, gradient and graph keep each other",
            Fix("take it with `torch.autograd.grad(…, create_graph=True)`, or set every `.grad` to None afterwards"),
        )
