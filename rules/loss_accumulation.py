"""A running total keeps the graphs of all that was added to it."""

from memlint.facts import Answer, Event
from memlint.function import Function
from memlint.likely import sums
from memlint.rule import Claim, Finding, Findings, Level, rule


@rule(code="MEM102", claim=Claim.GROWTH)
def loss_accumulation(fn: Function) -> Findings:
    if fn.constructs or not fn.project.may_keep(fn.definition, sums):
        return
    for total in fn.sums:
        if not fn.may_run_on(total) or not fn.may_carry(total.value):
            continue
        spent = fn.spent(total.value, total)
        fate = fn.total_fate(total)
        if fate is Answer.YES or (fate is Answer.MAYBE and not spent):
            continue
        if not (fn.makes(total.value) if total.inner is None else fn.handed_over(total)):
            continue
        if not fn.running(total) or not fn.trains_on(total.value) or fn.needless_graph(total.value):
            continue
        if _within_one(fn, total):
            continue
        yield _finding(fn, total, spent)


def _within_one(fn: Function, total: Event) -> bool:
    """Whether it adds up parts of what one forward gives, anew for each: the loss keeps as much, for as long."""
    if not any(fn.restarted(total.name, loop) for loop in total.loops[:-1]):
        return False
    nodes = set(fn.nodes(total.value))
    forwards = [f for f in fn.forwards if f.node in nodes]
    return bool(forwards) and all(total.loops[-1] not in f.loops for f in forwards)


def _finding(fn: Function, total: Event, spent: bool) -> Finding:
    name = total.name
    kept = "the graph nodes" if spent else "the graph, activations included,"
    message = f"`{name}` keeps {kept} of every value added to it until it goes out of scope"
    if total.inner is not None:
        message = f"`{fn.source_of(total.site)}` hands a tensor with its graph to a running total, which keeps it"
    return fn.finding(
        total.site,
        Level.WARNING if spent else Level.ERROR,
        message,
        fn.detach(total),
        fn.trail(total, f"`{name}` is added to here"),
    )
