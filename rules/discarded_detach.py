"""The result of `.cpu()`, `.to()` or `.detach()` is thrown away."""

import ast

from memlint.discards import discarded
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM608", claim=Claim.GROWTH, triggers=(".cpu(", ".cuda(", ".to(", ".detach("), anywhere=True)
def discarded_detach(fn: Function) -> Findings:
    for call in discarded(fn):
        site = call.site
        assert isinstance(site, ast.Call) and isinstance(site.func, ast.Attribute)
        text, tensor = fn.source_of(site), fn.source_of(site.func.value)
        stays = "keeps its graph" if site.func.attr == "detach" else "stays what and where it was"
        yield fn.finding(
            site,
            Level.WARNING,
            f"the result of `{text}` is thrown away: `{tensor}` {stays}",
            Fix(f"keep it: `{tensor} = {text}`"),
        )
