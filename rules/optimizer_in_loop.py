"""An optimizer, scheduler or GradScaler is built again each iteration or epoch."""

import re

from memlint import edits
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule

BUILDS = re.compile(r"(?:[oO]ptim|[sS]ched|Scaler|LR|Adam|SGD)\w*$")
LOOPED = re.compile(r"\bfor\b|\bwhile\b|Scaler")
LOST = {
    "optimizer": "its state is thrown away and allocated again",
    "scheduler": "it never gets past its first step",
    "scaler": "the loss scale that it found is forgotten",
}


@rule(code="MEM202", claim=Claim.CHURN, triggers=("ptim", "ched", "Scaler", "LR", "Adam", "SGD"))
def optimizer_in_loop(fn: Function) -> Findings:
    if not (LOOPED.search(fn.text) and any(map(BUILDS.search, fn.definition.called))):
        return
    for build in fn.own("build", "call"):
        kind = build.value.kind
        if kind not in LOST or build.guards or (build.verb == "call" and not fn.built_by_callee(build)):
            continue
        if build.loops:
            loop = build.loops[-1]
            if not (fn.steps_in(loop, build) and fn.same_each_time(build, loop)):
                continue
            fix = edits.hoist(fn.source, build.stmt, loop).titled("build it once, before the loop")
            fix = fix.unsafe("what it has learnt is then kept from one iteration to the next, so the numbers change")
            when = "in every iteration"
        elif kind == "scaler" and fn.differentiates and fn.runs_one_epoch:
            fix, when = Fix("build it once, and hand it over"), f"at every call of `{fn.definition.name}`"
        else:
            continue
        yield fn.finding(
            build.site,
            Level.WARNING,
            f"`{fn.source_of(build.site)}` builds the {kind} anew {when}: {LOST[kind]}",
            fix,
        )
