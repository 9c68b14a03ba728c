"""Who calls what: the functions that mention a name, those of them that call it, and who else touches a place."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from memlint.extract import Class, Definition, Module
from memlint.facts import Answer, Event, Grad, Obj, Value
from memlint.flow import Flow
from memlint.knowledge import targets
from memlint.library import Row
from memlint.places import Places
from memlint.reading import Reading
from memlint.trace import fact, note, question, unseen

CROWD = 60  # functions that mention a name: beyond that it is too common to tell who calls what


@lru_cache
def _on_others(me: str, name: str) -> re.Pattern[str]:
    """A call of a method of that name, on anything that need not be ``me``."""
    return re.compile(rf"(?:(?<!\b{me})|(?<=\.{me}))\.{name}\s*\(")


class Callers(Places):
    """Questions that look for functions all over the project."""

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
    def saying(self, name: str, pattern: str) -> list[Definition]:
        """Those `mentioning` a name whose text matches a pattern."""
        return [d for d in self.mentioning(name) if d.says(re.compile(pattern))]

    @fact
    def callers_of(self, words: tuple[str, ...]) -> frozenset[str]:
        """These words, and the names of the functions that call something of such a name."""
        return frozenset(words).union(
            d.name for word in words for d in self.saying(word, rf"{re.escape(word)}\(") if d.name != "<module>"
        )

    def _holding(self, name: str) -> list[Module]:
        """The files that hold an identifier."""
        for module in self.names.beyond(self._indexed):
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
        return list(self.of_unknown(definition)) if self.sole(definition.name) else []

    def of_unknown(self, definition: Definition) -> Iterator[tuple[Flow, Event]]:
        """Calls of a method of that name on objects of unknown class."""
        name = definition.name
        if definition.cls is None or name.startswith("__") or self.library.duck(name) is not None:
            return
        for candidate in self.saying(name, rf"\.{re.escape(name)}\("):
            if candidate is definition or not self._calls_unknown(candidate, name):
                continue
            flow = self.flow(candidate)
            for event in flow.events if flow is not None else ():
                if event.verb == "call" and event.callee is None and isinstance(event.site, ast.Call):
                    func = event.site.func
                    if isinstance(func, ast.Attribute) and func.attr == name:
                        yield flow, event  # type: ignore[misc]

    def _calls_unknown(self, definition: Definition, name: str) -> bool:
        """Whether a function calls a method of that name on something else than its own object: what syntax says."""
        own = definition.cls if definition.cls and self.names.method(definition.cls, name) is not None else None
        me = definition.positional[:1] if own is not None else ()
        if me and not definition.says(_on_others(me[0], name)):
            return False
        for node in definition.nodes:
            func = node.func if isinstance(node, ast.Call) else None
            if isinstance(func, ast.Attribute) and func.attr == name:
                if not (isinstance(func.value, ast.Name) and func.value.id in me):
                    return True
        return False

    def sole(self, name: str) -> bool:
        """Whether only one class of the project has a method of that name."""
        return len(self.methods_named(name)) == 1

    @fact
    def methods_named(self, name: str) -> list[Definition]:
        """The methods of that name of all classes of the project."""
        if self._namesakes is None:
            self._namesakes = defaultdict(list)
            with unseen():
                for module in self.names.modules.values():
                    for cls in self.names.classes(module):
                        for method in cls.methods.values():
                            self._namesakes[method.name].append(method)
        return self._namesakes[name]

    def _read_neighbours(self, name: str) -> None:
        """Take in the files outside the run that hold a name: one of them may call what is checked."""
        if self._read_file is None:
            return
        note(("sought", name))
        if name in self._sought:
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
            direct: set[Module] = set()
            for target in set(targets(module)):
                for name in (target, target.rpartition(".")[0]):
                    other = self.names.module(name, module) if name else None
                    if other is not None:
                        direct.add(other)
        for other in list(direct):
            if other.package:
                direct |= self.imported(other)
        return frozenset(direct)

    def importers(self, home: Module) -> list[Module]:
        """The files that import a file."""
        note(("imports", ""))
        with unseen():
            return [module for module in list(self.names.modules.values()) if home in self.imported(module)]

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

    def hooked(self, definition: Definition, receiver: Value, how: str, flow: Reading) -> None:
        self.hooks[definition].append((flow, receiver, how))

    @question(1)
    def is_hook(self, definition: Definition) -> bool:
        """Whether the function is registered as a hook anywhere in the project."""
        if len(definition.parameters) < 2 or isinstance(definition.node, ast.Module):
            return False
        if ("hook", definition) not in self._settled:
            self._settled.add(("hook", definition))
            hook = rf"register\w*hook\w*\([^\n]*\b{re.escape(definition.name)}\b"
            for candidate in self.saying(definition.name, hook):
                if candidate is not definition:
                    self.flow(candidate)
        return definition in self.hooks

    def called_by(self, definition: Definition, row: Row, grad: Grad) -> None:
        self.handed_on[definition].append((row, grad))

    def taken(self, definition: Definition) -> None:
        self.addressed.add(definition)

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
        for definition in self.saying(obj.name.removeprefix("self."), "requires_grad|freeze"):
            if obj.owner is not definition.module and not self._touches(definition, obj):
                continue
            flow = self.flow(definition)
            for event in flow.events if flow is not None else ():
                if event.verb == "freeze" and obj in event.receiver.objs:
                    obj.frozen = True
