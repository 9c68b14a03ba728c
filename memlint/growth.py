"""Questions about attributes, globals and default arguments that grow for as long as the program runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.extract import Class, Definition, Module, walk
from memlint.facts import Answer, Event, Obj, Value
from memlint.function import CONSTRUCTORS, Function
from memlint.values import chain, written

GROWS = (*".append( .extend( .insert( .appendleft( .add( .setdefault( .put( cat( stack( concat".split(), "] =", "]=")
ADDS = frozenset({"append", "extend", "insert", "appendleft", "add", "item", "setdefault", "put"})
# Methods that the library says to do so; `setdefault` replaces nothing, and so never makes an entry at every call.
ADDERS = ADDS - {"item", "setdefault"} | {"extendleft", "__iadd__", "put_nowait", "update", "add_param_group"}
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Constant)


def may_grow(fn: Function) -> bool:
    """What text and syntax alone say of `unbounded` and `regrown`: False settles it, before the function is read."""
    return _sees_lasting(fn) and any(_may_add(fn, n) for n in fn.nodes_of(ast.Call, ast.Assign, ast.AugAssign))


def _may_add(fn: Function, node: ast.AST) -> bool:
    """Whether a call or a statement may make longer what was there before the function was called."""
    if isinstance(node, ast.Call):
        method = node.func
        return isinstance(method, ast.Attribute) and method.attr in ADDERS and not _of_this_call(fn, method.value)
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and not _of_this_call(fn, node.target)
    assert isinstance(node, ast.Assign)
    target = node.targets[0]
    if isinstance(target, ast.Subscript) and _may_be_new(fn, chain(target.slice)):
        return not _of_this_call(fn, target.value)
    if isinstance(target, ast.Name) and not _declared(fn, target.id):
        return False
    return extends(fn, node) is not None


def _declared(fn: Function, name: str) -> bool:
    """Whether a function says that a name is not its own."""
    return any(name in n.names for n in fn.nodes_of(ast.Global, ast.Nonlocal))  # type: ignore[attr-defined]


def _of_this_call(fn: Function, holder: ast.expr) -> bool:
    """Whether a name holds what the function has just made, what its caller has handed over, or a library."""
    if not isinstance(holder, ast.Name) or _declared(fn, holder.id):
        return False
    name, definition, given = holder.id, fn.definition, fn.values_of(holder.id)
    if not all(g is not None and _makes(fn, g) for g in given):
        return False
    if name in definition.parameters:
        return not isinstance(definition.defaults.get(name), (ast.List, ast.Dict, ast.Set))
    return bool(given) or isinstance(fn.project.names.local(name, definition), str)


def _makes(fn: Function, value: ast.expr) -> bool:
    """Whether an expression makes something new: a container, a tensor, what a layer of the module returns."""
    if not isinstance(value, ast.Call):
        return isinstance(value, _DISPLAYS)
    func, definition = value.func, fn.definition
    if isinstance(func, ast.Name) and func.id in ("list", "dict", "set"):
        return True
    name = chain(func.value if isinstance(func, ast.Subscript) else func)
    if definition.cls is not None and definition.bound and name.count(".") == 1:
        me, _, attr = name.partition(".")
        if me == definition.positional[0]:
            return fn.project.names.method(definition.cls, attr) is None
    meaning = fn.project.names.resolve(func, definition)
    row = fn.project.library.lookup(meaning) if isinstance(meaning, str) else None
    return row is not None and (row.returns == "tensor" or bool(row.kind))


def _may_be_new(fn: Function, key: str) -> bool:
    """What this function alone says of `_new_key`."""
    return key in fn.definition.parameters or _counted(fn.definition, key)


def _sees_lasting(fn: Function) -> bool:
    """Whether text has anything in the function's reach that outlives its call, and may be a container."""
    definition = fn.definition
    if definition.cls is not None and fn.project.is_module(definition.cls):
        return True
    if "global " in fn.text or any(isinstance(d, (ast.List, ast.Dict, ast.Set)) for d in definition.defaults.values()):
        return True
    module, names = definition.module, fn.project.names
    meant = (names.local(word, definition) for word in definition.words & (module.variables.keys() | module.imports))
    return any(isinstance(m, Module) or (isinstance(m, ast.expr) and _may_hold(m)) for m in meant)


