"""A figure is made at every step or epoch, and pyplot keeps each of them."""

from memlint import edits
from memlint.always import is_test
from memlint.figures import Figure, left_open
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM405", claim=Claim.GROWTH, triggers=("figure(", "subplots(", "subplot_mosaic("), anywhere=True)
def figure_not_closed(fn: Function) -> Findings:
    if fn.source.path.endswith(".ipynb") or is_test(fn.source.path):
        return
    for found in left_open(fn):
        yield fn.finding(
            found.call,
            Level.WARNING,
            f"`{fn.source_of(found.call.func)}` makes a figure each time round that nothing closes, so pyplot keeps it",
            _fix(fn, found),
        )


def _fix(fn: Function, found: Figure) -> Fix:
    spelled = edits.qualified(fn.source, "matplotlib.pyplot.close", found.call)
    if spelled is None or found.last is None:
        return Fix("close it when it is saved: `plt.close(fig)`")
    name, imported = spelled
    return (edits.insert_after(fn.source, found.last, f"{name}({found.name})") + imported).safe()
