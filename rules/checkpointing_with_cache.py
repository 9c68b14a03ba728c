"""A model that recomputes its activations is asked to keep keys and values for generation as well."""

import ast

from memlint import edits
from memlint.checkpointing import recomputes, recomputes_by_itself
from memlint.facts import Answer, Event
from memlint.function import Function
from memlint.rule import Claim, Finding, Findings, Level, rule


@rule(code="MEM703", claim=Claim.PEAK, triggers=("use_cache=True",), anywhere=True)
def checkpointing_with_cache(fn: Function) -> Findings:
    for run in fn.own("forward"):
        if _asked(run) and run.node is not None and fn.fate((run.node,)) is Answer.YES:
            yield from _found(fn, run)


def _asked(call: Event) -> bool:
    wanted = call.keywords.get("use_cache")
    return wanted is not None and wanted.const is True and isinstance(call.site, ast.Call)


def _found(fn: Function, run: Event) -> Findings:
    cls = fn.project.class_named(run.receiver.type)
    if cls is not None and recomputes_by_itself(fn, cls):
        yield _finding(
            fn,
            run,
            Level.WARNING,
            f"`{cls.name}` recomputes its activations in the backward pass, and `use_cache=True` keeps every layer's "
            "keys and values through it all the same",
        )
    elif recomputes(fn, run.receiver, run.order):
        yield _finding(
            fn,
            run,
            Level.NOTE,
            f"`{fn.source_of(run.site.func)}` runs with gradient checkpointing, "  # type: ignore[attr-defined]
            "which switches the cache that `use_cache=True` asks for off again at every step",
        )


def _finding(fn: Function, run: Event, level: Level, message: str) -> Finding:
    fix = edits.set_keyword(fn.source, run.site, "use_cache", "False")
    read = level is Level.WARNING or "past" in fn.text
    return fn.finding(
        run.site, level, message, fix.unsafe("the call gives no keys and values back") if read else fix.safe()
    )
