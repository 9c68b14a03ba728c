"""DistributedDataParallel keeps a second copy of all gradients, beside the buckets that it reduces."""

import ast

from memlint import edits
from memlint.facts import Answer, Event
from memlint.function import Function
from memlint.rule import Claim, Findings, Level, rule

ARGUMENT = "gradient_as_bucket_view"


@rule(code="MEM205", claim=Claim.PEAK, triggers=("Parallel(", "DDP("))
def ddp_no_bucket_view(fn: Function) -> Findings:
    for build in () if fn.is_test else fn.own("build"):
        call = build.site
        if build.receiver.type != "torch.nn.parallel.DistributedDataParallel" or not isinstance(call, ast.Call):
            continue
        if ARGUMENT in build.keywords or any(k in build.keywords for k in ("*", "**")) or not fn.target.at_least("1.7"):
            continue
        if any(fn.trainable(m) is Answer.NO for m in build.args[:1]) or _only_evaluates(build):
            continue
        fix = edits.set_keyword(fn.source, call, ARGUMENT, "True")
        in_place = fn.source.says("detach_()")
        yield fn.finding(
            call,
            Level.NOTE,
            f"`{fn.source_of(call.func)}` keeps gradients beside the buckets that it reduces: a second copy of them",
            fix.unsafe("gradients that are views cannot be detached in place") if in_place else fix.safe(),
        )


def _only_evaluates(build: Event) -> bool:
    """Whether what is wrapped is put to evaluation and never to training: it has no gradients."""
    wrapped = (*build.value.objs, *(o for m in build.args[:1] for o in m.objs))
    return any(o.evaluates for o in wrapped) and not any(o.trains for o in wrapped)
