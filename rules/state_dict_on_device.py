"""The best weights so far are put aside on the device."""

import ast

from memlint import edits
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule
from memlint.snapshots import Snapshot, snapshots


@rule(code="MEM503", claim=Claim.KEPT, triggers=("deepcopy(", "clone("))
def state_dict_on_device(fn: Function) -> Findings:
    for snapshot in () if fn.is_test else snapshots(fn):
        what = "the model" if snapshot.state is None else "its weights"
        yield fn.finding(
            snapshot.copy,
            Level.WARNING,
            f"`{snapshot.name}` keeps a second copy of {what} on the device while training goes on, and a third while "
            "it is replaced",
            _fix(fn, snapshot),
        )


def _fix(fn: Function, snapshot: Snapshot) -> Fix:
    """Copy each tensor to the host, also where it is there already: the model's own goes on changing."""
    copy, state = snapshot.copy, snapshot.state
    if state is None:
        return Fix('keep its state on the host: `{k: v.to("cpu", copy=True) for k, v in ….state_dict().items()}`')
    if isinstance(copy, ast.DictComp):
        copied = {n.id for n in ast.walk(copy.value) if isinstance(n, ast.Name)}
        given = {n.id for n in ast.walk(copy.generators[0].target) if isinstance(n, ast.Name)}
        if not copied < given:
            return Fix("copy the tensors to the host")
        fix = edits.replace(fn.source, copy.value, f'{copied.pop()}.to("cpu", copy=True)')
    else:
        text = fn.source.segment(fn.source.span(state))
        fix = edits.replace(fn.source, copy, f'{{k: v.to("cpu", copy=True) for k, v in {text}.items()}}')
    if snapshot.restored:
        return fix.safe()
    return fix.unsafe("what else reads it finds it on the host")