def _may_hold(value: ast.expr) -> bool:
    """Whether the first value of a global may be a container."""
    if isinstance(value, ast.Call):
        return (
            chain(value.func).rpartition(".")[2].lower().endswith(("list", "dict", "set", "deque", "counter", "queue"))
        )
    return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.BinOp))


def unbounded(fn: Function, store: Event) -> bool:
    """Whether a store makes a module's attribute, a global or a default argument grow, and nothing ever cuts it."""
    obj = store.target
    if obj is None or not obj.shared or obj.bounded or store.name not in ADDS or store.inner is not None:
        return False
    if not _lasting(fn, obj) or not holds_tensor(fn, store.value) or not _unguarded(fn, store):
        return False
    if store.name in ("item", "setdefault") and not _new_key(fn, store):
        return False
    if store.name == "add" and obj.kind != "set":
        return False
    if not (store.loops or fn.project_repeats()) or fn.definition.name in CONSTRUCTORS:
        return False
    if _framework(fn) or _filled_up(fn, store):
        return False
    fn.project.settle(obj)
    return not any(c[0].name not in CONSTRUCTORS for c in obj.clears) and not cut(fn, obj)


def _filled_up(fn: Function, store: Event) -> bool:
    """Whether a loop adds what is missing up to a number: it begins at the length, or goes on below it."""
    for loop in store.loops:
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and chain(loop.iter.func) == "range":
            if len(loop.iter.args) > 1 and _length(loop.iter.args[0]):
                return True
        elif isinstance(loop, ast.While) and isinstance(loop.test, ast.Compare):
            if _length(loop.test.left) and isinstance(loop.test.ops[0], (ast.Lt, ast.LtE, ast.NotEq)):
                return True
    return False


def _length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and chain(node.func) == "len"


def _framework(fn: Function) -> bool:
    """Whether a training framework calls the method, with its own ideas of what is collected over an epoch."""
    cls = fn.definition.cls
    if cls is None:
        return False
    bases = fn.project.names.library_bases(cls)
    return any(fn.project.library.hook(b, fn.definition.name) for b in bases if b != "torch.nn.Module")


def _lasting(fn: Function, obj: Obj) -> bool:
    owner = obj.owner
    if isinstance(owner, Class):
        return fn.project.is_module(owner)
    if isinstance(owner, Module):
        return fn.definition is not owner.top
    return isinstance(owner, Definition)


def holds_tensor(fn: Function, value: Value, depth: int = 0) -> bool:
    """Whether it is known to be, or to hold, a tensor of more than one number."""
    if depth > 3:
        return False
    if value.items is not None:
        return any(holds_tensor(fn, item, depth + 1) for item in value.items)
    if value.kind in ("list", "dict") and value.obj is not None and value.obj.elem is not None:
        return any(holds_tensor(fn, v, depth + 1) for v in value.obj.items.values() or (value.obj.elem,))
    if value.kind in ("tensor", "indices"):
        return not value.scalar
    return value.kind == "unknown" and (value.device == "device" or fn.makes(value) is Answer.YES)


def _unguarded(fn: Function, store: Event) -> bool:
    """Whether it happens at every call: neither a flag asks for it nor a test of the container stops it."""
    return all("training" in text for text, _ in store.guards)


def _new_key(fn: Function, store: Event) -> bool:
    """Whether each store takes another key: a counter that nothing sets back."""
    site = store.site
    target = site.targets[0] if isinstance(site, ast.Assign) else None
    if not isinstance(target, ast.Subscript):
        return False
    key = chain(target.slice)
    if _counted(fn.definition, key):
        return True
    if key not in fn.definition.parameters:
        return False
    return any(
        _counted(flow.definition, chain(argument))
        for flow, event in fn.project.callers(fn.definition)
        if isinstance(event.site, ast.Call)
        for argument in _given(fn.definition, key, event.site)
    )


