"""Source → `Module`: the functions, classes and imports of one file. Knows Python, nothing of torch.

One pass over statements, none over expressions: bodies are read later, and only where a rule has a reason to look.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from sys import intern
from typing import Any, Generic, TypeVar

from memlint.source import Source
from memlint.trace import note

_WORD = re.compile(r"[^\W\d]\w*")
# Read from the end of the text, where a parenthesis comes before the name of any length that is called.
_CALLED = re.compile(r"(\)?)\([ \t]*([\w.\])]+)(?![\w.\])]|[ \t]+(?:fed|ssalc)\b)")
_COMMENT = re.compile(r"(?:^|[ \t])#[^\n'\"]{0,400}$", re.M)
_APART = bytes(c if chr(c).isalnum() or chr(c) == "_" else 32 for c in range(128)) + bytes(128)

_FIELDS: dict[type, tuple[str, ...]] = {}
_CHILDREN: dict[type, Callable[[Any], list[ast.AST]]] = {  # of what syntax trees consist of most
    ast.Name: lambda node: [],
    ast.Constant: lambda node: [],
    ast.Attribute: lambda node: [node.value],
    ast.Call: lambda node: [node.func, *node.args, *node.keywords],
    ast.keyword: lambda node: [node.value],
    ast.Expr: lambda node: [node.value],
    ast.Assign: lambda node: [*node.targets, node.value],
    ast.BinOp: lambda node: [node.left, node.right],
    ast.BoolOp: lambda node: node.values[:],
    ast.UnaryOp: lambda node: [node.operand],
    ast.Compare: lambda node: [node.left, *node.comparators],
    ast.Subscript: lambda node: [node.value, node.slice],
    ast.Tuple: lambda node: node.elts[:],
    ast.List: lambda node: node.elts[:],
    ast.If: lambda node: [node.test, *node.body, *node.orelse],
}
_PLAIN = frozenset(
    "ctx op ops id attr arg kind type_comment asname level module rest simple is_async conversion".split()
)
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal})
_AGAIN = ("_extents", "_starts", "_outward", "_functions", "_stretches", "spelling")  # made of a text when asked for
SCOPES = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


Made = TypeVar("Made")


class looked_into(Generic[Made]):
    """`cached_property` for what tells of a function's text: whoever asks has looked at the function, and is noted."""

    def __init__(self, make: Callable[[Definition], Made]) -> None:
        self._make, self._name, self.__doc__ = make, make.__name__, make.__doc__

    def __get__(self, definition: Definition, _: object = None) -> Made:
        note(definition)
        kept = vars(definition)
        if self._name in kept:
            found: Made = kept[self._name]
            return found
        found = kept[self._name] = self._make(definition)
        return found

    def __set__(self, definition: Definition, value: Made) -> None:
        vars(definition)[self._name] = value


@dataclass(slots=True, eq=False, repr=False)
class Class:
    """A class of the project: its methods, its bases as written, its class-level assignments."""

    name: str
    qualname: str
    node: ast.ClassDef
    module: Module
    methods: dict[str, Definition] = field(default_factory=dict)
    variables: dict[str, ast.expr] = field(default_factory=dict)
    stated: dict[str, ast.expr] = field(default_factory=dict)  # annotations of class-level names
    outer: Definition | None = None
    bases: list[ast.expr] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.module.label}.{self.qualname}"

    def __getattr__(self, name: str) -> Any:
        if name != "node":
            raise AttributeError(name)
        self.module.load()
        return self.node


