"""When gradients are cleared: questions about the place of `zero_grad` between a forward and its backward."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memlint.facts import UNSET, Answer, Event, Node, Obj, Origin, Value
from memlint.function import Function
from memlint.values import chain

BUILDS = (Origin.FORWARD, Origin.CALL)
Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LateClear:
    """A clear of gradients that stands between a forward and the backward that fills them again.

    ``forward`` is the call that builds the graph, None where it is not known which does; ``sibling`` the statement of
    the clear's own block before which it may stand, None where moving it there is not known to be the same.
    """

    clear: Event
    forward: ast.AST | None
    sibling: ast.stmt | None


def late_clears(fn: Function) -> Iterator[LateClear]:
    """Clears that let the last step's gradients live through a forward, though they could be gone before it."""
    for clear in fn.events("zero_grad"):
        if not _may_free(clear) or clear.receiver.kind not in ("optimizer", "module", "unknown"):
            continue
        if fn.repeated(clear) and (clear.inner is None or not _does_more(fn, clear)):
            found = _Clear(fn, clear).late()
            if found is not None:
                yield found


def _may_free(clear: Event) -> bool:
    """Whether the gradients are gone afterwards, or would be as soon as `zero-grad-zeroes` is heard."""
    told = clear.value.const
    return told is True or (told is UNSET and clear.value.kind == "unknown")


def _does_more(fn: Function, clear: Event) -> bool:
    """Whether the callee that clears also runs or differentiates something: then it is judged by its own reading."""
    return any(e.site is clear.site for e in fn.events("forward", "backward", "step"))


