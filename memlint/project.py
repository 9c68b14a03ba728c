"""The files of one run, read on demand: summaries upward from callees, contexts downward from callers.

Nothing is computed before somebody asks: a function is read when a rule has a reason to look at it, when a function
that is read calls it, or when it may call one whose context is in question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memlint.extract import Class, Definition
from memlint.facts import NOTHING, Node, Value
from memlint.flow import Flow
from memlint.likely import TRAINS, Likely
from memlint.reading import Reading
from memlint.source import Source
from memlint.trace import active, note, question

if TYPE_CHECKING:
    from memlint.function import Function

VARIANTS = 12  # readings of one function with different arguments
DEPTH = 5  # calls followed below the function that is asked about
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


class Project(Likely):
    """What is known of the files of one run.

    ``target_of`` gives the torch that a file is meant for; ``loader`` finds files outside ``sources`` when one of them
    is imported; ``neighbours`` are the paths of other files that may call into these.
    """

    def forget_functions(self) -> None:
        """Forget what `Function` objects have worked out."""
        self._functions = {}

    def functions(self, source: Source) -> Iterator[Function]:
        """Every function of a file, its top level last, as rules see them."""
        module = self.names.modules.get(source.path)
        if module is not None and self.relevant(module):
            yield from map(self.function, module.definitions)

    def function(self, definition: Definition) -> Function:
        """A function as rules see it."""
        from memlint.function import Function

        note(definition)
        found = self._functions.get(definition)
        if found is None:
            found = self._functions[definition] = Function(self, definition)
        return found

    @question(1)
    def interesting(self, definition: Definition) -> bool:
        """Whether most rules can have anything to ask: without loops, stores or training there is no answer."""
        known = self._interesting.get(definition)
        if known is None:
            known = self._interesting[definition] = self._has_to_do_with_training(definition)
        return known

    def _has_to_do_with_training(self, definition: Definition) -> bool:
        if definition.is_top:  # what its functions hold is theirs, unless it calls them
            own = definition.own_text
            return definition.calls_own or any(each.search(own) for each in (STORE, TRAINS, LOOP))
        if definition.cls is None or not self.is_module(definition.cls):
            if definition.cls is not None and self.class_kind(definition.cls) == "function":
                return True  # torch.autograd.Function: its context may be called anything
            if self.says(definition, ("for", "while")) and definition.says(LOOP):
                return True
        return definition.says(STORE) or self.trains(definition) or self.chooses(definition)

    @question(1)
    def flow(self, definition: Definition) -> Flow | None:
        """The function read with only what the use of its arguments says of them. None while it is being read."""
        found = self._flows.get((definition, ()))
        if found is not None:
            return found
        outer = definition.outer
        if outer is not None and definition not in self.closures:
            self.flow(outer)
        return self._read(definition, (), {}, 0)

    def summary(self, target: Definition, bound: dict[str, Value], depth: int) -> Flow | None:
        """The function read with what these arguments are: their kinds, types and constants, but not their graphs."""
        note(target)
        if depth > DEPTH:
            return None
        key = self._signature(target, bound)
        plain = self._plain.get(target)
        if plain is None:
            plain = self._plain[target] = self._signature(target, {})
        if key == plain or (len(self._variants[target]) >= VARIANTS and key not in self._variants[target]):
            return self._read(target, (), {}, depth)
        self._variants[target].add(key)
        return self._read(target, key, bound, depth)

    @question(1)
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

    @question(2)
    def _read(self, definition: Definition, key: tuple[Any, ...], bound: dict[str, Value], depth: int) -> Flow | None:
        place = (definition, key)
        if place in self._flows:
            return self._flows[place]
        if place in self._running or sum(1 for d, _ in self._running if d is definition) > 1:
            return None
        top = definition.module.top
        note(("calls_own", definition.module))
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

    def forward_shape(self, cls: Class, args: list[Value], keywords: dict[str, Value], flow: Reading) -> Value | None:
        """What a module's ``forward`` returns, by its own code."""
        method = self.names.method(cls, "forward")
        if method is None:
            return None
        summary = self.flow(method) if flow.depth < DEPTH else None
        if summary is None or not summary.complete:
            return None
        return summary.returns if summary.returns is not NOTHING else None