@dataclass(eq=False, repr=False)
class Definition:
    """A function, method, lambda or the top level of a file, before anything is known of what it does."""

    name: str
    qualname: str
    node: FunctionNode
    module: Module
    cls: Class | None = None
    outer: Definition | None = None
    functions: dict[str, Definition] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        node = self.node
        self.line: int = getattr(node, "lineno", 1)
        self.last_line: int = getattr(node, "end_lineno", None) or self.line
        decorators = getattr(node, "decorator_list", ())
        self.first_line: int = min((d.lineno for d in decorators), default=self.line)  # its text begins there
        said = _docstring(node)  # which lines it has, 0 where there is none
        self.said = (said.lineno, said.end_lineno or said.lineno) if said is not None else (0, 0)

    def __getattr__(self, name: str) -> Any:
        if name != "node":
            raise AttributeError(name)
        self.module.load()
        return self.__dict__["node"]

    @property
    def full_name(self) -> str:
        return f"{self.module.label}.{self.qualname}"

    @property
    def is_top(self) -> bool:
        """Whether it is the top level of a file."""
        return not self.qualname

    @looked_into
    def text(self) -> str:
        """The function's own source text, nested functions included."""
        if self.is_top:
            return self.module.source.text
        return "".join(self.module.source.lines[self.first_line - 1 : self.last_line])

    def says(self, word: str | re.Pattern[str]) -> bool:
        """Whether its text holds a word, or a place that a pattern matches."""
        note(self)
        if self.is_top:
            return self.module.source.says(word)
        return word in self.text if isinstance(word, str) else word.search(self.text) is not None

    @looked_into
    def own_text(self) -> str:
        """Its text; of a file's top level, what stands outside functions and classes."""
        if not self.is_top:
            return self.text
        lines, found, at = self.module.source.lines, [], 0
        for stmt in self.body:
            if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found += lines[at : stmt.lineno - 1]
                at = stmt.end_lineno or at
        return "".join(found + lines[at:])

    @looked_into
    def nodes(self) -> list[ast.AST]:
        """Every node that belongs to it and not to a function or class inside it, as `own_nodes` gives them."""
        return own_nodes(self.node)

    @looked_into
    def nodes_by_type(self) -> dict[type[ast.AST], list[ast.AST]]:
        """`nodes` of each type, in their order."""
        found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.nodes:
            found[type(node)].append(node)
        return dict(found)

    @cached_property
    def calls_own(self) -> bool:
        """Whether it calls functions or classes of its file by their names: as a top level, that of a script."""
        own = self.module.functions.keys() | self.module.classes.keys()
        return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in own for n in self.nodes)

    @looked_into
    def words(self) -> frozenset[str]:
        """The identifiers in its text, those in comments and strings included."""
        return words(self.own_text)

    @looked_into
    def code(self) -> str:
        """`own_text` without its docstring and comments."""
        text, (first, last) = self.own_text, self.said
        if first:
            text = text.replace("".join(self.module.source.lines[first - 1 : last]), "", 1)
        return _COMMENT.sub("", text) if "#" in text else text

    @looked_into
    def called(self) -> dict[str, bool]:
        """What stands before a parenthesis in its code, and whether it ever gets an argument there.

        Dotted names, ``.name`` after another expression, ``)`` and ``]``. Strings are text as well, so there may be too
        many, and never too few.
        """
        found: dict[str, bool] = {}
        for bare, backwards in set(_CALLED.findall(self.code[::-1])):
            name = backwards[::-1]
            if name[-1] in ")]":
                name = name[-1]
            elif ")" in name or "]" in name or not name.rpartition(".")[0]:
                name = name[name.rindex(".") :] if "." in name else name
            found[name] = not bare or found.get(name, False)
        return found

    def calls(self, names: frozenset[str]) -> bool:
        """Whether it calls anything by one of these names, whatever stands before it."""
        return any(name.rpartition(".")[2] in names for name in self.called)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters: positional, ``*args``, keyword-only, ``**kwargs``."""
        if isinstance(self.node, ast.Module):
            return ()
        a = self.node.args
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        names += [a.vararg.arg] if a.vararg else []
        names += [p.arg for p in a.kwonlyargs]
        names += [a.kwarg.arg] if a.kwarg else []
        return tuple(names)

    @cached_property
    def positional(self) -> tuple[str, ...]:
        if isinstance(self.node, ast.Module):
            return ()
        a = self.node.args
        return tuple(p.arg for p in (*a.posonlyargs, *a.args))

    @cached_property
    def defaults(self) -> dict[str, ast.expr]:
        """Default expressions by parameter."""
        if isinstance(self.node, ast.Module):
            return {}
        a = self.node.args
        positional = [*a.posonlyargs, *a.args]
        found = {p.arg: d for p, d in zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True)}
        found.update({p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None})
        return found

    @cached_property
    def annotations(self) -> dict[str, ast.expr]:
        if isinstance(self.node, (ast.Module, ast.Lambda)):
            return {}
        a = self.node.args
        return {p.arg: p.annotation for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.annotation is not None}

    @looked_into
    def tested(self) -> frozenset[str]:
        """Names that conditions of the function read: what an argument is matters most where it decides a branch."""
        found: set[str] = set()
        for node in walk(self.node):
            if isinstance(node, (ast.If, ast.IfExp, ast.While)):
                found.update(n.id for n in walk(node.test) if isinstance(n, ast.Name))
        return frozenset(found)

    @property
    def decorators(self) -> Sequence[ast.expr]:
        note(self)
        return getattr(self.node, "decorator_list", ())

    @cached_property
    def static(self) -> bool:
        return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.decorators)

    @cached_property
    def bound(self) -> bool:
        """Whether a call through an instance fills the first parameter."""
        return self.cls is not None and not self.static and bool(self.positional)

    @property
    def body(self) -> list[ast.stmt]:
        note(self)
        if isinstance(self.node, ast.Lambda):
            return [ast.copy_location(ast.Return(self.node.body), self.node.body)]
        return self.node.body

    @looked_into
    def generator(self) -> bool:
        if isinstance(self.node, ast.Module) or "yield" not in self.text:
            return False
        return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in self.nodes)


def _docstring(node: ast.AST) -> ast.Expr | None:
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None


def words(text: str) -> frozenset[str]:
    """The identifiers in a text; numbers are among them where that is quicker."""
    if text.isascii():
        found = text.encode().translate(_APART).decode().split()
    else:
        found = _WORD.findall(text)
    return frozenset(map(intern, set(found)))


def children(node: ast.AST) -> list[ast.AST]:
    """`ast.iter_child_nodes` without operators and contexts, which have no place of their own; it is much faster."""
    kind = type(node)
    known = _CHILDREN.get(kind)
    if known is not None:
        return known(node)
    found: list[ast.AST] = []
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(name for name in kind._fields if name not in _PLAIN)
    for name in names:
        value = getattr(node, name, None)
        if type(value) is list:
            found += [n for n in value if isinstance(n, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, in the order of `ast.walk`, without operators and contexts."""
    found = [node]
    for each in found:  # grows as it goes
        if type(each) not in _LEAVES:
            found += children(each)
    return found


