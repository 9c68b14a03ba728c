"""What a file imports and defines, as plain data: enough for a `Module` that is parsed only when somebody reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, cast

from memlint.extract import Class, Definition, Module
from memlint.source import Source

Outline = list[Any]
"""Digest of the file's bytes, its name, whether it is a package's; then what `outline` makes of it."""


class _Unread(Mapping[str, ast.expr]):
    """The expressions that are bound to names, of a file that is not parsed: asking for one has it parsed."""

    def __init__(self, owner: Module | Class, attribute: str, names: list[str]) -> None:
        self._owner, self._attribute, self._names = owner, attribute, dict.fromkeys(names)

    def __getitem__(self, name: str) -> ast.expr:
        if name not in self._names:
            raise KeyError(name)
        (self._owner if isinstance(self._owner, Module) else self._owner.module).load()
        return cast(ast.expr, getattr(self._owner, self._attribute)[name])

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def outline(module: Module) -> Outline:
    """The outline of a file, of numbers, texts, lists and dicts."""
    numbers = {definition: number for number, definition in enumerate(module.definitions)}
    classes = list(dict.fromkeys((*module.every_class(), *(d.cls for d in module.definitions if d.cls is not None))))
    places = {cls: place for place, cls in enumerate(classes)}

    def functions(found: Mapping[str, Definition]) -> dict[str, int]:
        return {name: numbers[definition] for name, definition in found.items()}

    def within(found: Mapping[str, Class]) -> dict[str, int]:
        return {name: places[cls] for name, cls in found.items()}

    def of_function(d: Definition) -> list[Any]:
        around = -1 if d.cls is None else places[d.cls], -1 if d.outer is None else numbers[d.outer]
        place = d.line, d.last_line, d.first_line, d.said
        return [d.name, d.qualname, *place, d.parameters, *around, functions(d.functions), within(d.classes), d.imports]

    def of_class(c: Class) -> list[Any]:
        outer = -1 if c.outer is None else numbers[c.outer]
        values = list(c.variables), list(c.stated)
        return [c.name, c.qualname, functions(c.methods), *values, outer, list(map(ast.unparse, c.bases))]

    return [
        [module.source.digest, module.name, module.package],
        [module.imports, module.stars, sorted(module.rebound), list(module.variables)],
        [functions(module.functions), within(module.classes)],
        list(map(of_function, module.definitions)),
        list(map(of_class, classes)),
    ]


def outlined(source: Source, name: str, package: bool, kept: Outline | None) -> Module | None:
    """The file of that `outline`, unparsed; None where it is another's."""
    try:
        if kept is None or kept[0] != [source.digest, name, package]:
            return None
        return _outlined(source, name, package, kept)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, SyntaxError):
        return None  # damaged


def _outlined(source: Source, name: str, package: bool, kept: Outline) -> Module:
    found = Module.__new__(Module)
    found.name = found.label = name
    found.package, found.source, found.loaded = package, source, False
    found._kept, found._spelled, found._said, found.on_load = {}, {}, {}, None
    _, (found.imports, found.stars, rebound, variables), (functions, classes), definitions, every = kept
    found.rebound = set(rebound)
    found.variables = _unread(found, "variables", variables)
    found.definitions = [Definition.__new__(Definition) for _ in definitions]
    made = [Class.__new__(Class) for _ in every]
    for definition, (title, qualname, line, last, first, said, parameters, *around) in zip(
        found.definitions, definitions, strict=True
    ):
        definition.name, definition.qualname, definition.module = title, qualname, found
        definition.line, definition.last_line, definition.first_line, definition.said = line, last, first, tuple(said)
        vars(definition)["parameters"] = tuple(parameters)
        cls, outer, inner, within, definition.imports = around
        definition.cls = None if cls < 0 else made[cls]
        definition.outer = None if outer < 0 else found.definitions[outer]
        definition.functions = {title: found.definitions[number] for title, number in inner.items()}
        definition.classes = {title: made[place] for title, place in within.items()}
    for each, (title, qualname, methods, values, stated, outer, bases) in zip(made, every, strict=True):
        each.name, each.qualname, each.module = title, qualname, found
        each.methods = {title: found.definitions[number] for title, number in methods.items()}
        each.variables, each.stated = _unread(each, "variables", values), _unread(each, "stated", stated)
        each.outer = None if outer < 0 else found.definitions[outer]
        each.bases = [ast.parse(base, mode="eval").body for base in bases]
    found.functions = {title: found.definitions[number] for title, number in functions.items()}
    found.classes = {title: made[place] for title, place in classes.items()}
    found.top = found.definitions[-1]
    return found


def _unread(owner: Module | Class, attribute: str, names: list[str]) -> dict[str, ast.expr]:
    return cast("dict[str, ast.expr]", _Unread(owner, attribute, names))
