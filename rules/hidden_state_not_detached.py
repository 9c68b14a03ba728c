"""Recurrent state comes back from the iteration before with its graph."""

from itertools import chain

from memlint import edits
from memlint.feedback import fed_back, kept_state
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, Step, rule

CHANGE = "gradients no longer flow from one iteration into those before it, which is what truncation means"


@rule(code="MEM106", claim=Claim.GROWTH, triggers=("retain_graph", "def forward"))
def hidden_state_not_detached(fn: Function) -> Findings:
    for found in chain(fed_back(fn) if "retain_graph" in fn.text else (), kept_state(fn)):
        state = fn.source_of(found.argument)
        fix = Fix("hand the state over detached: `.detach()` on each of its tensors")
        if fn.is_tensor(found.value, found.argument):
            fix = edits.wrap(fn.source, found.argument, "{}.detach()").unsafe(CHANGE)
        root = found.backward.root
        home = root.home.module.source
        yield fn.finding(
            found.call.site,
            Level.ERROR,
            f"`{state}` comes from the iteration before with its graph, so the graphs of all iterations hang together, "
            "and `retain_graph=True` frees none of them",
            fix,
            (Step(home.path, home.span(root.site).line, "this backward goes through all of them"),),
        )
