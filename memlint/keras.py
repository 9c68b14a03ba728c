"""Questions about TensorFlow and Keras programs: what they build again and again, and what they take of a GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlint.extract import Definition, Module, walk
from memlint.facts import Event
from memlint.function import Function
from memlint.knowledge import targets
from memlint.stems import assigned
from memlint.trace import question
from memlint.values import chain

if TYPE_CHECKING:
    from memlint.project import Project

MODEL = "keras_model"
USES = frozenset("fit fit_generator train_on_batch evaluate predict predict_on_batch".split())
KEEPERS = frozenset("append extend add insert update setdefault appendleft put".split())
HANDFUL = 32  # traces that nobody minds
CLEARED = "clear_session"
LIMITS = (
    "set_memory_growth set_virtual_device_configuration set_logical_device_configuration set_visible_devices "
    "per_process_gpu_memory_fraction allow_growth TF_FORCE_GPU_ALLOW_GROWTH CUDA_VISIBLE_DEVICES"
).split()
_ON_CUDA = re.compile(r"\.cuda\(|[\"']cuda")


def imported(fn: Function) -> bool:
    """Whether the file imports TensorFlow or Keras, or calls them by name what it gets from elsewhere."""
    module = fn.definition.module
    if not module.holds("tensorflow", "keras"):
        return False
    return any("tensorflow" in target or "keras" in target for target in targets(module))


def rebuilt(fn: Function) -> Iterator[Event]:
    """Models that are built in every round of a loop, trained or asked there, and left to the next one's place."""
    for call in fn.own("call"):
        if call.value.kind != MODEL or not isinstance(call.site, ast.Call):
            continue
        name = _bound(call)
        if not name or _made_of(call.site, name) or not _used(fn, name) or _kept(fn, name):
            continue
        around = [call.loops[-1]] if call.loops else _callers_loops(fn)
        if any(not _few(fn, loop) for loop in around) and not _clears(fn):
            yield call


def _made_of(call: ast.Call, name: str) -> bool:
    """Whether a model is a new form of the one that had its name."""
    return any(isinstance(n, ast.Name) and n.id == name for n in walk(call))


def _clears(fn: Function) -> bool:
    """Whether the session is cleared by the file, by one that it imports, or by one that calls the function."""
    module = fn.definition.module
    near = {module, *fn.project.imported(module), *(f.module for f, _ in fn.project.callers(fn.definition))}
    return any(m.holds(CLEARED) for m in near)


def _callers_loops(fn: Function) -> list[ast.AST]:
    calls = [(f, e) for f, e in fn.project.callers(fn.definition) if e.loops]
    return [e.loops[-1] for f, e in calls if not fn.project.function(f.definition).is_test]


def _bound(call: Event) -> str:
    """The name that a statement gives to what a call makes."""
    stmt = call.stmt
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and stmt.value is call.site:
        return chain(stmt.targets[0])
    return ""


def _used(fn: Function, name: str) -> bool:
    """Whether the function trains or asks the model, or hands it to one of the project that does."""
    for call in fn.own("call"):
        func = call.site.func if isinstance(call.site, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr in USES and chain(func.value) == name:
            return True
        handed = isinstance(call.site, ast.Call) and any(chain(a) == name for a in call.site.args)
        if handed and isinstance(call.callee, Definition) and any(f".{use}(" in call.callee.text for use in USES):
            return True
    return False


def _kept(fn: Function, name: str) -> bool:
    """Whether a model is put away: stored, given another name, returned."""
    if "." in name:
        return True
    for node in fn.definition.nodes:
        if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)):
            continue
        parent = fn.parents.get(node)
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
            if parent.func.attr in KEEPERS and node in parent.args:
                return True
        elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.Tuple, ast.List, ast.Dict, ast.Return, ast.Yield)):
            return True
    return False


def _few(fn: Function, loop: ast.AST) -> bool:
    """Whether a loop goes over things that are written out: the parts of a program rather than trials."""
    if not isinstance(loop, ast.For):
        return False
    over = list(assigned(fn.definition, loop.iter.id)) if isinstance(loop.iter, ast.Name) else [loop.iter]
    return bool(over) and all(isinstance(o, (ast.Tuple, ast.List)) and o.elts for o in over)


