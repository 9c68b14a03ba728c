"""A file that is made of its outline says what the parsed one says, and is parsed when somebody reads it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memlint.extract import Class, Definition, Module
from memlint.names import Names
from memlint.outline import outline, outlined
from memlint.source import Source

ROOT = Path(__file__).parents[1]
TWICE = """
import torch
from os import path as where, sep
from . import near
from .beside import *

try:
    class Net(torch.nn.Module):
        size: int = 3
        rate = 0.1

        def forward(self, x, *rest, scale=1, **more):
            return x
except ImportError:
    class Net(object):
        @property
        def forward(self):
            import json
            class Inner(Net):
                def go(self):
                    return lambda x: x
            return Inner

        @forward.setter
        def forward(self, value):
            pass

class Outer:
    class Within(Net, metaclass=type):
        pass

near = near.make()
model = Net()
count = 0
"""


def kept(module: Module) -> Module:
    """The file made anew of its outline, as that comes back from the disk."""
    data = json.loads(json.dumps(outline(module)))
    found = outlined(module.source, module.name, module.package, data)
    assert found is not None
    return found


def told(found: Definition | Class) -> str:
    return f"{type(found).__name__} {found.qualname} {found.outer and found.outer.qualname}"


def says(module: Module) -> Iterator[object]:
    """All that is known of a file before anybody reads a function."""
    yield from (module.name, module.package, module.imports, module.stars, module.rebound, list(module.variables))
    yield from ({name: told(d) for name, d in module.functions.items()}, module.label)
    yield {name: told(c) for name, c in module.classes.items()}
    for d in module.definitions:
        yield told(d), d.name, d.full_name, d.line, d.last_line, d.first_line, d.parameters, d.imports, d.is_top, d.said
        yield d.cls and told(d.cls), {name: told(f) for name, f in d.functions.items()}, d.text
        yield {name: told(c) for name, c in d.classes.items()}, None if d.is_top else d.code
    for c in module.every_class():
        yield told(c), c.name, c.full_name, {name: told(m) for name, m in c.methods.items()}, list(c.variables)
        yield list(c.stated), list(map(ast.dump, c.bases))
    assert module.top is module.definitions[-1]


def reads(module: Module) -> Iterator[str]:
    """What only the syntax tree says."""
    yield from (ast.dump(value) for value in module.variables.values())
    for d in module.definitions:
        yield ast.dump(d.node)
        if d.cls is not None:
            yield ast.dump(d.cls.node)
    for c in module.every_class():
        yield from (ast.dump(each) for each in (c.node, *c.variables.values(), *c.stated.values(), *c.bases))


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "memlint").glob("*.py")), None], ids=lambda path: getattr(path, "stem", "twice")
)
def test_it_says_what_the_parsed_file_says(path: Path | None) -> None:
    source = Source("pack/one.py", TWICE) if path is None else Source.read(str(path))
    module = Module(source, "pack.one", False)
    found = kept(module)
    assert list(says(found)) == list(says(module))
    assert not found.loaded, "nobody has read it"
    assert list(reads(found)) == list(reads(module))
    assert found.loaded
    assert list(says(found)) == list(says(module))


def test_a_class_in_the_first_function_is_in_it() -> None:
    found = kept(Module(Source("one.py", "def f():\n    class A:\n        pass\n"), "one", False))
    (f, _), (inner,) = found.definitions, found.every_class()
    assert inner.outer is f and f.classes == {"A": inner}


@pytest.mark.parametrize("ask", ["variables", "node", "class", "lost class", "class variable", "stated"])
def test_whoever_reads_it_has_it_parsed(ask: str) -> None:
    found = kept(Module(Source("pack/one.py", TWICE), "pack.one", False))
    assert "count" in found.variables and "absent" not in found.variables and found.variables.get("absent") is None
    assert found.variables.keys() == {"near", "model", "count"} and len(found.variables) == 3
    assert not found.loaded
    lost = next(d.cls for d in found.definitions if d.name == "forward")
    assert lost is not None and lost is not found.classes["Net"]
    if ask == "variables":
        assert ast.unparse(found.variables["count"]) == "0"
    elif ask == "node":
        assert found.functions == {} and isinstance(found.definitions[0].node, ast.FunctionDef)
    elif ask == "class":
        assert found.classes["Net"].node.lineno == 15
    elif ask == "lost class":
        assert lost.node.lineno == 8
    elif ask == "class variable":
        assert ast.unparse(lost.variables["rate"]) == "0.1"
    else:
        assert ast.unparse(lost.stated["size"]) == "int"
    assert found.loaded


def test_another_file_or_name_or_damage_is_none() -> None:
    source = Source("one.py", "def f():\n    pass\n")
    data = outline(Module(source, "one", False))
    assert outlined(source, "one", False, data) is not None
    assert outlined(source, "one", False, None) is None
    assert outlined(source, "two", False, data) is None, "its relative imports are others"
    assert outlined(source, "one", True, data) is None
    assert outlined(Source("one.py", "def g():\n    pass\n"), "one", False, data) is None
    lost: list[Any] = [[], {}, 3, [data[0]], [*data[:3], [["f"]], data[4]]]
    for damaged in (*lost, [*data[:4], [["C", "C", {}, [], [], -1, ["("]]]]):
        assert outlined(source, "one", False, damaged) is None


def test_names_take_an_outline_for_the_file() -> None:
    source = Source("one.py", "import torch\n\n\ndef f():\n    pass\n")
    data = outline(Module(source, "one", False))
    names = Names([source], outlines={"one.py": data})
    assert not names.modules["one.py"].loaded
    assert Names([Source("one.py", "x = 1\n")], outlines={"one.py": data}).modules["one.py"].loaded
