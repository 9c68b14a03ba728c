"""What a program loads from files: whether it is a checkpoint, and onto which device its tensors go."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.answers import LIMIT
from memlint.extract import Definition, Module
from memlint.facts import UNKNOWN, Event, Obj, Value
from memlint.function import Function
from memlint.reading import NESTING
from memlint.roles import MODULE, OPTIMIZER, SWITCHES, Use
from memlint.trace import note
from memlint.values import LOADED, chain

PLACE = "map_location"
_READS = re.compile(r"load(?!er|ing|s\b|ed|_state_dict)\w*\(")
_DEVICES = re.compile(r"\bcuda\b|\.to\(|device|accelerat|\bgpus?\b|\bmps\b|\bxpu\b|Fabric|Trainer", re.I)
MOVING = (".to", ".cuda", ".cpu")
READERS = frozenset("print len int float str bool range isinstance repr format max min sorted list set".split())
_PATCHED = re.compile(
    r"\btorch\.load\s*=(?!=)|\btorch_xla\b"
)  # another loader, or devices that load in a way of their own
_PUBLISHED = re.compile(r"download|https?://|hub|cached", re.I)
_WEIGHTY = (MODULE | SWITCHES | OPTIMIZER | {"to", "cuda", "zero_grad"}) - {"load_state_dict", "state_dict"}
_ONLY_MODULES = frozenset({"parameters", "named_parameters", "named_modules", "eval", "requires_grad_", "train"})
_NUMBERS = frozenset("step get_last_lr get_lr last_epoch scale get_scale update set_epoch __iter__".split())


def may_read(fn: Function) -> bool:
    """What text alone says of whether a function reads a file of tensors, itself or in a helper: False settles it."""
    helpers = fn.project.callers_of(("load",))
    return _READS.search(fn.text) is not None or not fn.definition.words.isdisjoint(helpers)


def files_in(value: Value, depth: int = 0) -> frozenset[Obj]:
    """What was loaded from a file, and is held by a value, whole or in part."""
    found = {o.whole for o in value.objs if o.whole.type == LOADED}
    if depth < NESTING:
        inner = [v for o in value.objs for v in (o.elem, *o.items.values()) if v is not None and v is not value]
        for item in (*inner, *(value.items or ())):
            found |= files_in(item, depth + 1)
    return frozenset(found)


# ---------------------------------------------------------------------- what a file holds


def is_checkpoint(fn: Function, load: Event, depth: int = 0) -> bool:
    """Whether what is loaded holds weights: they are copied into a model or optimizer, or it is a model itself."""
    file = load.value.obj
    if file is None or fn.flow is None:
        return False
    if any(restores(fn, e, file) for e in fn.events("restore")) or any(run_as_module(e, file) for e in fn.own("call")):
        return True
    if depth > LIMIT or file not in files_in(fn.flow.returns):
        return False
    return any(is_checkpoint(caller, e, depth + 1) for caller, e in _in_callers(fn, load))


def restores(fn: Function, event: Event, file: Obj) -> bool:
    """Whether weights are copied from a file into something that has some."""
    return file in files_in(event.value) and _has_weights(fn, event.receiver)


def _in_callers(fn: Function, load: Event) -> Iterator[tuple[Function, Event]]:
    """The same load, as those see it who call the function."""
    for flow, call in fn.project.callers(fn.definition):
        caller = fn.project.function(flow.definition)
        for event in caller.events("load"):
            if event.site is call.site and event.inner is not None and event.inner.site is load.site:
                yield caller, event


def _has_weights(fn: Function, receiver: Value) -> bool:
    """Whether what is restored may hold weights: a scheduler, a scaler or a sampler holds numbers."""
    if receiver.kind not in ("module", "engine", "optimizer", "unknown"):
        return False
    if receiver.kind != "unknown" and receiver.type:
        return True  # by its class
    seen = {name for use in _uses_of(fn, receiver.path) for name in use.attributes}
    return not _WEIGHTY.isdisjoint(seen) or _NUMBERS.isdisjoint(seen)


def run_as_module(call: Event, file: Obj) -> bool:
    """Whether a call runs what was loaded, or does with it what only modules can do."""
    callee, site = call.receiver, call.site
    if not any(o.whole is file for o in callee.objs) or not isinstance(site, ast.Call):
        return False
    if isinstance(site.func, ast.Attribute):
        name = site.func.attr
        return name in MODULE or (name == "eval" and not site.args)
    return bool(site.args or site.keywords)


def leaves_only_copies(fn: Function, load: Event) -> bool:
    """Whether nothing that comes out of a file stays as it is: all is copied, moved, or a plain number read from it."""
    file, flow = load.value.obj, fn.flow
    if file is None or flow is None or _hands_on(flow.returns, file):
        return False
    copied = {e.site for e in fn.events("restore")}
    moved = False
    for event in flow.events:
        if event.verb == "call" and event.inner is None and event.site not in copied:
            owner = event.receiver.receiver
            moved = moved or (owner is not None and owner.obj is file and event.receiver.path.endswith(MOVING))
            given = (*event.args, *event.keywords.values())
            known = isinstance(event.callee, Definition) or event.receiver.type in READERS
            if not known and any(file in files_in(v) for v in given):
                return False
        elif event.verb in ("set", "yield") and _hands_on(event.value, file):
            return False
    return moved or not any(run_as_module(e, file) for e in fn.own("call"))


def _hands_on(value: Value, file: Obj) -> bool:
    """Whether a value is a file's content or a collection of its tensors, and not a single entry read by its key."""
    entries = [o for o in value.objs if o.whole is file]
    return file in files_in(value) and (file in entries or not entries)


