"""A tensor with its graph is put where it outlives the iteration."""

from memlint.facts import Answer
from memlint.function import Function
from memlint.growth import unbounded
from memlint.lightning import hoarded
from memlint.likely import stores
from memlint.rule import Claim, Findings, Level, rule


@rule(code="MEM103", claim=Claim.GROWTH)
def graph_tensor_append(fn: Function) -> Findings:
    if fn.constructs or not fn.project.may_keep(fn.definition, stores):
        return
    for store in fn.stores:
        if store.node is None or not fn.may_outlive(store) or not fn.may_carry(store.value):
            continue
        spent = fn.spent(store.value, store)
        fate = fn.fate((store.node,))
        if fate is Answer.YES or (fate is Answer.MAYBE and not spent):
            continue
        if not (fn.makes(store.value) if store.inner is None else fn.handed_over(store)):
            continue
        if fn.of_unknown_make(store):
            continue
        if not fn.trains_on(store.value) or fn.needless_graph(store.value):
            continue
        if not fn.outlives(store) or fn.waited_for(store) or unbounded(fn, store) or hoarded(fn, store):
            continue
        where = store.target.name if store.target is not None and store.target.name else "a container"
        freed = fn.spent(store.value)  # in some rounds at least
        kept = "graph nodes" if freed else "graph and all that it saved for backward"
        what = fn.source_of(store.expr or store.site) if store.inner is None else fn.source_of(store.site)
        yield fn.finding(
            store.site,
            Level.WARNING if freed else Level.ERROR,
            f"`{what}` goes into `{where}` with its {kept}, and stays there past the iteration",
            fn.detach(store),
            fn.trail(store, f"it is put into `{where}` here"),
        )
