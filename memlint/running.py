"""Which functions may run a model, or differentiate: what names alone say, before any function is read.

Reading a function takes longer than parsing it, and few functions have anything to do with running a model. Wrong in
one direction only, as far as possible: a function that is passed over has no forward and no backward. Names decide
here, as nowhere else, because nothing is claimed: who is let in is read, and only then asked.
"""

from __future__ import annotations

import builtins
import io
import keyword
import logging
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlint.extract import Definition, Module, last_part
from memlint.roles import MODULE, SWITCHES

if TYPE_CHECKING:
    from memlint.project import Project

EVIDENCE = frozenset(
    """eval train backward zero_grad load_state_dict from_pretrained parameters optim no_grad inference_mode
    set_grad_enabled item argmax""".split()
)
"""Words one of which stands in every file that trains or evaluates a model."""

# Patterns begin with a character that is written out, which the search then finds at the speed of a copy. That is why
# some look at the text from its end, where a parenthesis comes before what is called.
_CALL = re.compile(r"(?<!\))\(([\w.\])]+)(?![\w.\])]|[ \t]+(?:fed|ssalc)\b)")  # what is called with arguments
_SET = re.compile(r"=[-+*/|&^%@:]?[ \t]*(\w+)(?!\w|[ \t]*:)")  # names that get a value
_SEVERAL = re.compile(r"=[ \t]*((?:[\w.]+[ \t]*,[ \t]*)+[\w.]+)")  # … several at once
_MADE = re.compile(r"\(([\w.]+)[ \t]*=[ \t]*(?:[\w.\[\], |]*:[ \t]*)?(\w+)")  # … by a call
_OF_MODULES = re.compile(rf"\((?:{'|'.join(name[::-1] for name in (*MODULE, *SWITCHES, 'zero_grad'))})\.[\])]*(\w+)")
_FOR = re.compile(r"for (\w[\w, ()*]*) in\b")
_AS = re.compile(r" as (\w+):")
_ATTRIBUTE = re.compile(r"\.(\w+)[ \t]*(?=(?:,[^=\n()]*)?(?::[^=\n]*)?=(?!=))")  # attributes that get a value

_CALLBACK = re.compile(
    r"(?:^|_)(?:fn|func|op|hooks?|cb|callback|cls|factory|function|handler|visitor|method|key|type|wrapper|decorator)$"
)
_MAKER = re.compile(r"model|net|module|build|create|make|load|compile|prepare|wrap|get_|from_|copy")
_WORD = re.compile(r"\w+")
_HOOK = re.compile(r"register\w*hook\w*(\([^\n]*)")
_BUILTIN = frozenset(dir(builtins)) | frozenset(keyword.kwlist)
_PYTHONS = frozenset(
    name
    for kind in (str, bytes, int, list, tuple, dict, set, re.Pattern, re.Match, io.TextIOWrapper, logging.Logger,
                 pathlib.Path)
    for name in dir(kind)
)  # fmt: skip
"""Methods of Python's own types: on anything but ``self``, a call of one runs no model."""