def rewrapped(fn: Function) -> Iterator[tuple[ast.AST, str]]:
    """`tf.function` made again in every round of a loop, where the last one is not put away; with its name."""
    for call in fn.own("call"):
        if call.receiver.type == "tensorflow.function" and call.loops and not _few(fn, call.loops[-1]):
            name = _bound(call)
            directly = isinstance(fn.parents.get(call.site), ast.Call)
            if directly or (name and not _kept(fn, name)):
                yield call.site, name or "tf.function(…)"
    for loop in fn.nodes_of(ast.For, ast.While):
        for node in walk(loop):
            if isinstance(node, ast.FunctionDef) and _graph(fn.project, fn.definition, node.decorator_list):
                if not _few(fn, loop) and not _kept(fn, node.name):
                    yield node, node.name


def _graph(project: Project, where: Definition, decorators: list[ast.expr]) -> ast.expr | None:
    """The decorator that makes a function a `tf.function`."""
    for decorator in decorators:
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        meaning = project.names.resolve(func, where)
        if isinstance(meaning, str) and project.library.canonical(meaning) == "tensorflow.function":
            return decorator
    return None


def retraced(fn: Function) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls of a `tf.function` with a Python number that counts the rounds of a loop, and that number."""
    if _graph(fn.project, fn.definition.module.top, list(fn.definition.decorators)) is not None:
        return  # the loop is unrolled into one graph
    for call in fn.own("call"):
        callee, site = call.callee, call.site
        if not (isinstance(callee, Definition) and isinstance(site, ast.Call) and call.loops):
            continue
        where = callee.outer or callee.module.top
        decorator = _graph(fn.project, where, list(callee.decorators))
        if decorator is None or (isinstance(decorator, ast.Call) and decorator.keywords):
            continue
        counters = {name for loop in call.loops for name in _counters(fn, loop)}
        found = next((a for a in site.args if isinstance(a, ast.Name) and a.id in counters), None)
        if found is not None:
            yield site, found


def _counters(fn: Function, loop: ast.AST) -> Iterator[str]:
    """The names that a loop counts up without end in sight: over a range that is not a handful, or an enumeration."""
    if not (isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)):
        return
    kind = chain(loop.iter.func)
    if kind == "range" and isinstance(loop.target, ast.Name):
        last = loop.iter.args[-1 if len(loop.iter.args) < 3 else 1]
        if not (isinstance(last, ast.Constant) and isinstance(last.value, int) and last.value <= HANDFUL):
            yield loop.target.id
    elif kind == "enumerate" and isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
        if isinstance(loop.iter.args[0], ast.Name):
            yield loop.target.elts[0].id


def first_on_gpu(fn: Function) -> ast.AST | None:
    """Where the function makes its file's first use of a GPU that it shares without a limit; None where it does not."""
    owner, node = _first_on_gpu(fn.project, fn.definition.module)
    return node if owner is fn.definition else None


@question(1)
def _first_on_gpu(project: Project, module: Module) -> tuple[Definition | None, ast.AST | None]:
    known = project.answers.setdefault("first on gpu", {})
    if module not in known:
        known[module] = _find_first_on_gpu(project, module)
    return known[module]  # type: ignore[no-any-return]


def _find_first_on_gpu(project: Project, module: Module) -> tuple[Definition | None, ast.AST | None]:
    placed = [(d, block) for d in module.definitions for block in _placed(project, d)]
    shared = "torch" in {t.split(".")[0] for t in module.imports.values()} and module.source.says(_ON_CUDA)
    if not (placed or shared) or any(project.mentioning(word) for word in LIMITS):
        return None, None
    found: list[tuple[Definition, ast.AST]] = []
    for definition in module.definitions:
        flow = project.flow(definition)
        for event in flow.events if flow is not None else ():
            built = event.verb == "call" and event.inner is None and event.value.kind == MODEL
            if built and event.receiver.type != "super":
                found.append((definition, event.site))
    for definition, block in placed if not found else ():
        calls = [n for stmt in block.body for n in walk(stmt) if isinstance(n, ast.Call)]
        found += [(definition, call) for call in calls[:1]]
    return min(found, key=lambda each: getattr(each[1], "lineno", 0), default=(None, None))


def _placed(project: Project, definition: Definition) -> Iterator[ast.With]:
    """The blocks under ``tf.device("/GPU:0")``."""
    for node in definition.nodes if "device(" in definition.text else ():
        for item in node.items if isinstance(node, ast.With) else ():
            context = item.context_expr
            if isinstance(context, ast.Call) and len(context.args) == 1 and isinstance(context.args[0], ast.Constant):
                named = project.names.resolve(context.func, definition)
                if (
                    named in ("tensorflow.device", "tensorflow.compat.v1.device")
                    and "GPU" in str(context.args[0].value).upper()
                ):
                    yield node  # type: ignore[misc]
