"""The result of `.cpu()`, `.to()` or `.detach()` is thrown away."""

from memlint.discards import discarded
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM608", claim=Claim.GROWTH, triggers=(".cpu(", ".cuda(", ".to(", ".detach("), anywhere=True)
def discarded_detach(fn: Function) -> Findings:
    for call in discarded(fn):
        text = fn.source_of(call.site)
        tensor, _, method = text.rpartition("(")[0].rpartition(".")
        stays = "keeps its graph" if method == "detach" else "stays what and where it was"
        yield fn.finding(
            call.site,
            Level.WARNING,
            f"the result of `{text}` is thrown away: `{tensor}` {stays}",
            Fix(f"keep it: `{tensor} = {text}`"),
        )