def own_nodes(node: ast.AST) -> list[ast.AST]:
    """Every node below a function that belongs to it and not to a function or class inside it."""
    found: list[ast.AST] = []
    stack = children(node)
    while stack:
        child = stack.pop()
        found.append(child)
        kind = type(child)
        if kind not in _LEAVES and kind not in SCOPES:
            stack += children(child)
    return found


class Module:
    """One file: what it imports and defines.

    ``name`` is its dotted name from the top of its package; ``label`` is that, or another where a second file has it.
    """

    definition: type[Definition] = Definition
    cls: type[Class] = Class

    def __init__(self, source: Source, name: str, package: bool) -> None:
        self.name = self.label = name
        self.package = package
        self._kept: dict[tuple[str, str], list[Any]] = {}
        self.on_load: Callable[[Module], None] | None = None  # told when the file is parsed again
        self.loaded = True
        self.variables: dict[str, ast.expr] = {}
        self._fill(source)

    def drop(self) -> None:
        """Let go of the syntax tree, and of what can be made of the text again. Whoever asks for a function's node next
        has the file parsed once more: by then nothing may hold a piece of the old tree that is to be compared."""
        for definition in self.definitions:
            definition.parameters, definition.bound  # noqa: B018  asked of functions that nobody reads
            for name in ("node", "nodes", "nodes_by_type", "defaults", "annotations", "text", "own_text", "code"):
                definition.__dict__.pop(name, None)
        for cls in self.every_class():
            if self.loaded:
                del cls.node
        for name in _AGAIN:
            self.__dict__.pop(name, None)
        self._said.clear()
        self.source.forget()
        self.loaded = False

    def load(self) -> None:
        """Parse the file again after `drop`."""
        fresh = Module(self.source, self.name, self.package)
        self.loaded = True
        classes = dict(zip(self.every_class(), fresh.every_class(), strict=True))
        for mine, other in zip(self.definitions, fresh.definitions, strict=True):
            mine.node = other.node
            if mine.cls is not None and other.cls is not None:
                classes[mine.cls] = other.cls  # another class of its name came later, and is the one that counts
        for ours, its in classes.items():
            ours.node, ours.variables, ours.stated, ours.bases = its.node, its.variables, its.stated, its.bases
        self.variables = fresh.variables
        for held in (*fresh.definitions, fresh):
            vars(held).clear()  # they hold each other, and would hold the tree when `drop` lets go of it
        if self.on_load is not None:
            self.on_load(self)

    def replace(self, source: Source) -> None:
        """Take another text of the file. A function or class that is still there is the same object as before.

        Raises `SourceError` where the text cannot be parsed, and is as it was before.
        """
        source.tree  # noqa: B018
        for definition in self.definitions:
            self._kept.setdefault(("function", definition.qualname), []).append(definition)
        for cls in self.every_class():
            self._kept.setdefault(("class", cls.qualname), []).append(cls)
        for name in ("words", *_AGAIN):
            self.__dict__.pop(name, None)
        self._fill(source)
        self._kept.clear()

    @property
    def docstring(self) -> str:
        """What the file says of itself, "" where it says nothing."""
        tree = self.top.node
        return (ast.get_docstring(tree) or "") if isinstance(tree, ast.Module) else ""

    def every_class(self) -> Iterator[Class]:
        """The classes of the file, those in functions included."""
        yield from self.classes.values()
        for definition in self.definitions:
            yield from definition.classes.values()

    def _made(self, kind: type[Any], what: str, *parts: Any, **more: Any) -> Any:
        """A function or class: the object that it was before, if there was one."""
        kept = self._kept.get((what, parts[1]))
        if not kept:
            return kind(*parts, **more)
        found = kept.pop(0)
        if what == "function":
            found.__dict__.clear()
        found.__init__(*parts, **more)
        return found

    def _fill(self, source: Source) -> None:
        self.source = source
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self.functions: dict[str, Definition] = {}
        self.classes: dict[str, Class] = {}
        self.variables = {}
        self.rebound: set[str] = set()  # imports, classes and functions whose name then means what they made
        self.definitions: list[Definition] = []
        self._spelled: dict[re.Pattern[str], bool] = {}
        self._said: dict[str | tuple[str, ...], set[Definition]] = {}
        tree = source.tree
        self.top: Definition = self._made(self.definition, "function", "<module>", "", tree, self)
        self._read(tree.body, None, None, "")
        self.definitions.append(self.top)

    @cached_property
    def words(self) -> frozenset[str]:
        """The identifiers of the file, those in comments and strings included."""
        return words(self.source.text)

    @cached_property
    def spelling(self) -> str:
        """Its identifiers in one text, much shorter than the file's own."""
        return "\n".join(self.words)

    def holds(self, *words: str) -> bool:
        """Whether one of these is an identifier of the file."""
        return not self.words.isdisjoint(words)

    def saying_any(self, words: tuple[str, ...]) -> set[Definition]:
        """The functions whose text holds one of these words."""
        found = self._said.get(words)
        if found is None:
            found = self._said[words] = set().union(*map(self.saying, words))
        return found

    def saying(self, word: str) -> set[Definition]:
        """The functions whose text, as `Definition.text` has it, holds a word; the top level where the file does."""
        found = self._said.get(word)
        if found is None:
            found = self._said[word] = set()
            text = self.source.text
            starts, ends, outward, plain = self._stretches
            at = text.find(word)
            if at >= 0:
                found.add(self.top)
            while at >= 0:
                following = bisect_right(starts, at)
                number = following - 1
                while number >= 0 and ends[number] <= at:
                    number = outward[number]
                if number >= 0 and plain[number]:
                    beyond = ends[number]  # nothing more to learn of it
                elif number < 0:
                    beyond = starts[following] if following < len(starts) else len(text)
                else:
                    beyond = at + 1
                while number >= 0:
                    found.add(self._functions[number])
                    number = outward[number]
                at = text.find(word, beyond)
        return found

    @cached_property
    def _functions(self) -> list[Definition]:
        """The functions by where their texts begin."""
        return sorted((d for d, _, _ in self._extents), key=lambda d: (d.first_line, -d.last_line))

    @cached_property
    def _stretches(self) -> tuple[list[int], list[int], list[int], list[bool]]:
        """Of each function's text the begin and the end, the number of the function around it, and whether it holds no
        other function."""
        lines = self._starts
        starts = [lines[d.first_line - 1] for d in self._functions]
        ends = [lines[d.last_line] for d in self._functions]
        outward: list[int] = []
        plain = [True] * len(starts)
        open_: list[int] = []
        for number, start in enumerate(starts):
            while open_ and ends[open_[-1]] <= start:
                open_.pop()
            outward.append(open_[-1] if open_ else -1)
            if open_:
                plain[open_[-1]] = False
            open_.append(number)
        return starts, ends, outward, plain

    def spells(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern matches in one of the identifiers of the file."""
        known = self._spelled.get(pattern)
        if known is None:
            known = self._spelled[pattern] = any(map(pattern.search, self.words))
        return known

    def mentioning(self, name: str) -> list[Definition]:
        """The functions of the file whose own lines hold a name; the top level where none does."""
        found: dict[Definition, None] = {}
        for at in self._places_of(name):
            found.update(dict.fromkeys(self.around(at) or (self.top,)))
        return list(found)

    def _places_of(self, name: str) -> Iterator[int]:
        """Where an identifier stands in the text."""
        text, size = self.source.text, len(name)
        at = text.find(name)
        while at >= 0:
            before, after = text[at - 1 : at], text[at + size : at + size + 1]
            if not (before.isalnum() or before == "_" or after.isalnum() or after == "_"):
                yield at
            at = text.find(name, at + size)

    def around(self, at: int) -> list[Definition]:
        """The functions that a place in the text lies in, outermost first."""
        line = bisect_right(self._starts, at)
        firsts, extents, outward = self._outward
        number = bisect_right(firsts, line) - 1
        found = []
        while number >= 0:
            definition, _, last = extents[number]
            if line <= last:
                found.append(definition)
            number = outward[number]
        return found[::-1]

    @cached_property
    def _outward(self) -> tuple[list[int], list[tuple[Definition, int, int]], list[int]]:
        """The functions by where they begin: their first lines, they themselves, and the number of the one around."""
        extents = sorted(self._extents, key=lambda extent: extent[1])
        outward: list[int] = []
        open_: list[int] = []
        for number, (_, first, _) in enumerate(extents):
            while open_ and extents[open_[-1]][2] < first:
                open_.pop()
            outward.append(open_[-1] if open_ else -1)
            open_.append(number)
        return [first for _, first, _ in extents], extents, outward

    @cached_property
    def _extents(self) -> list[tuple[Definition, int, int]]:
        """The functions with their first and last line."""
        return [(d, d.line, d.last_line) for d in self.definitions if not d.is_top]

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins, a line as Python has it, and the end of the text."""
        text = self.source.text
        if "\r" in text:
            return self.source.starts
        return [0, *(m.end() for m in re.finditer("\n", text)), len(text)]

    def _read(self, body: list[ast.stmt], cls: Class | None, outer: Definition | None, prefix: str) -> None:
        for stmt in body:
            kind = type(stmt)
            if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
                self._function(stmt, cls, outer, prefix)  # type: ignore[arg-type]
            elif kind is ast.ClassDef:
                self._class(stmt, cls, outer, prefix)  # type: ignore[arg-type]
            elif kind is ast.Import:
                for alias in stmt.names:  # type: ignore[attr-defined]
                    self._bind(
                        alias.asname or alias.name.split(".")[0],
                        alias.name if alias.asname else alias.name.split(".")[0],
                        outer,
                    )
            elif kind is ast.ImportFrom:
                self._import_from(stmt, outer)  # type: ignore[arg-type]
            elif kind is ast.Assign:
                for target in stmt.targets:  # type: ignore[attr-defined]
                    if type(target) is ast.Name:
                        if cls is not None:
                            cls.variables[target.id] = stmt.value  # type: ignore[attr-defined]
                        elif outer is None:
                            self.variables[target.id] = stmt.value  # type: ignore[attr-defined]
                            if target.id in self.imports or target.id in self.classes or target.id in self.functions:
                                self._rebind(target.id, stmt.value)  # type: ignore[attr-defined]
            elif kind is ast.AnnAssign:
                if type(stmt.target) is ast.Name:  # type: ignore[attr-defined]
                    if cls is not None:
                        cls.stated[stmt.target.id] = stmt.annotation  # type: ignore[attr-defined]
                        if stmt.value is not None:  # type: ignore[attr-defined]
                            cls.variables[stmt.target.id] = stmt.value  # type: ignore[attr-defined]
                    elif outer is None and stmt.value is not None:  # type: ignore[attr-defined]
                        self.variables[stmt.target.id] = stmt.value  # type: ignore[attr-defined]
            elif kind is ast.Expr or kind is ast.Return:
                continue
            else:
                for name in ("body", "orelse", "finalbody"):
                    inner = getattr(stmt, name, None)
                    if inner:
                        self._read(inner, cls, outer, prefix)
                for handler in getattr(stmt, "handlers", ()):
                    self._read(handler.body, cls, outer, prefix)
                for case in getattr(stmt, "cases", ()):
                    self._read(case.body, cls, outer, prefix)

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, cls: Class | None, outer: Definition | None, prefix: str
    ) -> None:
        found = self._made(self.definition, "function", node.name, prefix + node.name, node, self, cls, outer)
        self.definitions.append(found)
        if cls is not None:
            if node.name not in cls.methods or not _is_accessor(node):
                cls.methods[node.name] = found
        elif outer is not None:
            outer.functions[node.name] = found
        else:
            self.functions[node.name] = found
        self._read(node.body, None, found, f"{prefix}{node.name}.<locals>.")

    def _class(self, node: ast.ClassDef, cls: Class | None, outer: Definition | None, prefix: str) -> None:
        found = self._made(self.cls, "class", node.name, prefix + node.name, node, self, outer=outer, bases=node.bases)
        if outer is not None and cls is None:
            outer.classes[node.name] = found
        elif cls is None:
            self.classes[node.name] = found
        else:
            self.classes.setdefault(found.qualname, found)
        self._read(node.body, found, outer, f"{prefix}{node.name}.")

    def _bind(self, name: str, target: str, outer: Definition | None) -> None:
        (self.imports if outer is None else outer.imports)[name] = target

    def _rebind(self, name: str, made: ast.expr) -> None:
        """Note that a name now means what the thing of that name made: ``model = model.Model().cuda()``."""
        while isinstance(made, (ast.Call, ast.Attribute)):
            made = made.func if isinstance(made, ast.Call) else made.value
        if isinstance(made, ast.Name) and made.id == name:
            self.rebound.add(name)

    def _import_from(self, node: ast.ImportFrom, outer: Definition | None) -> None:
        base = node.module or ""
        if node.level:
            parts = self.name.split(".")
            keep = len(parts) - node.level + (1 if self.package else 0)
            base = ".".join([*parts[: max(keep, 0)], *([node.module] if node.module else [])])
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(base)
            else:
                self._bind(alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name, outer)


def _is_accessor(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """``@x.setter`` and ``@x.deleter`` redefine a name whose getter is what reads go through; so do overloads."""
    return any(isinstance(d, ast.Attribute) and d.attr in ("setter", "deleter") for d in node.decorator_list)
