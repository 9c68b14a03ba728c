"""What is known of the files of one run, and all that questions about them have brought: what `Project` stands on."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from memlint.extract import Class, Definition, Module
from memlint.facts import Event, Grad, Obj, Value
from memlint.flow import Flow
from memlint.library import Library, Row, shipped
from memlint.names import OF_TREE, Loader, Names
from memlint.outline import Outline
from memlint.reading import Reading
from memlint.source import Source
from memlint.target import Target
from memlint.trace import active, fact, note, unseen

if TYPE_CHECKING:
    from memlint.function import Function

MEMORY = 3 << 30  # bytes that readings and trees may take together, about; half of it has half again as much read twice
OF_READING = 2_000  # … for each node and each event, with what hangs on it
FOREIGN = frozenset("paddle mindspore mxnet jax flax chainer oneflow jittor megengine tinygrad mlx".split())
TENSOR_WORDS = frozenset(
    "torch pytorch_lightning tensorflow keras trl fastai mmengine deepspeed zero_grad no_grad state_dict pyplot".split()
)
ENGLISH = frozenset("lightning transformers accelerate ignite".split())  # libraries, if they are imported


def of_tensors(module: Module) -> bool:
    """Whether a file says itself that it has to do with tensors."""
    if not TENSOR_WORDS.isdisjoint(module.words) or ("backward" in module.words and "backward(" in module.source.text):
        return True
    return not ENGLISH.isdisjoint(module.words) and not ENGLISH.isdisjoint(t.partition(".")[0] for t in targets(module))


def targets(module: Module) -> list[str]:
    """The dotted names that a file imports, its functions included."""
    inside = (target for definition in module.definitions for target in definition.imports.values())
    return [*module.imports.values(), *module.stars, *inside]


class Calls(NamedTuple):
    """What a function calls: ``something`` that may be a module, functions of the project, and methods by name."""

    something: bool
    helpers: list[Definition]
    methods: list[str]


class Knowledge:
    """What is known of the files of one run, and all that questions about them have brought."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        target_of: Callable[[str], Target] | None = None,
        library: Library | None = None,
        loader: Loader | None = None,
        neighbours: Sequence[str] = (),
        module: type[Module] = Module,
        outlines: Mapping[str, Outline] | None = None,
    ) -> None:
        self.library = library or shipped()
        self.names = Names(sources, loader, module, outlines)
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
        self._namesakes: defaultdict[str, list[Definition]] | None = None
        self._calling: dict[Definition, Calls] = {}
        self._bound: dict[Definition, frozenset[str]] = {}
        self._doing: dict[tuple[Definition, Callable[[str], bool]], bool] = {}

    @property
    def full(self) -> bool:
        """Whether more is kept in memory than should be: it is time for `drop`."""
        return self._weight * OF_READING + self.names.loaded * OF_TREE > MEMORY

    def drop(self) -> None:
        """Let go of readings and of trees. Nodes hold each other: taken apart, they need no search for cycles."""
        for flow in self._flows.values():
            for node in flow.nodes.values() if flow is not None else ():
                node.copies, node.module, node.place, node.inner = (), None, None, None
        self.unread()
        self.names.drop()

    def unread(self) -> None:
        """Forget all that reading functions has brought: as if none had been read."""
        self._flows: dict[Any, Flow | None] = {}
        self._weight = 0
        self._interesting: dict[Definition, bool] = {}
        self._running: dict[tuple[Definition, Any], Flow] = {}
        self._attribute_objs: dict[tuple[Class, str], Obj] = {}
        self._attributes: dict[tuple[Class, str], Value | None] = {}
        self._globals: dict[tuple[Module, str], Obj] = {}
        self._homes: dict[ast.expr, Module] = {}
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

    def flow(self, definition: Definition) -> Flow | None:
        """The function read with only what the use of its arguments says of them. None while it is being read."""
        raise NotImplementedError

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

    @staticmethod
    def says(definition: Definition, words: tuple[str, ...]) -> bool:
        """Whether a function's text holds one of these words."""
        if active():  # it is to be noted who looks at which function
            return any(map(definition.says, words))
        note(definition)
        return definition in definition.module.saying_any(words)

    @fact
    def relevant(self, module: Module) -> bool:
        """Whether a file has to do with tensors: it says so itself, or imports a file of the project that does."""
        with unseen():
            imported = targets(module)
            if not FOREIGN.isdisjoint(module.words):
                roots = {target.partition(".")[0] for target in imported}
                if not roots.isdisjoint(FOREIGN) and roots.isdisjoint(TENSOR_WORDS | ENGLISH):
                    return False  # tensors, but not those that the rules know
            if of_tensors(module):
                return True
            for target in imported:
                other = self.names.module(target, module) or self.names.module(target.rpartition(".")[0], module)
                if other is not None and other is not module and of_tensors(other):
                    return True
        return False
