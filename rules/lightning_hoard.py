"""A Lightning step keeps what it computed for longer than its batch: on the module, or in what it returns."""

from memlint.function import Function
from memlint.lightning import collected, hoarded, of_lightning
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM701", claim=Claim.GROWTH, triggers=("append(", "extend(", "add(", "insert(", "return "), anywhere=True)
def lightning_hoard(fn: Function) -> Findings:
    if fn.definition.cls is None or not of_lightning(fn.project, fn.definition.cls):
        return
    for store in fn.own("store"):
        level = hoarded(fn, store)
        if level is None or store.target is None:
            continue
        name = store.target.name
        if level is Level.ERROR:
            message = "stays there from epoch to epoch: nothing in the project empties it"
            fix = Fix(f"store `.detach().cpu()`, and `{name}.clear()` when the epoch ends")
        else:
            message = "keeps its graph there until the epoch ends"
            fix = Fix("store a detached copy: `.detach()`")
        what = fn.source_of(store.expr or store.site)
        yield fn.finding(store.site, level, f"`{what}` goes into `{name}` at every batch and {message}", fix)
    for returned, key in collected(fn):
        yield fn.finding(
            returned.site,
            Level.WARNING,
            f"every batch's `{key}` is returned with its graph, and Lightning collects it for `training_epoch_end`",
            Fix(f"return `{key}` detached: `.detach()`"),
        )