class Running:
    """The functions of a project that may run a model, themselves or by a function that they call."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._files = 0
        self._found: set[Definition] = set()

    def may(self, definition: Definition) -> bool:
        """Whether a function may run a model or differentiate: False settles it."""
        files = self._project.names.modules
        if len(files) != self._files:  # one more has been read, whose functions may be called
            self._files = len(files)
            self._found = self._search([m for m in list(files.values()) if self._project.relevant(m)])
        return definition in self._found

    def _search(self, files: list[Module]) -> set[Definition]:
        texts = [_Text(module) for module in files]
        modules = _module_classes(files, self._project.library.modules())
        models: set[str] = set()  # names under which there are models somewhere
        attributes: set[str] = set()
        for text in texts:
            models |= text.models(modules)
            attributes.update(_ATTRIBUTE.findall(text.module.source.text))
        calls: dict[tuple[str, bool], list[tuple[_Text, str]]] = defaultdict(list)  # by the last part of the name
        found: set[Definition] = set()
        hooks: set[str] = set()
        for text in texts:
            suspects: set[str] = set()
            for name, last, suspect in self._names(text, models, attributes):
                if suspect:
                    suspects.add(name)
                if last:
                    calls[last, last == name].append((text, name))
            if suspects:
                found.update(text.places(suspects))
            found |= text.module.saying(".backward(")
            hooks.update(_WORD.findall("".join(_HOOK.findall(text.module.source.text))))
        found.update(d for text in texts for d in text.module.definitions if not hooks.isdisjoint(_named(d)))
        wanted: dict[_Text, set[str]] = defaultdict(set)
        for definition in found:
            for text, name in calls.get(_called(definition), ()):
                if definition.outer is None or definition.module is text.module:
                    wanted[text].add(name)
        for text, names in wanted.items():
            found.update(text.places(names))
        return {d for d in found if d.module.holds(*EVIDENCE)}

    def _names(self, text: _Text, models: set[str], attributes: set[str]) -> Iterator[tuple[str, str, bool]]:
        """What a file calls, its last part where a function of the project may be meant, and whether it may be a
        model."""
        tensors = self._project.library.methods("tensor")
        for name in text.called:
            first, last = name.partition(".")[0], name.rpartition(".")[2]
            if name in _BUILTIN or last[:1].isdigit():
                continue
            if name[-1] in ")]":
                yield name, "", True
            elif last in ("backward", "grad"):
                yield name, last, True
            elif name == last:
                bound = last in text.bound or (
                    last in text.parameters and (last in models or _CALLBACK.search(last) is None)
                )
                yield name, last, bound and not last.lstrip("_")[:1].isupper()
            elif first in text.imported:
                yield name, last, False
            else:
                own = first in ("self", "cls")
                plain = last in _PYTHONS or last in tensors
                kept = last in attributes and last in models
                yield name, "" if plain and not own else last, kept and (not plain or (own and name.count(".") == 1))


class _Text:
    """What the text of a file says, read from its end."""

    def __init__(self, module: Module) -> None:
        self.module = module
        text = module.source.text
        backwards = text[::-1]
        self.called = {name[::-1] for name in set(_CALL.findall(backwards))}
        self.parameters: set[str] = set()
        self.imported = set(module.imports)
        for d in module.definitions:
            self.parameters.update(d.parameters)
            self.imported.update(d.imports)
        self.bound = {name[::-1] for name in set(_SET.findall(backwards))}
        for names in {name[::-1] for name in set(_SEVERAL.findall(backwards))} | set(_FOR.findall(text)):
            self.bound.update(_WORD.findall(names))
        self.bound.update(_AS.findall(text), module.variables)
        self._made = {(maker[::-1], name[::-1]) for maker, name in set(_MADE.findall(backwards))}
        self._used = {name[::-1] for name in set(_OF_MODULES.findall(backwards))}

    def models(self, classes: set[str]) -> set[str]:
        """The names under which the file has models, as far as can be told: by their use, by what made them, by
        annotations."""
        found = set(self._used)
        for maker, name in self._made:
            last = maker.rpartition(".")[2]
            if last in classes or _MAKER.search(last):
                found.add(name)
        for d in self.module.definitions:
            found.update(name for name, stated in d.stated.items() if stated in classes)
        return found

    def places(self, names: set[str]) -> Iterator[Definition]:
        """The functions of the file that call one of these names, and those around them."""
        text = self.module.source.text
        backwards = {name[::-1] for name in names}
        for match in _CALL.finditer(text[::-1]):
            if match[1] in backwards:
                yield from self.module.around(len(text) - match.end()) or (self.module.top,)


def _module_classes(files: list[Module], library: frozenset[str]) -> set[str]:
    """The names of the classes that derive from a module class, as far as names tell."""
    bases = [(c.name, set(map(last_part, c.bases))) for m in files for c in m.every_class() if c.bases]
    found, before = set(library), -1
    while len(found) > before:
        before = len(found)
        found.update(name for name, of in bases if not of.isdisjoint(found) or any(b.endswith("Module") for b in of))
    return found


def _named(definition: Definition) -> Iterator[str]:
    """The names of a function and of those around it."""
    outward: Definition | None = definition
    while outward is not None:
        yield outward.name
        outward = outward.outer


def _called(definition: Definition) -> tuple[str, bool]:
    """The name by which others call a function, and whether without a dot."""
    if definition.cls is None:
        return definition.name, True
    return (definition.cls.name, True) if definition.name == "__init__" else (definition.name, False)
