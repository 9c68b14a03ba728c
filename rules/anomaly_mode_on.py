"""Autograd's anomaly detection is on in every training run."""

import ast

from memlint.always import in_every_run, is_test
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM109", claim=Claim.TIME, triggers=("detect_anomaly",))
def anomaly_mode_on(fn: Function) -> Findings:
    if is_test(fn.source.path):
        return
    switches = [e for e in fn.own("context") if "detect_anomaly" in e.name]
    if any(_says(e.site, False) for e in switches):
        return  # it is on for a while only
    for switch in switches:
        call = switch.site
        assert isinstance(call, ast.Call)
        always = switch.name.endswith(".detect_anomaly") and not call.args
        if not (always or _says(call, True)):
            continue
        block = fn.block_of(call)
        if block is not None and not any(fn.within(e.site, block) for e in fn.backwards):
            continue
        if in_every_run(fn, call):
            yield fn.finding(
                call,
                Level.WARNING,
                f"`{fn.source_of(call)}` is on in every run: each graph node keeps the stack trace of its forward, "
                "and each backward searches every gradient for NaN",
                Fix("turn it on behind a debugging flag that is off by default"),
            )


def _says(call: ast.AST, value: bool) -> bool:
    """Whether the call's mode is written out as ``value``."""
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]  # type: ignore[attr-defined]
    return any(isinstance(a, ast.Constant) and a.value is value for a in given)