def _given(definition: Definition, name: str, call: ast.Call) -> Iterator[ast.expr]:
    names = definition.positional[1:] if definition.bound else definition.positional
    yield from (a for n, a in zip(names, call.args, strict=False) if n == name)
    yield from (k.value for k in call.keywords if k.arg == name)


def _counted(definition: Definition, name: str) -> bool:
    """Whether a name is a counter: only ever started and counted up."""
    if not name:
        return False
    counts = False
    owners: tuple[Definition, ...] = (definition,)
    if "." in name and definition.cls is not None:
        owners = tuple(definition.cls.methods.values())
    for owner in owners:
        for node in owner.nodes:
            if isinstance(node, ast.AugAssign) and chain(node.target) == name:
                counts = counts or isinstance(node.op, ast.Add)
            elif (
                isinstance(node, ast.Assign)
                and any(chain(t) == name for t in node.targets)
                and not isinstance(node.value, ast.Constant)
            ):
                return False
    return counts


def cut(fn: Function, obj: Obj) -> bool:
    """Whether any code that mentions the place, whatever it takes it for, empties, replaces or cuts it."""
    name = obj.name.removeprefix("self.")
    if not name.isidentifier():
        return True
    n = re.escape(name)
    empties = (
        rf"\b{n}\s*\.\s*(?:clear|pop|popleft|popitem|remove)\b|\bdel\s[^\n]*\b{n}\b"
        rf"|\b{n}\s*\[[^\]\n]*:[^\]\n]*\]\s*=[^=]"
    )
    replaces = rf"{empties}|\b{n}\s*(?::[^=\n]+)?=[^=]|['\"]{n}['\"]"
    for definition in fn.project.mentioning(name):
        if definition is obj.owner:  # a default argument: assigning to its name only hides it
            words = empties
        elif definition.name in CONSTRUCTORS or isinstance(definition.node, ast.Module):
            continue
        else:
            words = replaces
        if re.search(words, _body(definition)):
            return True
    return False


def _body(definition: Definition) -> str:
    """The text without its head, whose default arguments are no assignments."""
    body = definition.body
    first = getattr(body[0], "lineno", 1) if body else 1
    last = getattr(definition.node, "end_lineno", None) or len(definition.module.source.lines)
    return "".join(definition.module.source.lines[first - 1 : last])


def regrown(fn: Function) -> Iterator[Event]:
    """Assignments such as ``self.seen = torch.cat([self.seen, x])`` in a module that never cuts the attribute."""
    cls = fn.definition.cls
    if cls is None or "self" not in fn.text or not fn.project.is_module(cls) or fn.definition.name in CONSTRUCTORS:
        return
    for event in fn.own("set"):
        obj, stmt = event.target, event.site
        if obj is None or not obj.shared or not isinstance(stmt, ast.Assign) or event.guards:
            continue
        if extends(fn, stmt) is None or not (event.loops or fn.project_repeats()):
            continue
        fn.project.settle(obj)
        others = [d for d in fn.project.writers(cls, obj.name.removeprefix("self.")) if d is not fn.definition]
        if all(d.name in CONSTRUCTORS for d in others) and not _cut_elsewhere(fn, obj):
            yield event


def _cut_elsewhere(fn: Function, obj: Obj) -> bool:
    name = re.escape(obj.name.removeprefix("self."))
    assigned = re.compile(rf"\b{name}\s*(?:\[[^\]]*\])?\s*=[^=]|['\"]{name}['\"]|del [^\n]*\b{name}\b")
    found = [d for d in fn.project.mentioning(name) if assigned.search(_body(d)) and d.name not in CONSTRUCTORS]
    return any(d is not fn.definition or len(assigned.findall(_body(d))) > 1 for d in found)


