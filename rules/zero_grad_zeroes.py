"""Gradients are filled with zeros where they could be freed."""

import ast
import re

from memlint import edits
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule

# A captured graph writes gradients where they lay when it was captured: they are zeroed there, on purpose.
CAPTURED = re.compile(r"(?:CUDA|Cuda)_?Graph|cuda\.graph\(|make_graphed_callables")


@rule(code="MEM201", claim=Claim.PEAK, triggers=("zero_",))
def zero_grad_zeroes(fn: Function) -> Findings:
    if fn.source.says(CAPTURED):
        return
    for clear in fn.own("zero_grad"):
        call = clear.site
        if not isinstance(call, ast.Call) or clear.receiver.kind not in ("optimizer", "module", "engine"):
            continue
        given = clear.value.const is False
        if not given and (call.args or call.keywords or not fn.target.before("2.0") or not fn.clears_each_step(clear)):
            continue
        if call.keywords and fn.target.at_least("2.0"):
            fix = edits.drop_keyword(fn.source, call, "set_to_none")
        elif call.args:
            fix = edits.replace(fn.source, call.args[0], "True")
        else:
            fix = edits.set_keyword(fn.source, call, "set_to_none", "True")
        why = "is told to fill" if given else "of this torch fills"
        yield fn.finding(
            call,
            Level.WARNING,
            f"`{fn.source_of(call)}` {why} the gradients with zeros: they stay allocated through the next forward",
            _safety(
                fn, fix if given or fn.target.at_least("1.7") else fix.hint("set_to_none is not there before torch 1.7")
            ),
        )
    for call in fn.gradient_zeroings:
        gradient = next(n for n in ast.walk(call.func) if isinstance(n, ast.Attribute) and n.attr == "grad")
        fix = edits.restate(fn.source, fn.statements[call], f"{fn.source_of(gradient)} = None")
        yield fn.finding(
            call,
            Level.WARNING,
            f"`{fn.source_of(call)}` fills a gradient with zeros: it stays allocated through the next forward",
            _safety(fn, fix),
        )


def _safety(fn: Function, fix: Fix) -> Fix:
    if fix.reason:
        return fix
    if fn.reads_gradients:
        return fix.unsafe("the file reads `.grad`, which would be None instead of zeros")
    return fix.safe()
