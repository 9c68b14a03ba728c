"""Questions about Lightning: what a step keeps on the module or callback, and for how long."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from memlint.extract import Class, Definition, walk
from memlint.facts import Answer, Event
from memlint.function import CONSTRUCTORS, Function
from memlint.growth import cut, holds_tensor
from memlint.rule import Level
from memlint.stems import assigned

if TYPE_CHECKING:
    from memlint.project import Project

BASES = frozenset({"lightning.pytorch.LightningModule", "lightning.pytorch.Callback"})
GROWS = frozenset({"append", "extend", "insert", "add", "appendleft"})
_ONCE = re.compile(r"(?:on_)?(?:test|predict)_")  # what runs over one epoch and no more
DEPTH = 3  # calls between a step and what it calls


def hoarded(fn: Function, store: Event) -> Level | None:
    """How bad it is that a step of a Lightning class puts something into an attribute; None where it is not.

    An error where nothing ever empties the attribute; a warning where the end of the epoch does, but every batch's
    graph is there until then.
    """
    obj = store.target
    if obj is None or obj.bounded or store.name not in GROWS:
        return None
    cls = fn.definition.cls
    if cls is None or obj.owner is not fn.project.names.family(cls) or not of_lightning(fn.project, cls):
        return None
    if not all(map(_certain(fn), store.guards)):
        return None
    if all(_ONCE.match(step) for step in steps(fn.project, fn.definition)):
        return None
    graph = _kept_graph(fn, store)
    if not (graph or holds_tensor(fn, store.value)):
        return None
    fn.project.settle(obj)
    if not any(c[0].name not in CONSTRUCTORS for c in obj.clears) and not cut(fn, obj):
        return Level.ERROR
    return Level.WARNING if graph else None


def _certain(fn: Function) -> Callable[[tuple[str, bool]], bool]:
    """Whether a condition holds again and again: it asks for the mode, or for the stage that a step hands over."""
    stage = re.compile(rf"(?:{'|'.join(fn.definition.parameters)}) (?:==|!=|in|not in) [\['\"(]")
    return lambda guard: "training" in guard[0] or stage.match(guard[0]) is not None


def of_lightning(project: Project, cls: Class) -> bool:
    bases = project.names.library_bases(cls)
    return any(project.library.canonical(b) in BASES for b in bases)


def steps(project: Project, definition: Definition, depth: int = 0) -> Iterator[str]:
    """The methods that Lightning calls for every batch and that a method is, or is called by."""
    cls = definition.cls
    if cls is None:
        return
    words = frozenset().union(*(project.library.hook(b, definition.name) for b in project.names.library_bases(cls)))
    if not words.isdisjoint({"batch", "forward"}):
        yield definition.name
    elif not words and depth < DEPTH:
        for flow, _ in project.callers(definition):
            if flow.definition is not definition:
                yield from steps(project, flow.definition, depth + 1)


def _kept_graph(fn: Function, store: Event) -> bool:
    """Whether a graph that this step has built is put away, and is not there to be differentiated later."""
    if store.node is None or fn.makes(store.value) is not Answer.YES:
        return False
    return fn.fate((store.node,)) is not Answer.YES and not _detached_by_helper(fn, store)


def _detached_by_helper(fn: Function, store: Event) -> bool:
    """Whether a function of the project that detaches, whatever it is given, has had the value before it is stored."""
    expressions = [store.expr] if isinstance(store.expr, ast.expr) else []
    for node in (n for e in list(expressions) for n in walk(e) if isinstance(n, ast.Name)):
        expressions += assigned(fn.definition, node.id)
    calls = {n for e in expressions for n in walk(e) if isinstance(n, ast.Call)}
    return any(
        isinstance(e.callee, Definition) and "detach" in e.callee.text and e.site in calls for e in fn.own("call")
    )


def collected(fn: Function) -> Iterator[tuple[Event, str]]:
    """What else than the loss a training step returns with its graph, where an end of the epoch gets all of it."""
    cls = fn.definition.cls
    if cls is None or fn.definition.name != "training_step":
        return
    ending = fn.project.names.method(cls, "training_epoch_end")
    if ending is None or len(ending.positional) < 2:
        return
    for event in fn.own("return"):
        obj = event.value.obj
        if obj is None or not isinstance(obj.site, ast.Dict):
            continue
        written = {k.value for k in obj.site.keys if isinstance(k, ast.Constant)} - {"loss", "hiddens"}
        yield from ((event, key) for key, v in obj.items.items() if key in written and fn.makes(v) is Answer.YES)