def pickled(fn: Function) -> Iterator[tuple[Event, str]]:
    """Calls of `torch.save` that pickle a module with its class, each with how the module is spelled."""
    saves = [e for e in fn.own("call") if e.receiver.type == "torch.save" and e.args and not _in_memory(fn, e)]
    for call in saves:
        saved, site = call.args[0], call.site
        module, name = saved, fn.source_of(site.args[0]) if isinstance(site, ast.Call) and site.args else "the model"
        if saved.kind == "dict":
            entries = ((k, v) for o in saved.objs for k, v in o.items.items() if known_module(fn, v))
            key, module = next(entries, (None, saved))
            name = f"{saved.path or '…'}[{key!r}]"
        if known_module(fn, module) and not any(_instead(fn, call, other, module) for other in saves):
            yield call, name


def _instead(fn: Function, call: Event, other: Event, module: Value) -> bool:
    """Whether the other branch of a condition saves the state of the same module: the user has the choice."""
    apart = any((test, not truth) in other.guards for test, truth in call.guards)
    text = fn.source_of(other.site, 400)
    return apart and bool(module.path) and f"{module.path}.state_dict()" in text


def known_module(fn: Function, value: Value) -> bool:
    """Whether a value is a module by what made it, or by what only modules can do."""
    if value.kind not in ("module", "engine"):
        return False
    obj = value.obj
    if value.type or (obj is not None and obj.site is not None and obj.parameter < 0 and obj.parent is None):
        return True
    return any(not _ONLY_MODULES.isdisjoint(use.calls) for use in _uses_of(fn, value.path))


def _uses_of(fn: Function, path: str) -> list[Use]:
    """How the function, and the class where it is an attribute, use a dotted name."""
    uses = [fn.project.uses(fn.definition).get(path)] if path else []
    cls = fn.definition.cls
    if cls is not None and fn.definition.positional and path.startswith(fn.definition.positional[0] + "."):
        uses.append(fn.project.class_use(cls, path.partition(".")[2]))
    return [use for use in uses if use is not None]


def _in_memory(fn: Function, call: Event) -> bool:
    """Whether what is written to is a buffer and no file: to measure, to send, to copy."""
    site = call.site
    given = site.args[1] if isinstance(site, ast.Call) and len(site.args) > 1 else None
    if isinstance(given, ast.Name):
        binding = fn.lifetimes.reaching(given.id, given)
        if isinstance(binding, (ast.With, ast.AsyncWith)):
            opened = (i.context_expr for i in binding.items if i.optional_vars and chain(i.optional_vars) == given.id)
            given = next(opened, given)
        else:
            given = binding.value if isinstance(binding, ast.Assign) else given
    return given is not None and "BytesIO" in ast.unparse(given)


# ---------------------------------------------------------------------- onto which device


def unplaced(fn: Function) -> Iterator[Event]:
    """Loads of checkpoints that leave it to the file on which device its tensors end up, where that is this
    function's fault: its own, or that of its call of a helper which would have put them elsewhere."""
    for load in fn.events("load"):
        if load.name == "torch.load" and _is_fault(fn, load) and is_checkpoint(fn, load):
            if not (_on_host(fn, load) or _published(fn, load)):
                yield load


def placed_by(fn: Function, load: Event) -> str:
    """The parameter of this function that decides where a load puts its tensors, or ""."""
    where = _location(load)
    return where.path if where is not None and where.path in fn.definition.parameters else ""


