"""Attention written out keeps its scores and its weights, which a fused kernel never makes."""

from memlint.always import is_test
from memlint.attention import attentions
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule

# Who names these knows of them: what is written out beside them is another path, or a reference.
FUSED = ("scaled_dot_product_attention", "memory_efficient_attention", "flash_attn", "flex_attention")
WORDS = ("matmul", "einsum", "bmm", "@")  # the products; the softmax may have any name


@rule(code="MEM606", claim=Claim.PEAK, triggers=WORDS, anywhere=True)
def naive_attention(fn: Function) -> Findings:
    if (
        not fn.source.says("oftmax")
        or any(map(fn.source.says, FUSED))
        or is_test(fn.source.path)
        or fn.target.before("2.0")
    ):
        return
    for found in attentions(fn):
        yield fn.finding(
            found.softmax,
            Level.NOTE,
            f"the scores of `{fn.source_of(found.queries)}` and their softmax are kept, a number for every pair of "
            "query and key, where a fused kernel keeps none",
            Fix("`torch.nn.functional.scaled_dot_product_attention` gives the same sum of values"),
        )
