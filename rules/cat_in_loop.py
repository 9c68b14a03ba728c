"""A result is copied into a longer one in every iteration."""

import ast

from memlint import edits
from memlint.function import Function
from memlint.growth import extends, grown_in_loop, started_empty
from memlint.rule import Claim, Findings, Fix, Level, rule


@rule(code="MEM305", claim=Claim.CHURN, triggers=("cat(", "stack(", "concat", "append("))
def cat_in_loop(fn: Function) -> Findings:
    for stmt in () if fn.is_test else fn.nodes_of(ast.Assign):
        assert isinstance(stmt, ast.Assign)
        call = extends(fn, stmt)
        if call is None or (loop := grown_in_loop(fn, stmt, call)) is None or not fn.runs_models_in(loop):
            continue  # what small tables of numbers are made of is nobody's memory
        name = ast.unparse(stmt.targets[0])
        yield fn.finding(
            stmt,
            Level.WARNING,
            f"`{name}` is copied whole into a longer one in every iteration: what is copied grows with the square "
            "of their number, and at the peak there are two of it",
            _fix(fn, stmt, call, loop, name),
        )


def _fix(fn: Function, stmt: ast.Assign, call: ast.Call, loop: ast.stmt, name: str) -> Fix:
    """Collect the parts in a list, and join them once after the loop."""
    join = ast.unparse(call.func)
    start = started_empty(fn, loop, name)
    first = call.args[0]
    parts = first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first, *call.args[1:2]]
    reads = [n for n in ast.walk(loop) if isinstance(getattr(n, "ctx", None), ast.Load)]
    alone = sum(ast.unparse(n) == name for n in reads) == 1  # nothing else in the loop asks what is there so far
    if start is None or not alone or stmt.value is not call or len(parts) != 2 or ast.unparse(parts[0]) != name:
        return Fix(f"append to a list, and join it once after the loop with `{join}`")
    part = fn.source.segment(fn.source.span(parts[1]))
    rest = ", ".join([*(ast.unparse(a) for a in call.args[1:]), *(ast.unparse(k) for k in call.keywords)])
    if not isinstance(first, (ast.Tuple, ast.List)):  # numpy.append, which flattens what it is given
        if rest != ast.unparse(parts[1]):
            return Fix("append to a list, and join it once after the loop with `numpy.concatenate`")
        module = join.removesuffix(".append")
        part, join, rest = f"{module}.ravel({part})", f"{module}.concatenate", ""
    fix = (
        edits.replace(fn.source, start.value, "[]")
        + edits.restate(fn.source, stmt, f"{name}.append({part})")
        + edits.insert_after(fn.source, loop, f"{name} = {join}({name}{', ' if rest else ''}{rest})")
    )
    return fix.titled(f"append to a list, and write `{name} = {join}({name}, …)` after the loop").unsafe(
        "the empty start and its dtype go, and where the loop never runs there is nothing to join"
    )
