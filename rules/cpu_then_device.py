"""A tensor of numbers is built on the host and moved, where its constructor takes the device."""

import ast
from functools import reduce

from memlint import edits
from memlint.always import is_test
from memlint.function import Function
from memlint.hostmade import Moved, moved
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM605", claim=Claim.TIME, triggers=(".to(", ".cuda(", ".type_as("), anywhere=True)
def cpu_then_device(fn: Function) -> Findings:
    if is_test(fn.source.path) or fn.target.before("0.4"):
        return
    for found in moved(fn):
        call = found.made[0].site
        yield fn.finding(
            call,
            Level.NOTE,
            f"`{fn.source_of(call)}` is built on the host and then moved by `{_how(fn, found)}`",
            _fix(fn, found),
        )


def _how(fn: Function, found: Moved) -> str:
    assert isinstance(found.move.func, ast.Attribute)
    given = ", ".join(fn.source_of(a) for a in (*found.move.args, *found.move.keywords))
    return f".{found.move.func.attr}({given})"


def _fix(fn: Function, found: Moved) -> Fix:
    if found.old:
        return Fix("build it where it is wanted: `torch.zeros(…, dtype=…, device=…)`")
    if found.device is None or found.conditional:
        return Fix("build it where it is wanted: pass `device=`")
    fixes = [edits.set_keyword(fn.source, event.site, "device", found.device) for event in found.made]
    fix = reduce(Fix.__add__, [*fixes, *_without_move(fn, found)])
    fix = fix.titled(f"build it where it is wanted: pass `device={found.device}`")
    if found.random:
        return fix.unsafe("the numbers are drawn by the device's generator, and are others")
    if found.rounds:
        return fix.unsafe("what is computed on the device may differ in the last bit")
    return fix.safe()


def _without_move(fn: Function, found: Moved) -> list[Fix]:
    """The move goes where it does nothing but move; where it converts as well it stays, and moves no more."""
    move, statement = found.move, fn.statements[found.move]
    assert isinstance(move.func, ast.Attribute)
    extra = [k for k in move.keywords if k.arg not in ("device", "non_blocking")]
    if found.like or extra or len(move.args) > 1:
        return []
    receiver = move.func.value
    if isinstance(statement, ast.Assign) and statement.value is move and isinstance(receiver, ast.Name):
        if [ast.unparse(t) for t in statement.targets] == [receiver.id]:
            return [edits.delete(fn.source, statement)]
    return [edits.drop_call(fn.source, move)]
