"""Questions about datasets: which attribute keeps a small Python object, or several, for every example."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.extract import Class, Definition, walk
from memlint.function import Function
from memlint.stems import assigned, stems
from memlint.values import chain

WRAPPERS = frozenset({"enumerate", "tqdm", "list", "sorted", "reversed", "zip", "track"})
READERS = frozenset({"csv.reader", "csv.DictReader", "jsonlines.open"})
RECORDS = frozenset({"json.load", "json.loads", "ujson.load", "ujson.loads", "orjson.loads", "ast.literal_eval"})
ROWS = frozenset({"iterrows", "itertuples"})
ARRAYS = frozenset({"torch", "numpy", "PIL", "cv2", "pandas", "pyarrow", "array"})

_FILES = re.compile(r"open|read|load")
ENTRY = "an object"  # of a database, which has the example itself
DEPTH = 3  # methods that a dataset's ``__getitem__`` goes through
STEPS = 6  # names and helpers that a value goes through: a name may be made from itself, ``lines = lines[1:]``


@dataclass
class Kept:
    """Python objects of every example in one attribute: where they are put there, and what they are."""

    site: ast.stmt
    attribute: str
    what: str


def kept(fn: Function) -> Iterator[Kept]:
    """The attributes of a dataset that this method fills with Python objects, as many as its data has."""
    cls, me = fn.definition.cls, fn.definition.positional[:1]
    if cls is None or not fn.definition.bound:
        return
    for node in fn.definition.nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            name = next((chain(t) for t in targets if isinstance(t, ast.Attribute)), "")
            what = _collection(fn, node.value) if name.startswith(f"{me[0]}.") else ""
        elif isinstance(node, ast.Expr) and (call := _append(node)) is not None:
            name = chain(call.func.value)  # type: ignore[attr-defined]
            what = _in_loop(fn, node, call.args[0]) if name.startswith(f"{me[0]}.") else ""
        else:
            continue
        attribute = name.partition(".")[2]
        if (
            what
            and "." not in attribute
            and _by_index(fn, cls, attribute, what != ENTRY)
            and not _replaced(fn, cls, attribute, node.value)
        ):
            yield Kept(node, attribute, what)


def _append(node: ast.Expr) -> ast.Call | None:
    call = node.value
    append = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append"
    return call if append and isinstance(call, ast.Call) and len(call.args) == 1 else None


def _collection(fn: Function, value: ast.expr, depth: int = 0) -> str:
    """What an expression collects, an object for every example; "" where that is not known."""
    if depth > STEPS:
        return ""
    if isinstance(value, ast.Name):
        for node in fn.definition.nodes:
            if isinstance(node, ast.Expr) and (call := _append(node)) and chain(call.func.value) == value.id:  # type: ignore[attr-defined]
                if what := _in_loop(fn, node, call.args[0]):
                    return what
        return next((w for v in assigned(fn.definition, value.id) if (w := _collection(fn, v, depth + 1))), "")
    if isinstance(value, ast.Subscript):
        return _collection(fn, value.value, depth)
    if isinstance(value, (ast.ListComp, ast.DictComp)):
        element = value.elt if isinstance(value, ast.ListComp) else value.value
        return _of(fn, element, value.generators[0].iter, value)
    if isinstance(value, ast.Call):
        named = fn.project.names.resolve(value.func, fn.definition)
        if isinstance(named, Definition):
            other = fn.project.function(named)
            returned = [n.value for n in named.nodes if isinstance(n, ast.Return) and n.value is not None]
            return next((w for v in returned if (w := _collection(other, v, depth + 1))), "")
        if named == "json.load" or named in READERS:
            return "a parsed record" if named == "json.load" else ""
        if chain(value.func) == "list" and value.args:
            inner = value.args[0]
            return "a row of strings" if isinstance(inner, ast.Call) and _reader(fn, inner) else ""
        if isinstance(value.func, ast.Attribute) and value.func.attr == "to_dict" and "records" in _strings(value):
            return "a dict"
    return ""


def _in_loop(fn: Function, stmt: ast.stmt, element: ast.expr) -> str:
    """What a statement of a loop stores an example, where the loop goes over as much as the data has."""
    node: ast.AST | None = stmt
    while node is not None and node is not fn.node:
        node = fn.parents.get(node)
        if isinstance(node, ast.For) and (what := _of(fn, element, node.iter, node)):
            return what
    return ""


def _of(fn: Function, element: ast.expr, over: ast.expr, loop: ast.AST) -> str:
    over = _unwrapped(over)
    if _counted_by_database(fn, over):
        return "" if _arrays(fn, element) else ENTRY
    return _record(fn, element, loop, 0) if _lines(fn, over) else ""


def _unwrapped(over: ast.expr) -> ast.expr:
    while isinstance(over, ast.Call) and over.args and chain(over.func).rpartition(".")[2] in WRAPPERS:
        over = over.args[0]
    return over


def _lines(fn: Function, over: ast.expr, depth: int = 0) -> bool:
    """Whether an iteration takes one line of a file, or one row of a table, after the other."""
    if depth > STEPS:
        return False
    if isinstance(over, ast.Name):
        opened = any(
            isinstance(item.optional_vars, ast.Name)
            and item.optional_vars.id == over.id
            and _opens(fn, item.context_expr)
            for node in fn.nodes_of(ast.With)
            for item in node.items  # type: ignore[attr-defined]
        )
        return opened or any(_opens(fn, v) or _lines(fn, v, depth + 1) for v in assigned(fn.definition, over.id))
    if isinstance(over, ast.Subscript):
        return _lines(fn, over.value, depth)
    if not isinstance(over, ast.Call):
        return False
    if _opens(fn, over) or _reader(fn, over):
        return True
    if isinstance(over.func, ast.Attribute):
        attr, owner = over.func.attr, over.func.value
        if attr in ("splitlines", "split"):
            return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "read"
        return attr in ROWS or (attr == "readlines" and (_lines(fn, owner, depth) or isinstance(owner, ast.Call)))
    return False


def _opens(fn: Function, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = chain(value.func)
    return name in ("open", "gzip.open", "io.open", "codecs.open") or name.endswith(".open")


def _reader(fn: Function, call: ast.Call) -> bool:
    return fn.project.names.resolve(call.func, fn.definition) in READERS


def _record(fn: Function, element: ast.expr, loop: ast.AST, depth: int) -> str:
    """What kind of Python object of several an example is; "" for strings and numbers, and where arrays are in it."""
    if depth > 3 or _arrays(fn, element):
        return ""
    if isinstance(element, ast.Name):
        bound = [v for n in walk(loop) if isinstance(n, ast.Assign) for v in _bound(n, element.id)]
        return next((w for v in bound if (w := _record(fn, v, loop, depth + 1))), "")
    if isinstance(element, (ast.Dict, ast.Tuple, ast.List, ast.DictComp, ast.ListComp)):
        return "a " + {"Dict": "dict", "DictComp": "dict", "Tuple": "tuple"}.get(type(element).__name__, "list")
    if isinstance(element, ast.Call):
        if fn.project.names.resolve(element.func, fn.definition) in RECORDS:
            return "a parsed record"
        if chain(element.func) in ("dict", "tuple", "list"):
            return f"a {chain(element.func)}"
        if isinstance(element.func, ast.Attribute) and element.func.attr in ("split", "rsplit"):
            return "a list"
    return ""


def _bound(node: ast.Assign, name: str) -> Iterator[ast.expr]:
    if any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
        yield node.value


def _arrays(fn: Function, element: ast.expr) -> bool:
    """Whether arrays, tensors or images are made for the element: what is large is then in those."""
    for node in walk(element):
        if isinstance(node, ast.Call):
            meaning = fn.project.names.resolve(node.func, fn.definition)
            if isinstance(meaning, str) and meaning.partition(".")[0] in ARRAYS:
                return True
    return False


def _counted_by_database(fn: Function, over: ast.expr) -> bool:
    """Whether it is a range up to a number that an LMDB transaction gives: such data sets have millions of entries."""
    if not (isinstance(over, ast.Call) and chain(over.func) == "range" and over.args):
        return False
    return any(
        isinstance(stem, ast.Call) and isinstance(stem.func, ast.Attribute) and stem.func.attr == "get"
        and chain(stem.func.value) in _transactions(where.node)
        for where, stem in stems(fn.project, fn.definition, over.args[-1])
    )  # fmt: skip


def _transactions(node: ast.AST) -> set[str]:
    return {
        chain(item.optional_vars)
        for n in walk(node)
        if isinstance(n, ast.With)
        for item in n.items
        if item.optional_vars is not None
        and isinstance(item.context_expr, ast.Call)
        and isinstance(item.context_expr.func, ast.Attribute)
        and item.context_expr.func.attr == "begin"
    }


def _by_index(fn: Function, cls: Class, attribute: str, whole: bool) -> bool:
    """Whether ``__getitem__`` takes one element of it, by a number that it is asked for.

    With ``whole``, the example must be in that element. Where a file is then opened, that is far larger than what is
    kept of it, and there are no millions of files.
    """
    getitem = fn.project.names.method(cls, "__getitem__")
    if getitem is None or len(getitem.positional) < 2:
        return False
    me = getitem.positional[0]
    taken = any(
        isinstance(n, ast.Subscript) and chain(n.value) == f"{me}.{attribute}" and not isinstance(n.slice, ast.Constant)
        for n in getitem.nodes
    )
    return taken and not (whole and _reads_files(fn, cls, getitem, 0))


def _reads_files(fn: Function, cls: Class, method: Definition, depth: int) -> bool:
    """Whether a method, or one that it calls on the same object, opens or loads something."""
    for node in method.nodes:
        if isinstance(node, ast.Call):
            name = chain(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
            if _FILES.search(name.rpartition(".")[2]):
                return True
            owner, _, last = name.rpartition(".")
            inner = fn.project.names.method(cls, last) if owner == method.positional[0] else None
            if inner is not None and depth < DEPTH and _reads_files(fn, cls, inner, depth + 1):
                return True
    return False


def _replaced(fn: Function, cls: Class, attribute: str, by: ast.expr | None) -> bool:
    """Whether what is collected is made into something else afterwards, an array or a table."""
    values = [
        v
        for writer in fn.project.writers(cls, attribute)
        for v in assigned(writer, f"{writer.positional[0]}.{attribute}")
    ]
    return any(v is not by and isinstance(v, ast.Call) and _arrays(fn, v) for v in values)


def _strings(call: ast.Call) -> set[object]:
    return {n.value for n in walk(call) if isinstance(n, ast.Constant)}
