"""A dataset keeps Python objects for every example, and forked workers copy their pages as they read them."""

from memlint.examples import kept
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, Step, rule
from memlint.workers import loads


@rule(code="MEM404", claim=Claim.KEPT, triggers=("self.",), anywhere=True)
def python_object_dataset(fn: Function) -> Findings:
    cls = fn.definition.cls
    if cls is None or fn.project.class_kind(cls) != "dataset" or fn.definition.name.startswith("__get"):
        return
    for found in kept(fn):
        loading = loads(fn.project, cls)
        if loading is None or not loading.forks:
            return
        source = loading.flow.module.source
        yield fn.finding(
            found.site,
            Level.NOTE,
            f"`self.{found.attribute}` keeps {found.what} for every example: each worker that reads one writes its "
            "reference count, and so in time gets a copy of them all",
            Fix("keep them in arrays (NumPy, Arrow, one tensor), or packed in one buffer of bytes with offsets"),
            (Step(source.path, source.span(loading.event.site).line, "the loader with workers is made here"),),
        )
