"""Keras models or graphs of `tf.function` are built again in every round, and those of earlier rounds stay."""

from memlint.function import Function
from memlint.keras import imported, rebuilt, retraced, rewrapped
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM802", claim=Claim.GROWTH, triggers=("for ", "while ", ".fit(", ".predict(", "_on_batch("), anywhere=True)
def tf_graph_growth(fn: Function) -> Findings:
    if not imported(fn) or fn.is_test:
        return
    for built in rebuilt(fn):
        yield fn.finding(
            built.site,
            Level.WARNING,
            f"`{fn.source_of(built.site, 40)}` builds a model in every round, and Keras's own state keeps what earlier "
            "rounds left in it",
            Fix(
                "build it once where it can serve again, else call `tf.keras.backend.clear_session()` before each round"
            ),
        )
    for made, name in rewrapped(fn):
        yield fn.finding(
            made,
            Level.WARNING,
            f"`{name}` is a new `tf.function` in every round, which traces and keeps a graph of its own",
            Fix("make the `tf.function` once, before the loop, and give it what changes as an argument"),
        )
    for call, number in retraced(fn):
        yield fn.finding(
            call,
            Level.WARNING,
            f"`{fn.source_of(call.func)}` is a `tf.function`, and traces a new graph for every value of the Python "
            f"number `{fn.source_of(number)}`",
            Fix(f"give it a tensor: `tf.constant({fn.source_of(number)})`"),
        )
