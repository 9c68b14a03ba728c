"""A hook is registered again and again on the same object, and nothing can take it off."""

from memlint.function import Function
from memlint.hooks import leaked_hooks
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM303", claim=Claim.GROWTH, triggers=("hook(",))
def hook_leak(fn: Function) -> Findings:
    for hook in leaked_hooks(fn):
        hooked = fn.source_of(hook.site.func.value)  # type: ignore[attr-defined]
        when = "in every iteration" if hook.loops else "at every call"
        yield fn.finding(
            hook.site,
            Level.ERROR,
            f"`{hooked}` gets one more hook {when} and the handle is dropped: every hook, and all that it holds, stays",
            Fix(f"register it once, or keep the handle of `{hook.name}` and call `remove()` on it"),
        )
