"""A multi-tensor optimizer makes temporaries as large as the parameters, where a fused one makes none."""

import ast

from memlint import edits
from memlint.function import Function
from memlint.rule import Claim, Findings, Level, rule


@rule(code="MEM204", claim=Claim.PEAK, triggers=("foreach",))
def foreach_optimizer_peak(fn: Function) -> Findings:
    if not any(k.arg == "foreach" for k in fn.nodes_of(ast.keyword)):  # type: ignore[attr-defined]
        return
    for build in fn.own("build"):
        call = build.site
        asked = build.keywords.get("foreach")
        if build.name != "optimizer" or asked is None or asked.const is not True or "fused" in build.keywords:
            continue
        row = fn.project.library.lookup(build.receiver.type)
        if not isinstance(call, ast.Call) or row is None or "fused" not in row or not fn.target.at_least("2.3"):
            continue
        fix = edits.drop_keyword(fn.source, call, "foreach") + edits.set_keyword(fn.source, call, "fused", "True")
        yield fn.finding(
            call,
            Level.NOTE,
            f"`{fn.source_of(call.func)}` with `foreach=True` makes temporaries as large as its parameters each step",
            fix.titled("pass `fused=True` instead").unsafe(
                "the fused kernel rounds differently, and takes floating-point parameters on a device it knows"
            ),
        )
