"""Names over files: which definition or library name an expression means, which classes a class derives from."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import isfile
from posixpath import basename, dirname
from typing import Any

from memlint.extract import Class, Definition, Module
from memlint.outline import Outline, outlined
from memlint.source import Source, SourceError
from memlint.trace import fact, note, unseen

ROOM = 6_000_000  # characters of source whose trees are kept
OF_TREE = 40  # bytes that a syntax tree takes for each character of its source
Loader = Callable[[str, str], "Source | None"]
Meaning = "Definition | Class | Module | str | ast.expr | None"


class Names:
    """The files of one run. Files outside it are read only when one inside imports them."""

    def __init__(
        self,
        sources: Sequence[Source],
        loader: Loader | None = None,
        module: type[Module] = Module,
        outlines: Mapping[str, Outline] | None = None,
    ) -> None:
        """``outlines`` are those of files, by path, that need not be parsed before somebody reads them."""
        self._loader = loader
        self._outlines = outlines or {}
        self._module_type = module
        self.facts: dict[Any, Any] = {}
        self._missing: set[tuple[str, str]] = set()
        self.modules: dict[str, Module] = {}
        self._named: dict[str, Module] = {}
        self._meant: dict[tuple[str, Module], Module | None] = {}
        self._by_suffix: dict[str, list[Module]] = defaultdict(list)
        self.subclasses: dict[Class, list[Class]] = defaultdict(list)
        self._linked = 0  # files whose classes are among them
        folders = {dirname(s.path) for s in sources if basename(s.path) == "__init__.py"}
        self._packages = folders
        self._tight = sum(len(source.text) for source in sources) > ROOM
        self.loaded = 0  # characters of the files whose trees are there
        for source in sources:
            self._add(source, folders)
        self.asked = list(self.modules.values())
        self.brought: dict[str, str] = {}  # files beyond those: by which name one of them imports it, if one does

    def beyond(self, number: int) -> list[Module]:
        """The files without the first so many: those that were taken in since."""
        return list(self.modules.values())[number:] if number < len(self.modules) else []

    def drop(self) -> None:
        """Let go of syntax trees, where there are more files than all of their trees should be kept of."""
        if self._tight:
            for module in self.modules.values():
                if module.loaded:
                    module.drop()
            self.loaded = 0

    def _count(self, module: Module) -> None:
        self.loaded += len(module.source.text)

    def add(self, source: Source) -> None:
        """Take in one more file of the project."""
        if source.path not in self.modules:
            self.brought[source.path] = ""
            folder = dirname(source.path)
            while folder and isfile(f"{folder}/__init__.py"):
                self._packages.add(folder)
                folder = dirname(folder)
            self._add(source, self._packages)

    def bring(self, source: Source, dotted: str) -> Module | None:
        """Take in one more file, which another one imports by that name; None where it cannot be parsed."""
        module = self._add(source, set())
        if module is not None:
            self._call(module, dotted)
            self.brought[source.path] = dotted
        return module

    def _add(self, source: Source, packages: set[str]) -> Module | None:
        parts = source.path.removesuffix(".py").removesuffix(".ipynb").split("/")
        package = parts[-1] == "__init__"
        if package:
            parts.pop()
        top, folder = len(parts) - 1, dirname(source.path)
        if package:
            folder = dirname(folder)
        while top > 0 and folder in packages:
            top, folder = top - 1, dirname(folder)
        name = ".".join(parts[top:])
        try:
            module = outlined(source, name, package, self._outlines.get(source.path))
            if module is None:
                module = self._module_type(source, name, package)
        except SourceError:
            return None
        if self._tight and module.loaded:
            module.drop()
        module.on_load = self._count
        if module.loaded:
            self._count(module)
        self.modules[source.path] = module
        self._call(module, module.name)
        self._meant.clear()
        clean = [p for p in parts if p not in (".", "..", "")]
        for i in range(max(0, len(clean) - 6), len(clean)):
            self._by_suffix[".".join(clean[i:])].append(module)
        return module

    def _call(self, module: Module, name: str) -> None:
        """Give a file its name. Two folders of scripts may each have a ``model.py``: their classes are not the same."""
        module.name = module.label = name
        if self._named.setdefault(name, module) is not module:
            module.label = module.source.path.removesuffix(".py").replace("/", ".")

    def module(self, dotted: str, importer: Module) -> Module | None:
        """The file that ``import dotted`` means in ``importer``, or None for a library."""
        key = (dotted, importer)
        if key not in self._meant:
            found = self._module(dotted, importer)  # may read a file, which forgets what was known before
            self._meant[key] = found
        return self._meant[key]

    def _module(self, dotted: str, importer: Module) -> Module | None:
        if not dotted:
            return None
        known = self._known(dotted, importer)
        folder = dirname(importer.source.path)
        if known is not None and dirname(known.source.path) == folder:
            return known
        # Of two files called alike, the one that the disk says: another folder's scripts import another one.
        if self._loader is not None and (dotted, folder) not in self._missing:
            source = self._loader(dotted, importer.source.path)
            if source is not None:
                if source.path in self.modules:
                    return self.modules[source.path]
                module = self.bring(source, dotted)
                if module is not None:
                    return module
            self._missing.add((dotted, folder))
        return known

    def _known(self, dotted: str, importer: Module) -> Module | None:
        """What ``import dotted`` means in ``importer``, of the files that have been read."""
        found = [m for m in self._by_suffix.get(dotted, ()) if m is not importer]
        if not found:
            return None
        here = importer.source.path.split("/")

        def nearness(m: Module) -> tuple[bool, bool, int]:
            there = m.source.path.split("/")
            common = 0
            for a, b in zip(here, there, strict=False):
                if a != b:
                    break
                common += 1
            return m.name == dotted, there[:-1] == here[:-1], common

        best = max(found, key=nearness)
        if best.name == dotted:
            return best
        script = "." not in importer.name and not importer.package  # its own folder is on the path
        beside = dirname(best.source.path) == dirname(importer.source.path)
        if dotted.split(".")[0] not in _LIBRARIES and ("." in dotted or (script and beside)):
            return best
        return None

    def regrouped(self) -> None:
        """Forget who derives from whom: a file has other classes or imports than before."""
        self.subclasses.clear()
        self._linked = 0

    # -- what a name means

    def local(self, name: str, where: Definition) -> object | None:
        """What a bare name means in ``where``, past its own variables: definition, class, module or dotted text."""
        scope: Definition | None = where
        while scope is not None:
            if name in scope.functions:
                return scope.functions[name]
            if name in scope.classes:
                return scope.classes[name]
            if name in scope.imports:
                return self.dotted(scope.imports[name], where.module)
            scope = scope.outer
        module = where.module
        if name in module.rebound and where is not module.top:
            note(("name", module, name))
            return module.variables[name]
        return self.member(module, name)

    def member(self, module: Module, name: str, depth: int = 0) -> object | None:
        """What ``module.name`` is: definition, class, module, dotted text of a library, or a top-level expression."""
        note(("name", module, name))
        if name in module.functions:
            return module.functions[name]
        if name in module.classes:
            return module.classes[name]
        if name in module.imports and depth < 8:
            return self.dotted(module.imports[name], module, depth + 1)
        if name in module.variables:
            return module.variables[name]
        if depth < 8:
            for star in module.stars:
                other = self.module(star, module)
                if other is not None and other is not module:
                    found = self.member(other, name, depth + 1)
                    if found is not None:
                        return found
                elif other is None and star.split(".")[0] in _LIBRARIES:
                    return f"{star}.{name}"
        if module.package:
            return self.module(f"{module.name}.{name}", module)
        return None

    def dotted(self, path: str, importer: Module, depth: int = 0) -> object | None:
        """What a dotted path means when ``importer`` imports it; text where it leads out of the project."""
        whole = self.module(path, importer)
        if whole is not None:
            return whole
        head, _, last = path.rpartition(".")
        if head and depth < 8:
            holder = self.module(head, importer)
            if holder is not None:
                return self.member(holder, last, depth + 1)
            if "." in head:
                outer = self.dotted(head, importer, depth + 1)
                if isinstance(outer, Class):
                    return outer.methods.get(last)
                if isinstance(outer, Module):
                    return self.member(outer, last, depth + 1)
        return path

    # -- classes

    def resolve(self, node: ast.expr, where: Definition) -> object | None:
        """What an expression of names and dots means, if it is one."""
        if isinstance(node, ast.Name):
            return self.local(node.id, where)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.resolve(node.value, where), node.attr)
        if isinstance(node, ast.Subscript):  # Generic[T]
            return self.resolve(node.value, where)
        return None

    def named(self, name: str, where: Definition) -> object | None:
        """What a dotted name means in ``where``, a method of its own class included."""
        first, *rest = name.split(".")
        if rest and where.bound and first == where.positional[0] and where.cls is not None:
            found: object | None = self.method(where.cls, rest.pop(0))
        else:
            found = self.local(first, where)
        for part in rest:
            found = self.attribute(found, part)
        return found

    def helpers(self, definition: Definition) -> Iterator[Definition]:
        """The functions of the project that a function calls by a name that tells which; constructors included."""
        for name in definition.called:
            found = self.named(name, definition)
            if name == ".__init__" and definition.cls is not None:  # of what it derives from
                for base in self.mro(definition.cls)[1:]:
                    if isinstance(base, Class) and "__init__" in base.methods:
                        yield base.methods["__init__"]
            if isinstance(found, Class):
                found = self.method(found, "__init__")
            if isinstance(found, Definition):
                yield found

    def attribute(self, owner: object | None, attr: str) -> object | None:
        if isinstance(owner, str):
            return f"{owner}.{attr}"
        if isinstance(owner, Module):
            return self.member(owner, attr)
        if isinstance(owner, Class):
            return self.method(owner, attr)
        return None

    @fact
    def mro(self, cls: Class) -> list[Class | str]:
        """The class and what it derives from, nearest first: classes of the project, dotted names of libraries."""
        found: list[Class | str] = [cls]
        self.facts["mro", cls] = found  # a class that derives from itself adds nothing
        for base in cls.bases:
            meaning = self.resolve(base, cls.outer or cls.module.top)
            if isinstance(meaning, ast.expr):
                meaning = self.resolve(meaning, cls.module.top)
            if isinstance(meaning, Class) and meaning is not cls:
                found.extend(c for c in self.mro(meaning) if c not in found)
            elif isinstance(meaning, str) and meaning not in found:
                found.append(meaning)
        return found

    def family(self, cls: Class) -> Class:
        """The topmost class of the project that ``cls`` derives from: attributes of one name are shared below it."""
        return [c for c in self.mro(cls) if isinstance(c, Class)][-1]

    def method(self, cls: Class, name: str) -> Definition | None:
        for c in self.mro(cls):
            if isinstance(c, Class) and name in c.methods:
                return c.methods[name]
        return None

    def library_bases(self, cls: Class) -> Iterator[str]:
        return (c for c in self.mro(cls) if isinstance(c, str))

    @fact
    def derived(self, cls: Class) -> list[Class]:
        """Classes of the project that derive from ``cls``, in files read so far."""
        with unseen():
            for module in self.beyond(self._linked):
                self._linked += 1
                for other in self.classes(module):
                    for base in self.mro(other)[1:]:
                        if isinstance(base, Class):
                            self.subclasses[base].append(other)
        return self.subclasses[cls]

    @staticmethod
    def classes(module: Module) -> Iterator[Class]:
        return module.every_class()


_LIBRARIES = frozenset(
    """torch torchvision torchaudio numpy scipy pandas lightning pytorch_lightning fastai transformers accelerate keras
    tensorflow""".split()
)
