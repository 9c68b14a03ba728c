"""The files of one run, read on demand: summaries upward from callees, contexts downward from callers.

Nothing is computed before somebody asks: a function is read when a rule has a reason to look at it, when a function
that is read calls it, or when it may call one whose context is in question.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memlint.extract import Class, Definition, Module
from memlint.facts import NOTHING, UNKNOWN, UNSET, Answer, Event, Grad, Node, Obj, Origin, Value
from memlint.flow import Flow
from memlint.library import Library, Row, shipped
from memlint.names import OF_TREE, Loader, Names
from memlint.reading import Reading
from memlint.roles import Use, uses
from memlint.source import Source
from memlint.target import Target
from memlint.trace import active, fact, question, unseen
from memlint.values import CONTAINERS, EMPTY, GRAPHLESS, LOADED, Mode, chain, join, of_file

VARIANTS = 12  # readings of one function with different arguments
if TYPE_CHECKING:
    from memlint.function import Function

DEPTH = 5  # calls followed below the function that is asked about
TRAINS = re.compile(
    r"backward|zero_grad|grad\(|detach\(|\.numpy\(|\.item\(|argmax|\.eval\(|optim|register_\w*hook|Scaler|LR\(|anomaly|ctx\.|lru_cache|@(?:\w+\.)?cache|Parallel|DDP|except|profile|foreach|load_state_dict|\bcycle\(|torch\.save\(|(?<!json\.)(?<!yaml\.)\bload\("
)
TRAINING = tuple(
    """backward zero_grad grad( detach( .numpy( .item( argmax .eval( optim hook Scaler LR( anomaly ctx. cache Parallel
    DDP except profile foreach load cycle( save(""".split()
)  # one of which stands in whatever `TRAINS` matches
STORE = re.compile(
    r"\.(?:append|add|extend|insert|put|update|push|setdefault|appendleft)\(|\+=|\] *=(?!=)|torch\.(?:cat|stack)"
    r"|\bself\.\w+ *=(?!=)"
)
LOOP = re.compile(r"^[ \t]*(?:async +)?(?:for|while)\b|\bfor\b[^\n]+\bin\b", re.M)
# What a constructor does that its caller is concerned with.
ACTS = re.compile(
    r"requires_grad|freeze|\.eval\(|\.train\(|hook|backward|optim|Scaler|scheduler|LR\(|zero_grad|\.step\("
    r"|\.(?:clear|pop)\w*\(|global "
)
FEW = 12
MEMORY = 1 << 30  # bytes that readings and syntax trees together may take, about
OF_READING = 2_000  # … for each node and each event, with what hangs on it
CROWD = 60  # functions that mention a name: beyond that it is too common to tell who calls what
GUARDS = re.compile(r"no_grad|inference_mode|set_grad_enabled|enable_grad")
WEIGHTY = re.compile(r"Parameter\(|register_parameter|add_module|setattr|ModuleList|ModuleDict|Sequential")
BUILT = frozenset({"parameters", "named_parameters", "state_dict", "load_state_dict"})
_DISPLAYS: dict[type, str] = {ast.List: "list", ast.Dict: "dict", ast.Set: "set"}
SWITCHED = re.compile(r"requires_grad\s*[=:](?!=)|requires_grad_\(")
PROPERTIES = frozenset({"property", "cached_property"})
TENSOR_WORDS = frozenset(
    [
        "torch",
        "lightning",
        "pytorch_lightning",
        "tensorflow",
        "keras",
        "transformers",
        "trl",
        "accelerate",
        "fastai",
        "ignite",
        "mmengine",
        "deepspeed",
        "backward",
        "zero_grad",
        "no_grad",
        "state_dict",
        "pyplot",
    ]
)
FRAMEWORK_FREE = (
    "torch.nn.",
    "object",
    "abc.",
    "typing.",
    "enum.",
    "torch.utils.data.",
    "collections.",
    "torch.optim.",
)


class Project:
    """What is known of the files of one run.

    ``target_of`` gives the torch that a file is meant for; ``loader`` finds files outside ``sources`` when one of them
    is imported; ``neighbours`` are the paths of other files that may call into these.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        target_of: Callable[[str], Target] | None = None,
        library: Library | None = None,
        loader: Loader | None = None,
        neighbours: Sequence[str] = (),
        module: type[Module] = Module,
    ) -> None:
        self.library = library or shipped()
        self.names = Names(sources, loader, module)
        self.target_of = target_of or (lambda path: Target())
        self._read_file: Callable[[str], Source | None] | None = getattr(loader, "read", None)
        self._neighbours = list(neighbours)
        self._unread: list[Source] | None = None
        self._sought: set[str] = set()
        self.facts: dict[Any, Any] = {}
        self._words: dict[str, list[Module]] = defaultdict(list)
        self._indexed = 0
        self.regrouped()
        self.unread()

    def regrouped(self) -> None:
        """Forget what is known of the files as a whole: one has other classes, functions or imports than before."""
        self._classes: dict[str, Class | None] = {}
        self._classed = 0
        self._namesakes: Counter[str] | None = None

    @property
    def full(self) -> bool:
        """Whether more is kept in memory than should be: it is time for `unread` and `Names.drop`."""
        return self._weight * OF_READING + self.names.loaded * OF_TREE > MEMORY

    def unread(self) -> None:
        """Forget all that reading functions has brought: as if none had been read."""
        self._flows: dict[Any, Flow | None] = {}
        self._weight = 0
        self._interesting: dict[Definition, bool] = {}
        self._running: dict[tuple[Definition, Any], Flow] = {}
        self._attribute_objs: dict[tuple[Class, str], Obj] = {}
        self._attributes: dict[tuple[Class, str], Value | None] = {}
        self._globals: dict[tuple[Module, str], Obj] = {}
        self._defaults: dict[tuple[Definition, str], Obj] = {}
        self._lambdas: dict[ast.Lambda, Definition] = {}
        self._parts: dict[tuple[Obj, str], Obj] = {}
        self._entry: dict[Definition, Grad] = {}
        self._callers: dict[Definition, list[tuple[Flow, Event]]] = {}
        self._mentions: dict[str, list[Definition]] = {}
        self._settled: set[Any] = set()
        self._variants: dict[Definition, set[Any]] = defaultdict(set)
        self._functions: dict[Definition, Function] = {}
        self._plain: dict[Definition, tuple[Any, ...]] = {}
        self._stated: dict[tuple[Definition, str], tuple[str, str]] = {}
        self._handing: set[Definition] = set()
        self.answers: dict[str, Any] = {}  # to questions about the whole project that several functions lead to
        self.closures: dict[Definition, dict[str, Value]] = {}
        self.hooks: dict[Definition, list[tuple[Reading, Value, str]]] = defaultdict(list)
        self.handed_on: dict[Definition, list[tuple[Row, Grad]]] = defaultdict(list)
        self._inert: dict[Definition, bool] = {}
        self.crowded: set[Definition] = set()
        self.addressed: set[Definition] = set()

    def reindex(self, module: Module, before: frozenset[str], after: frozenset[str]) -> None:
        """Know which identifiers a file holds now, where it held others before."""
        order = {each: number for number, each in enumerate(self.names.modules.values())}
        if order[module] >= self._indexed or not self.relevant(module):
            return  # not looked at yet, or never
        for word in before - after:
            self._words[word].remove(module)
        for word in after - before:
            self._words[word].append(module)
            self._words[word].sort(key=order.__getitem__)

    def forget_functions(self) -> None:
        """Forget what `Function` objects have worked out."""
        self._functions = {}

    # ------------------------------------------------------------------ functions and their flows

    def functions(self, source: Source) -> Iterator[Function]:
        """Every function of a file, its top level last, as rules see them."""
        module = self.names.modules.get(source.path)
        if module is not None and self.relevant(module):
            yield from map(self.function, module.definitions)

    def function(self, definition: Definition) -> Function:
        """A function as rules see it."""
        from memlint.function import Function

        found = self._functions.get(definition)
        if found is None:
            found = self._functions[definition] = Function(self, definition)
        return found

    def interesting(self, definition: Definition) -> bool:
        """Whether most rules can have anything to ask: without loops, stores or training there is no answer."""
        known = self._interesting.get(definition)
        if known is None:
            known = self._interesting[definition] = self._has_to_do_with_training(definition)
        return known

    @staticmethod
    def says(definition: Definition, words: tuple[str, ...]) -> bool:
        """Whether a function's text holds one of these words."""
        if active():  # it is to be noted who looks at which function
            return any(map(definition.says, words))
        module = definition.module
        return any(definition in module.saying(word) for word in words)

    def _has_to_do_with_training(self, definition: Definition) -> bool:
        if definition.cls is None or not self.is_module(definition.cls):
            if definition.cls is not None and self.class_kind(definition.cls) == "function":
                return True  # torch.autograd.Function: its context may be called anything
            if self.says(definition, ("for", "while")) and definition.says(LOOP):
                return True
        return definition.says(STORE) or (self.says(definition, TRAINING) and definition.says(TRAINS))

    @fact
    def relevant(self, module: Module) -> bool:
        """Whether a file has to do with tensors: it says so itself, or imports a file of the project that does."""
        with unseen():
            if not TENSOR_WORDS.isdisjoint(module.words):
                return True
            targets = (*module.imports.values(), *(t for d in module.definitions for t in d.imports.values()))
            for target in targets:
                other = self.names.module(target, module) or self.names.module(target.rpartition(".")[0], module)
                if other is not None and other is not module and not TENSOR_WORDS.isdisjoint(other.words):
                    return True
        return False

    @question(1)
    def flow(self, definition: Definition) -> Flow | None:
        """The function read with only what the use of its arguments says of them. None while it is being read."""
        found = self._flows.get((definition, ()))
        if found is not None:
            return found
        outer = definition.outer
        if outer is not None and definition not in self.closures:
            self.flow(outer)
        return self._read(definition, {}, (), 0)

    @question(1)
    def summary(self, target: Definition, bound: dict[str, Value], depth: int) -> Flow | None:
        """The function read with what these arguments are: their kinds, types and constants, but not their graphs."""
        if depth > DEPTH:
            return None
        key = self._signature(target, bound)
        plain = self._plain.get(target)
        if plain is None:
            plain = self._plain[target] = self._signature(target, {})
        if key == plain or (len(self._variants[target]) >= VARIANTS and key not in self._variants[target]):
            return self._read(target, {}, (), depth)
        self._variants[target].add(key)
        return self._read(target, bound, key, depth)

    def inert(self, init: Definition) -> bool:
        """Whether a constructor only puts its object together, by its words and by those of what it calls.

        Then whoever calls it need not read it: what the attributes hold is found out when somebody asks for them.
        """
        if active():
            return False
        known = self._inert.get(init)
        if known is None:
            self._inert[init] = True  # one that calls itself adds nothing
            known = ACTS.search(init.code) is None and all(map(self.inert, self.names.helpers(init)))
            self._inert[init] = known
        return known

    def _signature(self, target: Definition, bound: dict[str, Value]) -> tuple[Any, ...]:
        """What of the arguments a reading of the function depends on."""
        found = []
        for i, name in enumerate(target.parameters):
            given = bound.get(name)
            kind, type_, const, callee = self._shape(target, i, name, given)
            known = isinstance(const, (bool, int, str, type(None)))
            frozen = given is not None and bool(given.objs) and given.objs[0].frozen
            found.append((kind, type_, const if known else UNSET, callee, frozen, given is not None and of_file(given)))
        return tuple(found)

    def twins(self, definition: Definition, node: Node) -> list[Node]:
        """The node and what stands for it in other readings of the function."""
        found = [node]
        if node.owner is definition:
            for key in ((), *self._variants[definition]):
                flow = self._flows.get((definition, key))
                twin = flow.nodes.get(node.key) if flow is not None else None
                if twin is not None and twin is not node:
                    found.append(twin)
        return found

    def _read(self, definition: Definition, bound: dict[str, Value], key: tuple[Any, ...], depth: int) -> Flow | None:
        place = (definition, key)
        if place in self._flows:
            return self._flows[place]
        if place in self._running or sum(1 for d, _ in self._running if d is definition) > 1:
            return None
        top = definition.module.top
        if definition is not top and (top, ()) not in self._flows and top.calls_own:
            self.flow(top)  # before its functions, whoever asks first: it says what the names are that they share
            if place in self._flows:
                return self._flows[place]
        arguments = self._symbolic(definition, bound)  # may read callers, which may read this very function
        if place in self._flows:
            return self._flows[place]
        flow = self._running[place] = Flow(self, definition, arguments, depth)
        try:
            flow.read()
        finally:
            del self._running[place]
        self._flows[place] = flow
        self._weight += len(flow.nodes) + len(flow.events)
        return flow

    def _symbolic(self, definition: Definition, bound: dict[str, Value]) -> dict[str, Value]:
        """The parameters as the function itself sees them: nodes and objects that carry their index."""
        found: dict[str, Value] = {}
        node = definition.node
        for i, name in enumerate(definition.parameters):
            given = bound.get(name)
            kind, type_, const, target = self._shape(definition, i, name, given)
            obj = Obj(kind, node, name=name, parameter=i, type=type_, home=definition)
            if given is not None and given.objs:
                obj.frozen = given.objs[0].frozen
                obj.type = LOADED if of_file(given) else type_
            if i == 0 and definition.bound and definition.cls is not None:
                objs = (obj,) if kind != "class" else ()
                found[name] = Value(kind, type=type_, target=target, objs=objs, path=name if objs else "")
                continue
            mark = Node(Origin.PARAMETER, node, name, Grad.ON, (), index=i, path=definition.module.source.path,
                        owner=definition)  # fmt: skip
            if given is not None and given.objs:
                obj.bounded = given.objs[0].bounded
                obj.evaluates, obj.trains = given.objs[0].evaluates, given.objs[0].trains
            if given is None and isinstance(definition.defaults.get(name), (ast.List, ast.Dict, ast.Set)):
                obj = self._defaults.setdefault((definition, name), obj)
                obj.kind, obj.owner = kind, definition
            deps = EMPTY if kind in GRAPHLESS else frozenset({mark})
            value = Value(kind, deps, type_, (obj,), path=name, const=const, target=target)
            if given is not None and kind not in CONTAINERS:
                value.scalar, value.leaf = given.scalar, given.leaf
            if given is not None and given.items is not None and not deps:
                value.items = given.items
            found[name] = value
        return found

    def _shape(self, definition: Definition, i: int, name: str, given: Value | None) -> tuple[str, str, Any, Any]:
        """Kind, type, constant and callee of a parameter, by what it is given, else by annotation, use and default."""
        cls = definition.cls
        if i == 0 and cls is not None and definition.bound:
            if given is not None:
                cls = self.class_named(given.type) or cls
            if self.is_classmethod(definition):
                return "class", cls.full_name, UNSET, cls
            return self.class_kind(cls), cls.full_name, UNSET, None
        kind, type_, const, target = "unknown", "", UNSET, None
        if given is not None:
            kind, type_, const = given.kind, given.type, given.const
            target = given.target if isinstance(given.target, (Definition, Class)) else None
            if isinstance(const, Mode) or not (isinstance(const, bool) or name in definition.tested):
                const = UNSET  # one reading serves all callers
        if kind == "unknown":
            stated = self._stated.get((definition, name))
            if stated is None:
                stated = self._annotated(definition, name)
                use = self.uses(definition).get(name)
                if stated[0] == "unknown" and use is not None and use.role:
                    stated = (use.role, "")
                self._stated[definition, name] = stated
            kind, type_ = stated
            if kind == "unknown" and given is None:
                use = self.uses(definition).get(name)
                if use is not None and use.called and definition.name != "__init__":  # there it makes the parts
                    kind, type_ = self._handed(definition, name)
                    kind = kind or "unknown"
        elif kind in ("gradient", "method", "constant", "namespace", "library", "slice", "range"):
            kind = "unknown"
        if given is None:
            kind = _DISPLAYS.get(type(definition.defaults.get(name)), kind)
        return kind, type_, const, target

    def _handed(self, definition: Definition, name: str) -> tuple[str, str]:
        """Kind and type of what all callers hand over for a parameter that the function calls."""
        if definition in self._handing or len(self.within_reach(definition)) > FEW:
            return "", ""
        self._handing.add(definition)
        try:
            found = {
                (v.kind, v.type)
                for flow, event in self.callers(definition)
                if (v := self.argument(definition, name, flow, event)) is not None
            }
        finally:
            self._handing.discard(definition)
        kinds = {kind for kind, _ in found}
        if kinds != {"module"}:
            return "", ""
        return "module", next(iter(found))[1] if len(found) == 1 else ""

    def argument(self, definition: Definition, name: str, flow: Flow, event: Event) -> Value | None:
        """What one call of a function hands over for a parameter."""
        args = list(event.args)
        if definition.bound and event.receiver.receiver is not None:
            args.insert(0, event.receiver.receiver)
        elif definition.bound and event.verb in ("build", "forward"):
            args.insert(0, event.value if event.verb == "build" else event.receiver)
        return self.bind(definition, args, event.keywords, flow).get(name)

    def handed_over(self, definition: Definition, name: str) -> Iterator[tuple[Flow, Value]]:
        """What the function's callers, itself left out, hand over for a parameter, each with its flow."""
        for flow, event in self.callers(definition):
            if flow.definition is not definition:
                value = self.argument(definition, name, flow, event)
                if value is not None:
                    yield flow, value

    def _annotated(self, definition: Definition, name: str) -> tuple[str, str]:
        node = definition.annotations.get(name)
        default = definition.defaults.get(name)
        if isinstance(default, (ast.Name, ast.Attribute)):  # ``act_layer: nn.Module = nn.GELU`` means a class
            meaning = self.names.resolve(default, definition.outer or definition.module.top)
            if isinstance(meaning, Class) or (
                isinstance(meaning, str) and (row := self.library.lookup(meaning)) and row.kind
            ):
                return "unknown", ""
        stated = self.annotation(node, definition) if node is not None else ("unknown", "")
        return ("unknown", "") if stated[0] == "module" and self._makes_modules(definition, name) else stated

    def _makes_modules(self, definition: Definition, name: str) -> bool:
        """Whether calling a name gives a module: it is a class, or builds one, whatever its annotation says."""
        for node in definition.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = node.value
                while isinstance(made.func, ast.Attribute) and isinstance(made.func.value, ast.Call):
                    made = made.func.value
                if isinstance(made.func, ast.Name) and made.func.id == name:
                    uses = (self.uses(definition).get(chain(t)) for t in node.targets)
                    if any(use is not None and use.attributes & BUILT for use in uses):
                        return True
        return False

    def annotation(self, node: ast.expr, where: Definition) -> tuple[str, str]:
        """Kind and type that an annotation states."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return "unknown", ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            left, right = self.annotation(node.left, where), self.annotation(node.right, where)
            if "none" in (left[0], right[0]):
                return right if left[0] == "none" else left
            return left if left == right else ("unknown", "")
        if isinstance(node, ast.Constant) and node.value is None:
            return "none", ""
        if isinstance(node, ast.Subscript):
            base = self.names.resolve(node.value, where)
            last = base.rpartition(".")[2] if isinstance(base, str) else getattr(node.value, "id", "")
            if last == "Optional":
                return self.annotation(node.slice, where)
            if last in ("List", "list", "Dict", "dict", "Set", "set", "Tuple", "tuple", "Deque"):
                return {"Deque": "deque"}.get(last, last.lower()), ""
            node = node.value
        meaning = self.names.resolve(node, where)
        if isinstance(meaning, Class):
            return self.class_kind(meaning), meaning.full_name
        if isinstance(meaning, str):
            row = self.library.lookup(meaning)
            if row is not None and row.kind:
                return row.kind, "" if row.kind in ("tensor", "module") else self.library.canonical(meaning)
            return "unknown", ""
        simple = {"int": "number", "float": "number", "str": "string", "bool": "bool", "list": "list", "dict": "dict",
                  "tuple": "tuple", "set": "set", "None": "none"}  # fmt: skip
        return (simple.get(node.id, "unknown") if isinstance(node, ast.Name) else "unknown"), ""

    def bind(
        self, target: Definition, args: Sequence[Value], keywords: dict[str, Value], caller: Reading
    ) -> dict[str, Value]:
        """Parameters by name with the arguments of a call; defaults that are constants where nothing is given."""
        bound: dict[str, Value] = {}
        positional = list(target.positional)
        node = target.node
        for name, value in zip(positional, args, strict=False):
            bound[name] = value
        vararg = getattr(getattr(node, "args", None), "vararg", None)
        if vararg is not None and len(args) > len(positional):
            bound[vararg.arg] = Value("tuple", items=tuple(args[len(positional) :]))
        rest: dict[str, Value] = {}
        for name, value in keywords.items():
            if name in target.parameters:
                bound[name] = value
            elif name not in ("*", "**"):
                rest[name] = value
        kwarg = getattr(getattr(node, "args", None), "kwarg", None)
        if kwarg is not None:
            obj = Obj("dict", node, name=kwarg.arg, items=dict(rest))
            for value in rest.values():
                obj.elem = value if obj.elem is None else join(obj.elem, value)
            bound[kwarg.arg] = Value("dict", objs=(obj,))
        if "**" not in keywords and "*" not in keywords:
            for name, default in target.defaults.items():
                if name not in bound:
                    if isinstance(default, ast.Constant):
                        bound[name] = caller.constant(default)
                    elif isinstance(default, ast.Attribute):
                        bound[name] = UNKNOWN
        return bound

    def lambda_definition(self, node: ast.Lambda, outer: Definition) -> Definition:
        found = self._lambdas.get(node)
        if found is None:
            prefix = f"{outer.qualname}.<locals>." if outer.qualname else ""
            found = self._lambdas[node] = Definition("<lambda>", f"{prefix}<lambda>", node, outer.module, None, outer)
        return found

    def captured(self, definition: Definition, name: str) -> Value | None:
        """The value that a closure sees for a name of the function around it."""
        outer = definition.outer
        while outer is not None:
            env = self.closures.get(definition)
            if env is not None and name in env:
                value = env[name]
                use = self.uses(outer).get(name) if value.kind == "unknown" else None
                return value.but(kind="module") if use is not None and use.role == "module" else value
            if name in outer.parameters:
                flow = self._flows.get((outer, ()))
                return flow.arguments.get(name) if flow is not None else self._symbolic(outer, {}).get(name)
            definition, outer = outer, outer.outer
        return None

    # ------------------------------------------------------------------ classes

    def class_named(self, full_name: str) -> Class | None:
        """The project's class of that full name."""
        return self.named(full_name) if full_name else None

    @fact
    def named(self, full_name: str) -> Class | None:
        with unseen():
            for module in list(self.names.modules.values())[self._classed :]:
                for cls in self.names.classes(module):
                    self._classes.setdefault(cls.full_name, cls)
                self._classed += 1
        return self._classes.get(full_name)

    @fact
    def class_kind(self, cls: Class) -> str:
        """The kind of a project class's instances, from the library classes that it derives from."""
        for base in self.names.library_bases(cls):
            row = self.library.lookup(base)
            if row is not None and row.kind:
                return row.kind
        return "instance"

    def is_module(self, cls: Class) -> bool:
        return self.class_kind(cls) in ("module", "engine")

    @staticmethod
    def is_property(definition: Definition) -> bool:
        return any(_last(d) in PROPERTIES for d in definition.decorators)

    @staticmethod
    def is_classmethod(definition: Definition) -> bool:
        return any(_last(d) == "classmethod" for d in definition.decorators)

    def setter(self, cls: Class, attr: str) -> Definition | None:
        """The ``@attr.setter`` of a class."""
        for c in self.names.mro(cls):
            if isinstance(c, Class) and attr in c.methods:
                for d in c.module.definitions:
                    if d.cls is c and d.name == attr and any(_last(x) == "setter" for x in d.decorators):
                        return d
                return None
        return None

    @fact
    def learns(self, cls: Class) -> Answer:
        """Whether a module class has weights of its own or below. MAYBE: only those of what its constructor is given.

        A module without weights builds no graph from plain input.
        """
        self.facts["learns", cls] = Answer.YES  # a class that holds itself adds nothing
        known = Answer.any(self._weights(cls))
        if known is Answer.YES and any(
            SWITCHED.search(d.text) for c in self.names.mro(cls) if isinstance(c, Class) for d in c.methods.values()
        ):
            return Answer.MAYBE  # weights made, or turned, into constants by a switch
        return known

    def _weights(self, cls: Class) -> Iterator[Answer]:
        for c in self.names.mro(cls):
            if isinstance(c, str):
                row = self.library.lookup(c)
                if row is None or (row.parameters and c != "torch.nn.Module"):
                    yield Answer.YES
                continue
            for definition in c.methods.values():
                if "self." not in definition.text:
                    continue
                if WEIGHTY.search(definition.text):
                    yield Answer.YES
                for value in self._assigned(definition):
                    if isinstance(value, ast.Call):
                        meaning = self.names.resolve(value.func, definition)
                        if isinstance(meaning, Class):
                            yield self.learns(meaning) if self.is_module(meaning) else Answer.NO
                        elif isinstance(meaning, str):
                            row = self.library.lookup(meaning)
                            yield Answer.YES if row is None or (row.kind == "module" and row.parameters) else Answer.NO
                        else:
                            yield Answer.YES
                    elif definition.name == "__init__" and isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
                        yield Answer.MAYBE if self._stored_as_module(cls, ast.unparse(value)) else Answer.NO

    def _stored_as_module(self, cls: Class, written: str) -> bool:
        """Whether the attribute that a constructor fills from an argument is then called, or used as a module."""
        uses = self.class_uses(cls)
        attrs = [a for a, use in uses.items() if use.called or use.iterated or use.role == "module"]
        return any(
            re.search(rf"self\.{re.escape(a)}\s*=\s*{re.escape(written)}\b", d.text)
            for a in attrs
            for d in self.writers(cls, a)
        )

    @staticmethod
    def _assigned(definition: Definition) -> Iterator[ast.expr]:
        for node in definition.nodes:
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) for t in node.targets):
                yield node.value

    # ------------------------------------------------------------------ attributes, globals

    def place_node(self, obj: Obj) -> Node:
        if obj.node is None:
            obj.node = Node(Origin.PLACE, obj.site or ast.Pass(), obj.name, place=obj)
        return obj.node

    def attribute_obj(self, cls: Class, attr: str, _owner: Value | None = None) -> Obj:
        family = self.names.family(cls)
        found = self._attribute_objs.get((family, attr))
        if found is None:
            found = self._attribute_objs[family, attr] = Obj("unknown", name=f"self.{attr}", owner=family)
        return found

    def part(self, parent: Obj, name: str) -> Obj:
        """The object that an attribute of an object of unknown class is."""
        found = self._parts.get((parent, name))
        if found is None:
            found = Obj("unknown", parent.site, parent.loops, name=f"{parent.name}.{name}", owner=parent.owner,
                        home=parent.home, parent=parent)  # fmt: skip
            found.frozen = parent.frozen
            self._parts[parent, name] = found
        return found

    def writers(self, cls: Class, attr: str) -> list[Definition]:
        """The methods of a class and its bases that assign ``self.attr``, constructors first."""
        found: list[Definition] = []
        for c in self.names.mro(cls):
            if isinstance(c, Class):
                found.extend(d for d in self.written(c).get(attr, ()) if d not in found)
        return sorted(found, key=lambda d: d.name != "__init__")

    @fact
    def written(self, cls: Class) -> dict[str, list[Definition]]:
        """The attributes of ``self`` that methods of a class, not of its bases, assign, each with those methods."""
        table: dict[str, list[Definition]] = defaultdict(list)
        for definition in cls.methods.values():
            if not definition.bound:
                continue
            me = definition.positional[0]
            if f"{me}." not in definition.text:
                continue
            for node in definition.nodes:
                targets = (
                    node.targets if isinstance(node, ast.Assign)
                    else [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []
                )  # fmt: skip
                for target in targets:
                    for t in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if (
                            isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id == me
                        ) and definition not in table[t.attr]:
                            table[t.attr].append(definition)
        return dict(table)

    @question(2)
    def attribute(self, cls: Class, attr: str, owner: Value, name: str) -> Value | None:
        """What ``self.attr`` holds: the join of all that the class's methods assign to it."""
        key = (cls, attr)
        obj = self.attribute_obj(cls, attr)
        if key not in self._attributes:
            self._attributes[key] = Value("unknown", frozenset({self.place_node(obj)}), objs=(obj,))
            self._attributes[key] = self._attribute(cls, attr, obj)
        value = self._attributes[key]
        if value is None:
            return None
        return value.but(receiver=owner, path=name)

    def _attribute(self, cls: Class, attr: str, obj: Obj) -> Value | None:
        value: Value | None = None
        known = False
        for c in self.names.mro(cls):
            if isinstance(c, Class) and attr in c.variables:
                known = True
                inner = c.variables[attr]
                kind = {ast.List: "list", ast.Dict: "dict", ast.Set: "set"}.get(type(inner), "unknown")
                if isinstance(inner, ast.Constant):
                    kind = {bool: "bool", int: "number", float: "number", str: "string"}.get(type(inner.value), "none")
                value = Value(kind)
                break
        for definition in self.writers(cls, attr)[:6]:
            known = True
            flow = self.flow(definition)
            if flow is None:
                continue
            for event in flow.events:
                if event.verb == "set" and event.target is obj and event.inner is None:
                    value = event.value if value is None else join(value, event.value)
        role = self.class_uses(cls).get(attr)
        if value is None or value.kind in ("unknown", "none"):
            kind = role.role if role is not None else ""
            if value is None and not known and not kind:
                return Value("unknown", frozenset({self.place_node(obj)}), objs=(obj,))
            value = (value or UNKNOWN).but(kind=kind or (value.kind if value is not None else "unknown"))
            if value.kind == "none":
                value = value.but(kind="unknown", const=UNSET)
        if value.obj is not None and value.obj is not obj:
            obj.bounded = obj.bounded or all(o.bounded for o in value.objs)
            obj.frozen = obj.frozen or any(o.frozen for o in value.objs)
            obj.items = obj.items or {k: self._placed(v, obj) for k, v in value.obj.items.items()}
            obj.model = obj.model or value.obj.model
            if value.obj.elem is not None and obj.elem is None:
                obj.elem = self._placed(value.obj.elem, obj)
        obj.kind, obj.type = value.kind, value.type
        deps = (
            EMPTY
            if value.kind in GRAPHLESS or value.kind in ("module", "instance")
            else frozenset({self.place_node(obj)})
        )
        constant = (
            value.const
            if isinstance(value.const, (str, bool, int))
            and len(self.writers(cls, attr)) == 1
            and value.kind == "string"
            else UNSET
        )
        target = value.target if isinstance(value.target, (Definition, Class)) else None
        return Value(value.kind, deps, value.type, (obj,), const=constant, leaf=value.leaf, device=value.device,
                     scalar=value.scalar, target=target)  # fmt: skip

    def _placed(self, value: Value, obj: Obj) -> Value:
        """A value that sits in a shared object, as those see it who read it there."""
        for inner in value.objs:
            inner.owner = inner.owner or obj.owner
            inner.name = inner.name or obj.name
        return value.but(deps=frozenset({self.place_node(obj)}), path="") if value.deps else value

    def class_uses(self, cls: Class) -> dict[str, Use]:
        """How the methods of a class and its relatives use each attribute of ``self``."""
        return self.family_uses(self.names.family(cls))

    @fact
    def family_uses(self, family: Class) -> dict[str, Use]:
        """How the methods of a class and those derived from it use each attribute of ``self``."""
        found: dict[str, Use] = {}
        for c in (family, *self.names.derived(family)):
            for definition in c.methods.values():
                if not definition.bound:
                    continue
                prefix = definition.positional[0] + "."
                for name, use in self.uses(definition).items():
                    if name.startswith(prefix) and name.count(".") == 1:
                        found.setdefault(name[len(prefix) :], Use()).merge(use)
        return found

    @fact
    def uses(self, definition: Definition) -> dict[str, Use]:
        """How a function uses each dotted name."""
        return uses(definition.node)

    def role_of(self, value: Value, flow: Reading) -> str:
        """The role of something unknown, by how this function uses the name that it has there."""
        use = self.uses(flow.definition).get(value.path) if value.path else None
        return use.role if use is not None else ""

    def global_obj(self, module: Module, name: str) -> Obj:
        found = self._globals.get((module, name))
        if found is None:
            found = self._globals[module, name] = Obj("unknown", name=name, owner=module)
        return found

    def global_value(self, module: Module, name: str, value: Value) -> Value:
        """A container bound at the top level of a file: all functions of the file share it."""
        for obj in value.objs:
            self._share(obj, module, name)
        return value

    def _share(self, obj: Obj, module: Module, name: str) -> None:
        if obj.owner is None:
            obj.owner, obj.name = module, obj.name or name
            for inner in (*obj.items.values(), *([obj.elem] if obj.elem is not None else [])):
                for o in inner.objs:
                    if o.kind in CONTAINERS:
                        self._share(o, module, name)

    def global_read(self, names: Names, module: Module, definition: Definition, name: str, expr: ast.expr) -> Value:
        """A name bound at the top level of a file, as functions see it."""
        home = next((m for m in (module, *names.modules.values()) if m.variables.get(name) is expr), module)
        if definition is home.top:
            return UNKNOWN
        if isinstance(expr, ast.Constant):
            kinds = {bool: "bool", int: "number", float: "number", str: "string"}
            many = len(re.findall(rf"^\s*(?:global\s+.*\b{re.escape(name)}\b|{re.escape(name)}\s*[+\-*/]?=[^=])",
                                  home.source.text, re.M)) > 1  # fmt: skip
            if expr.value is None and many:
                return Value("unknown", frozenset({self.place_node(self.global_obj(home, name))}))
            return Value(kinds.get(type(expr.value), "none"), const=UNSET if many else expr.value)
        top = home.top, ()  # what calls this function may be the top level itself: then the name is what it is by now
        flow = self._flows.get(top) or self._running.get(top) or self.flow(home.top)
        value = flow.env.get(name) if flow is not None else None
        if value is None:
            return UNKNOWN
        deps = EMPTY
        if value.kind in CONTAINERS and value.obj is not None:
            deps = frozenset({self.place_node(value.obj)})
        elif value.kind in ("tensor", "unknown"):
            deps = frozenset({self.place_node(self.global_obj(home, name))})
        return value.but(deps=deps, path=name)

    # ------------------------------------------------------------------ gradient mode

    @fact
    def decorated_grad(self, definition: Definition) -> Grad:
        """The gradient mode that decorators, or the framework that calls the method, give a function."""
        for decorator in definition.decorators:
            mode = self._decorator(decorator, definition)
            if mode is not None:
                return mode
        cls = definition.cls
        if cls is not None:
            for base in self.names.library_bases(cls):
                words = self.library.hook(base, definition.name)
                if "no_grad" in words:
                    return Grad.OFF
                if "grad" in words or "differentiated" in words:
                    return Grad.ON
        return Grad.ENTRY

    def _decorator(self, node: ast.expr, definition: Definition) -> Grad | None:
        call = node if isinstance(node, ast.Call) else None
        func = call.func if call is not None else node
        where = definition.outer or definition.module.top
        meaning = self.names.resolve(func, where)
        if isinstance(meaning, str):
            row = self.library.lookup(meaning)
            if row is not None:
                if row.effects & {"no_grad", "inference_mode"}:
                    flag = call.args[0] if call is not None and call.args else None
                    if isinstance(flag, ast.Constant) and flag.value is False:
                        return Grad.ON
                    return Grad.OFF
                if "enable_grad" in row.effects:
                    return Grad.ON
                if "set_grad_enabled" in row.effects and call is not None and call.args:
                    flag = call.args[0]
                    return (Grad.ON if flag.value else Grad.OFF) if isinstance(flag, ast.Constant) else Grad.UNKNOWN
                return None
        if isinstance(meaning, Definition):
            if "grad" not in meaning.text and "inference_mode" not in meaning.text:
                return None
            found = GUARDS.findall(meaning.text)
            if "enable_grad" in found:
                return Grad.UNKNOWN
            return Grad.OFF if found else None
        if isinstance(meaning, Class):
            return Grad.OFF if GUARDS.search("".join(d.text for d in meaning.methods.values())) else None
        if isinstance(meaning, ast.expr):  # dec = torch.no_grad()
            return Grad.OFF if GUARDS.search(ast.unparse(meaning)) else None
        last = _last(func)
        if re.search(r"no_?grad|inference|eval_mode", last):
            return Grad.OFF
        return None

    def context_mode(self, target: Definition | Class) -> Grad | None:
        """The gradient mode under which a context manager of the project runs its block, None for no change."""
        if isinstance(target, Class):
            entering = self.names.method(target, "__enter__")
            guarded = entering is not None and GUARDS.search(entering.text) is not None
            return Grad.UNKNOWN if guarded else None
        if not target.generator or GUARDS.search(target.text) is None:
            return None
        flow = self.flow(target)
        modes = {e.grad for e in flow.events if e.verb == "yield"} if flow is not None else set()
        if not modes or modes == {Grad.ENTRY}:
            return None
        return modes.pop() if len(modes) == 1 else Grad.UNKNOWN

    @question(1)
    def entry_grad(self, definition: Definition) -> Grad:
        """The gradient mode in which a function runs: its own, else that of all its callers together."""
        own = self.decorated_grad(definition)
        if own is not Grad.ENTRY:
            return own
        known = self._entry.get(definition)
        if known is None:
            self._entry[definition] = Grad.UNKNOWN  # a cycle of callers adds nothing
            known = self._entry[definition] = self._entry_grad(definition)
        return known

    def _entry_grad(self, definition: Definition) -> Grad:
        modes: set[Grad] = set()
        for flow, event in self.callers(definition) or self.namesakes(definition):
            if flow.definition is definition:
                continue
            modes.add(Grad.UNKNOWN if self._chosen(flow.definition, event) else self.grad_at(flow, event.grad))
        for _, grad in self.handed_on.get(definition, ()):
            modes.add(grad if grad is not Grad.ENTRY else Grad.UNKNOWN)
        if not modes:
            return self._root_grad(definition)
        if Grad.ON in modes:
            return Grad.ON
        return modes.pop() if len(modes) == 1 else Grad.UNKNOWN

    def _chosen(self, definition: Definition, event: Event) -> bool:
        """Whether an event is in one branch of a module's ``forward``, and those who take it, in some mode, are not in
        sight."""
        if definition.name != "forward" or event.grad is not Grad.ENTRY or self.callers(definition):
            return False
        line = event.site.lineno  # type: ignore[attr-defined]
        return bool(event.guards) or any(isinstance(n, ast.Return) and n.lineno < line for n in definition.nodes)

    def _root_grad(self, definition: Definition) -> Grad:
        if definition in self.addressed or definition in self.hooks or definition in self.crowded:
            return Grad.UNKNOWN
        if definition.name == "<lambda>" or (definition.outer is not None and not definition.decorators):
            return Grad.UNKNOWN
        if definition.cls is not None:
            for base in self.names.library_bases(definition.cls):
                if self.library.lookup(base) is None and not base.startswith(FRAMEWORK_FREE):
                    return Grad.UNKNOWN  # a framework that nobody here knows may call it in any mode
        return Grad.ON

    def grad_at(self, flow: Flow, grad: Grad) -> Grad:
        return self.entry_grad(flow.definition) if grad is Grad.ENTRY else grad

    # ------------------------------------------------------------------ callers

    @question(1)
    def mentioning(self, name: str) -> list[Definition]:
        """The functions whose text holds a name."""
        found = self._mentions.get(name)
        if found is None:
            found = self._mentions[name] = []
            with unseen():
                for module in self._holding(name):
                    found.extend(module.mentioning(name))
        return found

    @fact
    def callers_of(self, words: tuple[str, ...]) -> frozenset[str]:
        """These words, and the names of the functions that call something of such a name."""
        return frozenset(words).union(
            d.name for word in words for d in self.mentioning(word) if d.name != "<module>" and d.says(f"{word}(")
        )

    def _holding(self, name: str) -> list[Module]:
        """The files that hold an identifier."""
        for module in list(self.names.modules.values())[self._indexed :]:
            self._indexed += 1
            if not self.relevant(module):
                continue
            for word in module.words:
                self._words[word].append(module)
        return self._words.get(name, [])

    @question(1)
    def callers(self, definition: Definition) -> list[tuple[Flow, Event]]:
        """Every call of a function in the project, with the flow that makes it."""
        found = self._callers.get(definition)
        if found is None:
            self._callers[definition] = found = []
            partial = False
            if isinstance(definition.node, ast.Module):
                return found
            overridden = self.overridden(definition)
            candidates = self.within_reach(definition)
            if len(candidates) > CROWD:
                self.crowded.add(definition)
                candidates = candidates[:0]
            for candidate in dict.fromkeys(candidates):
                if candidate is definition and candidate in self._handing:
                    continue
                flow = self.flow(candidate)
                if flow is None:
                    partial = True
                    continue
                found += ((flow, event) for event in self.calls(definition, overridden, flow))
            if partial:  # a candidate is being read just now: nobody else is to go by this answer
                del self._callers[definition]
        return found

    def overridden(self, definition: Definition) -> set[Definition]:
        """A function and those that it overrides."""
        found = {definition}
        for c in self.names.mro(definition.cls) if definition.cls is not None else ():
            if isinstance(c, Class) and definition.name in c.methods:
                found.add(c.methods[definition.name])
        return found

    def calls(self, definition: Definition, overridden: set[Definition], flow: Flow) -> Iterator[Event]:
        """The calls of a function, or of one that it overrides, in the flow of another."""
        cls, name = definition.cls, definition.name
        for event in flow.events:
            if event.inner is not None:
                continue
            if event.verb == "call" and isinstance(event.callee, Definition) and event.callee in overridden:
                yield event
            elif event.verb == "forward" and cls is not None and name in ("forward", "__call__"):
                other = self.class_named(event.receiver.type)
                if other is not None and self.names.method(other, name) in overridden:
                    yield event
            elif event.verb == "build" and name == "__init__" and event.callee is cls:
                yield event

    @question(1)
    def namesakes(self, definition: Definition) -> list[tuple[Flow, Event]]:
        """Calls of a method of that name on objects of unknown class, where only one class of the project has it."""
        if definition.cls is None or definition.name.startswith("__") or self.library.duck(definition.name) is not None:
            return []
        if not self.sole(definition.name):
            return []
        found = []
        for candidate in self.mentioning(definition.name):
            flow = self.flow(candidate) if candidate is not definition else None
            for event in flow.events if flow is not None else ():
                if event.verb == "call" and event.callee is None and isinstance(event.site, ast.Call):
                    func = event.site.func
                    if isinstance(func, ast.Attribute) and func.attr == definition.name:
                        found.append((flow, event))
        return found  # type: ignore[return-value]

    @fact
    def sole(self, name: str) -> bool:
        """Whether only one class of the project has a method of that name."""
        if self._namesakes is None:
            with unseen():
                self._namesakes = Counter(
                    n for m in self.names.modules.values() for c in self.names.classes(m) for n in c.methods
                )
        return self._namesakes[name] == 1

    def _read_neighbours(self, name: str) -> None:
        """Take in the files outside the run that hold a name: one of them may call what is checked."""
        if name in self._sought or self._read_file is None:
            return
        self._sought.add(name)
        if self._unread is None:
            read = (self._read_file(path) for path in self._neighbours)
            self._unread = [source for source in read if source is not None and source.path not in self.names.modules]
        rest = []
        for source in self._unread:
            if name in source.text:
                self.names.add(source)
            else:
                rest.append(source)
        self._unread = rest

    def within_reach(self, definition: Definition) -> list[Definition]:
        """The functions that may call a function: those that mention it, or its class, and can see it."""
        cls, name = definition.cls, definition.name
        if self._neighbours:
            self._read_neighbours(cls.name if cls is not None and name in ("__init__", "forward", "__call__") else name)
        if name in ("__init__", "forward", "__call__") and cls is not None:
            found = [d for c in (cls, *self.names.derived(cls)) for d in self.mentioning(c.name)]
            return found + (self.mentioning(name) if name == "forward" else [])
        found = self.mentioning(name)
        if cls is None and definition.outer is None:  # only those can call it who import it
            near = definition.module
            found = [c for c in found if c.module is near or near in self.imported(c.module)]
        return found

    @fact
    def imported(self, module: Module) -> frozenset[Module]:
        """The files that a file imports, and those that a package it imports hands on."""
        self.facts["imported", module] = frozenset()
        with unseen():
            targets = {
                *module.imports.values(),
                *module.stars,
                *(t for d in module.definitions for t in d.imports.values()),
            }
            direct: set[Module] = set()
            for target in targets:
                for name in (target, target.rpartition(".")[0]):
                    other = self.names.module(name, module) if name else None
                    if other is not None:
                        direct.add(other)
            for other in list(direct):
                if other.package:
                    direct |= self.imported(other)
            return frozenset(direct)

    @question(1)
    def settle(self, obj: Obj) -> None:
        """Read every function that may touch an attribute or global, so that what they do to it is known."""
        if obj in self._settled or not obj.shared:
            return
        self._settled.add(obj)
        home = obj.owner if isinstance(obj.owner, Class) else None
        for definition in self.touching(obj.name.removeprefix("self."), home):
            self.flow(definition)

    @fact
    def touching(self, name: str, home: Class | None) -> list[Definition]:
        """The functions that may touch an attribute of that name of a family of classes, or a global."""
        mentions = self.mentioning(name)
        if len(mentions) <= CROWD:
            return list(mentions)
        # Too common a name: only its own family counts.
        return [d for d in mentions if d.cls is not None and home is not None and self.names.family(d.cls) is home]

    # ------------------------------------------------------------------ hand-overs

    def hooked(self, definition: Definition, receiver: Value, how: str, flow: Reading) -> None:
        self.hooks[definition].append((flow, receiver, how))

    @question(1)
    def is_hook(self, definition: Definition) -> bool:
        """Whether the function is registered as a hook anywhere in the project."""
        if len(definition.parameters) < 2 or isinstance(definition.node, ast.Module):
            return False
        if ("hook", definition) not in self._settled:
            self._settled.add(("hook", definition))
            hook = re.compile(rf"register\w*hook\w*\([^\n]*\b{re.escape(definition.name)}\b")
            for candidate in self.mentioning(definition.name):
                if candidate is not definition and candidate.says(hook):
                    self.flow(candidate)
        return definition in self.hooks

    def called_by(self, definition: Definition, row: Row, grad: Grad) -> None:
        self.handed_on[definition].append((row, grad))

    def taken(self, definition: Definition) -> None:
        self.addressed.add(definition)

    def forward_shape(self, cls: Class, args: list[Value], keywords: dict[str, Value], flow: Reading) -> Value | None:
        """What a module's ``forward`` returns, by its own code."""
        method = self.names.method(cls, "forward")
        if method is None:
            return None
        summary = self.flow(method) if flow.depth < DEPTH else None
        if summary is None or not summary.complete:
            return None
        return summary.returns if summary.returns is not NOTHING else None

    def answer_frozen(self, value: Value) -> Answer:
        """Whether the weights of a module are frozen."""
        if any(o.frozen for o in value.objs):
            return Answer.YES
        for obj in value.objs:
            if obj.shared and obj.owner is not None:
                self.settle_freezes(obj)
                if obj.frozen:
                    return Answer.YES
            if obj.parent is not None and obj.parent.frozen:
                return Answer.YES
        return Answer.NO

    def _touches(self, definition: Definition, obj: Obj) -> bool:
        """Whether a function may reach an attribute: a method of the class's family, or code outside classes."""
        if not isinstance(obj.owner, Class) or definition.cls is None:
            return True
        return self.names.family(definition.cls) is obj.owner

    @question(1)
    def settle_freezes(self, obj: Obj) -> None:
        if ("freeze", obj) in self._settled:
            return
        self._settled.add(("freeze", obj))
        for definition in self.mentioning(obj.name.removeprefix("self.")):
            if obj.owner is not definition.module and not self._touches(definition, obj):
                continue
            if definition.says("requires_grad") or definition.says("freeze"):
                flow = self.flow(definition)
                for event in flow.events if flow is not None else ():
                    if event.verb == "freeze" and obj in event.receiver.objs:
                        obj.frozen = True


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
