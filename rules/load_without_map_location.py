"""A checkpoint goes back onto the device that it was saved from."""

import ast

from memlint import edits
from memlint.facts import Event
from memlint.function import Function
from memlint.restoring import PLACE, leaves_only_copies, may_read, placed_by, unplaced
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM501", claim=Claim.PEAK, triggers=("load",))
def load_without_map_location(fn: Function) -> Findings:
    for load in () if fn.is_test or not may_read(fn) else unplaced(fn):
        where = placed_by(fn, load)
        said = f", since nobody gives `{where}`" if where else ""
        yield fn.finding(
            load.site,
            Level.NOTE,
            f"`{_called(fn, load)}` puts the checkpoint back onto the device that it was saved from{said}: there it "
            "lies beside the weights that it is copied into, on every process's first device the same",
            _fix(fn, load, where),
            fn.trail(load, "the file is read here, and nothing says where its tensors go"),
        )


def _called(fn: Function, load: Event) -> str:
    call = load.site
    return fn.source_of(call.func if isinstance(call, ast.Call) else call)


def _fix(fn: Function, load: Event, where: str) -> Fix:
    """Read it on the host: what copies the weights puts them where they belong."""
    call = load.site
    name = PLACE
    fix: Fix | None = None
    if where:
        default = fn.definition.defaults.get(where)
        fix = edits.replace(fn.source, default, '"cpu"') if default is not None else None
        name = where
    elif isinstance(call, ast.Call):
        if load.inner is not None:
            name = placed_by(fn.project.function(load.inner.home), load.inner)
        given = call.args[1:2] if load.inner is None else []
        fix = (
            edits.replace(fn.source, given[0], '"cpu"') if given else edits.set_keyword(fn.source, call, name, '"cpu"')
        )
    if fix is None:
        return Fix(f'read it on the host: `{name}="cpu"`')
    if leaves_only_copies(fn, load):
        return fix.safe()
    return fix.unsafe("what else comes out of the file is on the host then")