JOINS = frozenset(
    [f"torch.{n}" for n in ("cat", "concat", "concatenate", "hstack", "vstack", "stack")]
    + [f"numpy.{n}" for n in ("append", "concatenate", "vstack", "hstack", "row_stack", "column_stack")]
)


def extends(fn: Function, stmt: ast.Assign) -> ast.Call | None:
    """The call by which a statement makes a longer copy of what it assigns to: ``t = torch.cat([t, x])``."""
    if len(stmt.targets) != 1:
        return None
    name = written(stmt.targets[0])
    branches = [stmt.value]
    if isinstance(stmt.value, ast.IfExp):
        branches = [stmt.value.body, stmt.value.orelse]
    for value in branches:
        if not isinstance(value, ast.Call) or not value.args:
            continue
        meaning = fn.project.names.resolve(value.func, fn.definition)
        if not isinstance(meaning, str) or fn.project.library.canonical(meaning) not in JOINS:
            continue
        first = value.args[0]
        parts = first.elts if isinstance(first, (ast.Tuple, ast.List)) else value.args[:2]
        if any(written(p) == name for p in parts) and len(parts) > 1:
            return value
    return None


def grown_in_loop(fn: Function, stmt: ast.Assign, call: ast.Call) -> ast.stmt | None:
    """The loop in which a result is only ever made longer, where nothing in the loop reads it; None if there is none.

    It is the outermost loop around the statement that does not start the result anew.
    """
    name = written(stmt.targets[0])
    root = chain(stmt.targets[0])
    if not root or "." in root or _reads(call, name) != 1 or _now_and_then(fn, stmt):
        return None
    found: ast.stmt | None = None
    node: ast.AST | None = stmt
    while node is not None and node is not fn.node:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            if _few(fn, node) and found is None:
                return None
            if _started(fn, node, name, stmt):
                break
            if not all(_idle(fn, n, stmt) for n in _loads(node, name)):
                return None  # the longer result is what a later round works on
            found = node
        node = fn.parents.get(node)
    return found


def _now_and_then(fn: Function, stmt: ast.Assign) -> bool:
    """Whether a result grows only in some rounds: under a condition that does not ask whether it is there, or a try."""
    node: ast.AST | None = fn.parents.get(stmt)
    while node is not None and not isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        if isinstance(node, (ast.Try, ast.ExceptHandler)):
            return True
        if isinstance(node, ast.If) and not any(
            ast.unparse(stmt.targets[0]) in ast.unparse(n) for n in _loads_in(node.test)
        ):
            return not _first_round(node.test)
        node = fn.parents.get(node)
    return False


def _loads_in(test: ast.expr) -> list[ast.expr]:
    return [n for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute))]


def _first_round(test: ast.expr) -> bool:
    """``if i == 0``, ``if i > 0``, ``if first``: the first round starts the result, the others make it longer. What
    ``if i % 100 == 0`` asks comes back."""
    return isinstance(test, ast.Name) or (
        isinstance(test, ast.Compare)
        and len(test.comparators) == 1
        and isinstance(test.comparators[0], ast.Constant)
        and not any(isinstance(n, ast.Mod) for n in ast.walk(test.left))
    )


def _reads(node: ast.AST, name: str) -> int:
    return sum(1 for _ in _loads(node, name))


def _loads(node: ast.AST, name: str) -> Iterator[ast.AST]:
    for n in walk(node):
        read = isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Load)
        if read and ast.unparse(n) == name:
            yield n


def _few(fn: Function, loop: ast.AST) -> bool:
    """Whether a loop goes over a handful of things: written out, or as many as a model has layers or branches."""
    return isinstance(loop, ast.For) and _handful(fn, loop.iter)


def _handful(fn: Function, over: ast.expr) -> bool:
    if isinstance(over, (ast.Tuple, ast.List)):
        return True
    if isinstance(over, ast.Call):
        name = chain(over.func)
        if name == "range" and over.args:
            last = _number(fn, over.args[1 if len(over.args) > 1 else 0])
            if last is not None:
                return last <= HANDFUL
        if name in ("range", "enumerate", "zip", "reversed", "len", "list"):
            return any(_handful(fn, a) for a in over.args)
        return False
    return isinstance(over, ast.Attribute) and chain(over).startswith("self.")  # set when the model is built


