"""Which functions may have to do with training, by the names in their text alone: cheap, and never too few.

A function *differentiates* where its text says so. What calls it, as far as names tell, may get back what it has
differentiated; what it calls may hand it what it will differentiate. Everything else is neither.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property

from memlint.extract import Definition, Module, words
from memlint.names import Names

DIFFERENTIATES = re.compile(
    r"\.backward\b|\b(?:manual_)?backward\(|\bgrad\(|update_params|(?:Native|Apex)Scaler|\bhessian\b|\bjac(?:obian|fwd|rev)\b|\b[jvh][vh]p\b|grad_and_value|training_step"
)
GUARDING = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
HOOKS = re.compile(r"register\w*hook\w*\(([^\n]{0,200}\n?[^\n]{0,200})")
WORDS = frozenset(
    """backward manual_backward grad update_params NativeScaler ApexScaler hessian jacobian jacfwd jacrev jvp vjp hvp
    vhp grad_and_value training_step""".split()
)
SWITCHES = re.compile(r"\.(?:eval|freeze)\(|\.train\((?!\)|[\w.\[\]-]*training\))|create_supervised")
SHARED = re.compile(r"\w\.\w+\.(?:eval|freeze)\(|\w\.\w+\.train\((?!\)|[\w.\[\]-]*training\))")
FEW = 3  # functions of one name: of more, the name alone does not tell which one is called
ROUNDS = 4  # callers of callers


def differentiates(definition: Definition) -> bool:
    """Whether a function says in its own text that it differentiates."""
    return not WORDS.isdisjoint(definition.words) and DIFFERENTIATES.search(definition.code) is not None


class Reach:
    """What the names in the functions of a project lead to."""

    def __init__(self, names: Names, known: Callable[[str], bool]) -> None:
        self._names = names
        self._known = known
        self._switching: dict[Module, tuple[bool, bool]] = {}

    def trains(self, definition: Definition) -> bool:
        """Whether the function may differentiate, call what does, or be called by what does."""
        return definition in self._around or (
            definition.name != "forward"  # what a call of a module does inside is not followed
            and definition.name in self._words
            and (definition.module in self._homes or self._telling(definition.name))
        )

    def hooks(self, definition: Definition) -> bool:
        """Whether its name stands where a hook is registered."""
        return definition.name != "forward" and definition.name in self._registered

    @cached_property
    def _registered(self) -> frozenset[str]:
        return words(
            " ".join(
                found
                for m in self._names.modules.values()
                if "hook" in m.source.text
                for found in HOOKS.findall(m.source.text)
            )
        )

    def switching(self, module: Module) -> tuple[bool, bool]:
        """Whether a file switches models to evaluation, and whether any that are attributes of others' objects."""
        found = self._switching.get(module)
        if found is None:
            text = module.source.text
            switches = SWITCHES.search(text) is not None
            found = self._switching[module] = switches, switches and SHARED.search(text) is not None
        return found

    def guarded(self, definition: Definition) -> bool:
        """Whether a function that sets the gradient mode says its name."""
        return definition.name in self._under_guards

    @cached_property
    def _under_guards(self) -> frozenset[str]:
        found = (
            d.words
            for m in self._names.modules.values()
            if not GUARDING.isdisjoint(m.words)
            for d in m.definitions
            if not GUARDING.isdisjoint(d.words)
        )
        return frozenset().union(*found)

    @cached_property
    def _sources(self) -> list[Definition]:
        """The functions that differentiate by their own text."""
        return [
            d
            for m in self._names.modules.values()
            if not WORDS.isdisjoint(m.words)
            for d in m.definitions
            if differentiates(d)
        ]

    @cached_property
    def _count(self) -> Counter[str]:
        return Counter(d.name for m in self._names.modules.values() for d in m.definitions)

    def _telling(self, name: str) -> bool:
        return self._count[name] <= FEW and not name.startswith(("__", "<")) and not self._known(name)

    @cached_property
    def _homes(self) -> frozenset[Module]:
        return frozenset(d.module for d in self._sources)

    @cached_property
    def _words(self) -> frozenset[str]:
        """The words of the functions that differentiate."""
        return frozenset().union(*(d.words for d in self._sources if d is not d.module.top))

    @cached_property
    def _around(self) -> set[Definition]:
        """The functions that differentiate, and those that call them."""
        found = new = set(self._sources)
        near: dict[Module, set[str]] = defaultdict(set)  # in one file, any name but the commonest tells
        seen: set[str] = set()
        for _ in range(ROUNDS):
            for definition in new:
                if definition.name != "forward" and not definition.name.startswith(("__", "<")):
                    near[definition.module].add(definition.name)
            names = {d.name for d in new if self._telling(d.name)} - seen
            seen |= names
            new = set()
            for module in self._names.modules.values():
                asked = names | near[module] if module in near else names
                if not asked.isdisjoint(module.words):
                    new.update(d for d in module.definitions if d not in found and not asked.isdisjoint(d.words))
            found |= new
        return found
