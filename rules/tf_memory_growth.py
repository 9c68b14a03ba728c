"""TensorFlow takes all memory of a GPU that it shares with PyTorch, or is put on by name, since nobody limits it."""

from memlint.function import Function
from memlint.keras import first_on_gpu, imported
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM801", claim=Claim.PEAK, anywhere=True)
def tf_memory_growth(fn: Function) -> Findings:
    if not imported(fn) or fn.is_test:
        return
    first = first_on_gpu(fn)
    if first is not None:
        yield fn.finding(
            first,
            Level.NOTE,
            f"`{fn.source_of(first, 40)}` makes TensorFlow take all free memory of the GPU, whatever it needs",
            Fix("before it, call `tf.config.experimental.set_memory_growth(gpu, True)` for each GPU, or set a limit"),
        )
