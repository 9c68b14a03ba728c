"""A full garbage collection runs at every step."""

from memlint.facts import UNSET
from memlint.function import Function
from memlint.rule import Claim, Findings, Level, rule
from memlint.steps import repeating, taken_out

WORDS = ("collect", "free_memory", "release_memory", "garbage_collection_cuda", "clear_device_cache")
REASON = "what only a collection frees, objects in cycles, lives until Python collects by itself"


@rule(code="MEM602", claim=Claim.TIME, anywhere=True)
def gc_in_loop(fn: Function) -> Findings:
    for call, when in repeating(fn, "collect", WORDS):
        if fn.source.says("gc.disable(") or fn.source.says("gc.freeze("):
            return  # collections are timed by hand
        generation = call.args[0] if call.args else call.keywords.get("generation")
        if generation is not None and generation.const not in (2, UNSET):
            continue
        yield fn.finding(
            call.site,
            Level.WARNING,
            f"`{fn.source_of(call.site)}` looks through every object of the process {when}: tensors that are in no "
            "cycle are freed without it",
            taken_out(fn, call, "collect", "call it once an epoch, or not at all", REASON),
        )
