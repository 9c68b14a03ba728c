"""A model is built anew in each iteration while records keep all the old ones, and nobody reads them there."""

from memlint.function import Function
from memlint.keeping import may_keep_models, models_kept
from memlint.rule import Claim, Findings, Fix, Level, Step, rule


@rule(code="MEM306", claim=Claim.GROWTH, triggers=(".append(",))
def model_rebuilt_in_loop(fn: Function) -> Findings:
    if fn.constructs or not may_keep_models(fn):
        return
    for build, store in models_kept(fn):
        where = fn.source_of(store.site.func.value)  # type: ignore[attr-defined]
        yield fn.finding(
            build.site,
            Level.WARNING,
            f"`{fn.source_of(build.site)}` is built in every iteration, and `{where}` keeps each of the models, "
            "though nothing reads them from there",
            Fix(f"put into `{where}` what is read from it, and not the model or its optimizer"),
            (Step(fn.source.path, fn.source.span(store.site).line, f"it is kept in `{where}` here"),),
        )