class _Clear:
    """One clear among the events of its function."""

    def __init__(self, fn: Function, clear: Event) -> None:
        self.fn, self.clear = fn, clear
        self.at, self.end = _start(clear.site), _end(clear.site)
        loops = clear.loops
        self.around = [
            e
            for e in fn.events("zero_grad", "clear_grad", "backward")
            if e.loops[: len(loops)] == loops and not _exclude(e, clear)
        ]
        self.calls = {e.site: e for e in fn.own("call")}
        model = clear.receiver if clear.receiver.kind == "module" else clear.receiver.obj and clear.receiver.obj.model
        self.owned = frozenset(_family(model.objs)) if model else frozenset()
        holder = clear.receiver.receiver  # model.optimizer
        self.likely = frozenset(_family(holder.objs)) if holder is not None and holder.kind == "module" else self.owned

    def late(self) -> LateClear | None:
        for backward in self.around:
            if backward.verb != "backward" or _start(backward.site) < self.end:
                continue
            graph = self._graph(backward)
            ahead = self._after_others(self._ahead(graph, backward), backward)
            if ahead and self.fn.carries(backward.value) is Answer.YES:
                known = [n for n in ahead if n.forwards]
                first = min(known or ahead, key=lambda n: _start(n.site)).site
                if not self._clean(_start(first)):
                    return LateClear(self.clear, first if known else None, self._sibling(first))
                return None
            if self._handed(graph, backward):
                return LateClear(self.clear, None, None)
        return None

    def _graph(self, backward: Event) -> frozenset[Node]:
        """All that the differentiated value hangs on."""
        found, stack = set[Node](), list(self.fn.nodes(backward.value))
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(node.inputs)
        return frozenset(found)

    def _ahead(self, graph: frozenset[Node], backward: Event) -> list[Node]:
        """The forwards of this optimizer's parameters that run, in the same iteration, before the clear."""
        loops, definition = self.clear.loops, self.fn.definition
        built = [n for n in graph if n.origin in BUILDS and n.owner is definition and n.loops[: len(loops)] == loops]
        before = [n for n in built if _end(n.site) <= self.at]
        after = [n for n in built if self.end <= _start(n.site) < _end(backward.site)]
        mine = [n for n in before if self.likely & self._modules(n)]
        if mine or (any(n.forwards for n in before) and self._runs_owned()):
            return mine
        if not after and (any(n.forwards for n in before) or self._ready(backward)):
            return before
        if any(n.forwards or not self._reads(n, before) for n in after):
            return []
        return [n for n in before if n.forwards and self.fn.trainable(n.module or Value()) is Answer.YES]

    def _runs_owned(self) -> bool:
        """Whether the function runs, anywhere, what this optimizer is known to own. Else nothing is known by it."""
        nodes = self.fn.flow.nodes.values() if self.fn.flow is not None and self.owned else ()
        return any(n.origin in BUILDS and self.owned & self._modules(n) for n in nodes)

    def _modules(self, node: Node) -> frozenset[Obj]:
        """The modules whose forward a node is, by what is called here and by what that calls."""
        call = self.calls.get(node.site)
        found = _objs(node)
        if call is not None and call.receiver.receiver is not None:
            found |= frozenset(_family(call.receiver.receiver.objs))
        return found

    @staticmethod
    def _reads(node: Node, earlier: list[Node]) -> bool:
        """Whether an unknown call works on what earlier ones gave, as a loss function does."""
        return any(n in earlier for n in node.inputs)

    def _ready(self, backward: Event) -> bool:
        """Whether what is differentiated has been computed before the clear, and is only named after it."""
        call = backward.site
        if not isinstance(call, ast.Call):
            return False
        used = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
        return not any(
            node.id in used and self.end <= _start(node) < _start(call)
            for node in self.fn.nodes_of(ast.Name)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )

    def _after_others(self, ahead: list[Node], backward: Event) -> list[Node]:
        """Those that no other backward follows which leaves gradients for this clear to throw away."""
        for other in self.around:
            if other.verb == "backward" and other is not backward and _start(other.site) < self.at:
                reached = self._graph(other)
                foreign = not reached or any(n.origin is Origin.PARAMETER and not n.inputs for n in reached)
                unknown = foreign and not any(n.origin in BUILDS for n in reached)
                if unknown or _keys(reached) & _keys(ahead):
                    ahead = [n for n in ahead if _start(n.site) >= _end(other.site)]
        return ahead

    def _clean(self, forward: Position | None) -> bool:
        """Whether the gradients are gone when the forward starts: the last thing done to them before it is a clear."""
        fn, clear = self.fn, self.clear
        if clear.loops:
            earlier = [e for e in self.around if forward is None or _start(e.site) < forward]
            later = [e for e in self.around if _start(e.site) > self.at]
            for event in (*reversed(earlier), *reversed(later)):
                if event.verb == "backward":
                    return False
                if event is not clear and self._same(event):
                    return True
            return False
        if any(e is not clear and e.verb != "backward" and self._same(e) for e in self.around):
            return True
        for flow, call in fn.project.callers(fn.definition):
            for event in flow.events:
                if event.verb in ("zero_grad", "clear_grad") and event.site is not call.site:
                    return True
        return False

    def _same(self, event: Event) -> bool:
        """Whether another clear may be of the same gradients."""
        mine, other = self.clear.receiver, event.receiver
        if event.verb == "clear_grad" or "module" in (mine.kind, other.kind):
            return True
        return event.value.const is not False and (
            bool(set(mine.objs) & set(other.objs)) or _text(self.clear) == _text(event)
        )

    def _handed(self, graph: frozenset[Node], backward: Event) -> bool:
        """Whether the differentiated graph comes whole from callers, who run the forward."""
        fn, definition = self.fn, self.fn.definition
        if self.clear.loops or any(n.origin in BUILDS for n in graph) or not self._ready(backward) or self._clean(None):
            return False
        handed = [n.index for n in graph if n.origin is Origin.PARAMETER and n.owner is definition]
        for flow, event in fn.project.callers(definition):
            for index in handed:
                value = fn.project.argument(definition, definition.parameters[index], flow, event)
                if value is not None and any(n.forwards for n in flow.held(value)):
                    return True
        return False

    def _sibling(self, forward: ast.AST) -> ast.stmt | None:
        """The statement of the clear's own block that the forward lies in, where the clear may go before it."""
        fn = self.fn
        stmt = fn.statements.get(self.clear.site)
        if self.clear.inner is not None or not isinstance(stmt, ast.Expr):
            return None
        block = fn.parents.get(stmt)
        node: ast.AST | None = forward
        while node is not None and fn.parents.get(node) is not block:
            node = fn.parents.get(node)
        if not isinstance(node, ast.stmt) or block is None:
            return None
        bodies = (getattr(block, name, None) for name in ("body", "orelse", "finalbody"))
        body = next((b for b in bodies if isinstance(b, list) and stmt in b), None)
        if body is None or node not in body:
            return None
        between = [e for e in self.around if e.verb == "backward" and _start(node) <= _start(e.site) < self.at]
        read = any(_start(node) <= _start(e.site) < self.at for e in fn.events("read_grad", "step"))
        passed = [n for s in body[body.index(node) : body.index(stmt)] for n in ast.walk(s)]
        named = {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name)}
        bound = any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in named for n in passed)
        leaves = any(isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) for n in passed)
        return None if between or read or bound or leaves else node


def _start(node: ast.AST) -> Position:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> Position:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _text(event: Event) -> str:
    func = event.site.func if isinstance(event.site, ast.Call) else event.site
    return chain(func)


def _exclude(a: Event, b: Event) -> bool:
    """Whether two events cannot happen in one iteration: they stand under a condition and its opposite."""
    return any((test, not truth) in _plain(b.guards) for test, truth in _plain(a.guards))


def _plain(guards: Iterable[tuple[str, bool]]) -> set[tuple[str, bool]]:
    return {(t[4:], not v) if t.startswith("not ") else (t, v) for t, v in guards}


def _family(objs: Iterable[Obj]) -> Iterator[Obj]:
    """Objects with what they are a part of and what they wrap."""
    for obj in objs:
        yield obj
        if obj.parent is not None:
            yield from _family((obj.parent,))
        wrapped = obj.items.get("wrapped")
        if wrapped is not None:
            yield from _family(wrapped.objs)


def _objs(node: Node) -> frozenset[Obj]:
    module = node.module
    if module is None:
        return frozenset()
    held = (*module.objs, *(module.receiver.objs if module.receiver is not None else ()))
    return frozenset(_family(held))


def _keys(nodes: Iterable[Node]) -> set[object]:
    """By what forwards can be told apart: the modules that are called, or else how they are spelled."""
    found: set[object] = set()
    for node in nodes:
        if node.origin in BUILDS:
            found |= _objs(node) or {node.name}
    return found
