"""The differences of all pairs of rows are materialised for a distance that needs none of them."""

import re

from memlint import edits
from memlint.always import is_test
from memlint.function import Function
from memlint.pairwise import Pairs, pairs
from memlint.rule import Claim, Findings, Fix, Level, rule

AXIS = re.compile(r"[\[,]\s*None\s*[,\]]|unsqueeze")  # what gives a matrix one more dimension


@rule(code="MEM607", claim=Claim.PEAK, triggers=("None", "unsqueeze"), anywhere=True)
def pairwise_broadcast(fn: Function) -> Findings:
    if not fn.source.says("torch") or "-" not in fn.text or not AXIS.search(fn.text) or is_test(fn.source.path):
        return
    if fn.source.says("cdist"):  # known here, and so not wanted there
        return
    for found in pairs(fn):
        yield fn.finding(
            found.subtraction,
            Level.NOTE,
            f"`{fn.source_of(found.subtraction)}` holds a difference for every pair of rows and every column, "
            "where a distance for every pair is wanted",
            _fix(fn, found),
        )


def _fix(fn: Function, found: Pairs) -> Fix:
    distance = found.distance
    spelled = edits.qualified(fn.source, "torch.cdist", distance.whole)
    if spelled is None or not found.exact or not distance.plain:
        return Fix("`torch.cdist` gives the distances without the differences")
    name, imported = spelled
    rows = ", ".join(fn.source_of(row, 10_000) for row in found.rows)
    norm = "" if distance.p == 2 else f", p={distance.p}"
    text = f"{name}({rows}{norm})" + (".square()" if distance.squared else "")
    return (edits.replace(fn.source, distance.whole, text) + imported).unsafe(
        "distances are rounded otherwise, and have another gradient where two rows are equal"
    )
