"""An evaluation gathers the scores of a whole vocabulary for every position, though a metric needs far less."""

import ast

from memlint.extract import Class
from memlint.facts import UNKNOWN, Event, Value
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule

LETS_GO = frozenset(
    """preprocess_logits_for_metrics eval_accumulation_steps batch_eval_metrics prediction_loss_only
    predict_with_generate""".split()
)
SEQUENCES = "transformers.Seq2SeqTrainer"
GIVEN = frozenset({"function", "instance", "library"})
GATHERS = frozenset({"prediction_step", "prediction_loop", "evaluation_loop", "evaluate"})


@rule(code="MEM702", claim=Claim.PEAK, triggers=("compute_metrics",), anywhere=True)
def hf_eval_hoard(fn: Function) -> Findings:
    for call in fn.own("call"):
        metrics = call.keywords.get("compute_metrics")
        if metrics is None or not _measures(fn, metrics) or not _trains(fn, call.receiver) or _released(fn, call):
            continue
        if _scores_words(fn, call.receiver) or _scores_words(fn, _given(call, "model", 0)):
            yield fn.finding(
                call.site,
                Level.WARNING,
                "every evaluation keeps the scores of the whole vocabulary, for each position of each example, on the "
                "device until the last batch, and `compute_metrics` sees them only then",
                Fix("pass `preprocess_logits_for_metrics`, which reduces each batch, or set `eval_accumulation_steps`"),
            )


def _given(call: Event, name: str, position: int) -> Value:
    return call.keywords.get(name, call.args[position] if len(call.args) > position else UNKNOWN)


def _measures(fn: Function, metrics: Value) -> bool:
    """Whether it is known to be something to call, and not None, here or in what a caller hands over."""
    if metrics.kind in GIVEN:
        return True
    name = fn.definition.parameters[metrics.obj.parameter] if metrics.obj and metrics.obj.parameter >= 0 else ""
    handed = (fn.project.argument(fn.definition, name, *call) for call in fn.project.callers(fn.definition) if name)
    return any(value is not None and value.kind in GIVEN for value in handed)


def _trains(fn: Function, made: Value) -> bool:
    """Whether it is a Trainer that gathers predictions in the library's own way."""
    mro = fn.project.names.mro(made.target) if isinstance(made.target, Class) else []
    own = any(not GATHERS.isdisjoint(c.methods) for c in mro if isinstance(c, Class))
    return not own and not _bases(fn, made).isdisjoint({"transformers.Trainer", SEQUENCES})


def _bases(fn: Function, made: Value) -> set[str]:
    """The library's classes that an object, or a class of the project, is or derives from."""
    names = (
        [c for c in fn.project.names.mro(made.target) if isinstance(c, str)]
        if isinstance(made.target, Class)
        else [made.type]
    )
    library = fn.project.library
    return {b for n in names for b in (library.canonical(n), *library.bases(n))}


def _released(fn: Function, call: Event) -> bool:
    """Whether scores are, or may be, reduced or taken off the device before the end."""
    if "**" in call.keywords:
        return True
    site = _given(call, "args", 1).site
    made = fn.project.names.resolve(site.func, fn.definition) if isinstance(site, ast.Call) else None
    if isinstance(site, ast.Call) and isinstance(made, str) and made.endswith(("TrainingArguments", "SFTConfig")):
        return any(k.arg is None for k in site.keywords) or any(w in fn.text for w in LETS_GO)
    if SEQUENCES in _bases(fn, call.receiver):
        return True  # whether it generates is for the command line to say
    return fn.definition.module.holds(*sorted(LETS_GO))


def _scores_words(fn: Function, value: Value) -> bool:
    cls = fn.project.class_named(value.type)
    names = list(fn.project.names.library_bases(cls)) if cls is not None else [value.type]
    return any((row := fn.project.library.lookup(n)) is not None and "vocabulary" in row for n in names)
