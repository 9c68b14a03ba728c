"""Loaders of data: what is known to be one, and calls that keep every batch of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.answers import LIMIT
from memlint.extract import Module, walk
from memlint.facts import Event, Value
from memlint.function import Function
from memlint.trace import note
from memlint.values import chain

FACTS = frozenset({"batch_sampler", "collate_fn", "num_workers", "drop_last"})  # what only loaders have
GATHERS = frozenset({"list", "tuple", "set", "frozenset", "sorted", "collections.deque"})
_GATHERERS = frozenset(name.rpartition(".")[2] for name in GATHERS)
_NO_LOADERS = frozenset("range len list tuple set dict sorted keys values items parameters".split())  # give none
_CALLS = ("list(", "tuple(", "set(", "sorted(", "deque(")
_GATHERS = re.compile(r"(?:list|tuple|set|sorted|deque)\((?!\))")
_ITSELF = re.compile(r"for\s+(\w+)\s+in\b")  # ``x for x in``, from its second word on: whole words are found slowly
_SPREAD = re.compile(r"\*\w")
_LOADERS = re.compile(r"oader|batch_sampler|collate_fn|num_workers|drop_last")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp)


def cycled(fn: Function) -> Iterator[Event]:
    """Calls of `itertools.cycle` on a loader: it keeps what the first pass gives."""
    for call in fn.own("call"):
        if call.receiver.type == "itertools.cycle" and call.args and is_loader(fn, call.args[0]):
            if not (small(fn, call.args[0]) or _cut_short(fn, call.site)):
                yield call


def may_gather(fn: Function) -> bool:
    """What text and syntax alone say of `gathered`: False settles it, before the function is read."""
    if not _gathers(fn.text) or not any(_may_be_loader(fn, over) for _, over in _collections(fn)):
        return False
    definition = fn.definition
    if definition.module.spells(_LOADERS):
        return True
    if definition.cls is not None and fn.project.is_module(definition.cls):
        return False  # the layers of a model have no data
    return _has_loaders(fn, definition.module) or _handed_loaders(fn)


def _may_be_loader(fn: Function, value: ast.expr) -> bool:
    """Whether syntax leaves open that an expression is a loader, or walks over one."""
    if isinstance(value, ast.Name):
        given = fn.values_of(value.id)
        other = not given or None in given or value.id in fn.definition.parameters
        return other or any(isinstance(g, ast.Name) or _may_be_loader(fn, g) for g in given if g is not None)
    if isinstance(value, ast.Call):
        return chain(value.func).rpartition(".")[2] not in _NO_LOADERS
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute):
        value = value.value
    if isinstance(value, ast.Attribute):
        return value.attr != "shape"
    return isinstance(value, (ast.Subscript, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.Await))


def _has_loaders(fn: Function, module: Module) -> bool:
    return any(map(_spells_loader, (module, *fn.project.imported(module))))


def _spells_loader(module: Module) -> bool:
    note(("spells", module, _LOADERS.pattern))
    return module.spells(_LOADERS)


def _handed_loaders(fn: Function) -> bool:
    """Whether a caller may hand over a loader, by the words of its file and of those that it imports."""
    return any(_has_loaders(fn, module) for module in {d.module for d in fn.project.within_reach(fn.definition)})


def _gathers(text: str) -> bool:
    if any(word in text for word in _CALLS) and _GATHERS.search(text):
        return True
    if any(_before(text, m.start()).endswith(m[1]) for m in _ITSELF.finditer(text)):
        return True
    return any(_before(text, m.start()).endswith(("[", "(", ",")) for m in _SPREAD.finditer(text))


def _before(text: str, place: int) -> str:
    return text[max(place - 120, 0) : place].rstrip()


def gathered(fn: Function) -> Iterator[tuple[ast.expr, str]]:
    """Expressions that put every batch of a loader into one collection, each with how the loader is spelled."""
    calls = {id(e.site): e for e in fn.own("call")}
    for node, over in _collections(fn):
        value = _source(fn, node, over, calls)
        if value is not None and is_loader(fn, value) and not small(fn, value) and not _in_memory(fn, value):
            yield node, fn.source_of(over)


def _collections(fn: Function) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Expressions that may put all that another gives into one collection, as it comes, each with that other."""
    for node in fn.nodes_of(ast.Call, ast.List, ast.Tuple, *_COMPREHENSIONS):
        if isinstance(node, ast.Call):
            bounded = (
                len(node.args) != 1 or isinstance(node.args[0], ast.Starred) or node.keywords
            )  # a deque of so many
            if not bounded and chain(node.func).rpartition(".")[2] in _GATHERERS:
                yield node, node.args[0]
        elif isinstance(node, _COMPREHENSIONS):
            over = node.generators[0]
            if len(node.generators) == 1 and isinstance(node.elt, ast.Name) and not over.ifs:
                if ast.unparse(over.target) == node.elt.id:
                    yield node, over.iter
        elif isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == 1 and isinstance(node.elts[0], ast.Starred):
            yield node, node.elts[0].value


