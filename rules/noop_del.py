"""A `del` that frees nothing, since something else holds the object."""

from memlint import edits
from memlint.deletions import idle_deletions
from memlint.function import Function
from memlint.rule import Claim, Findings, Level, rule


@rule(code="MEM603", claim=Claim.EQUAL, triggers=(" del ", "\tdel ", ";del "), anywhere=True)
def noop_del(fn: Function) -> Findings:
    for deletion in idle_deletions(fn):
        why = " and ".join(dict.fromkeys(deletion.holders))
        fix = edits.delete(fn.source, deletion.whole).safe()
        yield fn.finding(deletion.stmt, Level.WARNING, f"`{fn.source_of(deletion.stmt)}` frees nothing: {why}", fix)
