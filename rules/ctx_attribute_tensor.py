"""A custom autograd function keeps tensors as attributes of its context."""

import ast
import re

from memlint.extract import Definition, own_nodes
from memlint.facts import Value
from memlint.function import Function
from memlint.rule import Claim, Findings, Fix, Level, rule

FUNCTION = "torch.autograd.Function"


@rule(code="MEM110", claim=Claim.PEAK, triggers=("def forward", "def setup_context"))
def ctx_attribute_tensor(fn: Function) -> Findings:
    definition = fn.definition
    cls = definition.cls
    if cls is None or definition.name not in ("forward", "setup_context") or not definition.positional:
        return
    if not definition.static:
        return  # for a torch before 1.5, which saves inputs and outputs alone
    project = fn.project
    if FUNCTION not in [project.library.canonical(b) for b in project.names.library_bases(cls)]:
        return
    context = definition.positional[0]
    backward = project.names.method(cls, "backward")
    constants = _constants(backward)
    returned = {n.id for e in fn.own("return") for n in _parts(e.expr) if isinstance(n, ast.Name)}
    for kept in fn.own("set"):
        attribute = kept.name.removeprefix(context + ".")
        if "." in attribute or not _holds_tensor(kept.value, constants):
            continue  # it lies deeper, or on something else
        if (backward is not None and _lets_go(backward.text, attribute)) or _one_a_row(fn, kept.expr):
            continue
        name = kept.expr.id if isinstance(kept.expr, ast.Name) else ""
        cost = (
            "the output and its graph node hold each other until the garbage collector finds them"
            if name in returned
            else "backward does not free it, as it frees what `save_for_backward` keeps"
        )
        yield fn.finding(
            kept.site,
            Level.WARNING,
            f"`{kept.name}` keeps {f'`{name}`' if name else 'a tensor'} outside the saved tensors: {cost}",
            Fix(f"hand it to `{context}.save_for_backward`, and read it from `{context}.saved_tensors`"),
        )


def _one_a_row(fn: Function, expression: ast.AST | None) -> bool:
    """Whether it is a vector made with one size only: a number for each row of a batch is not worth a word."""
    makes = [expression]
    if isinstance(expression, ast.Name):
        assigns = [n for n in fn.nodes_of(ast.Assign) if isinstance(n, ast.Assign)]
        makes = [n.value for n in assigns if expression.id in [ast.unparse(t) for t in n.targets]]
    return bool(makes) and all(
        isinstance(m, ast.Call)
        and ast.unparse(m.func).split(".")[-1].removeprefix("new_") in ("zeros", "ones", "empty", "full", "arange")
        and len(m.args) == 1
        and (isinstance(m.args[0], ast.Subscript) or (isinstance(m.args[0], ast.Call) and bool(m.args[0].args)))
        for m in makes
    )


def _holds_tensor(value: Value, constants: set[int]) -> bool:
    """Whether it is a tensor of some size: not a number, nor an input without gradient, which the caller owns."""
    if value.items:
        return any(_holds_tensor(i, constants) for i in value.items)
    if value.scalar or any(o.parameter in constants for o in value.objs):
        return False
    return value.kind in ("tensor", "parameter", "indices")


def _constants(backward: Definition | None) -> set[int]:
    """The parameters of forward, counted from its context, for which backward returns None."""
    returns = [n.value for n in own_nodes(backward.node) if isinstance(n, ast.Return)] if backward is not None else []
    answers = [_parts(r) for r in returns]
    return {
        i
        for i in range(1, max(map(len, answers), default=0) + 1)
        if all(len(a) >= i and isinstance(a[i - 1], ast.Constant) for a in answers)
    }


def _parts(expression: ast.AST | None) -> list[ast.expr]:
    if isinstance(expression, (ast.Tuple, ast.List)):
        return expression.elts
    return [expression] if isinstance(expression, ast.expr) else []


def _lets_go(backward: str, attribute: str) -> bool:
    """Whether the backward drops the attribute itself."""
    return re.search(rf"\.{attribute} *= *None\b|\bdel\b[^\n]*\.{attribute}\b|delattr", backward) is not None