def _source(fn: Function, node: ast.expr, over: ast.expr, calls: dict[int, Event]) -> Value | None:
    """The value of what a collection is made of."""
    if not isinstance(node, ast.Call):
        return _value_of(fn, over, calls)
    event = calls.get(id(node))
    return event.args[0] if event is not None and event.receiver.type in GATHERS and event.args else None


def _value_of(fn: Function, node: ast.expr, calls: dict[int, Event]) -> Value | None:
    """The value of an expression that is a call, or a name that has one value all through the function."""
    if isinstance(node, ast.Call):
        event = calls.get(id(node))
        return event.value if event is not None else None
    if isinstance(node, ast.Name) and fn.flow is not None:
        return fn.flow.env.get(node.id)
    return None


def is_loader(fn: Function, value: Value, depth: int = 0) -> bool:
    """Whether a value is a loader, or walks over one: by what made it, by its use, or by what all callers hand over."""
    if value.kind == "loader":
        return True
    if value.kind == "iterator" and value.receiver is not None:
        return is_loader(fn, value.receiver, depth + 1)
    if value.kind != "unknown" or depth > LIMIT:
        return False
    use = fn.project.uses(fn.definition).get(value.path) if value.path else None
    if use is not None and not FACTS.isdisjoint(use.attributes):
        return True
    obj = value.obj
    if obj is None or obj.parameter < 0 or obj.home is not fn.definition:
        return False
    if not _handed_loaders(fn):
        return False  # to read all callers for it takes long
    project = fn.project
    name = fn.definition.parameters[obj.parameter]
    given = [
        (project.function(flow.definition), project.argument(fn.definition, name, flow, call))
        for flow, call in project.callers(fn.definition)
    ]
    return bool(given) and all(v is not None and is_loader(caller, v, depth + 1) for caller, v in given)


def small(fn: Function, value: Value) -> bool:
    """Whether a loader runs over so many samples as the code itself counts out: ``Subset(data, range(32))``."""
    data = _dataset(fn, value)
    if not isinstance(data, ast.Call) or len(data.args) < 2:
        return False
    name = data.func.attr if isinstance(data.func, ast.Attribute) else getattr(data.func, "id", "")
    return name == "Subset" and not any(isinstance(n, (ast.Name, ast.Attribute)) for n in _names(data.args[1]))


def _names(node: ast.expr) -> Iterator[ast.AST]:
    functions = {id(n.func) for n in walk(node) if isinstance(n, ast.Call)}
    return (n for n in walk(node) if id(n) not in functions)


def _in_memory(fn: Function, value: Value) -> bool:
    """Whether the data is in memory anyhow: batches cut from tensors, or put together from a list."""
    data = _dataset(fn, value)
    if isinstance(data, ast.BinOp):
        data = data.left
    if isinstance(data, (ast.List, ast.ListComp)):
        return True
    name = data.func if isinstance(data, ast.Call) else None
    return (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) == "TensorDataset"


def _dataset(fn: Function, value: Value) -> ast.expr | None:
    """The expression of the data set that a loader was made for, where that is in the function's file."""
    while value.kind == "iterator" and value.receiver is not None:
        value = value.receiver
    call = value.obj.site if value.obj is not None else None
    if not isinstance(call, ast.Call):
        return None
    data = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "dataset"), None)
    if isinstance(data, ast.Name):
        binding = fn.lifetimes.reaching(data.id, data)
        return binding.value if isinstance(binding, ast.Assign) else None
    return data


def _cut_short(fn: Function, call: ast.AST) -> bool:
    """Whether only a written number of elements is ever taken: ``islice(cycle(loader), 5)``."""
    around = fn.parents.get(call)
    if not isinstance(around, ast.Call) or len(around.args) < 2 or around.args[0] is not call:
        return False
    return all(isinstance(a, ast.Constant) for a in around.args[1:])
