"""A module's attribute, a global or a default argument grows at every call, and nothing cuts it."""

from memlint.extract import Class, Module
from memlint.facts import Event
from memlint.function import CONSTRUCTORS, Function
from memlint.growth import GROWS, may_grow, regrown, unbounded
from memlint.lightning import hoarded
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM302", claim=Claim.GROWTH, triggers=GROWS)
def unbounded_cache(fn: Function) -> Findings:
    if fn.definition.name in CONSTRUCTORS or not may_grow(fn):
        return
    for store in fn.own("store"):
        if unbounded(fn, store) and not hoarded(fn, store):
            yield fn.finding(
                store.site,
                Level.ERROR,
                f"`{fn.source_of(store.expr or store.site)}` goes into `{_named(store)}` at every "
                f"{_occasion(fn)}; {_scope(store)}, and nothing in the project empties or bounds it",
                Fix(f"bound `{_named(store)}` (`collections.deque(maxlen=…)`), or clear it once it has been read"),
            )
    for grown in regrown(fn):
        name = grown.name
        yield fn.finding(
            grown.site,
            Level.ERROR,
            f"`{name}` gets longer at every {_occasion(fn)} for as long as the module lives, "
            "and nothing in the project cuts it",
            Fix(f"bound `{name}`, or start it anew once it has been read"),
        )


def _named(store: Event) -> str:
    return store.target.name if store.target is not None else ""


def _occasion(fn: Function) -> str:
    return "forward" if fn.definition.name == "forward" else f"call of `{fn.definition.name}`"


def _scope(store: Event) -> str:
    owner = store.target.owner if store.target is not None else None
    if isinstance(owner, Class):
        return "it lives as long as the module"
    return "it lives as long as the program" if isinstance(owner, Module) else "a default argument is made only once"