def _is_fault(fn: Function, load: Event) -> bool:
    inner = load.inner
    if inner is None:
        if _left_out(fn, load):
            return True
        calls = list(_in_callers(fn, load)) if placed_by(fn, load) else []
        return bool(calls) and all(_left_out(caller, e) for caller, e in calls)
    if not _left_out(fn, load):
        return False
    helper = fn.project.function(inner.home)
    own = next((e for e in helper.events("load") if e.site is inner.site and e.root.site is inner.root.site), None)
    return own is not None and bool(placed_by(helper, own)) and not _is_fault(helper, own)


def _location(load: Event) -> Value | None:
    """What says where the tensors go; None where nothing does."""
    if "*" in load.keywords or "**" in load.keywords:
        return UNKNOWN
    return load.args[1] if len(load.args) > 1 else load.keywords.get(PLACE)


def _left_out(fn: Function, load: Event) -> bool:
    """Whether nothing says where the tensors go, or what says so is None just where there is another device."""
    where = _location(load)
    if where is None or where.kind == "none":
        return True
    call = load.site
    if load.inner is not None or not isinstance(call, ast.Call):
        return False
    expressions = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == PLACE)]
    choice = _choices(fn, expressions[0]) if expressions else []
    nothing = [c for c in choice if isinstance(c, ast.Constant) and c.value is None]
    return bool(nothing) and all(c in nothing or _is_host(c) for c in choice)


def _choices(fn: Function, expression: ast.expr) -> list[ast.expr]:
    """What an expression may mean: both sides of a condition, every binding that a name may have there."""
    if isinstance(expression, ast.IfExp):
        return [*_choices(fn, expression.body), *_choices(fn, expression.orelse)]
    if not isinstance(expression, ast.Name) or expression.id in fn.definition.parameters:
        return [expression]
    lifetimes = fn.lifetimes
    found: list[ast.expr] = []
    for binding in lifetimes.binds.get(expression.id, ()):
        if expression in lifetimes.uses(expression.id, binding):
            if not isinstance(binding, ast.Assign) or not isinstance(binding.targets[0], ast.Name):
                return [expression]
            found += _choices(fn, binding.value) if not isinstance(binding.value, ast.Name) else [binding.value]
    return found or [expression]


def _is_host(expression: ast.expr) -> bool:
    if isinstance(expression, ast.Call):  # torch.device("cpu")
        return len(expression.args) == 1 and _is_host(expression.args[0])
    if isinstance(expression, ast.Lambda):  # lambda storage, location: storage
        body, first = expression.body, expression.args.args[:1]
        return isinstance(body, ast.Name) and bool(first) and body.id == first[0].arg
    return isinstance(expression, ast.Constant) and str(expression.value).startswith("cpu")


def _on_host(fn: Function, load: Event) -> bool:
    """Whether the program runs on the host alone, as far as one can see, or has put another loader in place."""
    if any(m.source.says(_PATCHED) for m in _near(fn)):
        return True
    file = load.value.obj
    receivers = [e.receiver for e in fn.events("restore") if file is not None and file in files_in(e.value)]
    if any(_hosted(r) for r in receivers):
        return True
    return on_host_alone(fn)


def on_host_alone(fn: Function) -> bool:
    """Whether neither the file nor those that import it speak of any device."""
    return not any(m.source.says(_DEVICES) for m in _near(fn))


def _published(fn: Function, load: Event) -> bool:
    """Whether the file comes from others, who publish weights to be read anywhere: no run of this program saved it."""
    call = load.site
    path = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if path is None:
        return False
    named = fn.source_of(path).strip("\"'")
    if isinstance(path, ast.Name):
        binding = fn.lifetimes.reaching(path.id, path)
        path = binding.value if isinstance(binding, ast.Assign) else path
    fetches = (e.site for e in fn.own("call") if isinstance(e.site, ast.Call) and e.site is not call)
    return _PUBLISHED.search(fn.source_of(path, 400)) is not None or any(
        _PUBLISHED.search(ast.unparse(f.func)) and named in fn.source_of(f, 400) for f in fetches
    )


def _hosted(value: Value) -> bool:
    if value.device == "host":
        return True
    inner = value.obj.items.get("wrapped") if value.obj is not None else None
    return inner is not None and _hosted(inner)


def _near(fn: Function) -> Iterator[Module]:
    """The file of a function, and those that import it."""
    project, home = fn.project, fn.definition.module
    yield home
    for module in project.importers(home):
        note(module)
        yield module
