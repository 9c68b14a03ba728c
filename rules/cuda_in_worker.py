"""Examples go to the device in the worker processes of a loader, each of which opens a CUDA context of its own."""

import ast

from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, Step, rule
from memlint.stems import stems
from memlint.workers import runs_in_worker

MOVES = (".cuda(", ".to(", "device=")


@rule(code="MEM403", claim=Claim.KEPT, triggers=MOVES, anywhere=True)
def cuda_in_worker(fn: Function) -> Findings:
    if isinstance(fn.node, ast.Module) or not fn.definition.module.holds("Dataset", "IterableDataset", "collate_fn"):
        return
    moves = [n for n in fn.definition.nodes if isinstance(n, ast.Call) and _to_device(fn, n) and _happens(fn, n)]
    loading = runs_in_worker(fn.project, fn.definition) if moves else None
    if loading is not None:
        first = min(moves, key=lambda n: (n.lineno, n.col_offset))
        source = loading.flow.module.source
        yield fn.finding(
            first,
            Level.WARNING,
            f"`{fn.source_of(first)}` runs in the loader's worker processes, and each of them opens a CUDA context",
            Fix(
                "give examples out on the host, and move each batch in the loop that takes it (`pin_memory=True` helps)"
            ),
            (Step(source.path, source.span(loading.event.site).line, "the loader with workers is made here"),),
        )


def _to_device(fn: Function, call: ast.Call) -> bool:
    """Whether a call is known to put a tensor on a CUDA device."""
    named = {k.arg: k.value for k in call.keywords}
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("cuda", "to"):
        place = named.get("device", call.args[0] if call.args else None)
        return (place is None and call.func.attr == "cuda") or _is_cuda(fn, place)
    meaning = fn.project.names.resolve(call.func, fn.definition) if "device" in named else None
    return isinstance(meaning, str) and meaning.startswith("torch.") and _is_cuda(fn, named["device"])


def _happens(fn: Function, call: ast.Call) -> bool:
    """Whether no condition around a call asks for more than a device: a flag may be there to keep workers off it."""
    node: ast.AST = call
    while (above := fn.parents.get(node)) is not None and node is not fn.node:
        if isinstance(above, (ast.If, ast.IfExp)) and node is not above.test:
            then = above.body if isinstance(above.body, list) else [above.body]
            if node not in then or not _asks_for_device(fn, above.test):
                return False
        node = above
    return True


def _asks_for_device(fn: Function, test: ast.expr) -> bool:
    if "is_available" in ast.unparse(test):
        return not isinstance(test, ast.UnaryOp)
    return any(isinstance(s, ast.Constant) and s.value is True for _, s in stems(fn.project, fn.definition, test))


def _is_cuda(fn: Function, place: ast.expr | None) -> bool:
    for where, stem in stems(fn.project, fn.definition, place):
        if isinstance(stem, ast.Call) and stem.args and fn.project.names.resolve(stem.func, where) == "torch.device":
            if any(_says_cuda(inner) for _, inner in stems(fn.project, where, stem.args[0])):
                return True
        elif _says_cuda(stem):
            return True
    return False


def _says_cuda(stem: ast.expr) -> bool:
    first = stem.values[0] if isinstance(stem, ast.JoinedStr) and stem.values else stem
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith("cuda")
