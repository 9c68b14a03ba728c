"""What the findings in a file rest on: files that were looked into on the way, and what all files have in common.

Noted while rules run, by question: coarser than what an editor's `memlint.workspace` knows, and next to free. What
files have in common, such as who mentions a name, is not looked into any further: it is as before for as long as each
file that changed contributes to it what it contributed before.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from memlint.extract import Class, Definition, Module
from memlint.keeping import has_wide
from memlint.knowledge import targets
from memlint.likely import assigned, hooked
from memlint.stems import defaults_of
from memlint.trace import Trace

if TYPE_CHECKING:
    from memlint.project import Project


class Ground(NamedTuple):
    """What the findings in a file rest on: paths of ``files``, and what they have in ``common``, each a kind of
    `SHARED` and what it is about."""

    files: tuple[str, ...]
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
        files: set[str] = {path}
        common: set[tuple[str, str]] = set()
        for what in self.everything(path):
            kind, *about = what if isinstance(what, tuple) else ("", what)
            if kind in SHARED:
                common.add((kind, "\0".join(map(_named, about))))
                continue
            for each in about:
                if isinstance(each, (Definition, Class, Module)):
                    files.add((each if isinstance(each, Module) else each.module).source.path)
        return Ground(tuple(files), tuple(common))


def _is_common(what: Hashable) -> bool:
    return isinstance(what, tuple) and what[0] in SHARED


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


def _names(project: Project, module: Module) -> Contributes:
    def bound(about: str) -> object:
        path, _, name = about.partition("\0")
        if path != module.source.path:
            return None
        value = module.variables.get(name)
        made = value and ast.dump(value), name in module.rebound
        return name in module.functions, name in module.classes, module.imports.get(name), made, module.stars

    return bound


def _classes(project: Project, module: Module) -> Contributes:
    return {cls.full_name for cls in module.every_class()}.__contains__


def _methods(project: Project, module: Module) -> Contributes:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for cls in module.every_class():
        for method in cls.methods.values():
            found[method.name].append(method.qualname)
    return lambda name: found.get(name, [])


def _bases(project: Project, module: Module) -> Contributes:
    mros = [(cls.qualname, list(map(_named, project.names.mro(cls)))) for cls in module.every_class()]
    return lambda _: mros


def _family_uses(project: Project, module: Module) -> Contributes:
    found: defaultdict[str, list[object]] = defaultdict(list)
    for cls in module.every_class():
        for method in (d for d in cls.methods.values() if d.bound):
            own = found[project.names.family(cls).full_name]
            me = f"{method.positional[0]}."
            own += [(name, use) for name, use in project.uses(method).items() if name.startswith(me)]
    return lambda family: found.get(family, [])


def _mentions(project: Project, module: Module) -> Contributes:
    return lambda name: [d.qualname for d in module.mentioning(name)] if name in module.words else []


def _spells(project: Project, module: Module) -> Contributes:
    def spelt(about: str) -> object:
        path, _, pattern = about.partition("\0")
        return path == module.source.path and module.spells(re.compile(pattern))

    return spelt


def _says(project: Project, module: Module) -> Contributes:
    def said(about: str) -> object:
        name, _, pattern = about.partition("\0")
        found = module.mentioning(name) if name in module.words else []
        return [d.qualname for d in found if d.says(re.compile(pattern))]

    return said


SHARED: dict[str, Callable[[Project, Module], Contributes]] = {
    "name": _names,
    "mentioning": _mentions,
    "saying": _says,
    "spells": _spells,
    "methods_named": _methods,
    "named": _classes,
    "derived": _bases,
    "family_uses": _family_uses,
    "imports": lambda project, module: lambda _: sorted(targets(module)),
    "holds": lambda project, module: module.words.__contains__,
    "hook": lambda project, module: hooked(module.source.text).__contains__,
    "layer": lambda project, module: assigned(module.source.text).__contains__,
    "option": lambda project, module: lambda name: defaults_of(name).findall(module.source.text),
    "sought": lambda project, module: module.source.text.__contains__,
    "wide": lambda project, module: lambda _: has_wide(project, module),
}
"""What files have in common, by kind: what one file contributes to it, given what it is about."""
