"""What the findings in a file rest on: functions and classes that were looked at on the way, and what files have in
common.

Noted while rules run, by question: not as fine as what an editor's `memlint.workspace` knows, and next to free. What
files have in common, such as who mentions a name, is not looked into any further: it is as before for as long as each
file that changed contributes to it what it contributed before.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from memlint.extract import Class, Definition, Module
from memlint.keeping import has_wide
from memlint.knowledge import targets
from memlint.likely import assigned, hooked
from memlint.places import rebinds
from memlint.stems import defaults_of
from memlint.trace import Trace

if TYPE_CHECKING:
    from memlint.project import Project


class Ground(NamedTuple):
    """What the findings in a file rest on: `parts` of files, and what files have in ``common``, each a kind of `SHARED`
    and what it is about."""

    parts: tuple[str, ...]
    common: tuple[tuple[str, str], ...]


class Grounds(Trace):
    """Who asked for what, to be followed from a file down to all that its findings rest on."""

    fine = False

    def __init__(self) -> None:
        super().__init__()
        self._asked: defaultdict[Hashable, set[Hashable]] = defaultdict(set)

    def note(self, what: Hashable) -> None:
        if self.asking and self.asking[-1] is not None:
            self._asked[self.asking[-1]].add(what)

    def everything(self, path: str) -> Iterator[Hashable]:
        """All that the question `root` of a file led to; what files have in common is not followed any further."""
        seen: set[Hashable] = {root(path)}
        queue: list[Hashable] = [root(path)]
        while queue:
            for what in self._asked.get(queue.pop(), ()):
                if what not in seen:
                    seen.add(what)
                    yield what
                    if not _is_common(what):
                        queue.append(what)

    def of(self, path: str) -> Ground:
        """What the findings in a file rest on."""
        found: set[str] = {path}
        common: set[tuple[str, str]] = set()
        for what in self.everything(path):
            kind, *about = what if isinstance(what, tuple) else ("", what)
            if kind in SHARED:
                common.add((kind, "\0".join(map(_named, about))))
            else:
                found.update(part_of(each) for each in about if isinstance(each, (Definition, Class, Module)))
        return Ground(tuple(found), tuple(common))


def _is_common(what: Hashable) -> bool:
    return isinstance(what, tuple) and what[0] in SHARED and what[0] != "imported"  # which is asked of packages in turn


def part_of(what: Definition | Class | Module) -> str:
    """The part of a file that a function or class is or lies in; of a file, all of it."""
    if isinstance(what, Module):
        return what.source.path
    outer = what if isinstance(what, Definition) else what.outer
    while outer is not None and outer.outer is not None:
        outer = outer.outer
    return f"{what.module.source.path}\0{(outer or what).qualname}"


def parts(module: Module) -> dict[str, str]:
    """The texts of the parts of a file: its functions, those of classes too, with what is inside them; what classes
    hold beside; what is left."""
    found: defaultdict[str, str] = defaultdict(str)
    lines = module.source.lines
    inside = [""] * len(lines)  # the part that each line is of
    for cls in module.every_class():
        if cls.outer is None:
            part = part_of(cls)
            found[part] += repr(list(cls.methods))
            end = cls.node.end_lineno or cls.node.lineno
            inside[cls.node.lineno - 1 : end] = [part] * (end - cls.node.lineno + 1)
    for definition in module.definitions:
        if definition.outer is None and not definition.is_top:
            size = definition.last_line - definition.first_line + 1
            inside[definition.first_line - 1 : definition.last_line] = [part_of(definition)] * size
    for part, line in zip(inside, lines, strict=True):
        found[part or part_of(module.top)] += line
    return dict(found)


def root(path: str) -> Hashable:
    """The question what is found in a file."""
    return "root", path


def _named(about: Hashable) -> str:
    if isinstance(about, tuple):
        return "\0".join(about)
    if isinstance(about, Module):
        return about.source.path
    return about.full_name if isinstance(about, Class) else str(about)


Contributes = Callable[[str], object]


def _in_it(says: Callable[[Module, str], object]) -> Callable[[Project, Module], Contributes]:
    """Of what begins with the path of a file: what that file says of the rest, and nobody else anything."""

    def of(project: Project, module: Module) -> Contributes:
        def contributes(about: str) -> object:
            path, _, rest = about.partition("\0")
            return says(module, rest) if path == module.source.path else None

        return contributes

    return of


def _bound(module: Module, name: str) -> object:
    value = module.variables.get(name)
    made = value and ast.dump(value), name in module.rebound
    return name in module.functions, name in module.classes, module.imports.get(name), made, module.stars


def _classes(project: Project, module: Module) -> Contributes:
    return {cls.full_name for cls in module.every_class()}.__contains__


def _methods(project: Project, module: Module) -> Contributes:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for cls in module.every_class():
        for method in cls.methods.values():
            found[method.name].append(method.qualname)
    return lambda name: found.get(name, [])


def _written(project: Project, module: Module) -> Contributes:
    found = {
        cls.full_name: {attr: [d.qualname for d in writers] for attr, writers in project.written(cls).items()}
        for cls in module.every_class()
    }
    return found.get


def _bases(project: Project, module: Module) -> Contributes:
    mros = [(c.qualname, list(map(_named, project.names.mro(c))), list(c.methods)) for c in module.every_class()]
    return lambda _: mros


def _prolific(project: Project, module: Module) -> Contributes:
    above = (c for cls in module.every_class() for c in project.names.mro(cls)[1:] if isinstance(c, Class))
    return Counter(c.full_name for c in above).__getitem__


def _family_use(project: Project, module: Module) -> Contributes:
    found: defaultdict[str, list[object]] = defaultdict(list)
    for cls in module.every_class():
        above = [c.full_name for c in project.names.mro(cls) if isinstance(c, Class)]
        for method in (d for d in cls.methods.values() if d.bound):
            me = f"{method.positional[0]}."
            for name, use in project.uses(method).items():
                for family in above if name.startswith(me) else ():
                    found[f"{family}\0{name.removeprefix(me)}"].append(use)
    return lambda about: found.get(about, [])


def _mentions(project: Project, module: Module) -> Contributes:
    return lambda name: [d.qualname for d in module.mentioning(name)] if name in module.words else []


def _says(project: Project, module: Module) -> Contributes:
    def said(about: str) -> object:
        name, _, pattern = about.partition("\0")
        found = module.mentioning(name) if name in module.words else []
        return [d.qualname for d in found if d.says(re.compile(pattern))]

    return said


SHARED: dict[str, Callable[[Project, Module], Contributes]] = {
    "name": _in_it(_bound),
    "mentioning": _mentions,
    "saying": _says,
    "spells": _in_it(lambda module, pattern: module.spells(re.compile(pattern))),
    "methods_named": _methods,
    "named": _classes,
    "derived": _bases,
    "written": _written,
    "calls_own": _in_it(lambda module, _: module.top.calls_own),
    "prolific": _prolific,
    "family_use": _family_use,
    "imports": lambda project, module: lambda _: sorted(targets(module)),
    "imported": _in_it(lambda module, _: sorted(targets(module))),
    "rebinds": _in_it(rebinds),
    "holds": lambda project, module: module.words.__contains__,
    "hook": lambda project, module: hooked(module.source.text).__contains__,
    "layer": lambda project, module: assigned(module.source.text).__contains__,
    "option": lambda project, module: lambda name: defaults_of(name).findall(module.source.text),
    "sought": lambda project, module: module.source.text.__contains__,
    "wide": lambda project, module: lambda _: has_wide(project, module),
}
"""What files have in common, by kind: what one file contributes to it, given what it is about."""
