"""`Function`: one function with all that the project knows of it, as rules see it. Rules ask; nothing here decides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from memlint import answers, edits
from memlint.extract import Class, Definition, children, walk
from memlint.facts import Answer, Event, Grad, Node, Obj, Origin, Value
from memlint.flow import Flow
from memlint.lifetimes import Lifetimes
from memlint.roles import MODULE
from memlint.rule import Finding, Fix, Level, Step
from memlint.source import Source
from memlint.target import UNKNOWN as UNKNOWN_TARGET
from memlint.target import Target, of_header
from memlint.values import GRAPHLESS, chain

if TYPE_CHECKING:
    from memlint.project import Project

_GRAD_READ = re.compile(
    r"(?<!autograd)\.grad\b(?!\s*(?:\.(?:data\.)?(?:zero_|detach_)|\.detach\(\)\.zero_|is\b|=[^=]|:))"
)
_TEST_FILE = re.compile(r"test_.*\.py$|.*_test\.py$|conftest\.py$")
_UNIT_TEST = re.compile(r"\bdef test|\bunittest\b|\bpytest\b")
_RESETS = re.compile(
    r"requires_grad|reset_parameters|load_state_dict|freeze|\.apply\(|init_weights|deepcopy|fold|\btask"
)
_GRAPHS = re.compile(r"backward|grad\b|requires_grad|\bloss|optim|\bforward\(")
CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "setup", "build"})


def _evaluates(forward: Event, flow: Flow | None) -> bool:
    """Whether the model was switched to evaluation before a forward, and none but this function trains it.

    The model of a layer that a method of it runs is the method's own object. Of the switches in sight the last one
    ahead of the forward counts.
    """
    events = flow.events if flow is not None else ()
    for obj in (*forward.receiver.objs, *_own_model(forward, flow)):
        if obj.evaluates and not (obj.trains and obj.shared):
            switches = [e for e in events if e.verb in ("eval", "train") and obj in e.receiver.objs]
            ahead = [e for e in switches if e.order < forward.order]
            if not switches or (ahead and ahead[-1].verb == "eval"):
                return True
    return False


def _own_model(forward: Event, flow: Flow | None) -> tuple[Obj, ...]:
    """The object whose method runs a layer of its own: a module that the method itself switches to evaluation."""
    definition = flow.definition if flow is not None else None
    if flow is None or definition is None or not definition.bound or forward.inner is not None:
        return ()
    name = definition.positional[0]
    mine = flow.arguments.get(name)
    if mine is None or mine.kind != "module" or not forward.receiver.path.startswith(f"{name}."):
        return ()
    switched = {o for e in flow.events if e.verb == "eval" and e.inner is None for o in e.receiver.objs}
    return tuple(o for o in mine.objs if o in switched)


def _known(module: Value) -> bool:
    """Whether a module has weights by its class, or because this code trains it."""
    return bool(module.type) or any(o.trains for o in module.objs)


class Function:
    """A function, method or top level of a file."""

    def __init__(self, project: Project, definition: Definition) -> None:
        self.project = project
        self.definition = definition
        self.node = definition.node
        self.source: Source = definition.module.source
        self.qualname = definition.qualname
        self._assigned: dict[ast.AST, frozenset[str]] = {}

    @property
    def text(self) -> str:
        return self.definition.text

    @cached_property
    def flow(self) -> Flow | None:
        flow = self.project.flow(self.definition)
        return flow if flow is not None and flow.complete else None

    @property
    def target(self) -> Target:
        """The torch versions that this file is meant for: what its project says, else what its own header does."""
        found = self.project.target_of(self.source.path)
        return found if found != UNKNOWN_TARGET else of_header(self.definition.module.docstring)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Which uses of its names see which of their bindings."""
        return Lifetimes(self.node)

    # ------------------------------------------------------------------ what happens in the function

    def events(self, *verbs: str) -> Iterator[Event]:
        """Its events of these verbs, in order, those of its callees included."""
        if self.flow is not None:
            for event in self.flow.events:
                if event.verb in verbs:
                    yield event

    def own(self, *verbs: str) -> Iterator[Event]:
        """Events that stand in the function's own text."""
        return (e for e in self.events(*verbs) if e.inner is None)

    @property
    def stores(self) -> Iterator[Event]:
        return self.events("store")

    @property
    def sums(self) -> Iterator[Event]:
        return self.events("sum")

    @property
    def forwards(self) -> Iterator[Event]:
        return self.events("forward")

    @property
    def backwards(self) -> Iterator[Event]:
        return self.events("backward")

    @cached_property
    def constructs(self) -> bool:
        """Whether it runs once for each object, and puts it together rather than training or running it."""
        return self.definition.name in CONSTRUCTORS and not _GRAPHS.search(self.text)

    # ------------------------------------------------------------------ questions about values

    def carries(self, value: Value) -> Answer:
        """Whether the value keeps a graph alive."""
        if value.kind in GRAPHLESS or value.leaf:
            return Answer.NO
        flow = self.flow
        return (
            answers.carries(self.project, flow, flow.held(value, leaves=False), 0) if flow is not None else Answer.MAYBE
        )

    def may_carry(self, value: Value) -> bool:
        """What can be told of `carries` from this function alone; False settles it."""
        if value.kind in GRAPHLESS or value.leaf or self.flow is None:
            return False
        held = self.flow.held(value, leaves=False)
        if any(n.origin is Origin.WEIGHT and n.wanted for n in held):
            return False  # somebody wants gradients for an input: the graph is there to be differentiated
        for node in held:
            if node.grad is Grad.OFF:
                continue
            if node.origin in (Origin.FORWARD, Origin.WEIGHT) or node.proved:
                return True
            if node.origin is Origin.CALL and self.flow.proofs:
                return True
            if node.origin is Origin.PARAMETER and self.project.is_hook(self.definition):
                return True
        return False

    def makes(self, value: Value) -> Answer:
        """Whether the value keeps a graph that begins in this function, not only in what callers hand over."""
        if value.kind in GRAPHLESS or value.leaf or self.flow is None:
            return Answer.NO
        if value.part:
            return Answer.MAYBE
        held = self.flow.held(value, leaves=False)
        deps = frozenset(n for n in held if not (n.origin is Origin.PARAMETER and n.owner is self.definition))
        if len(deps) < len(held) and self.project.is_hook(self.definition):
            deps = held
        return answers.carries(self.project, self.flow, deps, 0)

    def nodes(self, value: Value) -> frozenset[Node]:
        return self.flow.held(value) if self.flow is not None else frozenset()

    def spent(self, value: Value, at: Event | None = None) -> bool:
        """Whether a backward that reaches the whole graph of the value has freed its buffers.

        With ``at``, whether that holds wherever ``at`` is reached: a backward under a condition of its own frees
        nothing for sure.
        """
        nodes = [n for n in self.nodes(value) if n.origin in (Origin.FORWARD, Origin.CALL) and n.grad is not Grad.OFF]
        if not nodes or not all(n.freed for n in nodes):
            return False
        if at is None or self.flow is None:
            return True
        mine = frozenset(nodes)
        conditions = [set(b.guards) - set(at.guards) for b in self.backwards if mine & self.flow.held(b.value)]
        single = {next(iter(c)) for c in conditions if len(c) == 1}
        return not conditions or set() in conditions or any((test, not truth) in single for test, truth in single)

    def trains_on(self, value: Value) -> bool:
        """Whether autograd is rightly on for a value: something that it is computed from is differentiated somewhere.

        Where nothing is, the forward is at fault and not what keeps its result.
        """
        nodes = [n for n in self.nodes(value) if n.origin in (Origin.FORWARD, Origin.CALL)]
        return not nodes or any(n.differentiated for n in nodes)

    def fate(self, nodes: Iterable[Node]) -> Answer:
        """Whether these nodes are differentiated, here, by a caller, or through a place that others read."""
        return Answer.any(answers.fate(self.project, self.definition, n, set(), 0) for n in nodes)

    def grad(self, event: Event) -> Grad:
        """The gradient mode at an event, with what the callers bring."""
        return self.project.entry_grad(self.definition) if event.grad is Grad.ENTRY else event.grad

    def trainable(self, module: Value) -> Answer:
        """Whether the weights of a module require gradients."""
        return answers.trainable(self.project, self.definition, module, 0)

    def needless(self, event: Event) -> bool:
        """Whether a forward builds a graph that nobody ever differentiates."""
        node = event.node
        if node is None or event.grad is Grad.OFF or node.differentiated or node.wanted or node.escapes:
            return False
        if node not in self.nodes(event.value):
            return False  # what it returns has no graph
        module = self.definition.module
        again = (loop for backward in self.backwards for loop in backward.loops)  # one alone shows that there is one
        trains = not all(map(self._written_out, again))
        demo = self.definition is module.top and "." in module.name and not trains
        if self.definition.name in CONSTRUCTORS or self.is_test or demo:
            return False  # shapes are probed there, once; a unit test's forward is small and dies with it
        if self.looks_up(event.receiver):
            return False
        evaluates = _evaluates(event, self.flow)
        if not evaluates and self.drops(event):
            return False  # run for what its hooks see, or for its statistics
        if not evaluates and not self._consumed(event) and not self._evaluated(event):
            return False
        if evaluates and not event.loops and not event.receiver.type and any(o.shared for o in event.receiver.objs):
            return False  # a transform, for all that can be told: switched to evaluation, and called once
        if self.trainable(event.receiver) is not Answer.YES or (not evaluates and self.leaves(event)):
            return False
        fate = self.fate((node,))
        if fate is Answer.MAYBE and self.predicts(event):
            fate = Answer.NO
        return fate is Answer.NO and self.grad(event) is Grad.ON

    def drops(self, forward: Event) -> bool:
        """Whether a statement is a forward and nothing else; one that a callee runs has its use there."""
        return forward.inner is None and isinstance(forward.stmt, ast.Expr) and forward.stmt.value is forward.site

    def leaves(self, forward: Event) -> bool:
        """Whether the module's own forward leaves a part of its graph on the module, where another method takes it up:
        what that makes of it may be differentiated, whatever becomes of the result."""
        cls = self.project.class_named(forward.receiver.type)
        method = self.project.names.method(cls, "forward") if cls is not None else None
        flow = self.project.flow(method) if method is not None else None
        if cls is None or flow is None:
            return False
        left = {e.target.name for e in flow.events if e.verb == "set" and e.target is not None and flow.held(e.value)}
        methods = (m for c in self.project.names.mro(cls) if isinstance(c, Class) for m in c.methods.values())
        return any(name in m.text for m in methods if m is not method and m.name not in CONSTRUCTORS for name in left)

    def looks_up(self, module: Value) -> bool:
        """Whether a module only looks rows up in a table: its graph keeps indices, and no activations."""
        cls = self.project.class_named(module.type)
        names = list(self.project.names.library_bases(cls)) if cls is not None else [module.type]
        return any(
            self.project.library.canonical(n) in ("torch.nn.Embedding", "torch.nn.EmbeddingBag") for n in names if n
        )

    def _as_called(self, event: Event) -> list[tuple[Flow, Event]]:
        """A forward as each call of this function has it; none where callers may be unknown, or have it otherwise."""
        definition = self.definition
        if definition in self.project.crowded or definition in self.project.addressed:
            return []
        found = []
        for flow, call in self.project.callers(definition):
            same = (e for e in flow.events if e.site is call.site and e.inner and e.inner.site is event.site)
            if (forward := next(same, None)) is None:
                return []
            found.append((flow, forward))
        return found

    def _evaluated(self, event: Event) -> bool:
        """Whether the function has callers, all of them known, and each switches the model to evaluation."""
        calls = self._as_called(event)
        return bool(calls) and all(_evaluates(forward, flow) for flow, forward in calls)

    def predicts(self, event: Event) -> bool:
        """Whether the function itself switches the model to evaluation and hands the result to whoever calls it.

        Nobody in the project calls it: what it is for is plain all the same.
        """
        node = event.node
        flow = self.flow
        if node is None or flow is None or event.inner is not None or self.project.callers(self.definition):
            return False
        switched = any(
            e.verb == "eval" and e.inner is None and set(e.receiver.objs) & set(event.receiver.objs)
            for e in flow.events
        )
        if not switched or self.definition in self.project.crowded or self.definition in self.project.addressed:
            return False
        return not any(
            e.verb in ("set", "store")
            and e.target is not None
            and e.target.shared
            and answers.below(node, flow.held(e.value))
            for e in flow.events
        )

    def _consumed(self, event: Event) -> bool:
        """Whether all that happens to a result is in sight, again and again, and none of it needs a graph."""
        node = event.node
        assert node is not None
        flow = self.flow
        assert flow is not None
        for other in flow.nodes.values():
            if node in other.inputs and other.origin is Origin.CALL:
                return False
        if any(e.verb in ("return", "yield") and answers.below(node, flow.held(e.value)) for e in flow.events):
            return False
        if not (event.loops or self.differentiates or self.project_repeats() or self.trains_beside):
            return False  # run once, in a program that does not train: a demonstration
        if not self._weighty(event):
            return False
        if not node.reduced:
            step = event.loops[-1:] and any(b.loops[-1:] == event.loops[-1:] for b in self.backwards)
            return node.detached and not step  # a step that detaches a generator's output is a step all the same
        return True

    def _weighty(self, event: Event) -> bool:
        """Whether a module is known to have weights: by its class, or because code trains, saves or loads them."""
        module = event.receiver
        if _known(module):
            return True
        use = self.project.uses(self.definition).get(module.path) if module.path else None
        shared = any(o.shared for o in module.objs)
        if use is None or not use.attributes & MODULE:
            if shared and self.definition.cls is not None and module.path.count(".") == 1:
                use = self.project.class_use(self.definition.cls, module.path.rpartition(".")[2])
        if use is not None and use.attributes & MODULE:
            return True
        if event.inner is not None:  # its name is the callee's
            return self.project.function(event.inner.home)._weighty(event.inner)
        calls = self._as_called(event)
        return bool(calls) and all(_known(forward.receiver) for _, forward in calls)

    def at_fault(self, event: Event) -> bool:
        """Whether a forward that is needless is this function's fault: its own, or that of its call alone.

        A helper answers for its own forwards, except where other callers differentiate what it returns, or switch
        autograd off around it: then the call that does neither is at fault.
        """
        inner = event.inner
        if inner is None:
            return not self._switched_off(event)
        if inner.inner is not None:
            return False
        helper = self.project.function(inner.home)
        own = next((e for e in helper.own("forward") if e.site is inner.site), None)
        if own is None or own.node is None:
            return False
        if helper._switched_off(own):
            return True
        return not (helper.needless(own) or helper._spares(own)) and helper.fate((own.node,)) is Answer.YES

    def _spares(self, forward: Event) -> bool:
        """Whether there is a way past a forward, by one of the conditions that it stands under, on which none runs."""
        ways = [set(e.guards) for e in self.forwards]
        return any(
            not any({*forward.guards[:depth], (test, not side)} <= way for way in ways)
            for depth, (test, side) in enumerate(forward.guards)
        )

    def _switched_off(self, event: Event) -> bool:
        """Whether some caller switches autograd off around a forward that has whatever mode its caller has."""
        callers = self.project.callers(self.definition) if event.grad is Grad.ENTRY else ()
        return any(self.project.grad_at(flow, call.grad) is Grad.OFF for flow, call in callers)

    def waited_for(self, store: Event) -> bool:
        """Whether a backward after the loop goes through the graph of all that a list of that loop's own keeps.

        Then the graph is there until that backward, whoever else keeps a piece of it.
        """
        obj = store.target
        if self.flow is None or obj is None or obj.shared or not store.loops or store.loops[-1] in obj.loops:
            return False
        around = store.loops[:-1]
        mine = [n for n in self.nodes(store.value) if n.grad is not Grad.OFF]
        reached = [self.flow.held(b.value) for b in self.backwards if b.loops == around and b.order > store.order]
        return obj.loops == around and bool(mine) and all(any(answers.below(n, deps) for deps in reached) for n in mine)

    def needless_graph(self, value: Value) -> bool:
        """Whether all that a value's graph begins in are forwards that nobody differentiates."""
        nodes = [n for n in self.nodes(value) if n.origin is Origin.FORWARD]
        by_node = {e.node: e for e in self.forwards}
        return bool(nodes) and all(n in by_node and self.needless(by_node[n]) for n in nodes)

    # ------------------------------------------------------------------ questions about lifetimes

    def assigned(self, loop: ast.AST) -> frozenset[str]:
        """Dotted names that the body of a loop binds, its own targets included."""
        found = self._assigned.get(loop)
        if found is None:
            names: set[str] = set()
            for node in walk(loop):
                if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                    names.add(chain(node))
            found = self._assigned[loop] = frozenset(names)
        return found

    def fixed(self, expression: ast.AST, loop: ast.AST) -> bool:
        """Whether an expression means the same in every iteration of a loop: it reads nothing that the loop binds."""
        bound = self.assigned(loop)
        for node in walk(expression):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                name = chain(node)
                if any(name == b or name.startswith(b + ".") for b in bound):
                    return False
        return True

    def may_run_on(self, event: Event) -> bool:
        """What can be told of `running` from this function alone; False settles it."""
        if event.target is not None and event.target.shared:
            return True
        return bool(event.loops)

    def running(self, event: Event) -> bool:
        """Whether a running total goes on over iterations: it is bound outside the loop and not started anew in it."""
        obj = event.target
        holder = event.receiver.obj
        if obj is not None and obj.shared:
            if any(
                e.target is obj and e.value.kind in GRAPHLESS and e.loops == event.loops for e in self.events("set")
            ):
                return False  # turned into a number before the next
            return bool(event.loops) or self.project_repeats()
        if not event.loops:
            return False
        inner = next((loop for loop in reversed(event.loops) if not self._written_out(loop)), None)
        if inner is None:
            return False
        if obj is not None:
            return inner not in obj.loops
        if holder is not None and holder.shared:
            return True
        return not self.restarted(event.name, inner)

    def restarted(self, name: str, loop: ast.AST) -> bool:
        for node in walk(loop):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            for target in targets:
                for t in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if chain(t) == name and not any(
                        chain(n) == name and not self._let_go(n)
                        for n in walk(getattr(node, "value", None) or target)
                        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)
                    ):
                        return True
        return isinstance(loop, ast.For) and any(chain(n) == name for n in walk(loop.target))

    def _let_go(self, use: ast.AST) -> bool:
        """Whether a use takes the numbers alone, and leaves the graph."""
        parent = self.parents.get(use)
        return isinstance(parent, ast.Attribute) and parent.attr in ("data", "item", "detach", "tolist", "numpy")

    def _written_out(self, loop: ast.AST) -> bool:
        """Whether a loop goes over a list or tuple that is written out: its elements are there anyway."""
        over = loop.iter if isinstance(loop, ast.For) else None
        if not isinstance(over, ast.Name):
            return isinstance(over, (ast.List, ast.Tuple))
        given = [n.value for n in self.nodes_of(ast.Assign) for t in n.targets if chain(t) == over.id]  # type: ignore[attr-defined]
        return bool(given) and all(isinstance(g, (ast.List, ast.Tuple)) and g.elts for g in given)

    def total(self, event: Event) -> Node | None:
        """The node that marks the uses of a running total."""
        flow = self.flow
        root = event
        mark = flow.nodes.get((Origin.PLACE, root.stmt, "total")) if flow is not None else None
        return mark or (flow.nodes.get((Origin.PLACE, root.site, "total")) if flow is not None else None)

    def outlives(self, event: Event) -> bool:
        """Whether what a store puts away is still there an iteration later, and piles up."""
        obj = event.target
        if obj is None or not self.may_outlive(event):
            return False
        holder = event.receiver.obj
        if obj.shared:
            if (
                holder is not None
                and holder.parameter < 0
                and not holder.shared
                and holder.loops[-1:] == event.loops[-1:]
            ) and event.loops:
                return False
            if not event.loops and not self.project_repeats():
                return False
            self.project.settle(obj)
            return not any(self._bounds(c) for c in obj.clears)
        if not event.loops or event.loops[-1] in obj.loops:
            return False
        inner = event.loops[-1]
        return not any(inner in loops for _, loops, _, _ in obj.clears)

    def may_outlive(self, event: Event) -> bool:
        """What can be told of `outlives` from this function alone; False settles it."""
        obj = event.target
        if obj is None or obj.bounded or not self.grows(event):
            return False
        if obj.shared:
            return True
        return bool(event.loops) and event.loops[-1] not in obj.loops

    def _bounds(self, clear: tuple[Definition, tuple[ast.AST, ...], object, str]) -> bool:
        """Whether a clear of something shared comes round: after the training loop, or in a constructor, does not."""
        definition, loops, _, _ = clear
        if definition.name in CONSTRUCTORS:
            return False
        if loops:
            return True
        flow = self.project.flow(definition)
        trains = flow is not None and any(e.verb == "backward" and e.loops for e in flow.events)
        return not trains

    def grows(self, event: Event) -> bool:
        """Whether each store adds an element: an element that is replaced each time does not."""
        if event.name == "item" or event.name == "setdefault":
            return event.args[0].kind == "number" and not isinstance(event.args[0].const, int)
        if event.name == "update":
            return False
        return not (event.name == "add" and event.target is not None and event.target.kind != "set")

    def project_repeats(self) -> bool:
        """Whether the function is called again and again, as far as the project shows."""
        return answers.repeats(self.project, self.definition, set(), 0)

    # ------------------------------------------------------------------ questions that several rules ask

    def handed_over(self, event: Event) -> bool:
        """Whether a callee keeps what this function gives it with a graph that begins here."""
        inner = event.inner
        if inner is None or self.makes(event.value) is not Answer.YES:
            return False
        target = event.target
        if target is None or (not target.shared and target.site is event.site):
            return False  # local to the callee, which answers for it
        return self.project.function(inner.home).makes(inner.value) is not Answer.YES

    def total_fate(self, event: Event) -> Answer:
        """Whether a running total is differentiated in the end."""
        marks = [self.total(event)] if event.inner is None else []
        if event.target is not None and event.target.shared:
            self.project.settle(event.target)
            marks.append(self.project.place_node(event.target))
        return Answer.MAYBE if not marks or None in marks else self.fate(n for n in marks if n is not None)

    def region(self, event: Event) -> ast.AST:
        """The statement around an event that is evaluation and nothing else: its outermost loop without a backward."""
        training = list(self.events("backward", "step", "grad"))
        for loop in event.loops:
            mine = isinstance(loop, ast.stmt) and loop in self.parents  # a callee's may train for others
            if mine and not any(loop in e.loops for e in training):
                return loop
        if not training and event.inner is None and not isinstance(self.node, (ast.Module, ast.Lambda)):
            return self.node
        return event.stmt

    def around(self, region: ast.AST) -> ast.AST:
        """The node whose block a statement stands in."""
        return self.parents.get(region, region)

    def piles_up(self, event: Event, forwards: list[Event]) -> bool:
        """Whether a store or a running total keeps the graphs of these forwards."""
        made = {f.node for f in forwards if self._anew(f, event)}
        if not any(n in made for n in self.nodes(event.value)) or event.value.kind in GRAPHLESS:
            return False
        return self.outlives(event) if event.verb == "store" else self.running(event)

    def _anew(self, forward: Event, kept: Event) -> bool:
        """Whether something is kept of a new forward each time, and not again and again of one and the same."""
        obj = kept.target
        if not kept.loops or (obj is not None and obj.shared and self.project_repeats()):
            return True
        both = (loop for loop in kept.loops if loop in forward.loops)
        if kept.verb == "store":
            return any(obj is None or loop not in obj.loops for loop in both)
        return any(not self.restarted(kept.name, loop) for loop in both)

    def repeated(self, event: Event) -> bool:
        return bool(event.loops) or self.project_repeats()

    @cached_property
    def differentiates(self) -> bool:
        """Whether the function, or what it calls, runs a backward."""
        return any(True for _ in self.backwards)

    @cached_property
    def trains_beside(self) -> bool:
        """Whether another method of its class runs a backward: what it is a method of learns."""
        cls = self.definition.cls
        methods = cls.methods.values() if cls is not None else ()
        return any("backward" in d.text and self.project.function(d).differentiates for d in methods)

    @property
    def is_test(self) -> bool:
        """Whether the function is a unit test, or a helper in a file of them. A script that tests a model is not."""
        name = self.source.path.rpartition("/")[2]
        unit = _TEST_FILE.match(name) is not None and _UNIT_TEST.search(self.source.text) is not None
        return unit or re.search(r"/(tests|testing)/", f"/{self.source.path}") is not None

    def of_unknown_make(self, event: Event) -> bool:
        """Whether what is stored comes out of the project's own calls, and nothing says that it is a tensor."""
        if event.value.kind != "unknown" or event.inner is not None or self.is_tensor(event.value, event.expr):
            return False
        made = [n for n in self.nodes(event.value) if n.origin in (Origin.FORWARD, Origin.CALL)]
        return bool(made) and all(n.inner is not None for n in made)

    def runs_models_in(self, loop: ast.AST) -> bool:
        """Whether a loop runs a model, whatever was handed over to be called, or over whatever was handed over."""
        over = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
        if isinstance(over, ast.Name) and over.id in self.definition.parameters:
            return True
        return any(
            loop in e.loops
            and (
                e.verb == "forward"
                or (e.callee is None and e.receiver.kind == "unknown" and e.receiver.receiver is None and bool(e.args))
            )
            for e in self.events("forward", "call")
        )

    @cached_property
    def runs_one_epoch(self) -> bool:
        """Whether the function is called in a loop and trains in one loop of its own at most."""
        return self.called_in_loop and all(len(e.loops) <= 1 for e in self.backwards)

    def clears_each_step(self, event: Event) -> bool:
        """Whether a clear comes round with the backward: in its loop, or in a function that is one step."""
        if event.loops:
            return True
        return self.project_repeats() and not any(e.loops for e in self.backwards)

    @cached_property
    def called_in_loop(self) -> bool:
        return any(event.loops for _, event in self.project.callers(self.definition))

    @property
    def reads_gradients(self) -> bool:
        """Whether the file reads ``.grad`` of anything, other than to clear it or to see whether it is there."""
        return self.source.says(_GRAD_READ)

    @property
    def gradient_zeroings(self) -> Iterator[ast.Call]:
        """Calls of ``p.grad.zero_()`` (and ``p.grad.data.zero_()``) where ``p`` runs over a module's parameters."""
        for event in self.own("call"):
            call = event.site
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "zero_"):
                continue
            for read in self.own("read_grad"):
                if read.receiver.kind == "parameter" and any(n is read.site for n in walk(call.func.value)):
                    yield call
                    break

    def built_by_callee(self, event: Event) -> bool:
        """Whether a call returns what a function of the project has just built."""
        return isinstance(event.callee, Definition) and any(
            e.verb == "build" and e.site is event.site and e.inner is not None and e.name == event.value.kind
            for e in self.events("build")
        )

    def steps_in(self, loop: ast.AST, event: Event) -> bool:
        """Whether a loop is one of iterations or epochs: its backward is in it, or one loop further in."""
        inside = [e.loops[e.loops.index(loop) :] for e in self.backwards if loop in e.loops]
        return any(len(loops) <= 2 for loops in inside) and self._counts(loop)

    @staticmethod
    def _counts(loop: ast.AST) -> bool:
        if not isinstance(loop, ast.For):
            return isinstance(loop, ast.While)
        return True

    def same_each_time(self, event: Event, loop: ast.AST) -> bool:
        """Whether a constructor gets the same arguments in each iteration, unconditionally, and nothing resets them."""
        call = event.site
        if not isinstance(call, ast.Call) or not all(
            self.fixed(a, loop) for a in (*call.args, *(k.value for k in call.keywords))
        ):
            return False
        node: ast.AST | None = event.stmt
        while node is not None and node is not loop:
            if isinstance(node, (ast.If, ast.Try, ast.ExceptHandler)):
                return False
            node = self.parents.get(node)
        return not _RESETS.search(self.source.rows(loop))

    # ------------------------------------------------------------------ findings

    def source_of(self, node: ast.AST, limit: int = 60) -> str:
        """The text of a piece of syntax on one line, shortened."""
        text = " ".join(self.source.segment(self.source.span(node)).split())
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def is_tensor(self, value: Value, expression: ast.AST | None) -> bool:
        """Whether a value is known to be one tensor, by what made it or by what only a tensor can do."""
        if value.kind == "tensor":
            return True
        name = chain(expression) if expression is not None else ""
        use = self.project.uses(self.definition).get(name) if name else None
        return value.kind == "unknown" and use is not None and bool(use.attributes & {"backward", "item", "detach"})

    def detach(self, event: Event) -> Fix | None:
        """``.detach()`` where a graph is handed over or kept."""
        if event.inner is None:
            expression = event.expr
            whole = event.name not in ("extend", "update")  # those hand over a container of what is kept
            if expression is None or not whole or not self.is_tensor(event.value, expression):
                return Fix("keep a detached copy: `.detach()`")
            return edits.wrap(self.source, expression, "{}.detach()").safe()
        call = event.site
        if not isinstance(call, ast.Call):
            return None
        own = next((e for e in self.own("call") if e.site is call), None)
        fix: Fix | None = None
        for node, value in (
            *zip(call.args, own.args, strict=False),
            *((k.value, own.keywords[k.arg]) for k in call.keywords if k.arg in own.keywords),
        ) if own is not None else ():  # fmt: skip
            if self.makes(value) is Answer.YES and self.is_tensor(value, node):
                one = edits.wrap(self.source, node, "{}.detach()")
                fix = one if fix is None else fix + one
        return fix.safe() if fix is not None else Fix("hand over a detached tensor: `.detach()`")

    def no_grad(self, regions: list[ast.AST], first: Event) -> Fix | None:
        """Autograd off for regions of one block that are evaluation only, from the first to the last."""
        place = first.stmt
        if self.node in regions and isinstance(self.node, ast.FunctionDef):
            place = self.node
        spelled = edits.qualified(self.source, "torch.no_grad", place)
        if spelled is None:
            return Fix("run it under `torch.no_grad()`")
        name, imported = spelled
        if place is self.node:
            return (edits.decorate(self.source, place, f"{name}()") + imported).safe()
        statements = sorted(
            (r for r in regions if isinstance(r, ast.stmt) and r is not self.node), key=lambda r: r.lineno
        )
        start: ast.AST = statements[0] if statements else first.stmt
        end = start
        if statements and not self._trains_between(statements[0], statements[-1]):
            end = statements[-1]
        return (edits.enclose(self.source, start, end, f"with {name}():") + imported).safe()

    def _trains_between(self, start: ast.stmt, end: ast.stmt) -> bool:
        lines = range(start.lineno, (end.end_lineno or end.lineno) + 1)
        return any(getattr(e.site, "lineno", 0) in lines for e in self.events("backward", "step", "grad"))

    def finding(
        self,
        node: ast.AST,
        level: Level,
        message: str,
        fix: Fix | None = None,
        trail: tuple[Step, ...] = (),
    ) -> Finding:
        """A finding on a piece of this function's syntax; the rule that yields it puts its name to it."""
        return Finding(
            "", "", level, self.source.path, self.source.span(node), message, fix, trail, None, self.qualname
        )

    def step(self, event: Event, message: str) -> tuple[Step, ...]:
        """A step of a trail to where an event really happens."""
        root = event.root
        home = root.home.module.source.path if root.home is not None else self.source.path
        return (Step(home, getattr(root.site, "lineno", 1), message),)

    def trail(self, event: Event, message: str) -> tuple[Step, ...]:
        """The step that leads into the callee in which an event really happens; none where it happens here."""
        return self.step(event, message) if event.inner is not None else ()

    @cached_property
    def statements(self) -> dict[ast.AST, ast.stmt]:
        """The statement that each expression of the function belongs to."""
        found: dict[ast.AST, ast.stmt] = {}

        def visit(node: ast.AST, stmt: ast.stmt | None) -> None:
            for child in children(node):
                own = child if isinstance(child, ast.stmt) else stmt
                if own is not None:
                    found[child] = own
                visit(child, own)

        visit(self.node, None)
        return found

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        found: dict[ast.AST, ast.AST] = {}
        stack: list[ast.AST] = [self.node]
        while stack:
            node = stack.pop()
            for child in children(node):
                found[child] = node
                stack.append(child)
        return found

    def within(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether a piece of the function's syntax lies inside another."""
        at: ast.AST | None = node
        while at is not None and at is not outer:
            at = self.parents.get(at)
        return at is outer

    def block_of(self, context: ast.AST) -> ast.With | ast.AsyncWith | None:
        """The with-block that an expression is the context manager of."""
        item = self.parents.get(context)
        block = self.parents.get(item) if isinstance(item, ast.withitem) else None
        return block if isinstance(block, (ast.With, ast.AsyncWith)) else None

    def values_of(self, name: str) -> list[ast.expr | None]:
        """What assignments give a name in the function; None among it where anything else but ``+=`` binds it too."""
        found: list[ast.expr | None] = []
        stores = 0
        for node in self.nodes_of(ast.Name, ast.Assign, ast.AugAssign):
            if isinstance(node, ast.Name):
                stores += int(node.id == name and isinstance(node.ctx, ast.Store))
            elif isinstance(node, ast.Assign):
                found += [node.value] * any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                stores -= int(node.target.id == name)
        return found + [None] * (stores > len(found))

    def nodes_of(self, *types: type[ast.AST]) -> Iterator[ast.AST]:
        """Its own nodes of these types, which have no subtypes, in the order of `Definition.nodes`."""
        there = [kind for kind in types if kind in self.definition.nodes_by_type]
        if len(there) < 2:
            return (n for kind in there for n in self.definition.nodes_by_type[kind])
        return (n for n in self.definition.nodes if type(n) in there)
