"""The vocabulary of the analysis: what a value is, which graph it hangs on, and what a function does. Types only."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET"})()


class Grad(enum.Enum):
    """The gradient mode in which a value is made. ``ENTRY``: whatever the caller had; ``UNKNOWN``: cannot be told."""

    ON = "on"
    OFF = "off"
    ENTRY = "entry"
    UNKNOWN = "unknown"


class Origin(enum.Enum):
    """Where the graph of a value begins."""

    FORWARD = "forward"  # a module is called
    CALL = "call"  # something unknown is called: its result may carry a graph
    PARAMETER = "parameter"  # the function was handed the value
    WEIGHT = "weight"  # a leaf that requires gradients
    PLACE = "place"  # read from an attribute, a global or a container that other code fills


class Answer(enum.Enum):
    """Three-valued logic. Only ``YES`` makes a finding."""

    YES = "yes"
    NO = "no"
    MAYBE = "maybe"

    def __bool__(self) -> bool:
        return self is Answer.YES

    @classmethod
    def any(cls, answers: Iterable[Answer]) -> Answer:
        """YES if one is, NO if all are."""
        found = cls.NO
        for answer in answers:
            if answer is cls.YES:
                return answer
            if answer is cls.MAYBE:
                found = answer
        return found

    @classmethod
    def all(cls, answers: Iterable[Answer]) -> Answer:
        """YES if all are, NO if one is; of nothing, MAYBE."""
        found, seen = cls.YES, False
        for answer in answers:
            seen = True
            if answer is cls.NO:
                return answer
            if answer is cls.MAYBE:
                found = answer
        return found if seen else cls.MAYBE


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A point from which a graph grows: a forward call, an unknown call, a parameter, a place that is read.

    ``loops`` are the loops around it, outermost first. The marks are set while functions are read and only ever grow.
    """

    origin: Origin
    site: ast.AST
    name: str  # how a message names it
    grad: Grad = Grad.ON
    loops: tuple[ast.AST, ...] = ()
    module: Value | None = None  # FORWARD: what was called
    inputs: frozenset[Node] = frozenset()
    inner: Node | None = None  # the callee's node that this one stands for in its caller
    place: Obj | None = None  # PLACE: what is read
    index: int = -1  # PARAMETER: which
    path: str = ""  # the file that ``site`` is in
    owner: Any = None  # the definition whose reading made the node
    differentiated: bool = False  # a backward reaches it
    freed: bool = False  # a backward that does not retain the graph reaches it
    wanted: bool = False  # torch.autograd.grad or a gradient read reaches it
    here: frozenset[str] = frozenset()  # those of these marks that the function itself sets, whoever calls it
    proved: bool = False  # a backward succeeds on it, so it carries a graph
    escapes: bool = False  # handed to code that nobody here can see
    reduced: bool = False  # something without a graph is read from it: a number, an index, an array
    detached: bool = False  # a detached copy of it is taken
    data: bool = False  # iterated as a loader is: what comes out of it is no result of weights
    key: Any = None  # under which its reading knows it: other readings of the function have its twins under the same
    copies: tuple[Node, ...] = ()  # what stands for it in callers

    @property
    def forwards(self) -> bool:
        return self.origin is Origin.FORWARD


@dataclass(slots=True, eq=False, repr=False)
class Obj:
    """A mutable object: a container, an instance, a module. Attributes and globals have one each for the project."""

    kind: str
    site: ast.AST | None = None
    loops: tuple[ast.AST, ...] = ()
    name: str = ""  # how a message names it: "losses", "self.history"
    owner: Any = None  # the class or module whose attribute or global it is
    parameter: int = -1  # index of the parameter it arrived as
    home: Any = None  # the definition whose parameter it is
    parent: Obj | None = None  # the object that this one is a part of
    type: str = ""
    elem: Value | None = None
    items: dict[Any, Value] = field(default_factory=dict)
    bounded: bool = False
    frozen: bool = False
    evaluates: bool = False  # .eval() was called on it
    trains: bool = False  # .train() was called, or an optimizer owns its parameters
    clears: tuple[Any, ...] = ()
    node: Node | None = None
    model: Value | None = None  # optimizers: whose parameters

    @property
    def whole(self) -> Obj:
        """The object that this is a part of, however deep; itself where it is none."""
        obj = self
        while obj.parent is not None:
            obj = obj.parent
        return obj

    @property
    def shared(self) -> bool:
        """Whether the object outlives the call that reads it: an attribute, a global, a default argument."""
        return self.owner is not None


@dataclass(slots=True, eq=False, repr=False)
class Value:
    """What is known of one value. ``deps`` are the graph nodes that its graph, if it has one, hangs on."""

    kind: str = "unknown"
    deps: frozenset[Node] = frozenset()
    type: str = ""  # qualified name of the class or function
    objs: tuple[Obj, ...] = ()
    items: tuple[Value, ...] | None = None  # of a tuple
    const: Any = UNSET
    leaf: bool = False  # a parameter itself, not something computed from it
    device: str = ""  # "host", "device", "model" (wherever the model is) or "" (cannot be told)
    view: bool = False  # shares the storage of a larger tensor
    scalar: bool = False  # zero-dimensional
    part: bool = False  # one of several things that an unknown call returns: it need not be a tensor
    target: Any = None  # function, class or bound method of the project
    receiver: Value | None = None
    path: str = ""  # dotted path by which the function reached it
    site: ast.AST | None = None

    @property
    def obj(self) -> Obj | None:
        return self.objs[0] if self.objs else None

    def but(self, **changes: Any) -> Value:
        """A copy with some fields changed."""
        new = Value(
            self.kind, self.deps, self.type, self.objs, self.items, self.const, self.leaf, self.device,
            self.view, self.scalar, self.part, self.target, self.receiver, self.path, self.site,
        )  # fmt: skip
        for name, value in changes.items():
            setattr(new, name, value)
        return new


NOTHING = Value("none", const=None)
UNKNOWN = Value()


@dataclass(slots=True, eq=False, repr=False)
class Event:
    """Something a function does that a rule may ask about.

    ``verb``: forward, call, backward, store, sum, clear, zero_grad, step, build, eval, train, freeze, hook, return,
    set, read, load, restore, bind. ``site`` is where this function does it; ``inner`` is the callee's event if a callee
    does it.
    """

    verb: str
    site: ast.AST
    stmt: ast.AST
    value: Value = UNKNOWN
    target: Obj | None = None
    receiver: Value = UNKNOWN
    loops: tuple[ast.AST, ...] = ()
    guards: tuple[tuple[str, bool], ...] = ()
    grad: Grad = Grad.ON
    name: str = ""
    args: tuple[Value, ...] = ()
    keywords: dict[str, Value] = field(default_factory=dict)
    node: Node | None = None
    inner: Event | None = None
    callee: Any = None
    order: int = 0
    old: Value | None = None
    home: Any = None  # the definition in whose reading it was noted
    expr: ast.AST | None = None  # the expression whose value is stored, summed or differentiated

    @property
    def root(self) -> Event:
        """The event where it really happens."""
        event = self
        while event.inner is not None:
            event = event.inner
        return event