def _number(fn: Function, node: ast.expr) -> int | None:
    """A whole number that is written out, or is a constant of the file, or a sum of such."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else None
    if isinstance(node, ast.Name) and fn.definition is not fn.definition.module.top:
        constant = fn.definition.module.variables.get(node.id)
        return _number(fn, constant) if isinstance(constant, ast.Constant) else None
    if isinstance(node, ast.Name):
        constant = fn.definition.module.variables.get(node.id)
        return _number(fn, constant) if isinstance(constant, ast.Constant) and node.id.isupper() else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, right = _number(fn, node.left), _number(fn, node.right)
        if left is not None and right is not None:
            return left + right if isinstance(node.op, ast.Add) else left - right
    return None


def _started(fn: Function, loop: ast.AST, name: str, stmt: ast.AST) -> bool:
    """Whether the body gives the result a first value in every iteration, rather than under ``if result is None``."""
    for node in walk(loop):
        if node is not stmt and isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [ast.unparse(e) for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
            if name in names and not _branch_of(fn, node, name) and node.value is not None:
                return True
        elif isinstance(node, ast.For) and any(ast.unparse(n) == name for n in walk(node.target)):
            return True
    return False


def _branch_of(fn: Function, node: ast.AST, name: str) -> bool:
    """Whether it is what ``if result is None:`` or ``if i == 0:`` guards."""
    above = fn.parents.get(node)
    if not isinstance(above, ast.If):
        return False
    test = above.test
    first = (
        isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and ast.unparse(test.comparators[0]) == "0"
    )
    return first or _reads(test, name) > 0


def _asks_whether_there(parent: ast.AST | None) -> bool:
    """``t is None``, ``len(t)``, ``t.shape``, ``not t``: what reads nothing of what is in it."""
    if isinstance(parent, ast.Compare):
        return isinstance(parent.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq))
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("shape", "size", "numel", "ndim", "dim")
    if isinstance(parent, ast.Call):
        return chain(parent.func) in ("len", "isinstance", "bool")
    return isinstance(parent, (ast.If, ast.IfExp, ast.UnaryOp, ast.BoolOp))


def _idle(fn: Function, node: ast.AST, stmt: ast.Assign) -> bool:
    """Whether a read is that of the statement itself, or only asks whether there is anything yet."""
    above: ast.AST | None = node
    while above is not None and not isinstance(above, ast.stmt):
        parent = fn.parents.get(above)
        if isinstance(parent, (ast.If, ast.IfExp)) and parent.test is above:
            return _asks_whether_there(fn.parents.get(node))
        above = parent
    if above is stmt:
        return True
    branch = fn.parents.get(above) if above is not None else None
    return isinstance(above, ast.Assign) and isinstance(branch, ast.If) and extends(fn, above) is not None


HANDFUL = 32  # rounds that nobody counts
EMPTY = re.compile(
    r"\.(?:empty|zeros|rand|randn)\(\(?0\b|\.tensor\(\[\]|\.(?:Float|Long|Bool|Int)?Tensor\(\)|\.array\(\[\]|\(\[\]"
)


def started_empty(fn: Function, loop: ast.stmt, name: str) -> ast.Assign | None:
    """The statement before the loop that starts a result as nothing: ``torch.empty(0, 4)``, ``np.array([])``."""
    parent = fn.parents.get(loop)
    block = next((v for _, v in ast.iter_fields(parent) if isinstance(v, list) and loop in v), []) if parent else []
    for stmt in reversed(block[: block.index(loop)] if loop in block else []):
        if isinstance(stmt, ast.Assign) and [ast.unparse(t) for t in stmt.targets] == [name]:
            return stmt if EMPTY.search(ast.unparse(stmt.value)) else None
        if _reads(stmt, name):
            return None
    return None
